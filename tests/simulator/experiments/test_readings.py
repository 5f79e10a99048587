"""What calls without an end make of a search: nothing is met by them, and their number is told."""

import asyncio
from pathlib import Path

import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.backends import Virtual
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.experiments.readings import judged_by
from windtunnel.simulator.experiments.search import Edge, Reading, curve
from windtunnel.traces.sources import load

ENGINE = "emulator --gpu L40S --model llama-3.1-8b --max-model-len 4000"


def test_a_window_shorter_than_the_limit_decides_nothing(tmp_path: Path) -> None:
    words = ["--shape", "1000x300", "--duration", "8", "--ramp", "0", "--warmup", "1", "--pace", "none", "--no-text"]
    config = config_of([*words, "--slo", "e2e_s.p90<30"])
    said: list[str] = []
    runner = Virtual(config, load(config.traces), lambda _: None)
    readings = cap.Readings(runner, Step(name="engine", command=ENGINE), tmp_path, 0, said.append)
    with pytest.raises(cap.NothingCountsError, match=r"whether e2e_s\.p90<30 holds is not decided"):
        asyncio.run(cap.find(readings, first=2, most=4, repeats=1, resolution=0.0))
    assert "DOES NOT COUNT: whether e2e_s.p90<30 holds is not decided" in said[0]
    assert "calls begun had no end)" in said[0]


def edge(judged: int, begun: int, unended: int) -> Edge:
    readings = tuple(
        Reading(agents=4, seed=n, met=True, calls_judged=judged, calls_begun=begun, calls_unended=unended)
        for n in (0, 1)
    )
    return Edge(agents=4, low=4, high=4, capped=False, readings=readings)


def test_by_how_few_calls_the_answer_is_stands_beside_it() -> None:
    assert judged_by(edge(100, 102, 2)) == []
    assert judged_by(edge(14, 14, 0)) == ["at 4 agents 28 calls judged in 2 runs"]
    (told,) = judged_by(edge(50, 60, 10))
    assert told == (
        "at 4 agents 100 calls judged in 2 runs, and 20 of the 120 begun in their windows had no end when the run did; "
        "give a longer --duration, or --sessions or --calls, whose calls all end"
    )
    (point,) = curve(edge(50, 60, 10).readings)
    assert (point["calls_judged"], point["calls_begun"], point["calls_unended"]) == (100, 120, 20)
