"""`windtunnel capacity` on the emulator: the number that trying all numbers gives, as a sentence and as JSON."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.backends import Virtual
from windtunnel.simulator.experiments.plan import Step
from windtunnel.traces.sources import load

WORKLOAD = ("--shape", "6000x80", "--duration", "20", "--ramp", "1", "--pace", "none", "--no-text")
ENGINE = "emulator --gpu L40S --model llama-3.1-8b --max-model-len 8192 --num-gpu-blocks-override 1600"
MOST = 8


def found(folder: Path, slo: str, *, first: int = 3) -> cap.Capacity:
    config = config_of([*WORKLOAD, "--slo", slo])
    loaded = load(config.traces)
    runner = Virtual(config, loaded, lambda _: None)
    readings = cap.Readings(runner, Step(name="engine", command=ENGINE), folder, 0, lambda _: None)
    edge = asyncio.run(cap.find(readings, first=first, most=MOST, repeats=1, resolution=0.0))
    answer = cap.answer(edge, loaded.traces, slo=slo, pace="busy", emulated=readings.emulated, folder=folder)
    if not list(folder.glob("swept")):
        return answer

    async def sweep() -> int:
        met = [(await readings.measure(agents, 0)).met for agents in range(1, MOST + 1)]
        return met.index(False) if False in met else MOST

    assert answer.agents == asyncio.run(sweep())
    return answer


@pytest.mark.parametrize("slo", ["ttft_s.p90<3", "e2e_s.p90<7"])
def test_it_is_the_number_that_trying_all_numbers_gives(tmp_path, slo):
    (tmp_path / "swept").mkdir()
    answer = found(tmp_path, slo)
    assert 0 < answer.agents < MOST
    assert answer.low <= answer.agents <= answer.high
    assert answer.emulated
    assert answer.limit == "KV capacity"
    assert answer.lever
    assert f"at {answer.agents + 1} agents" in (answer.evidence or "")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")}
    assert found(tmp_path, slo, first=9).agents == answer.agents
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")} == before


def test_the_sentence():
    known = cap.Capacity(
        agents=18, low=17, high=19, limit="KV capacity", lever="--kv-cache-dtype fp8", points=[], people=55,
        slo="ttft_s.p90<3", capped=False, pace="busy", emulated=False, evidence=None, notes=(), runs="r",
    )  # fmt: skip
    assert cap.sentence(known) == (
        "18 busy agents (about 55 people at the recorded pace; 17 to 19 by seed) at ttft_s.p90<3; "
        "next limit KV capacity; try --kv-cache-dtype fp8."
    )


def test_people_are_agents_at_the_recorded_pace():
    traces = load(["library:small"]).traces
    assert cap.people(traces, 10, "recorded") is None
    busy = cap.people(traces, 10, "busy")
    assert busy is not None
    assert busy > 10
    assert (cap.people(traces, 10, "typical") or 0) < busy
    assert cap.people(load(["shape:5x5"]).traces, 10, "busy") is None


def test_the_command_prints_the_contracts_json(tmp_path):
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "capacity", *WORKLOAD[:-1], "--engine", ENGINE]
    more = [
        "--slo",
        "ttft_s.p90<3",
        "--agents",
        "3",
        "--most",
        "8",
        "--repeats",
        "1",
        "--json",
        "--out",
        tmp_path / "o",
    ]
    ran = subprocess.run([*command, *map(str, more)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    assert {"agents", "low", "high", "limit", "lever", "points"} <= data.keys()
    assert {"agents", "slo_share", "output_tokens_per_s", "kv_usage"} <= data["points"][0].keys()
    assert "OUTSIDE" in ran.stderr
    assert (tmp_path / "o" / "agents-0003-seed-0" / "summary.json").exists()
