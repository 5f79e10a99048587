"""An experiment's course with runs that a stand-in makes: order, twins, failures, a kill, the end."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from windtunnel.simulator.experiments import experiment as ex
from windtunnel.simulator.experiments import runs
from windtunnel.simulator.experiments.backends import Real
from windtunnel.simulator.experiments.claim import held
from windtunnel.simulator.experiments.experiment import Experiment, default_folder
from windtunnel.simulator.experiments.folders import group
from windtunnel.simulator.experiments.plan import Plan, Step, load
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.traces.errors import EngineError, UsageError
from windtunnel.traces.sources import Loaded

FIVE = """
name = "five"
[blocks]
width = "0.1%"
least = 3
most = 4
[[ladder]]
name = "two"
set = { "--a" = 2 }
[[ladder]]
name = "three"
set = { "--a" = 3 }
[[ladder]]
name = "four"
set = { "--a" = 4 }
[[ladder]]
name = "five"
set = { "--a" = 5 }
"""


class Killed(BaseException):
    """As if the process had ended here."""


class StandIn:
    """Makes runs at once. `--a 3` does not start where `refuses` says so; a noise of `spread` from block to block."""

    def __init__(
        self,
        made,
        *,
        dies_at: int | None = None,
        refuses: str = "",
        spread: float = 0.01,
        twin: str = "",
        disturbed: tuple[tuple[str, int], ...] = (),
    ):
        self.made, self.dies_at, self.refuses, self.spread, self.twin = made, dies_at, refuses, spread, twin
        self.disturbed = disturbed
        self.calls: list[tuple[str, int]] = []
        self.asked: list[str] = []
        self.closed = 0

    async def identity(self, step: Step) -> str | None:
        self.asked.append(step.name)
        if step.name == self.refuses:
            raise EngineError("the engine exited before it served: no memory is left for the KV cache")
        return runs.engine_identity(self._measured(step, 0).run)

    def _measured(self, step: Step, seed: int, place: int = 0):
        name = "base" if step.name == self.twin else step.name
        reasons = ("client_lag",) if (step.name, seed) in self.disturbed else ()
        speed = 1000.0 * (1 + len(step.name) * self.spread * (seed % 2))
        return self.made(name, seed, place, speed, reasons=reasons)

    async def run(self, step: Step, seed: int, out: Path) -> None:
        self.calls.append((step.name, seed))
        out.mkdir()
        measured = self._measured(step, seed, len(self.calls))
        (out / "run.json").write_bytes(msgspec.json.encode(measured.run))
        (out / "events.jsonl").touch()
        if len(self.calls) == self.dies_at:
            raise Killed
        (out / "events.jsonl").write_text('{"type":"run_start","agents":1,"wall_clock":0.0,"t":0,"seq":1}\n')
        (out / "summary.json").write_bytes(encode_summary(measured.summary))

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def plan(tmp_path) -> Plan:
    path = tmp_path / "five.toml"
    path.write_text(FIVE)
    return load(path)


def conduct(plan: Plan, folder: Path, runner: StandIn) -> ex.Ended:
    said: list[str] = []
    ended = asyncio.run(Experiment.open(plan, folder, talk=said.append).conduct(runner))
    assert runner.closed == 1
    return ended


def test_which_block_it_is_reads_well_to_the_last_one(plan, made, tmp_path):
    said: list[str] = []
    asyncio.run(Experiment.open(plan, tmp_path / "out", talk=said.append).conduct(StandIn(made)))
    assert (said[0], said[-1]) == ("block 1 of at most 4, base", "block 4 of at most 4, base")
    fixed: list[str] = []
    exact = msgspec.structs.replace(plan, least=4)
    asyncio.run(Experiment.open(exact, tmp_path / "exact", talk=fixed.append).conduct(StandIn(made)))
    assert fixed[-1] == "block 4 of 4, base"


def test_blocks_go_forth_and_back_with_a_seed_each(plan, made, tmp_path):
    runner = StandIn(made)
    ended = conduct(plan, tmp_path / "out", runner)
    names = ["base", "two", "three", "four", "five"]
    assert runner.calls == [
        *((name, 0) for name in names),
        *((name, 1) for name in reversed(names)),
        *((name, 2) for name in names),
        *((name, 3) for name in reversed(names)),
    ]
    assert ended.reason == "blocks"
    kept = msgspec.json.decode((tmp_path / "out" / "outcome.json").read_bytes())
    assert kept == msgspec.json.decode(msgspec.json.encode(ended.outcome))
    assert len(kept["steps"][2]["runs"]) == 4


def test_it_ends_when_the_first_metrics_intervals_are_narrow(plan, made, tmp_path):
    runner = StandIn(made, spread=0.0)
    assert conduct(plan, tmp_path / "out", runner).reason == "narrow"
    assert len(runner.calls) == 3 * 5


def test_blocks_with_a_disturbed_run_are_none_of_the_least(plan, made, tmp_path):
    runner = StandIn(made, spread=0.0, disturbed=(("three", 0), ("base", 2)))
    more = msgspec.structs.replace(plan, most=9)
    ended = conduct(more, tmp_path / "out", runner)
    assert ended.reason == "narrow"
    assert len(runner.calls) == 5 * 5
    # The steps that ran undisturbed beside the base have lost only the base's own block.
    assert [step.versus_base["output_tokens_per_s"].blocks for step in ended.outcome.steps[1:]] == [4, 3, 4, 4]


def test_without_a_width_it_ends_when_a_difference_that_matters_would_be_found(plan, made, tmp_path):
    by_reach = msgspec.structs.replace(plan, width=None, most=20)
    runner = StandIn(made, spread=0.01)
    ended = conduct(by_reach, tmp_path / "out", runner)
    assert ended.reason == "narrow"
    assert ended.outcome.reach is not None
    assert ended.outcome.reach <= plan.matters
    blocks = len(runner.calls) // 5
    assert 3 < blocks < 20
    short = msgspec.structs.replace(by_reach, most=blocks - 1)
    assert conduct(short, tmp_path / "short", StandIn(made, spread=0.01)).reason == "blocks"


def test_killed_in_the_third_step_and_started_again_nothing_is_done_twice(plan, made, tmp_path):
    dying = StandIn(made, dies_at=3)
    with pytest.raises(Killed):
        conduct(plan, tmp_path / "out", dying)
    after = StandIn(made)
    conduct(plan, tmp_path / "out", after)
    assert dying.calls == [("base", 0), ("two", 0), ("three", 0)]
    assert after.calls[:4] == [("three", 0), ("four", 0), ("five", 0), ("five", 1)]
    assert len(after.calls) == 4 * 5 - 2
    assert (tmp_path / "out" / "block-01" / "three.left-1" / "run.json").exists()
    again = StandIn(made)
    conduct(plan, tmp_path / "out", again)
    assert again.calls == []


def test_what_a_kill_left_before_a_run_had_begun_is_moved_aside(plan, made, tmp_path):
    with pytest.raises(Killed):
        conduct(plan, tmp_path / "out", StandIn(made, dies_at=2))
    left = tmp_path / "out" / "block-01" / "two"
    (left / "run.json").unlink()
    with pytest.raises(UsageError, match="holds a run that has not begun"):
        group([tmp_path / "out" / "block-01" / "base", left])
    after = StandIn(made)
    conduct(plan, tmp_path / "out", after)
    assert after.calls[0] == ("two", 0)
    assert (tmp_path / "out" / "block-01" / "two.left-1" / "events.jsonl").exists()
    assert (left / "summary.json").exists()


def test_a_step_that_does_not_start_is_left_out_with_its_reason(plan, made, tmp_path):
    runner = StandIn(made, refuses="three")
    ended = conduct(plan, tmp_path / "out", runner)
    assert "three" not in {name for name, _ in runner.calls}
    assert ended.outcome.steps[2].failed == ("the engine exited before it served: no memory is left for the KV cache")
    assert ended.outcome.steps[4].versus_base["output_tokens_per_s"].ratio is not None
    assert runner.asked.count("three") == 1


def test_a_step_that_failed_is_tried_again_by_the_next_call_and_never_twice_in_one(plan, made, tmp_path):
    conduct(plan, tmp_path / "out", StandIn(made, refuses="three"))
    still = StandIn(made, refuses="three")
    said, ended = [], None
    ended = asyncio.run(Experiment.open(plan, tmp_path / "out", talk=said.append).conduct(still))
    assert said[0] == "tried again, for they failed in an earlier call: three"
    assert (still.asked, still.calls) == (["three"], [])
    assert ended.outcome.steps[2].failed
    healed = StandIn(made)
    ended = conduct(plan, tmp_path / "out", healed)
    assert healed.calls == [("three", block) for block in range(4)]
    assert ended.outcome.steps[2].failed is None
    assert len(ended.outcome.steps[2].runs) == 4
    last = StandIn(made)
    said.clear()
    asyncio.run(Experiment.open(plan, tmp_path / "out", talk=said.append).conduct(last))
    assert (said, last.calls) == ([], [])


def test_a_folder_of_which_no_engine_started_is_another_plans_and_tells_nothing_of_the_first(plan, made, tmp_path):
    alone = msgspec.structs.replace(plan, steps=plan.steps[:1])
    conduct(alone, tmp_path / "out", StandIn(made, refuses="base"))
    assert b"no memory is left" in (tmp_path / "out" / "outcome.json").read_bytes()
    other = Experiment.open(plan, tmp_path / "out", talk=print)
    assert other.failed == {}
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {"experiment.json", "lock"}
    ended = conduct(plan, tmp_path / "out", StandIn(made, refuses="three"))
    assert [step.failed is None for step in ended.outcome.steps] == [True, True, False, True, True]
    with pytest.raises(UsageError, match="belongs to another plan"):
        Experiment.open(alone, tmp_path / "out", talk=print)


def test_an_engine_whose_profile_was_changed_is_other_work(plan, made, tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text("step_ms = 1.0")
    fitted = msgspec.structs.replace(plan.steps[0], command=f"{plan.steps[0].command} --profile {profile}")
    plan = msgspec.structs.replace(plan, steps=(fitted, *plan.steps[1:]))
    conduct(plan, tmp_path / "out", StandIn(made))
    Experiment.open(plan, tmp_path / "out", talk=print)
    before = default_folder(plan)
    profile.write_text("step_ms = 20.0")
    assert default_folder(plan) != before
    with pytest.raises(UsageError, match="belongs to another plan"):
        Experiment.open(plan, tmp_path / "out", talk=print)


def test_one_configuration_alone_gets_no_more_blocks_than_the_least(plan, made, tmp_path):
    alone = msgspec.structs.replace(plan, steps=plan.steps[:1])
    runner = StandIn(made)
    assert conduct(alone, tmp_path / "out", runner).reason == "nothing"
    assert runner.calls == [("base", 0), ("base", 1), ("base", 2)]


@pytest.mark.parametrize("dies_at", [None, 2])
def test_steps_that_resolve_to_the_same_settings_are_run_once(plan, made, tmp_path, dies_at):
    if dies_at:
        with pytest.raises(Killed):
            conduct(plan, tmp_path / "out", StandIn(made, twin="four", dies_at=dies_at))
    runner = StandIn(made, twin="four")
    ended = conduct(plan, tmp_path / "out", runner)
    assert "four" not in {name for name, _ in runner.calls}
    found = ended.outcome.steps[3]
    assert found.versus_base["output_tokens_per_s"].verdict == "no_difference"
    assert found.notes == ("resolves to the same settings as base: one configuration",)


def test_no_block_is_begun_when_the_time_is_over(plan, made, tmp_path):
    ticks = iter([0.0, 0.0, 50.0, 101.0])
    timed = msgspec.structs.replace(plan, time_s=100.0)
    runner = StandIn(made)
    experiment = Experiment.open(timed, tmp_path / "out", talk=lambda _: None)
    ended = asyncio.run(experiment.conduct(runner, clock=lambda: next(ticks)))
    assert (ended.reason, len(runner.calls)) == ("time", 10)


def test_a_folder_of_something_else_is_refused(plan, made, tmp_path):
    conduct(plan, tmp_path / "out", StandIn(made))
    plan.path.write_text(FIVE.replace('"--a" = 5', '"--a" = 6'))
    with pytest.raises(UsageError, match="belongs to another plan"):
        Experiment.open(load(plan.path), tmp_path / "out", talk=print)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="is not empty and holds no experiment"):
        Experiment.open(plan, tmp_path / "full", talk=print)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UsageError, match=rf"^cannot use {tmp_path}/file \(Not a directory\); give --out another folder$"
    ):
        Experiment.open(plan, tmp_path / "file", talk=print)
    (tmp_path / "out" / "experiment.json").write_text("{")
    with pytest.raises(UsageError, match=r"experiment\.json is damaged \(.*\); give --out another folder$"):
        Experiment.open(plan, tmp_path / "out", talk=print)


def test_the_same_plan_has_the_same_folder_whatever_its_budget(plan):
    assert ex.default_folder(msgspec.structs.replace(plan, most=9)) == ex.default_folder(plan)
    other = msgspec.structs.replace(plan, steps=plan.steps[:2])
    assert ex.default_folder(other) != ex.default_folder(plan)


def test_two_processes_do_not_work_in_one_folder(plan, made, tmp_path):
    experiment = Experiment.open(plan, tmp_path / "out", talk=print)
    with held(tmp_path / "out"), pytest.raises(UsageError, match="is being worked in by process"):
        asyncio.run(experiment.conduct(StandIn(made)))
    assert conduct(plan, tmp_path / "out", StandIn(made)).reason == "blocks"


def test_a_line_of_the_log_that_a_kill_cut_off_does_not_spoil_the_next_one(plan, made, tmp_path):
    Experiment.open(plan, tmp_path / "out", talk=print)
    (tmp_path / "out" / "log.jsonl").write_bytes(b'{"type":"run","st')
    conduct(plan, tmp_path / "out", StandIn(made, refuses="two"))
    assert Experiment.open(plan, tmp_path / "out", talk=print).failed.keys() == {"two"}


def test_metrics_without_a_better_direction_are_refused(plan, tmp_path):
    with pytest.raises(UsageError, match="'in_flight_mean' cannot be compared"):
        Experiment.open(msgspec.structs.replace(plan, metrics=("in_flight_mean",)), tmp_path / "out", talk=print)


def test_metrics_that_no_run_reports_are_left_out_unless_they_were_asked_for(plan, made, tmp_path):
    ended = conduct(plan, tmp_path / "out", StandIn(made))
    assert set(ended.outcome.steps[0].metrics) == {"output_tokens_per_s", "ttft_s.p50", "ttft_s.p90"}
    asked = msgspec.structs.replace(plan, metrics=("output_tokens_per_s", "makespan_s.p50"))
    ended = conduct(asked, tmp_path / "asked", StandIn(made))
    assert ended.outcome.steps[0].metrics["makespan_s.p50"].value is None


def test_an_engines_log_is_never_written_over(plan, tmp_path):
    runner = Real(plan.workload, Loaded((), ()), tmp_path, lambda _: None)
    long = msgspec.structs.replace(plan.steps[1], name="a/b " * 60)
    first = runner._log_of(long)
    assert first.name.startswith("001-")
    assert len(first.name) < 100
    first.parent.mkdir()
    first.write_text("")
    again = Real(plan.workload, Loaded((), ()), tmp_path, lambda _: None)
    assert again._log_of(long).name.startswith("002-")
