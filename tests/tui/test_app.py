"""Keys, dialogs, exit codes and resizing, driven through Textual's pilot without a terminal."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fake_clocks import Clocks
from fake_run import Fake
from textual.pilot import Pilot

from windtunnel.tui.app import DETACH, LINGER_S, STOP, Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.agent import AgentScreen
from windtunnel.tui.screens.fleet import FleetScreen
from windtunnel.tui.screens.help import HelpScreen
from windtunnel.tui.screens.leave import LeaveScreen
from windtunnel.tui.theme import Theme

Open = Callable[..., Follower]


def text(app: Viewer) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, running: Fake) -> Path:
    return running.write(tmp_path_factory.mktemp("app") / "run", summary=True)


@asynccontextmanager
async def opened(
    follower: Follower, mode: str = "watch", size: tuple[int, int] = (120, 40), **options: object
) -> AsyncIterator[tuple[Viewer, Pilot[int]]]:
    app = Viewer(follower, Theme(), mode, tick_s=0, **options)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield app, pilot


async def test_moving_and_opening_an_agent(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot):
        await pilot.press("down", "down", "j", "k")
        assert app.fleet.table.cursor == 2
        await pilot.press("end")
        assert app.fleet.table.cursor == 31
        await pilot.press("home", "pagedown")
        assert app.fleet.table.cursor > 20
        await pilot.press("home", "enter")
        assert isinstance(app.screen, AgentScreen)
        assert "agent 01" in text(app)
        assert "transcript" in text(app)
        await pilot.press("right")
        assert "agent 02" in text(app)
        await pilot.press("left", "left")
        assert "agent 32" in text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, FleetScreen)


async def test_scrolling_the_transcript_keeps_what_is_read(folder: Path, follow: Open, clocks: Clocks) -> None:
    follower = follow(folder, at_s=40.0, speed=1.0)
    async with opened(follower) as (app, pilot):
        await pilot.press("enter")
        assert "following" in text(app)
        await pilot.press("pageup")
        assert "scrolled back" in text(app)
        before = text(app).splitlines()[-10:-2]
        clocks.monotonic += 15.0
        app.tick()
        await pilot.pause()
        assert text(app).splitlines()[-10:-2] == before
        await pilot.press("end")
        assert "following" in text(app)


async def test_sorting_and_reversing(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot):
        await pilot.press("s")
        assert app.fleet.table.sort == "state"
        await pilot.press("s", "s", "s")
        assert app.fleet.table.sort == "context"
        contexts = [app.view.rows[a].context or 0 for a in app.fleet.frame.order]
        assert contexts == sorted(contexts, reverse=True)
        await pilot.press("S")
        contexts = [app.view.rows[a].context or 0 for a in app.fleet.frame.order]
        assert contexts == sorted(contexts)


async def test_filtering_while_typing(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot):
        await pilot.press("slash", *"codex")
        assert set(app.fleet.frame.order) == {r.agent for r in app.view.rows if "codex" in r.title}
        await pilot.press("enter")
        assert app.fleet.filter_box.display is False
        assert "/codex/" in text(app)
        await pilot.press("slash", "home", "exclamation_mark", "enter")
        assert set(app.fleet.frame.order) == {r.agent for r in app.view.rows if "codex" not in r.title}
        await pilot.press("escape")
        assert len(app.fleet.frame.order) == 32


async def test_a_filter_that_matches_nobody_says_so(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot):
        await pilot.press("slash", *"nothing-like-it", "enter")
        assert "no agent matches" in text(app)
        await pilot.press("enter")
        assert isinstance(app.screen, FleetScreen)


async def test_freezing_holds_everything_and_going_on_jumps_to_the_present(
    folder: Path, follow: Open, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Played only to have a run that goes on: one that is played would stand still itself.
    monkeypatch.setattr(Viewer, "playing", False)
    monkeypatch.setattr(Follower, "speed", "real time 1.0x")
    follower = follow(folder, at_s=30.0, speed=1.0)
    async with opened(follower) as (app, pilot):
        was = app.view.elapsed_s
        await pilot.press("space")
        assert "FROZEN" in text(app).splitlines()[0]
        assert "space go on" in text(app)
        before = text(app)
        for _ in range(3):
            clocks.monotonic += 5.0
            app.tick()
            await pilot.pause()
        assert text(app) == before
        assert app.view.elapsed_s == pytest.approx(was + 15.0, abs=0.5)
        await pilot.press("down")
        assert app.fleet.table.cursor == 1
        assert text(app).splitlines()[1] == before.splitlines()[1]
        await pilot.press("space")
        assert "FROZEN" not in text(app)
        assert "00:29 / 00:45" in text(app).splitlines()[1]
        await pilot.press("space", "escape")
        assert not app.fleet.table.frozen


async def test_the_map_moves_in_two_directions_shows_other_figures_and_opens_an_agent(
    folder: Path, follow: Open
) -> None:
    async with opened(follow(folder, at_s=30.0)) as (app, pilot):
        await pilot.press("m")
        assert app.fleet.table.map == "state"
        cells = app.fleet.frame.cells
        await pilot.press("right", "right", "down")
        assert app.fleet.table.cursor == 2 + cells.columns
        await pilot.press("left", "up", "up")
        assert app.fleet.table.cursor == 1
        await pilot.press("s")
        assert app.fleet.table.map == "tok/s"
        await pilot.press("S", "S")
        assert app.fleet.table.map == "TTFT"
        await pilot.press("end", "right", "down")
        assert app.fleet.table.cursor == 31
        await pilot.press("enter")
        assert isinstance(app.screen, AgentScreen)
        assert "agent 32" in text(app)
        await pilot.press("escape", "home", "m")
        assert app.fleet.table.map == ""
        await pilot.press("m", "escape")
        assert app.fleet.table.map == ""


async def test_a_click_on_the_head_sorts_and_again_turns_the_order(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=30.0)) as (app, pilot):
        y = app.fleet.frame.first - 1
        x = text(app).splitlines()[y].index("context")
        await pilot.click("#fleet", offset=(x, y))
        assert (app.fleet.table.sort, app.fleet.table.backwards) == ("context", False)
        await pilot.click("#fleet", offset=(x, y))
        assert app.fleet.table.backwards
        await pilot.press("m")
        y = app.fleet.frame.first - 1
        await pilot.click("#fleet", offset=(text(app).splitlines()[y].index("TTFT"), y))
        assert app.fleet.table.map == "TTFT"


async def test_a_click_in_the_map_selects_and_then_opens(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=30.0)) as (app, pilot):
        await pilot.press("m")
        frame = app.fleet.frame
        plan = frame.cells
        x, y = plan.label + 2 * plan.wide + 1, frame.first + plan.high
        assert frame.agent_at(x, y) == plan.columns + 2
        await pilot.click("#fleet", offset=(x, y))
        assert app.fleet.table.cursor == plan.columns + 2
        await pilot.click("#fleet", offset=(x, y))
        assert isinstance(app.screen, AgentScreen)


async def test_only_changed_rows_are_drawn(folder: Path, follow: Open, clocks: Clocks) -> None:
    async with opened(follow(folder, at_s=30.0, speed=1.0)) as (app, pilot):
        drawn = app.fleet.body.redrawn
        app.tick()
        await pilot.pause()
        assert app.fleet.body.redrawn == drawn
        await pilot.press("down")
        assert app.fleet.body.redrawn == drawn + 2


async def test_help_opens_and_closes(folder: Path, follow: Open) -> None:
    for size in ((80, 24), (120, 40)):
        async with opened(follow(folder, at_s=30.0), size=size) as (app, pilot):
            await pilot.press("question_mark")
            assert isinstance(app.screen, HelpScreen)
            shown = text(app)
            assert "freeze all" in shown
            await pilot.press("pagedown")
            assert "▶ decode" in text(app)
            await pilot.press("end")
            assert "an estimate until" in text(app)
            await pilot.press("q")
            assert isinstance(app.screen, FleetScreen)


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        (["q", "s"], STOP),
        (["q", "enter"], STOP),
        (["q", "y"], STOP),
        (["q", "down", "y"], DETACH),
        (["q", "up", "y"], None),
        (["q", "d"], DETACH),
        (["q", "down", "enter"], DETACH),
        (["ctrl+c", "d"], DETACH),
        (["ctrl+q", "d"], DETACH),
        (["q", "g"], None),
        (["q", "escape"], None),
        (["q", "up", "enter"], None),
        (["enter", "q", "d"], DETACH),
        (["question_mark", "ctrl+c", "d"], DETACH),
        (["ctrl+p", "ctrl+c", "d"], DETACH),
        (["v", "ctrl+c", "d"], DETACH),
        (["slash", "a", "ctrl+c", "d"], DETACH),
        (["ctrl+c", "ctrl+c"], STOP),
    ],
)
async def test_leaving_a_live_run_asks(folder: Path, follow: Open, keys: list[str], code: int | None) -> None:
    async with opened(follow(folder, at_s=30.0)) as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        assert app.return_value == code
        assert not isinstance(app.screen, LeaveScreen) or code is not None


async def test_viewing_just_closes(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=30.0), mode="view") as (app, pilot):
        await pilot.press("q")
        assert app.return_value == STOP


async def test_a_run_that_is_over_is_left_without_a_question(folder: Path, follow: Open) -> None:
    async with opened(follow(folder)) as (app, pilot):
        assert "completed" in text(app)
        await pilot.press("q")
        assert app.return_value == STOP


async def test_the_question_goes_away_when_the_run_ends_meanwhile(folder: Path, follow: Open, clocks: Clocks) -> None:
    async with opened(follow(folder, at_s=55.0, speed=1.0)) as (app, pilot):
        await pilot.press("q")
        assert isinstance(app.screen, LeaveScreen)
        clocks.monotonic += 10.0
        app.tick()
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)
        assert app.return_value is None


async def test_it_ends_by_itself_a_little_after_the_run(folder: Path, follow: Open, clocks: Clocks) -> None:
    async with opened(follow(folder), exit_when_done=True) as (app, pilot):
        app.tick_s = 0.5
        for _ in range(int(LINGER_S / 0.5) - 3):
            app.tick()
        await pilot.pause()
        assert app.return_value is None
        assert "closes in" in text(app)
        for _ in range(4):
            app.tick()
        assert app.return_value == STOP


async def test_a_picture_is_saved_and_said(folder: Path, follow: Open, tmp_path: Path) -> None:
    async with opened(follow(folder, at_s=30.0), pictures=tmp_path, stamp=lambda: "now") as (app, pilot):
        await pilot.press("p")
        await pilot.pause()
        svg = (tmp_path / "windtunnel-now.svg").read_text()
        assert svg.startswith("<svg")
        assert "decode" in svg
        assert "saved" in text(app)


async def test_a_picture_that_cannot_be_saved_is_no_crash(folder: Path, follow: Open, tmp_path: Path) -> None:
    async with opened(follow(folder, at_s=30.0), pictures=tmp_path / "missing") as (app, pilot):
        await pilot.press("p")
        await pilot.pause()
        assert "could not be saved" in text(app)


async def test_resizing_while_running(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=30.0), size=(80, 24)) as (app, pilot):
        for width, height in ((200, 60), (40, 12), (120, 40)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            lines = text(app).splitlines()
            assert len(lines) <= height
            assert max(len(line) for line in lines) <= width
            assert lines[-1].lstrip().startswith("enter")
        await pilot.press("enter")
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert "agent 01" in text(app)


async def test_the_mouse_selects_opens_and_scrolls(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=30.0)) as (app, pilot):
        first = app.fleet.frame.first
        await pilot.click(offset=(10, first + 4))
        assert app.fleet.table.cursor == 4
        await pilot.click(offset=(10, first + 4))
        assert isinstance(app.screen, AgentScreen)


async def test_no_colour(folder: Path, follow: Open) -> None:
    app = Viewer(follow(folder, at_s=30.0), Theme(colour=False), "view", tick_s=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("down")
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                style = segment.style
                assert style is None or style.color is None or style.color.is_default
