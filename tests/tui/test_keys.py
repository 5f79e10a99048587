"""Keys that come faster than they are looked at are done in their order."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_run import Fake
from textual import events
from textual.pilot import Pilot

from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.fleet import FleetScreen
from windtunnel.tui.screens.palette import PaletteScreen
from windtunnel.tui.screens.timeline import TimelineScreen
from windtunnel.tui.theme import Theme

NAMED = {"/": "slash", "+": "plus", "<": "backspace", "!": "enter", "^": "ctrl+p"}


@pytest.fixture(scope="module")
def folder(small: Fake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.write(tmp_path_factory.mktemp("keys") / "run", summary=True)


@pytest.fixture
def app(folder: Path, follow: Callable[..., Follower]) -> Viewer:
    return Viewer(follow(folder), Theme(), "view", tick_s=0)


async def burst(pilot: Pilot[int], typed: str) -> None:
    """All of it at once, as a terminal sends it: `/` opens the filter, `<` erases, `!` is enter, `^` ctrl+p."""
    for char in typed:
        key = NAMED.get(char, char)
        pilot.app.post_message(events.Key(key, None if char in "<!^" else char))
    for _ in range(5 * len(typed)):
        await pilot.pause()


async def test_what_is_erased_is_the_letter_before(app: Viewer) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await burst(pilot, "^sx<ort<<zy<<rt")
        assert isinstance(app.screen, PaletteScreen)
        assert app.screen.typed == "sort"


async def test_what_is_typed_behind_the_key_of_a_box_is_for_the_box(app: Viewer) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await burst(pilot, "/Sm<ession<<!")
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        assert (screen.table.pattern, screen.table.map, screen.table.backwards) == ("Sessi", "", False)
        assert not screen.typing


async def test_a_command_is_done_before_the_key_behind_it(app: Viewer) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await burst(pilot, "^timeline!+")
        assert isinstance(app.screen, TimelineScreen)
        assert app.screen.scope.step is not None


async def test_a_key_whose_receiver_is_gone_holds_nobody_up(app: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        monkeypatch.setattr("windtunnel.tui.keys.PATIENCE_S", 0.0)
        monkeypatch.setattr(app, "follow", lambda _node: None)
        await burst(pilot, "mt")
        assert isinstance(app.screen, TimelineScreen)
        assert app.fleet.table.map == "state"
