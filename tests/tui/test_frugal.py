"""The pen: what a terminal shows stays the same, and what is sent gets shorter."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_clocks import Clocks
from fake_run import Fake
from rich.cells import cell_len
from textual._compositor import CompositorUpdate

from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.frugal import NOTHING, Pen, after, change, cropped
from windtunnel.tui.palettes import NAMES, PALETTES
from windtunnel.tui.theme import Theme, strip

DARK = "38;2;205;214;244;48;2;13;16;23"
BOLD = "1;38;2;255;255;255;48;2;13;16;23"


def piece(parameters: str, text: str) -> str:
    return f"\x1b[{parameters}m{text}\x1b[0m"


class Terminal:
    """Enough of one: every character with how it looks."""

    def __init__(self) -> None:
        self.fore = self.back = ""
        self.on: set[str] = set()
        self.shown: list[tuple[str, str, str, frozenset[str]]] = []

    def feed(self, data: str) -> None:
        for part in re.split("(\x1b\\[[\\d;?]*[A-Za-z])", data):
            if part.startswith("\x1b") and part.endswith("m"):
                self._style(part[2:-1].split(";"))
            elif part.startswith("\x1b"):
                self.shown.append((part, "", "", frozenset()))
            else:
                self.shown += [(c, self.fore, self.back, frozenset(self.on)) for c in part if c != "\n"]

    def _style(self, numbers: list[str]) -> None:
        while numbers:
            number = numbers.pop(0)
            if number in {"38", "48"}:
                take = 4 if numbers[0] == "2" else 2
                colour, numbers = ";".join(numbers[:take]), numbers[take:]
                if number == "38":
                    self.fore = colour
                else:
                    self.back = colour
            elif number in {"", "0"}:
                self.fore = self.back = ""
                self.on.clear()
            elif number in {"22", "23", "24", "27"}:
                self.on -= {"22": {"1", "2"}, "23": {"3"}, "24": {"4"}, "27": {"7"}}[number]
            elif number == "39":
                self.fore = ""
            elif number == "49":
                self.back = ""
            elif 30 <= int(number) <= 37 or 90 <= int(number) <= 97:
                self.fore = number
            elif 40 <= int(number) <= 47 or 100 <= int(number) <= 107:
                self.back = number
            else:
                self.on.add(number)


def seen(*data: str) -> list[tuple[str, str, str, frozenset[str]]]:
    terminal = Terminal()
    for part in data:
        terminal.feed(part)
    return terminal.shown


def test_a_colour_is_sent_once() -> None:
    assert Pen().write(piece(DARK, "a") + piece(DARK, "b")) == f"\x1b[{DARK}mab"
    assert Pen().write(piece(DARK, "a") + piece(BOLD, "b")) == f"\x1b[{DARK}ma\x1b[1;38;2;255;255;255mb"
    assert Pen().write(piece(BOLD, "a") + piece(DARK, "b")).endswith("a\x1b[22;38;2;205;214;244mb")


def test_moving_the_cursor_needs_no_colour() -> None:
    pen = Pen()
    assert (
        pen.write(f"\x1b[3;1H{piece(DARK, 'a')}\n\x1b[4;1H{piece(DARK, 'b')}\n")
        == f"\x1b[3;1H\x1b[{DARK}ma\n\x1b[4;1Hb\n"
    )
    assert pen.write(f"\x1b[5;1H{piece(DARK, 'c')}") == "\x1b[5;1Hc"
    # Erasing takes the ground's colour.
    assert pen.write("\x1b[2J") == "\x1b[0m\x1b[2J"


def test_the_end_takes_the_colours_away() -> None:
    pen = Pen()
    pen.write(piece(DARK, "a"))
    assert pen.lift() == "\x1b[0m"
    assert pen.write("\x1b[?1049l") == "\x1b[?1049l"
    assert pen.write(piece(DARK, "b")) == f"\x1b[{DARK}mb"


def test_any_stream_looks_the_same() -> None:
    rng = random.Random(7)
    styles = [
        "",
        "0",
        "1",
        "2",
        "7",
        "4;38;5;12",
        "1;31;42",
        "91;107",
        "38;2;1;2;3",
        "48;2;3;2;1",
        DARK,
        BOLD,
        "1;2;7;31",
    ]
    for _ in range(300):
        chunks = []
        for _ in range(4):
            data = ""
            for _ in range(rng.randint(0, 12)):
                data += rng.choice(("", "\n", "\x1b[2;5H", "\x1b[K", "\x1b[?2026h"))
                data += f"\x1b[{rng.choice(styles)}m" + rng.choice(("", "a", " ", "x y", "█"))
                data += rng.choice(("", "\x1b[0m"))
            chunks.append(data)
        pen = Pen()
        short = [pen.write(chunk) for chunk in chunks]
        assert seen(*short) == seen(*chunks)


def test_a_screen_costs_a_third_less() -> None:
    for name in NAMES:
        tones = [tone for tone in PALETTES[name].tones if tone]
        rng = random.Random(3)
        data = ""
        for y in range(40):
            line = tuple(
                (f"{rng.randrange(1000):6}", rng.choice(("text", "text", "dim", rng.choice(tones)))) for _ in range(16)
            )
            data += f"\x1b[{y + 1};1H"
            for segment in strip(line, 100, name):
                assert segment.style is not None
                data += segment.style.render(segment.text)
        short = Pen().write(data)
        assert seen(short) == seen(data)
        assert len(short) < 0.66 * len(data)


def test_what_a_change_sends() -> None:
    def between(old: str, new: str) -> str:
        return change(after(NOTHING, old), after(NOTHING, new))

    assert between("", "31") == "\x1b[31m"
    assert between("31", "") == "\x1b[0m"
    assert between("1;31", "31") == "\x1b[22m"
    assert between("1;2;31", "2;31") == "\x1b[22;2m"
    assert between("31", "31") == ""
    assert between("31;42", "42") == "\x1b[39m"
    assert between("53;38;2;1;2;3", "") == "\x1b[0m"


class Grid:
    """A terminal that keeps what is where."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], str] = {}
        self.sent = 0
        self.x = self.y = 0

    def feed(self, data: str) -> None:
        self.sent += len(data.encode())
        for part in re.split("(\x1b\\[[\\d;?]*[A-Za-z])", data):
            if (move := re.fullmatch("\x1b\\[(\\d+);(\\d+)H", part)) is not None:
                self.y, self.x = int(move[1]) - 1, int(move[2]) - 1
            elif not part.startswith("\x1b"):
                for char in part.replace("\n", ""):
                    self.cells[self.y, self.x] = char
                    self.x += cell_len(char)

    def lines(self, width: int, height: int) -> list[str]:
        return ["".join(self.cells.get((y, x), " ") for x in range(width)) for y in range(height)]


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_the_terminal_shows_what_the_screen_is(
    tmp_path: Path, running: Fake, follow: Callable[..., Follower], clocks: Clocks, size: tuple[int, int]
) -> None:
    app = Viewer(follow(running.write(tmp_path / "run"), at_s=20.0, speed=1.0), Theme(), "view", tick_s=0)
    grid, pen, whole = Grid(), Pen(), 0

    def display(screen: object, renderable: Any) -> None:
        nonlocal whole
        if isinstance(renderable, CompositorUpdate):
            whole += len(renderable.render_segments(app.console).encode())
            grid.feed(pen.write(cropped(renderable).render_segments(app.console)))

    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app._display = display  # type: ignore[method-assign]
        app.refresh()
        app.screen.refresh()
        await pilot.pause(0.1)
        keys = iter(("down", "s", "enter", "escape", "space", "question_mark", "escape", "T", "end", "space"))
        for step in range(20):
            clocks.monotonic += 0.25
            app.tick()
            if step % 2:
                await pilot.press(next(keys))
            await pilot.pause(0.05)
            shown = [line.text for line in app.screen._compositor.render_strips()]
            assert grid.lines(*size) == shown, step
    assert grid.sent < 0.7 * whole
