"""The screens of past runs and of comparisons, and the ways between them and a run: every key."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import fake_shelf
import pytest
import snapshots
from fake_clocks import Clocks
from fake_run import Fake
from fake_shelf import WALL
from textual.pilot import Pilot

from windtunnel.tui.app import STOP, Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.compare import CompareScreen
from windtunnel.tui.screens.fleet import FleetScreen
from windtunnel.tui.screens.help import HelpScreen
from windtunnel.tui.screens.leave import LeaveScreen
from windtunnel.tui.screens.runs import RunsScreen
from windtunnel.tui.theme import Theme

Open = Callable[..., Follower]


def text(app: Viewer) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


@asynccontextmanager
async def runs(root: Path, size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[Viewer, Pilot[int], RunsScreen]]:
    """A viewer that begins with the runs of a folder."""
    clocks = Clocks()
    app = Viewer(
        None,
        Theme(),
        "view",
        first=lambda trips: trips.runs_of(root, nested=False),
        wall=lambda: clocks.wall,
        monotonic=lambda: clocks.monotonic,
        whole=True,
        tick_s=0,
    )
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, RunsScreen)
        yield app, pilot, app.screen


@asynccontextmanager
async def fleet(follower: Follower, mode: str = "view") -> AsyncIterator[tuple[Viewer, Pilot[int]]]:
    app = Viewer(follower, Theme(), mode, wall=follower.wall, monotonic=follower.monotonic, whole=True, tick_s=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        yield app, pilot


def under(screen: RunsScreen) -> str:
    assert screen.choice.cursor is not None
    return screen.choice.cursor.name


async def to(pilot: Pilot[int], screen: RunsScreen, name: str) -> None:
    """Moves the cursor to a run."""
    await pilot.press("home")
    for _ in range(20):
        if under(screen) == name:
            return
        await pilot.press("down")
    raise AssertionError(name)


async def test_moving_sorting_and_filtering(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await pilot.press("end")
        assert under(screen) == "killed"
        await pilot.press("up", "k", "j")
        assert under(screen) == "late-client"
        await pilot.press("home", "pagedown")
        assert under(screen) == "killed"
        await pilot.press("pageup", "s", "s", "s")
        assert screen.choice.sort == "tok/s"
        await pilot.press("home")
        assert under(screen) == "more-agents"
        await pilot.press("S", "home")
        assert under(screen) == "late-client"
        await pilot.press("slash", *"valid", "enter")
        assert {p.name for p in screen.frame.order} == {
            "newest",
            "other-seqs",
            "yesterday",
            "more-agents",
        }
        await pilot.press("slash", "home", "exclamation_mark", "enter")
        assert "killed" in {p.name for p in screen.frame.order}
        assert "newest" not in {p.name for p in screen.frame.order}
        await pilot.press("escape")
        assert len(screen.frame.order) == 10
        await pilot.press("escape", "r")
        assert app.screen is screen


async def test_a_run_is_opened_looked_at_and_left(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await to(pilot, screen, "yesterday")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)
        assert app.view.run == "yesterday"
        assert app.view.ending == "completed"
        assert "escape back" in text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is screen
        assert under(screen) == "yesterday"
        assert app.view.run == ""


async def test_a_run_is_played_again_with_its_speed_in_the_header(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await to(pilot, screen, "newest")
        await pilot.press("R")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)
        assert "replay 10x" in text(app).splitlines()[0]
        await pilot.press("right_square_bracket")
        assert "replay 20x" in text(app).splitlines()[0]
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert "replay 5x" in text(app).splitlines()[0]
        await pilot.press("space")
        assert "replay 5x paused" in text(app).splitlines()[0]
        assert app.view.elapsed_s == 0.0
        await pilot.press("right")
        assert app.view.elapsed_s == pytest.approx(40.0, abs=0.3)
        await pilot.press("left_curly_bracket")
        assert app.view.elapsed_s == 0.0
        await pilot.press("right_curly_bracket", "left")
        assert app.view.elapsed_s == 0.0


async def test_what_is_damaged_says_why_and_what_is_no_run_is_not_played(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await to(pilot, screen, "damaged")
        await pilot.press("enter")
        assert "run.json is damaged" in text(app).splitlines()[-1]
        await pilot.press("R")
        assert "only a run can be played" in text(app).splitlines()[-1]
        await pilot.press("space")
        assert "only runs are compared" in text(app).splitlines()[-1]
        assert screen.choice.marked == ()


async def test_two_marked_runs_are_compared_in_the_order_they_were_marked(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await to(pilot, screen, "yesterday")
        await pilot.press("space")
        await to(pilot, screen, "newest")
        await pilot.press("x")
        assert [p.name for p in screen.choice.marked] == ["yesterday", "newest"]
        assert "compare 2" in text(app)
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        assert [c.name for c in app.screen.contrast.columns] == ["yesterday", "newest"]
        assert "+11.1% too few blocks" in text(app)
        assert "too few blocks count: 1 of 3" in text(app)
        assert "the same settings in every run" in text(app)
        await pilot.press("escape")
        assert app.screen is screen
        await pilot.press("escape")
        assert screen.choice.marked == ()


async def test_c_twice_compares_without_knowing_of_marks(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await to(pilot, screen, "newest")
        await pilot.press("c")
        assert "press c again" in text(app).splitlines()[-1]
        await to(pilot, screen, "more-agents")
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        assert "other work than newest, so no verdict: agents 6 against 64" in text(app)


async def test_an_experiment_opens_as_a_comparison_with_the_words_that_compare_prints(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await to(pilot, screen, "ladder")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        shown = text(app)
        assert "a made-up ladder" in shown
        assert "-49.7% WORSE" in next(line for line in shown.splitlines() if " B  half" in line)
        assert "did not start: exit 1: no such model" in shown
        rung = next(line for line in shown.splitlines() if " C  same" in line)
        assert "better" in rung
        await pilot.press("b")
        rung = next(line for line in text(app).splitlines() if " C  same" in line)
        assert "no difference" in rung
        await pilot.press("c")
        assert app.screen is screen


async def test_the_keys_of_a_comparison(root: Path) -> None:
    async with runs(root, (80, 24)) as (app, pilot, screen):
        await to(pilot, screen, "ladder")
        await pilot.press("c")
        await pilot.pause()
        shown = app.screen
        assert isinstance(shown, CompareScreen)
        assert shown.looked.cursor == 1
        await pilot.press("down", "j", "down")
        assert shown.looked.cursor == 3
        await pilot.press("home")
        assert shown.looked.cursor == 0
        await pilot.press("end", "up", "k")
        assert shown.looked.cursor == 1
        await pilot.press("right")
        assert "session equiv./h" in text(app).splitlines()[1]
        await pilot.press("left", "left", "l", "h")
        assert "stall per agent" in text(app).splitlines()[1]
        assert "share of calls" not in text(app)
        await pilot.press("tab")
        assert "share of calls" in text(app)
        await pilot.press("shift+tab")
        assert "share of calls" not in text(app)
        await pilot.press("pagedown", "pageup", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        assert "against the base" in text(app)


async def test_a_column_opens_its_runs(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await to(pilot, screen, "ladder")
        await pilot.press("enter", "enter")
        await pilot.pause()
        assert isinstance(app.screen, RunsScreen)
        assert [p.name for p in app.screen.frame.order] == ["half"] * 3
        await pilot.press("escape", "end", "enter")
        await pilot.pause()
        assert "no such model" in text(app).splitlines()[-1]


async def test_the_fleets_c_asks_for_the_other_run_and_compares(root: Path, follow: Open) -> None:
    async with fleet(follow(root / "newest")) as (app, pilot):
        assert "c compare" in text(app)
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, RunsScreen)
        shown = text(app)
        assert "compare newest with which run?" in shown
        assert "same work, settings" in shown
        assert "other: agents 64" in shown
        assert under(app.screen) == "other-seqs"
        await pilot.press("down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        assert [c.name for c in app.screen.contrast.columns] == ["yesterday", "newest"]
        await pilot.press("escape")
        assert isinstance(app.screen, FleetScreen)


async def test_the_fleets_r_lists_the_runs_beside_it_and_closes_again(root: Path, follow: Open) -> None:
    async with fleet(follow(root / "newest")) as (app, pilot):
        await pilot.press("r")
        await pilot.pause()
        assert isinstance(app.screen, RunsScreen)
        assert "yesterday" in {p.name for p in app.screen.frame.order}
        await pilot.press("r")
        assert isinstance(app.screen, FleetScreen)
        await pilot.press("r", "q")
        assert app.return_value == STOP


async def test_leaving_from_another_run_still_asks_about_the_live_one(
    root: Path, small: Fake, tmp_path: Path, follow: Open, clocks: Clocks
) -> None:
    live = small.write(tmp_path / "live", until=20.0)
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    fake_shelf.write(small, tmp_path / "other", began=WALL - 60)
    async with fleet(follow(live), mode="watch") as (app, pilot):
        await pilot.press("r", "end", "enter")
        await pilot.pause()
        assert app.view.run == "other"
        await pilot.press("q")
        await pilot.pause()
        assert isinstance(app.screen, LeaveScreen)
        assert app.return_value is None
        await pilot.press("g", "escape", "escape")
        await pilot.pause()
        assert app.view.run == "live"


async def test_enter_on_the_run_that_is_watched_goes_back_to_it(
    root: Path, small: Fake, tmp_path: Path, follow: Open, clocks: Clocks
) -> None:
    live = small.write(tmp_path / "live", until=20.0)
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    fake_shelf.write(small, tmp_path / "other", began=WALL - 60)
    follower = follow(live)
    async with fleet(follower, mode="watch") as (app, pilot):
        await pilot.press("r", "end", "enter")
        await pilot.pause()
        assert app.view.run == "other"
        await pilot.press("r", "home", "enter")
        await pilot.pause()
        assert (app.source, app.view.run, app.trips.away) == (follower, "live", False)
        assert isinstance(app.screen, FleetScreen)
        assert len(app.screen_stack) == 2


async def test_keys_that_have_nothing_to_do_say_so(root: Path) -> None:
    async with runs(root, (160, 60)) as (app, pilot, screen):
        await to(pilot, screen, "newest")
        await pilot.press("c")
        await to(pilot, screen, "more-agents")
        await pilot.press("c", "b")
        await pilot.pause()
        assert "all compared with A" in text(app).splitlines()[-1]
        await pilot.press("tab")
        assert "no other page" in text(app).splitlines()[-1]


async def test_what_is_no_run_and_no_folder_of_runs_says_so_when_opened(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    async with runs(tmp_path) as (app, pilot, screen):
        assert under(screen) == "notes"
        await pilot.press("enter")
        assert text(app).splitlines()[-1].endswith("no run, and no runs in it")
        await pilot.press("space")
        assert text(app).splitlines()[-1].endswith("only runs are compared")


async def test_a_folder_of_runs_is_looked_into(root: Path) -> None:
    async with runs(root.parent) as (app, pilot, screen):
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, RunsScreen)
        assert app.screen is not screen
        assert "newest" in {p.name for p in app.screen.frame.order}
        await pilot.press("escape")
        assert app.screen is screen


async def test_the_mouse_selects_opens_and_scrolls(root: Path) -> None:
    async with runs(root) as (app, pilot, screen):
        await pilot.click(offset=(10, screen.frame.first + 3))
        assert screen.choice.cursor == screen.frame.shown[3]
        await to(pilot, screen, "newest")
        await pilot.click(offset=(10, screen.frame.first + screen.frame.shown.index(screen.choice.cursor)))
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)


@pytest.mark.parametrize("size", snapshots.SIZES[:2], ids=str)
async def test_pictures(root: Path, size: tuple[int, int]) -> None:
    name = f"{size[0]}x{size[1]}"
    async with runs(root, size) as (app, pilot, screen):
        await to(pilot, screen, "ladder")
        await pilot.press("enter")
        await pilot.pause()
        snapshots.same(f"compare-{name}", snapshots.screen(app))
        await pilot.press("tab", "end")
        snapshots.same(f"compare-curves-{name}", snapshots.screen(app))
        await pilot.press("escape")
        await to(pilot, screen, "newest")
        await pilot.press("x")
        await to(pilot, screen, "more-agents")
        await pilot.press("x")
        await to(pilot, screen, "late-client")
        await pilot.press("x", "c")
        await pilot.pause()
        snapshots.same(f"compare-runs-{name}", snapshots.screen(app))


async def test_playing_a_run_again_after_its_end_does_not_make_it_live(root: Path, follow: Open) -> None:
    async with fleet(follow(root / "newest"), mode="watch") as (app, pilot):
        await pilot.press("right_square_bracket")
        assert "replay 10x" in text(app).splitlines()[0]
        assert app.view.ending is None
        await pilot.press("q")
        await pilot.pause()
        assert app.return_value == STOP
