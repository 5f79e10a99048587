"""Playing a run again: its speed, standing still, going forth and back, and the word in the header."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_clocks import Clocks
from fake_run import Fake
from msgspec.structs import replace

from windtunnel.tui.follow import Follower
from windtunnel.tui.playing import SPEEDS, Playing
from windtunnel.tui.theme import UNICODE, plain
from windtunnel.tui.widgets.header import title_line

Open = Callable[..., Follower]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, running: Fake) -> Path:
    return running.write(tmp_path_factory.mktemp("played") / "run", summary=True)


def test_the_moment_goes_on_at_the_speed_that_is_set() -> None:
    playing = Playing(10.0, 5.0)
    assert playing.moment_s(100.0) == 5.0
    assert playing.moment_s(101.0) == 15.0
    playing.change(1, 101.0)
    assert (playing.speed, playing.moment_s(102.0)) == (20.0, 35.0)
    playing.change(-1, 102.0)
    playing.change(-1, 102.0)
    assert (playing.speed, playing.moment_s(103.0)) == (5.0, 40.0)


def test_standing_still_and_going_on_lose_no_time() -> None:
    playing = Playing(2.0, None)
    assert playing.moment_s(0.0) == 0.0
    playing.pause(10.0)
    assert (playing.moment_s(50.0), playing.label) == (20.0, "replay 2x paused")
    playing.pause(50.0)
    assert (playing.moment_s(51.0), playing.label) == (22.0, "replay 2x")


def test_the_fastest_and_the_slowest_speed_stay() -> None:
    playing = Playing(300.0, None)
    playing.change(1, 0.0)
    playing.change(1, 0.0)
    assert playing.speed == SPEEDS[-1]
    for _ in SPEEDS:
        playing.change(-1, 0.0)
    assert playing.speed == SPEEDS[0]


def test_a_run_shown_at_a_moment_stands_still_until_it_is_played(folder: Path, follow: Open, clocks: Clocks) -> None:
    follower = follow(folder, at_s=40.0)
    assert follower.poll().elapsed_s == pytest.approx(40.0, abs=0.3)
    clocks.monotonic += 5.0
    view = follower.poll()
    assert (view.elapsed_s, view.speed) == (pytest.approx(40.0, abs=0.3), "replay 1x paused")
    follower.pause()
    clocks.monotonic += 5.0
    assert follower.poll().elapsed_s == pytest.approx(45.0, abs=0.3)


def test_going_back_shows_what_was_shown_before(folder: Path, follow: Open, clocks: Clocks) -> None:
    follower = follow(folder, at_s=20.0)
    before = follower.poll()
    follower.seek(1)
    assert follower.poll().elapsed_s == pytest.approx(30.0, abs=0.3)
    follower.seek(-1)
    again = follower.poll()
    assert again.history.output == before.history.output
    assert replace(again, history=before.history) == before
    follower.seek(-9)
    assert follower.poll().elapsed_s == 0.0


def test_after_the_end_it_can_be_taken_back(folder: Path, follow: Open, clocks: Clocks) -> None:
    follower = follow(folder, speed=10.0)
    follower.poll()
    clocks.monotonic += 7.0
    ended = follower.poll()
    assert (ended.ending, ended.valid is not None, bool(ended.headline)) == ("completed", True, True)
    follower.seek(1)
    assert follower.poll().ending == "completed"
    follower.seek(-1)
    again = follower.poll()
    # ten seconds of the viewer's time at ten times the speed is more than the whole run
    assert (again.ending, again.headline, again.elapsed_s) == (None, (), 0.0)


def test_a_finished_run_is_played_from_its_start_when_its_speed_is_changed(
    folder: Path, follow: Open, clocks: Clocks
) -> None:
    follower = follow(folder)
    assert (follower.poll().ending, follower.poll().speed) == ("completed", "")
    follower.change_speed(1)
    view = follower.poll()
    assert (view.ending, view.elapsed_s, view.speed) == (None, 0.0, "replay 10x")
    clocks.monotonic += 1.2
    assert follower.poll().elapsed_s == pytest.approx(12.0, abs=0.3)


def test_only_what_the_moment_needs_is_read(
    folder: Path, follow: Open, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windtunnel.tui.follow.READ_BYTES", 20_000)
    follower = follow(folder, speed=1.0)
    follower.poll()
    read = follower.tail.line
    assert read < 400
    clocks.monotonic += 30.0
    follower.poll()
    assert follower.tail.line > 2 * read


def test_a_run_that_died_is_played_to_its_end_and_says_that_it_died(
    running: Fake, tmp_path: Path, follow: Open, clocks: Clocks
) -> None:
    follower = follow(running.write(tmp_path / "run", until=30.0), speed=10.0)
    assert follower.poll().ending is None
    clocks.monotonic += 5.0
    clocks.wall += 1e9
    follower.poll()
    assert follower.poll().ending == "died"


def test_a_live_run_is_not_played(running: Fake, tmp_path: Path, follow: Open) -> None:
    follower = follow(running.write(tmp_path / "run", until=30.0))
    follower.poll()
    assert follower.speed == "real time 1.0x"
    follower.change_speed(1)
    follower.seek(-1)
    follower.pause()
    assert follower.playing is None


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_speed_stands_in_the_header_at_every_width(folder: Path, follow: Open, width: int) -> None:
    view = follow(folder, speed=10.0).poll()
    assert " replay 10x " in plain(title_line(view, width, UNICODE))
    assert "real time" not in plain(title_line(follow(folder).poll(), width, UNICODE))
