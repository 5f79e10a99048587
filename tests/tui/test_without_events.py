"""Runs whose events are gone, or not all there: the screens say so, and what is still known."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_clocks import Clocks
from fake_run import Fake

from windtunnel.traces.errors import UsageError
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.past import Shelf
from windtunnel.tui.screens.timeline import TimelineScreen
from windtunnel.tui.theme import Theme, plain
from windtunnel.tui.widgets.header import status_line

Open = Callable[..., Follower]


@pytest.fixture
def bare(tmp_path: Path, small: Fake) -> Path:
    folder = small.write(tmp_path / "bare", summary=True)
    (folder / "events.jsonl").unlink()
    return folder


def text(app: Viewer) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def test_without_events_the_screens_say_so_and_show_the_summary(bare: Path, follow: Open) -> None:
    app = Viewer(follow(bare), Theme(), "view", tick_s=0)
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        fleet = text(app)
        assert "no agent ever started" not in fleet
        said = " ".join(fleet.split())
        assert "bare has lost its events.jsonl, which says what happened (its summary.json is still there)" in said
        assert "copy it again from where the folder came from" in said
        assert "not valid: damaged" in fleet
        assert "TTFT p50 / p90" in fleet, "the summary is still there"
        assert "events are missing: v" in fleet
        assert "replay" not in fleet.splitlines()[-1]
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert app.follower.playing is None
        assert "starting" not in text(app)
        assert "cannot be played again" in text(app)
        await pilot.press("v")
        await pilot.pause()
        assert "has lost its events.jsonl" in text(app)
        assert "Its events are missing" in text(app)
        await pilot.press("escape", "t")
        await pilot.pause()
        assert isinstance(app.screen, TimelineScreen)
        assert "waiting for the first agent" not in text(app)
        assert "has lost its events.jsonl" in text(app)


def test_a_run_without_events_cannot_be_played(bare: Path, follow: Open) -> None:
    with pytest.raises(UsageError, match=r"has lost its events\.jsonl"):
        follow(bare, speed=10.0)


def test_a_killed_run_without_events_has_lost_them_too(bare: Path, follow: Open) -> None:
    (bare / "summary.json").unlink()
    os.utime(bare / "run.json", (1, 1))
    view = follow(bare).poll()
    assert view.ending == "died"
    assert "has lost its events.jsonl" in view.missing
    assert "summary" not in view.missing


async def test_a_finished_run_with_unreadable_lines_is_not_valid(tmp_path: Path, running: Fake, follow: Open) -> None:
    folder = running.write(tmp_path / "run", summary=True)
    before = follow(folder).poll()
    events = (folder / "events.jsonl").read_text().splitlines()
    events[300] = '{"type":"call_end", broken'
    (folder / "events.jsonl").write_text("\n".join(events) + "\n")
    app = Viewer(follow(folder), Theme(), "view", tick_s=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert before.invalid == ()
        assert (app.view.valid, app.view.invalid) == (False, ("damaged",))
        assert "not valid: damaged" in text(app).splitlines()[0]
        await pilot.press("enter")
        await pilot.pause()
        assert "not valid: damaged" in text(app).splitlines()[0]


def test_the_silence_of_a_dead_run_grows(tmp_path: Path, small: Fake, follow: Open, clocks: Clocks) -> None:
    folder = small.write(tmp_path / "run", until=20.0)
    for file in folder.iterdir():
        os.utime(file, (clocks.wall - 60, clocks.wall - 60))
    follower = follow(folder)
    assert "for 01:00 " in plain(status_line(follower.poll(), 120, Theme().glyphs))
    clocks.wall += 17.0
    clocks.monotonic += 17.0
    assert "for 01:17 " in plain(status_line(follower.poll(), 120, Theme().glyphs))


def test_past_runs_without_events_are_not_valid(bare: Path) -> None:
    shelf = Shelf(bare.parent, lambda: 0.0, lambda: 0.0)
    shelf.look()
    (past,) = shelf.poll(1.0)
    assert (past.valid, past.invalid) == (False, ("damaged",))
