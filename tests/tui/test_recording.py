"""A recording on the screen: real agents, so nothing about windows; its head and its sessions grow while it goes on."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fake_clocks import Clocks

from windtunnel.agents import events as ev
from windtunnel.agents.recorder.recorder import Recorder
from windtunnel.agents.recorder.screen import Wrote
from windtunnel.agents.recorder.told import Arrived, Closed, Opened
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.board import Table, compose_frame
from windtunnel.tui.theme import Theme
from windtunnel.tui.transcript import entries

NS = 1_000_000_000
Open = Callable[..., Follower]


class Folder:
    """A run folder that a recorder writes to; times in seconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "traces").mkdir(parents=True)
        self.describe()
        self.seq = self.count = 0
        self.recorder = Recorder(
            path / "traces", self, name="rec", client="pi", source="recorded", origin_ns=0, wall_clock=1e9
        )
        self.emit(ev.RunStart(t=0, agents=0, wall_clock=1e9))
        self.emit(ev.Phase(t=0, phase="steady"))

    def describe(self, **more: object) -> None:
        run = {"kind": "recording", "target": "http://gpu-3:8000", "config": {"arrivals": "recorded"}, "engine": {}}
        (self.path / "run.json").write_text(json.dumps(run | more))

    def emit(self, event: ev.Event) -> None:
        with (self.path / "events.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")

    def wrote(self, what: Wrote) -> None:
        pass

    def call(self, session: str, at: float, *texts: str, answer: str | None = "Done.") -> None:
        """A call of a conversation, its answer within a second; left open where there is none."""
        self.count += 1
        said = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
        body = {"model": "m", "stream": True, "messages": said}
        where = self.count, round(at * NS), self.count, "/v1/chat/completions", "", (("x-session-id", session),)
        self.recorder.opened(Opened(*where), json.dumps(body).encode())
        if answer is None:
            return
        tokens = len(json.dumps(body)) // 4
        events = (
            {"choices": [{"index": 0, "delta": {"content": answer}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 3}},
        )
        data = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
        end = round((at + 1) * NS)
        self.recorder.arrived(Arrived(self.count, ((end, len(data)),), "text/event-stream"), data)
        self.recorder.closed(Closed(self.count, end, 200, "complete", "text/event-stream"))

    def refused(self, session: str, at: float, text: str) -> None:
        """A call that the server answers with an error."""
        self.call(session, at, text, answer=None)
        self.recorder.closed(Closed(self.count, round((at + 0.5) * NS), 429, "complete", "application/json"))

    def end(self, at: float) -> None:
        self.recorder.finish(round(at * NS))
        self.emit(ev.Phase(t=round(at * NS), phase="done"))
        self.emit(ev.RunEnd(t=round(at * NS), status="completed"))
        (self.path / "summary.json").write_bytes(encode_summary(recompute(self.path)))


@pytest.fixture
def recording(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "rec")


def drawn(follower: Follower, width: int = 120) -> list[str]:
    frame = compose_frame(follower.view, Table(), width, 24, Theme(colour=False))
    return ["".join(text for text, _ in line).rstrip() for line in frame.lines]


def test_a_recording_under_way(recording: Folder, follow: Open, clocks: Clocks) -> None:
    follower = follow(recording.path)
    clocks.wall = (recording.path / "events.jsonl").stat().st_mtime + 1
    assert follower.poll().agents == 0
    assert "gpu-3:8000" in drawn(follower)[0]
    recording.call("one", 1, "Fix the importer.")
    recording.call("two", 2, "Write a test.", answer=None)
    recording.describe(engine={"name": "vllm", "model": "org/m"}, agents=2)
    clocks.monotonic = 2.0
    view = follower.poll()
    assert (view.agents, view.calls, view.in_flight, view.ending) == (2, 2, 1, None)
    lines = drawn(follower)
    assert "2 agents" in lines[0]
    assert "vllm" in lines[0]
    assert lines[0].endswith("● live")
    assert lines[1].startswith(" recording 00:")
    assert "not valid" not in "\n".join(lines)
    (row,) = (line for line in lines if "pi/Fix the importer." in line)
    assert " 1 " in row
    assert "1/" not in row


@pytest.mark.parametrize("width", [80, 120, 160])
def test_calls_are_counted_while_sessions_go_on(recording: Folder, follow: Open, clocks: Clocks, width: int) -> None:
    recording.call("one", 1, "Fix the importer.")
    recording.call("one", 3, "Fix the importer.", "Done.", "And the exporter.")
    recording.refused("two", 4, "Write a test.")
    recording.call("two", 5, "Write a test.", answer=None)
    clocks.wall = (recording.path / "events.jsonl").stat().st_mtime + 1
    follower = follow(recording.path)
    view = follower.poll()
    assert (view.ending, view.calls, view.done, view.failed) == (None, 4, 2, 1)
    text = " ".join(" ".join(drawn(follower, width)).split())
    assert "calls done 2 failed 1" in text
    assert "sessions done" not in text
    recording.end(9)
    follower = follow(recording.path)
    assert (follower.poll().ending, follower.view.done, follower.view.failed) == ("completed", 2, 2)
    assert "calls done 2 failed 2" in " ".join(" ".join(drawn(follower, width)).split())


def test_a_recording_that_is_over(recording: Folder, follow: Open) -> None:
    recording.call("one", 1, "Fix the importer.")
    recording.end(9)
    follower = follow(recording.path)
    view = follower.poll()
    assert (view.ending, view.agents) == ("completed", 1)
    lines = drawn(follower)
    assert lines[0].endswith("● recorded")
    assert ("sessions", "1") in view.headline
    assert not any("sessions/h" in line or "0 agents" in line for line in lines)


def test_a_recording_that_was_killed_says_so(recording: Folder, follow: Open, clocks: Clocks) -> None:
    recording.call("one", 1, "Fix the importer.", answer=None)
    clocks.wall = (recording.path / "events.jsonl").stat().st_mtime + 60
    follower = follow(recording.path)
    assert follower.poll().ending == "died"
    assert drawn(follower)[0].endswith("no result")


def test_an_agents_session_is_read_on_as_it_grows(recording: Folder, follow: Open) -> None:
    recording.call("one", 1, "Fix the importer.")
    follower = follow(recording.path)
    follower.poll()
    follower.wait_for_trace(0)
    story = follower.story(0)
    said = [e.text for turn in story.turns for e in entries(story, turn)]
    assert "Fix the importer." in said
    recording.call("one", 3, "Fix the importer.", "Done.", "And the exporter.")
    follower.poll()
    follower.story(0)  # sees that the file has grown
    follower.wait_for_trace(0)
    story = follower.story(0)
    said = [e.text for turn in story.turns for e in entries(story, turn)]
    assert [text for text in said if text.endswith(("importer.", "exporter."))] == [
        "Fix the importer.",
        "And the exporter.",
    ]
    assert len(story.turns) == 2
