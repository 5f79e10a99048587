"""The command palette and the help: complete, by name, and what is chosen is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_run import Fake
from textual.binding import Binding, BindingType

from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.agent import AgentScreen
from windtunnel.tui.screens.fleet import FleetScreen
from windtunnel.tui.screens.full import FullScreen
from windtunnel.tui.screens.help import EVERYWHERE, KEYS, HelpScreen, help_lines, keys_of, named
from windtunnel.tui.screens.leave import WIDTH, leave_lines
from windtunnel.tui.screens.palette import Command, PaletteScreen, matching
from windtunnel.tui.theme import ASCII, Theme
from windtunnel.tui.widgets.compose import cells


def full_screens(of: type[FullScreen[Any]] = FullScreen) -> list[type[FullScreen[Any]]]:
    """Those that are shown, without the ones that they have in common."""
    return [screen for below in of.__subclasses__() for screen in full_screens(below) or [below]]


def bindings(screen: type[FullScreen[Any]]) -> list[BindingType]:
    """The screen's own, those that it shares with others, and the viewer's."""
    shared = [base for base in screen.__mro__ if issubclass(base, FullScreen)]
    return [binding for base in (*shared, Viewer) for binding in vars(base).get("BINDINGS", ())]


SCREENS = sorted(full_screens(), key=lambda screen: screen.__name__)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, running: Fake) -> Path:
    return running.write(tmp_path_factory.mktemp("palette") / "run", summary=True)


def viewer(follower: Follower, look: Theme | None = None) -> Viewer:
    return Viewer(follower, look or Theme(), "view", tick_s=0)


def text(app: Viewer) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("screen", SCREENS, ids=lambda s: s.__name__)
def test_every_key_of_every_screen_stands_in_its_help(screen: type[FullScreen[Any]]) -> None:
    said = (*KEYS[screen.__name__], *EVERYWHERE)
    words = {key for listed, _ in said for key in listed.split()}
    words |= {word.strip(",;:") for _, text in said for word in text.split()}
    keys: dict[str, list[str]] = {}
    for binding in bindings(screen):
        assert isinstance(binding, Binding)
        keys.setdefault(binding.action, []).extend(map(named, binding.key.split(",")))
    for action, of in keys.items():
        assert words.intersection(of), (action, of)


def test_the_help_names_no_key_that_does_nothing() -> None:
    for screen in SCREENS:
        bound = {
            named(key) for binding in bindings(screen) if isinstance(binding, Binding) for key in binding.key.split(",")
        }
        for keys, _ in (*KEYS[screen.__name__], *EVERYWHERE):
            assert set(keys.split()) <= bound, (screen.__name__, keys)


def test_words_in_any_order_find_a_command() -> None:
    all_ = (Command("theme: dark", "", "a"), Command("next theme", "T", "b"), Command("save", "p", "c"))
    assert [c.action for c in matching(all_, "theme")] == ["a", "b"]
    assert [c.action for c in matching(all_, "dark th")] == ["a"]
    assert [c.action for c in matching(all_, "NEXT")] == ["b"]
    assert len(matching(all_, "")) == 3
    assert matching(all_, "zzz") == []


async def test_typing_filters_and_enter_runs(folder: Path, follow: Callable[..., Follower]) -> None:
    app = viewer(follow(folder, at_s=40.0))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert isinstance(app.screen, PaletteScreen)
        names = [command.name for command in app.screen.all]
        assert {"open", "sort", "filter", "freeze", "picture", "help", "quit", "theme: light"} <= set(names)
        assert next(c.key for c in app.screen.all if c.name == "quit") == "q ^c"
        assert len(names) == len(set(names))
        assert not {"Quit", "up", "down", "commands"} & set(names)
        await pilot.press(*"light")
        await pilot.pause()
        assert "theme: light" in text(app)
        assert "reverse" not in text(app)
        assert " 1 of " in text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)
        assert app.look.palette == "light"


async def test_a_screens_own_command_runs_there(folder: Path, follow: Callable[..., Follower]) -> None:
    app = viewer(follow(folder))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p", *"freeze", "enter")
        await pilot.pause()
        assert "FROZEN" in text(app)
        await pilot.press("ctrl+p", *"zzz")
        await pilot.pause()
        assert "nothing is called that" in text(app)
        await pilot.press("enter", "backspace", "backspace", "backspace", *"open", "enter")
        await pilot.pause()
        assert isinstance(app.screen, AgentScreen)
        await pilot.press("ctrl+p", *"back", "enter")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)


async def test_no_command_is_cut_and_the_browser_is_found(folder: Path, follow: Callable[..., Follower]) -> None:
    app = viewer(follow(folder, at_s=40.0))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p", *"replay")
        await pilot.pause()
        assert "replay faster; a finished run from its start" in text(app)
        assert isinstance(app.screen, PaletteScreen)
        assert app.screen.widest >= max(len(c.name) + len(c.key) for c in app.screen.all) + 3
        await pilot.press("ctrl+u", *"web", "enter")
        await pilot.pause()
        said = "".join(part for part, _ in app.message)
        assert said == f"windtunnel view {folder} --web"
        assert said[:40] in text(app).splitlines()[-1]


@pytest.mark.parametrize("phase", ["warmup", "steady"])
def test_leaving_says_what_becomes_of_the_results(phase: str) -> None:
    said = ["".join(part for part, _ in line) for line in leave_lines(0, phase)]
    assert all(len(line) <= WIDTH for line in said)
    assert ("nothing is measured" in said[0]) == (phase == "warmup")
    assert said[2].rstrip().endswith("no result comes" if phase == "warmup" else "kept and summed up")
    assert said[3].rstrip().endswith("comes back")


async def test_escape_and_the_same_key_close_it(folder: Path, follow: Callable[..., Follower]) -> None:
    app = viewer(follow(folder, at_s=40.0))
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("escape", "ctrl+p"):
            await pilot.press("ctrl+p", "down", key)
            await pilot.pause()
            assert isinstance(app.screen, FleetScreen)


async def test_the_mouse_takes_a_command(folder: Path, follow: Callable[..., Follower]) -> None:
    app = viewer(follow(folder, at_s=40.0))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p", *"help")
        await pilot.pause()
        assert isinstance(app.screen, PaletteScreen)
        await pilot.click(offset=(30, app.screen.body.region.y + 3))
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (250, 70)])
async def test_help_can_be_read_to_its_end_at_any_size(
    folder: Path, follow: Callable[..., Follower], size: tuple[int, int]
) -> None:
    app = viewer(follow(folder, at_s=40.0), Theme(ASCII))
    async with app.run_test(size=size) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert "move" in text(app)
        await pilot.press("end")
        await pilot.pause()
        assert "~           an estimate" in text(app).replace("|", " ")
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)


@pytest.mark.parametrize("width", [34, 54, 74, 114, 194])
@pytest.mark.parametrize("screen", KEYS)
def test_no_line_of_the_help_is_cut_and_no_key_is_said_twice(screen: str, width: int) -> None:
    assert max(map(cells, help_lines(Theme(), screen, width))) <= width
    keys = [key for keys, _ in keys_of(screen) for key in keys.split() if key not in {"left", "right"}]
    assert len(keys) == len(set(keys))


def test_the_states_are_explained_where_agents_are_and_every_screen_has_its_own_words() -> None:
    said = {name: " ".join(t for line in help_lines(Theme(), name, 74) for t, _ in line) for name in KEYS}
    assert {name for name in KEYS if "prefill" in said[name]} == {"FleetScreen", "AgentScreen", "TimelineScreen"}
    assert all("·" in said[name] for name in ("FleetScreen", "AgentScreen"))
    for word in ("trend", "counts up", "↳2", "10 s back", "--web"):
        assert word in said["FleetScreen"], word
    assert "missed" in said["AgentScreen"]
    assert {name for name in KEYS if "══" in said[name]} == {"AgentScreen", "TimelineScreen"}
    assert "in the queue or in prefill" in said["TimelineScreen"]
    assert "work/h" in said["RunsScreen"]


async def test_the_help_is_of_the_open_screen(folder: Path, follow: Callable[..., Follower]) -> None:
    app = viewer(follow(folder, at_s=40.0))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "question_mark")
        await pilot.pause()
        assert "back to the fleet" in text(app)
        assert "freeze all" not in text(app)
