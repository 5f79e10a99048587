"""From a folder on disk to a view: live, finished, killed, damaged, played again."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fake_clocks import Clocks
from fake_run import NS, Fake

from windtunnel.agents.events import SessionEnd
from windtunnel.simulator.results.store import RunFolder
from windtunnel.traces.errors import UsageError
from windtunnel.tui.follow import Follower

Open = Callable[..., Follower]


def test_totals_are_the_folds(running: Fake, tmp_path: Path, follow: Open) -> None:
    follower = follow(running.write(tmp_path / "run"), at_s=40.0)
    view, fold = follower.poll(), follower.fold
    assert (view.in_flight, view.in_tool, view.waiting) == (fold.in_flight, fold.in_tool, fold.waiting)
    assert view.in_flight + view.in_tool + view.waiting == 32
    ends = [e for e in running.until(40.0) if isinstance(e, SessionEnd)]
    assert (view.done, view.failed) == (sum(e.status == "completed" for e in ends), 0)
    assert view.out_rate == fold.output_per_s(5.0)
    assert view.phase == "steady"
    assert view.phase_s == pytest.approx(25.0, abs=0.3)
    assert view.valid is True
    assert len(view.rows) == 32
    assert sum(view.states().values()) == 32


def test_a_growing_file_is_followed_across_cut_lines(
    running: Fake, tmp_path: Path, follow: Open, clocks: Clocks
) -> None:
    running_now = Fake(4, 20.0)
    running_now.alive = True
    folder = running_now.write(tmp_path / "run", until=-1.0)
    follower = follow(folder)
    lines = [msgspec.json.encode(e) + b"\n" for e in running_now.until(10.0)]
    data = b"".join(lines)
    with (folder / "events.jsonl").open("ab", buffering=0) as out:
        for start in range(0, len(data), 5000):
            out.write(data[start : start + 5000])
            clocks.monotonic += 0.25
            follower.poll()
    view = follower.poll()
    assert view.ending is None
    assert view.elapsed_s == pytest.approx(10.0, abs=0.3)
    assert follower.tail.line == len(lines) + 1


def test_a_killed_run_is_said_to_have_died(running: Fake, tmp_path: Path, follow: Open, clocks: Clocks) -> None:
    folder = running.write(tmp_path / "run", until=30.0)
    clocks.wall = (folder / "events.jsonl").stat().st_mtime + 3.0
    follower = follow(folder)
    assert follower.poll().ending is None
    clocks.wall += 9.0
    clocks.monotonic += 1.5
    view = follower.poll()
    assert view.ending == "died"
    assert view.silent_s == pytest.approx(12.0, abs=0.1)


def test_a_run_whose_process_is_there_is_alive_however_quiet(tmp_path: Path, follow: Open, clocks: Clocks) -> None:
    fake = Fake(4, 20.0)
    fake.alive = True
    folder = fake.write(tmp_path / "run", until=10.0)
    clocks.wall = (folder / "events.jsonl").stat().st_mtime + 600.0
    assert follow(folder).poll().ending is None


def test_a_finished_run_opens_complete_with_the_summarys_numbers(failing: Fake, tmp_path: Path, follow: Open) -> None:
    folder = failing.write(tmp_path / "run", summary=True)
    view = follow(folder).poll()
    summary = json.loads((folder / "summary.json").read_text())
    assert view.ending == "completed"
    assert (view.done, view.failed, view.cut) == (
        summary["sessions_completed"],
        summary["sessions_failed"],
        summary["sessions_cut"],
    )
    assert view.out_rate == summary["output_tokens_per_s"]
    assert view.cached == summary["cache_hit_ratio"]
    assert view.in_flight_mean == summary["in_flight_mean"]
    assert list(view.invalid) == summary["invalid_reasons"]
    assert "failures" in view.invalid
    assert dict(view.headline)["output tokens"] == f"{summary['output_tokens']:,}"


def test_playing_again_shows_the_run_as_it_was(running: Fake, tmp_path: Path, follow: Open, clocks: Clocks) -> None:
    folder = running.write(tmp_path / "run", summary=True)
    follower = follow(folder, speed=10.0)
    assert follower.poll().elapsed_s == 0.0
    clocks.monotonic = 3.0
    view = follower.poll()
    assert view.elapsed_s == pytest.approx(30.0, abs=0.3)
    assert view.speed == "replay 10x"
    assert view.ending is None
    clocks.monotonic = 7.0
    assert follower.poll().ending == "completed"


def test_a_long_run_is_read_in_steps_and_says_so(
    running: Fake, tmp_path: Path, follow: Open, monkeypatch: pytest.MonkeyPatch, clocks: Clocks
) -> None:
    monkeypatch.setattr("windtunnel.tui.follow.READ_BYTES", 50_000)
    follower = follow(running.write(tmp_path / "run", summary=True))
    ticking = iter(range(1000))
    follower.monotonic = lambda: next(ticking) * 0.1
    first = follower.poll()
    assert first.reading
    assert first.ending is None
    for _ in range(50):
        view = follower.poll()
        if not view.reading:
            break
    assert view.ending == "completed"
    assert view.elapsed_s == pytest.approx(60.0, abs=0.3)


def test_damaged_lines_hide_nothing_else(running: Fake, tmp_path: Path, follow: Open) -> None:
    folder = running.write(tmp_path / "run")
    path = folder / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:200], b'{"type": "call_end", "t": oops\n', b"\xff\xfe\n", *lines[200:]]))
    follower = follow(folder)
    follower.poll()
    assert follower.fold.t == running.events[-1].t
    assert len(follower.tail.problems) == 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.mkdir(), "no run folder"),
        (lambda p: p.write_text("x"), "is a file"),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(make: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    make(tmp_path / "run")
    with pytest.raises(UsageError, match=says):
        RunFolder.open(tmp_path / "run")


def test_an_agents_story_holds_its_session_only(running: Fake, tmp_path: Path, follow: Open) -> None:
    follower = follow(running.write(tmp_path / "run"), at_s=50.0)
    view = follower.poll()
    row = next(r for r in view.rows if r.state == "decode")
    story = follower.story(row.agent)
    assert story.session == row.session
    assert story.turns[-1].done is False
    assert story.turns[-1].completion == row.doing.tokens
    assert story.turns[-1].pinned == row.doing.pinned
    finished = [t for t in story.turns if t.done]
    assert all(t.prompt == t.cached + t.missed + t.new for t in finished)
    assert all(story.written[t.key].text for t in finished)
    assert {line.session for line in story.written.values()} <= {row.session}


def test_waits_and_first_tokens_are_counted_from_the_events(running: Fake, tmp_path: Path, follow: Open) -> None:
    follower = follow(running.write(tmp_path / "run"), at_s=50.0)
    view = follower.poll()
    tool = next(r for r in view.rows if r.state == "tool")
    wait = follower.plans.waits[tool.agent, 0]
    assert tool.doing.label == wait.label
    assert tool.doing.elapsed_s == pytest.approx((follower.fold.t - wait.t) / NS, abs=0.5)
    assert tool.doing.planned_s == wait.seconds
    prefill = next(r for r in view.rows if r.state == "prefill")
    call = follower.plans.calls[prefill.agent, prefill.thread]
    assert prefill.ttft_open
    assert prefill.ttft_s == pytest.approx((follower.fold.t - call.t_intended) / NS, abs=0.5)
