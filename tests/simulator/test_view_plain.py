"""`view --plain`: a live run is told line by line, for logs and screen readers, and then summed up."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from windtunnel.agents.events import (
    AgentProgress,
    AnyEvent,
    CallEnd,
    Heartbeat,
    Note,
    Phase,
    Progress,
    RunEnd,
    RunStart,
    SessionEnd,
)
from windtunnel.simulator.report.write import printed
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.view import follow_run, print_run

S = 1_000_000_000


def progress(seconds: float, tokens: int) -> Progress:
    agents = (AgentProgress(0, 0, 1, "decode", tokens, "said"),)
    return Progress(
        t=int(seconds * S), output_tokens=tokens, prompt_tokens=10, in_flight=1, in_tool=1, waiting=0, agents=agents
    )


class Run:
    """A run that writes a step of its events whenever its reader sleeps."""

    def __init__(self, path: Path, *steps: list[AnyEvent], dies: bool = False, kind: str | None = None) -> None:
        self.path, self.steps, self.dies = path, list(steps), dies
        self.now = 1_000.0
        run = {"schema": "windtunnel.run/1", "agents": 2, "host": "elsewhere"}
        (path / "run.json").write_text(json.dumps(run if kind is None else run | {"kind": kind}))
        (path / "events.jsonl").touch()
        self.step(0.0)

    def step(self, seconds: float) -> None:
        self.now += seconds
        if self.steps:
            with (self.path / "events.jsonl").open("ab") as out:
                out.write(b"".join(msgspec.json.encode(event) + b"\n" for event in self.steps.pop(0)))
        elif self.dies:
            self.now += 10.0
            return
        else:
            (self.path / "summary.json").write_text("{}")
        for name in ("events.jsonl", "run.json"):
            os.utime(self.path / name, (self.now, self.now))

    def follow(self) -> None:
        follow_run(RunFolder.open(self.path), lambda: self.now, self.step)


BEFORE: list[AnyEvent] = [
    RunStart(t=0, agents=2, wall_clock=0.0),
    Phase(t=0, phase="starting"),
    *(progress(i, 10 * i) for i in range(1, 60)),
    progress(60.0, 1000),
]


def test_what_was_before_is_not_told_and_the_first_speed_is_of_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now: list[AnyEvent] = [progress(60.25, 1025), progress(60.5, 1050), progress(61.5, 1250)]
    Run(tmp_path, BEFORE, now).follow()
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert lines[0] == f"following {tmp_path}; ^C ends the following, not the run"
    assert "60.2 s" in lines[1]
    assert " 100 tok/s" in lines[1]
    assert "61.5 s" in lines[2]
    assert " 180 tok/s" in lines[2]
    assert lines[3] == "the run has ended"
    assert len(lines) == 4
    assert said.out == ""


def test_phases_warnings_failures_and_the_end_have_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = CallEnd(t=63 * S, agent=0, session="a", thread=0, call=3, request_id="r", t_intended=0, failure="http_500")
    now: list[AnyEvent] = [
        Phase(t=62 * S, phase="draining", note="until the last call ends"),
        Note(t=62 * S, level="warning", text="no answer from the metrics page"),
        failed,
        SessionEnd(t=63 * S, agent=0, session="a", status="failed"),
        Heartbeat(t=63 * S),
        RunEnd(t=64 * S, status="completed"),
    ]
    Run(tmp_path, BEFORE, now).follow()
    said = capsys.readouterr().err
    assert "   62.0 s  draining: until the last call ends" in said
    assert "warning: no answer from the metrics page" in said
    assert "failed: http_500, agent 0, session a, call 3" in said


def test_a_run_that_dies_is_said_to_be_dead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(tmp_path, BEFORE, dies=True).follow()
    assert capsys.readouterr().err.splitlines()[-1] == "the run has died"


def test_nothing_is_said_of_a_run_that_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path, BEFORE)
    run.step(1.0)
    run.follow()
    assert capsys.readouterr().err == ""


def test_a_recording_has_calls_and_neither_a_fleet_nor_phases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(seconds: float, number: int, failure: str | None = None) -> CallEnd:
        where = {"agent": 0, "session": "s", "thread": 0, "call": number, "request_id": f"r{number}", "t_intended": 0}
        return CallEnd(t=int(seconds * S), failure=failure, **where)

    before: list[AnyEvent] = [
        RunStart(t=0, agents=0, wall_clock=0.0),
        Phase(t=0, phase="steady"),
        call(1.0, 0),
        call(2.0, 1, "http_429"),
        progress(3.0, 30),
    ]
    now: list[AnyEvent] = [
        progress(4.0, 80),
        call(5.0, 2),
        progress(5.0, 120),
        SessionEnd(t=6 * S, agent=0, session="s", status="completed"),
        Phase(t=6 * S, phase="done"),
        RunEnd(t=6 * S, status="completed"),
    ]
    Run(tmp_path, before, now, kind="recording").follow()
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"following {tmp_path}; ^C ends the following, not the recording",
        "    4.0 s  recording        50 tok/s  in flight   1  calls ended 1, failed 1",
        "    5.0 s  recording        40 tok/s  in flight   1  calls ended 2, failed 1",
        "the recording has ended",
    ]


@pytest.mark.parametrize("kind", [None, "recording"])
def test_a_run_without_a_summary_has_ended_where_its_events_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str | None
) -> None:
    """It was killed between its end and its summary, or somebody removed that: both streams say the same."""
    what = kind or "run"
    run = Run(tmp_path, BEFORE, [RunEnd(t=64 * S, status="completed")], dies=True, kind=kind)
    run.follow()
    assert capsys.readouterr().err.splitlines()[-1] == f"the {what} has ended"
    print_run(RunFolder.open(tmp_path), as_json=False)
    said = capsys.readouterr()
    end = "ended, but has no summary; what follows is computed from its events"
    assert said.err == f"the {what} in {tmp_path} {end}\n"
    assert "completed" in said.out
    assert "died" not in said.out


def test_one_whose_events_hold_no_end_died(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(tmp_path, BEFORE)
    os.utime(tmp_path / "events.jsonl", (1e9, 1e9))
    print_run(RunFolder.open(tmp_path), as_json=False)
    said = capsys.readouterr()
    assert said.err == f"the run in {tmp_path} died before it ended; what follows is computed from its events\n"
    assert "failed (died); NOT VALID:" in said.out


@pytest.mark.parametrize("summed_up", [False, True])
def test_a_copy_is_named_and_not_where_its_run_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], summed_up: bool
) -> None:
    Run(tmp_path, BEFORE)
    run = json.loads((tmp_path / "run.json").read_text()) | {"run_dir": "/elsewhere"}
    (tmp_path / "run.json").write_text(json.dumps(run))
    os.utime(tmp_path / "events.jsonl", (1e9, 1e9))
    os.utime(tmp_path / "run.json", (1e9, 1e9))
    if summed_up:
        (tmp_path / "summary.json").write_bytes(encode_summary(recompute(tmp_path)))
    for as_json in (False, True):
        print_run(RunFolder.open(tmp_path), as_json=as_json)
    plain, _, told = capsys.readouterr().out.rpartition("\n{")
    assert plain.rstrip().endswith(f"run folder    {tmp_path}")
    assert json.loads("{" + told)["run_dir"] == str(tmp_path)
    assert printed([tmp_path]).rstrip().endswith(f"run folder    {tmp_path}")
