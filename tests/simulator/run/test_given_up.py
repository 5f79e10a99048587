"""A run that its caller gives up, as `capacity` does at Ctrl-C: its sessions are cut before its engine is stopped."""

import asyncio

import pytest

from windtunnel.agents import events as ev
from windtunnel.agents.fake import Answer
from windtunnel.simulator.experiments.backends import Real
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.traces.format import write_trace
from windtunnel.traces.sources import load

from .conftest import NS, chain
from .whole_run import Loop, Process, Rig


@pytest.fixture
def rig(tmp_path, monkeypatch, capsys):
    return Rig(tmp_path, monkeypatch, capsys)


class Kept(Process):
    """An engine that was started for several runs. Once it is stopped it refuses what comes."""

    async def stop(self):
        self.rig.answer = lambda _: Answer(failure="connect_refused")
        self.in_flight = self.rig.client.in_flight
        await self.rig.clock.sleep(3.0)
        return 0


def give_up(rig, seconds):
    """One run of 60 s with a ramp of 20 s, given up after so long; the folder, and the engine that was stopped."""
    write_trace(chain("t0", 20), rig.path / "t0.jsonl")
    loaded = load((str(rig.path / "t0.jsonl"),))
    config = RunConfig(agents=4, ramp_s=20.0, start="fresh", warmup=Warmup(calls=1), duration_s=60.0)
    rig._stand_in()
    rig.answer = lambda _: Answer(first_s=0.7)
    folder = rig.path / "run"

    async def conduct():
        real = Real(config, loaded, rig.path, lambda _: None)
        step = Step(name="as asked", command="an-engine --port {port}")
        engine = Kept.start(step.command, rig.path / "engine.log")
        real._up = step, engine
        try:
            await real.run(step, 0, folder)
        finally:
            await real.close()

    async def main():
        work = asyncio.create_task(conduct())
        await rig.clock.sleep(seconds)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with asyncio.Runner(loop_factory=lambda: Loop(rig.clock._loop_time)) as runner:
        runner.run(main())
    return folder, rig.process


@pytest.mark.parametrize("seconds", [6.0, 30.3])
def test_sessions_are_cut_before_the_engine_is_stopped(rig, seconds):
    folder, engine = give_up(rig, seconds)
    events = list(RunFolder.open(folder).events())
    assert engine.in_flight == 0
    assert [e.failure for e in events if isinstance(e, ev.CallEnd) and e.failure is not None] == []
    assert any(isinstance(e, ev.CallEnd) and e.cut for e in events)
    assert {(e.status, e.reason) for e in events if isinstance(e, ev.SessionEnd)} == {("cut", "interrupted")}
    end = events[-1]
    assert (type(end), end.status, end.reason) == (ev.RunEnd, "interrupted", "interrupted")
    assert end.t == pytest.approx(seconds * NS, abs=NS)


def test_half_a_run_reads_as_interrupted_and_has_no_summary(rig):
    folder, _ = give_up(rig, 6.0)
    assert not (folder / "summary.json").exists()  # else it would be taken for one that was made
    summary = recompute(folder)
    assert (summary.status, summary.status_reason, summary.failed_calls) == ("interrupted", "interrupted", 0)
    assert "died" not in summary.invalid_reasons
