"""The search's number against every number tried: three GPUs, two levels, each with several seeds.

`make test` tries the numbers around the answer with one seed; WINDTUNNEL_SWEEP=full all numbers up to twice the
answer with three, some minutes.
"""

import asyncio
import os
from pathlib import Path

import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.backends import Virtual
from windtunnel.simulator.experiments.plan import Step
from windtunnel.traces.sources import load

FULL = os.environ.get("WINDTUNNEL_SWEEP") == "full"
WORKLOAD = ("--shape", "6000x80", "--ramp", "1", "--warmup", "1", "--pace", "none", "--no-text")
MODEL = "--model llama-3.1-8b --max-model-len 8192"
ENGINES = {
    "L40S": f"emulator --gpu L40S {MODEL} --num-gpu-blocks-override 1600",
    "H100": f"emulator --gpu H100 {MODEL} --num-gpu-blocks-override 4000",
    "B200": f"emulator --gpu B200 {MODEL} --num-gpu-blocks-override 6000",
}
LEVELS = ("ttft_s.p90<1.5", "e2e_s.p90<4,tpot_s.p90<0.04")
MOST = 64
AROUND = 1


@pytest.mark.parametrize("slo", LEVELS)
@pytest.mark.parametrize("gpu", ENGINES)
def test_the_search_finds_the_number_that_trying_every_number_finds(tmp_path: Path, gpu: str, slo: str) -> None:
    seeds = 3 if FULL else 1
    config = config_of([*WORKLOAD, "--duration", "60" if FULL else "40", "--slo", slo])
    loaded = load(config.traces)
    step = Step(name="engine", command=ENGINES[gpu])

    # What the search has tried is not played again: virtual runs are the same for the same seed.
    every = cap.Readings(Virtual(config, loaded, lambda _: None), step, tmp_path / "runs", 0, lambda _: None)
    edge = asyncio.run(cap.find(every, first=12, most=MOST, repeats=seeds, resolution=0.0))
    assert 0 < edge.agents < MOST
    first, last = (1, 2 * edge.high + 2) if FULL else (max(1, edge.agents - AROUND), edge.agents + AROUND)

    async def sweep() -> dict[int, int]:
        """Number of agents to how many seeds met the level."""
        return {
            agents: sum([(await every.measure(agents, seed)).met for seed in range(seeds)])
            for agents in range(first, last + 1)
        }

    met = asyncio.run(sweep())
    print(f"\n{gpu} at {slo}: found {edge.agents} ({edge.low} to {edge.high}); met by {met}")
    fails = [agents for agents, count in met.items() if 2 * count <= seeds]
    assert edge.agents == fails[0] - 1
    assert edge.low == max(agents for agents, count in met.items() if count == seeds)
    assert edge.high == max(agents for agents, count in met.items() if count)
