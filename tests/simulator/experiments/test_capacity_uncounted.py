"""Runs whose warm-up never ended: they say so, and the others give the answer that they allow."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.capacity_text import printed
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.experiments.search import Edge
from windtunnel.simulator.experiments.searching import NOTHING_TELLS, Beside, Question
from windtunnel.simulator.results.summary_model import SloResult, encode_summary
from windtunnel.traces.errors import EngineError

WHY = "not every agent had ended its first 2 calls within 1,500 s; give a warm-up in seconds, such as --warmup 300s"


class Engine:
    """Carries five agents; has no window where `cold(agents, seed)`; is gone in the middle from `dies` agents on."""

    def __init__(self, made, cold: Callable[[int, int], bool], *, carries: int = 5, dies: int = 1000) -> None:
        self.made, self.cold, self.carries, self.dies = made, cold, carries, dies
        self.runs = 0
        self.config = {"duration_s": 300.0, "warmup": {"calls": 2, "seconds": None}}

    async def identity(self, step: Step) -> str | None:
        return None

    async def run(self, step: Step, seed: int, out: Path, *, agents: int | None = None) -> None:
        assert agents is not None
        self.runs += 1
        cold = self.cold(agents, seed) and step.name != "warm"
        measured = self.made(
            step.name, seed, 0, 100.0, reasons=("no_steady_state",) if cold else (), config=self.config
        )
        slo = SloResult(
            conditions=(), met=not cold and agents <= self.carries, calls_inside=1, calls_judged=1, share=1.0
        )
        summary = msgspec.structs.replace(
            measured.summary, slo=slo, window_s=0.0 if cold else 300.0, duration_s=1500.0 if cold else 400.0
        )
        if agents >= self.dies:
            summary = msgspec.structs.replace(
                summary, status="failed", status_reason="engine_gone", valid=False, invalid_reasons=("engine_gone",)
            )
        out.mkdir()
        (out / "run.json").write_bytes(msgspec.json.encode({**measured.run, "config": self.config}))
        (out / "events.jsonl").write_bytes(b'{"type":"run_start","agents":1,"wall_clock":0.0,"t":0,"seq":1}\n')
        (out / "summary.json").write_bytes(encode_summary(summary))

    async def close(self) -> None:
        pass


def answered(folder: Path, engine: Engine) -> tuple[cap.Capacity, Edge, list[str]]:
    said: list[str] = []
    readings = cap.Readings(engine, Step(name="engine", command="x"), folder, 0, said.append)
    edge = asyncio.run(cap.find(readings, first=4, most=64, repeats=3, resolution=0.0))
    return cap.answer(edge, slo="ttft_s.p90<3", pace="recorded", emulated=False, folder=folder), edge, said


@pytest.mark.parametrize("seeds", [{0}, {2}, {0, 1}])
def test_the_other_seeds_give_the_answer_and_resuming_gives_the_same(tmp_path, made, seeds):
    engine = Engine(made, lambda agents, seed: agents >= 5 and seed in seeds)
    answer, edge, said = answered(tmp_path, engine)
    assert (answer.agents, answer.low, answer.high, answer.capped) == (5, 5, 5, False)
    cold = sum(bool(reading.uncounted) for reading in edge.readings)
    assert answer.not_counted == cold > 0
    assert f"5 agents, seed {min(seeds)}: DOES NOT COUNT: {WHY}" in said
    do = "does" if cold == 1 else "do"
    assert f"{cold} of {len(edge.readings)} runs {do} not count: {WHY}" in answer.notes
    assert not any("NOT VALID" in note for note in answer.notes)
    at = next(point for point in answer.points if point["agents"] == 5)
    assert (at["runs"], at["counted"], at["met"]) == (3, 3 - len(seeds), 3 - len(seeds))
    assert f"       5    {3 - len(seeds)} of {3 - len(seeds)} " in printed(answer)
    runs = engine.runs
    again, _, _ = answered(tmp_path, engine)
    assert (again, engine.runs) == (answer, runs)


def test_where_no_run_of_the_next_number_counts_it_is_at_least(tmp_path, made):
    answer, _, _ = answered(tmp_path, Engine(made, lambda agents, _: agents >= 4))
    assert (answer.agents, answer.high, answer.capped) == (3, 3, True)
    assert cap.sentence(answer) == "At least 3 agents at ttft_s.p90<3."
    assert answer.notes[-1] == "no run of 4 agents counts, so that may be carried too"


def test_an_engine_that_goes_away_was_not_seen_to_miss_the_level(tmp_path, made):
    """It may have been killed by anybody: nothing is said of the number that it was asked for."""
    answer, edge, said = answered(tmp_path, Engine(made, lambda *_: False, dies=4))
    assert (answer.agents, answer.high, answer.capped, answer.limit) == (3, 3, True, None)
    assert cap.sentence(answer) == "At least 3 agents at ttft_s.p90<3."
    gone = [reading.agents for reading in edge.readings if reading.uncounted]
    assert gone
    assert set(gone) == {4}
    assert f"{len(gone)} of {len(edge.readings)} runs do not count: the engine went away" in answer.notes
    assert "4 agents, seed 0: DOES NOT COUNT: the engine went away" in said


def test_where_none_counts_there_is_no_answer_and_it_says_why(tmp_path, made):
    with pytest.raises(cap.NothingCountsError) as error:
        answered(tmp_path, Engine(made, lambda *_: True))
    assert str(error.value) == f"{tmp_path}: none of its runs counts; with 1 agent, {WHY}"


def test_one_agent_that_was_not_measured_is_not_said_to_miss_the_level(tmp_path, made):
    with pytest.raises(cap.NothingCountsError, match="no answer; with 1 agent, not every agent had ended its first 2"):
        answered(tmp_path, Engine(made, lambda agents, _: agents == 1, carries=0))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"duration_s": None, "calls": 3}, "the work was done before the warm-up was; give a --duration, or more"),
        (
            {"duration_s": 300.0, "warmup": {"calls": None, "seconds": 2000.0}},
            "the warm-up did not end within 1,500 s; give a shorter --warmup",
        ),
    ],
)
def test_a_run_says_its_own_reason(tmp_path, made, config, says):
    engine = Engine(made, lambda *_: True)
    engine.config = config
    with pytest.raises(cap.NothingCountsError, match=says):
        answered(tmp_path, engine)


def beside(folder: Path, engine: Engine) -> Beside:
    config = config_of(["--shape", "10x2", "--slo", "ttft_s.p90<3"])
    question = Question(workload=config, most=64, repeats=3, resolution=0.0)
    return Beside(question, folder, lambda _: engine, lambda _: None, first=4)


def test_a_configuration_without_an_answer_leaves_the_others_theirs(tmp_path, made):
    steps = [Step(name=name, command=f"serve {name}", previous=0) for name in ("cold", "warm")]
    for _ in range(2):  # as it is gone on with, too
        found = asyncio.run(beside(tmp_path, Engine(made, lambda *_: True)).of(steps))
        cold, warm = found.configurations
        assert (found.agents, warm.agents, cold.agents) == (5, 5, None)
        assert (cold.failed or "").endswith(f"none of its runs counts; with 1 agent, {WHY}")
        assert json.loads((tmp_path / "answer.json").read_text())["agents"] == 5
    with pytest.raises(EngineError, match=r"none of them has an answer; cold: .*none of its runs counts"):
        asyncio.run(beside(tmp_path / "o", Engine(made, lambda *_: True)).of(steps[:1]))


def test_nothing_is_tried_against_a_limit_that_no_run_shows(tmp_path, made):
    found = asyncio.run(
        beside(tmp_path, Engine(made, lambda agents, _: agents >= 4)).trying(Step(name="a", command="x"))
    )
    assert (found.agents, found.notes[-1]) == (3, NOTHING_TELLS)
