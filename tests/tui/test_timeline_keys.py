"""The timeline of a run, and its keys."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from fake_clocks import Clocks
from fake_run import Fake
from msgspec.structs import replace
from textual.pilot import Pilot

from windtunnel.simulator.results.lanes import mark_failures, paint
from windtunnel.simulator.results.untold import FIRST, SHOWN
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.agent import AgentScreen
from windtunnel.tui.screens.fleet import FleetScreen
from windtunnel.tui.screens.timeline import TimelineScreen
from windtunnel.tui.screens.timeline_frame import Scope, place_of
from windtunnel.tui.theme import Theme, plain
from windtunnel.tui.window import Place, latest, moment, seen, under_way

Open = Callable[..., Follower]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, failing: Fake) -> Path:
    return failing.write(tmp_path_factory.mktemp("timeline") / "run", summary=True)


def test_kept_columns_are_what_painting_everything_again_gives(folder: Path, follow: Open, clocks: Clocks) -> None:
    follower = follow(folder, at_s=20.0, speed=1.0)
    for _ in range(40):
        clocks.monotonic += 1.0
        follower.poll()
        began, now = follower.span()
        place = Place(latest(began, now, 500, 50), 500, 50)
        kept = follower.window(place, None).cells
        agents = follower.fold.agents
        fresh = paint(
            [a.lane.within(place.start, place.end, now, seen(a)) for a in agents], place.start, place.step, 50
        )
        told = follower.plans
        told.untold.mark(fresh, [(i, under_way(a, told, now)) for i, a in enumerate(agents)], place.start, place.step)
        mark_failures(fresh, [a.lane for a in agents], place.start, place.step)
        assert (np.frombuffer(b"".join(kept), dtype=np.int8).reshape(fresh.shape) == fresh).all()


def test_the_engine_at_a_moment_is_what_its_events_say(folder: Path, follow: Open, failing: Fake) -> None:
    from windtunnel.agents.events import EngineSample, Progress

    follower = follow(folder)
    while follower.poll().reading:
        pass
    at = 30
    got = follower.window(Place(0, 1000, 60), at * 1000).moment
    progress = {e.t // 250_000_000: e for e in failing.events if isinstance(e, Progress)}
    samples = {e.t // 1_000_000_000: e for e in failing.events if isinstance(e, EngineSample)}
    assert got.out == pytest.approx(progress[4 * at + 4].output_tokens - progress[4 * at].output_tokens, rel=0.02)
    assert got.kv == pytest.approx(samples[at + 1].kv_usage, abs=0.01)
    assert got.running == pytest.approx(samples[at + 1].running, abs=0.1)
    total = [follower.window(Place(0, 1000, 60), t * 1000).moment.preempted or 0 for t in range(60)]
    first, last = samples[0].preemptions, samples[59].preemptions
    assert sum(total) == (last or 0) - (first or 0) > 0


def test_at_the_end_the_last_known_figures_stand_there(folder: Path, follow: Open) -> None:
    """The last column is of the time after the last scrape."""
    follower = follow(folder)
    while follower.poll().reading:
        pass
    for columns in (40, 71, 96, 168):
        began, now = follower.span()
        place = place_of(Scope(), began, now, columns, over=True)
        m = follower.window(place, None).moment
        assert None not in (m.out, m.kv, m.running, m.waiting, m.in_flight)
        end = 59_999 // place.step * place.step
        whole = [
            moment(follower.fold, end - back * place.step, place.step) for back in range(1, 2 + 2000 // place.step)
        ]
        assert (m.in_flight, m.in_tool, m.idle) in [(w.in_flight, w.in_tool, w.idle) for w in whole]
        assert (m.kv, m.running, m.waiting) in [(w.kv, w.running, w.waiting) for w in whole], "not of the draining"
        assert place.column(now) >= 0.89 * columns, "the axis ends with the run"


@asynccontextmanager
async def opened(
    follower: Follower, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Viewer, Pilot[int], TimelineScreen]]:
    app = Viewer(follower, Theme(), "view", tick_s=0)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press("t")
        assert isinstance(app.screen, TimelineScreen)
        yield app, pilot, app.screen


async def test_t_opens_and_closes_it_and_the_lane_is_the_agents(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot, _):
        await pilot.press("t")
        assert isinstance(app.screen, FleetScreen)
        await pilot.press("down", "down", "t")
        assert isinstance(app.screen, TimelineScreen)
        assert app.screen.scope.agent == 2
        await pilot.press("escape")
        assert isinstance(app.screen, FleetScreen)


async def test_zoom_pan_and_fit(folder: Path, follow: Open, clocks: Clocks) -> None:
    async with opened(follow(folder, at_s=40.0, speed=1.0)) as (app, pilot, screen):
        assert screen.place.step == 500
        await pilot.press("plus", "plus")
        assert (screen.place.step, screen.scope.start) == (100, None)
        begin = screen.place.start
        clocks.monotonic += 2.0
        app.tick()
        assert screen.place.start == begin + 2000, "it follows now"
        await pilot.press("left")
        assert screen.place.start < begin + 2000
        back = screen.place.start
        clocks.monotonic += 2.0
        app.tick()
        assert screen.place.start == back, "what is looked at stands still"
        await pilot.press("home")
        assert screen.place.start == 0
        await pilot.press("right")
        assert screen.place.start == round(0.25 * screen.place.columns) * 100
        await pilot.press("minus")
        assert screen.place.step == 200
        await pilot.press("end")
        assert screen.scope.start is None
        await pilot.press("z")
        assert screen.place.step == 500
        assert screen.place.start == 0


async def test_the_time_cursor(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot, screen):
        now = follow_now(app)
        await pilot.press("comma")
        assert screen.scope.cursor == (now // 500 - 1) * 500
        await pilot.press("comma", "comma", "full_stop")
        assert screen.scope.cursor == (now // 500 - 2) * 500
        await pilot.press("shift+left")
        assert screen.scope.cursor == (now // 500 - 12) * 500
        column = screen.frame.left + screen.place.column(screen.scope.cursor)
        body = app.screen._compositor.render_strips()
        lane = body[screen.frame.first].text
        assert lane[column] == "│"
        await pilot.press("plus")
        assert screen.place.step == 200
        assert screen.frame.left + screen.place.column(screen.scope.cursor) == column, "it stays where it is"
        await pilot.press(*["shift+right"] * 6)
        assert screen.scope.cursor is None, "past the latest moment it is now again"
        await pilot.press("home", "comma")
        assert screen.scope.cursor is not None


def follow_now(app: Viewer) -> int:
    return app.source.span()[1]


async def test_the_cursors_lane_and_opening_it_at_its_time(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0), size=(80, 24)) as (app, pilot, screen):
        assert len(screen.frame.rows) < 32
        await pilot.press("down", "j", "j", "k")
        assert screen.scope.agent == 2
        await pilot.press("pagedown", "pagedown", "pagedown")
        assert screen.scope.agent == 31
        await pilot.press("pageup")
        assert screen.scope.agent < 31
        await pilot.press("l")
        assert screen.frame.shared
        assert len(screen.frame.rows[0]) == 2
        await pilot.press("l")
        assert all(len(r) == 1 for r in screen.frame.rows)
        await pilot.press("comma", "comma", "enter")
        assert isinstance(app.screen, AgentScreen)
        assert app.screen.agent == screen.scope.agent
        assert app.screen.at == screen.scope.cursor
        await pilot.press("escape")
        assert app.screen is screen


async def test_the_mouse_sets_both_cursors_and_opens(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot, screen):
        frame = screen.frame
        await pilot.click(offset=(frame.left + 20, frame.first + 3))
        assert (screen.scope.agent, screen.scope.cursor) == (frame.rows[3].start, 20 * 500)
        await pilot.click(offset=(4, frame.first + 3))
        assert isinstance(app.screen, AgentScreen)


async def test_before_anything_started_it_says_so(tmp_path: Path, follow: Open, running: Fake) -> None:
    folder = running.write(tmp_path / "run", until=0.5)
    async with opened(follow(folder, at_s=0.0)) as (_, pilot, screen):
        assert "─" not in plain(screen.frame.lines[screen.frame.first])
        for key in ("plus", "minus", "left", "right", "home", "end", "z", "comma", "full_stop", "down", "l", "enter"):
            await pilot.press(key)
        await pilot.resize_terminal(60, 16)
        await pilot.pause()


def test_a_state_is_the_same_in_fleet_and_timeline(folder: Path, follow: Open) -> None:
    """At any moment the last column of a fine window is what the fleet's row says; of a call without a token yet that is
    a guess there, from the engine's count, and not told here.
    """
    follower = follow(folder, at_s=33.3)
    view = follower.poll()
    began, now = follower.span()
    shown = follower.window(Place(latest(began, now, 50, 40), 50, 40), None)
    for one, lane in zip(view.rows, shown.cells, strict=True):
        last = SHOWN[lane[shown.place.column(now)]]
        if one.doing.label != "between calls":
            assert last == ("first" if one.state in {"queue", "prefill"} else one.state), one
    assert any(FIRST in lane for lane in shown.cells)
    assert replace(view, rows=()) != view


async def test_as_time_goes_on_it_is_painted_once_a_second(folder: Path, follow: Open, clocks: Clocks) -> None:
    async with opened(follow(folder, at_s=30.0, speed=1.0)) as (app, pilot, screen):
        painted = []
        for _ in range(12):
            clocks.monotonic += 0.25
            app.tick()
            painted.append(screen.window.now)
        assert len(set(painted)) in {3, 4}
        clocks.monotonic += 0.25
        app.tick()
        await pilot.press("down")
        assert screen.window.now == follow_now(app), "a key shows what is"


def keys_of(screen: TimelineScreen, action: str) -> list[str]:
    return [key for b in screen.BINDINGS if b.action == action for key in b.key.split(",")]


async def test_every_key_of_an_action_does_the_same(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=40.0)) as (app, pilot, screen):
        start = Scope(step=200, start=10_000, cursor=20_000, agent=9)
        seen = {}
        for binding in screen.BINDINGS:
            if binding.action in {"back", "open"}:
                continue
            results = []
            for key in binding.key.split(","):
                screen.scope = start
                await pilot.press(key)
                results.append(screen.scope)
            assert len(set(map(repr, results))) == 1, binding.key
            seen[binding.action] = results[0]
        assert len(set(map(repr, seen.values()))) == len(seen), "and no two actions the same"
        assert repr(start) not in map(repr, seen.values())
        for key in keys_of(screen, "back"):
            await pilot.press(key)
            assert isinstance(app.screen, FleetScreen)
            await pilot.press("t")
            assert isinstance(app.screen, TimelineScreen)
