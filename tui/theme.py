"""Glyphs, colours and strips: from a line of (text, tone) pieces to what a terminal draws.

A state is always shown three ways: glyph, word and colour, so that it survives NO_COLOR, colour blindness and a
screenshot in grey.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from windtunnel.agents.events import AgentState
from windtunnel.traces.errors import UsageError
from windtunnel.tui.palettes import DARK, NAMES, PALETTES, PLAIN, Palette, PaletteName

Line = tuple[tuple[str, str], ...]
"""One screen line as (text, tones) pieces; tones are space-separated names of `TONES`, or empty."""

BACKGROUND = DARK.ground
TONES = DARK.tones

STATES: tuple[AgentState, ...] = ("queue", "prefill", "decode", "tool", "wait", "done", "failed", "cut", "idle")


class Glyphs(Struct, frozen=True):
    """Everything drawn that is not a letter or a digit. All are one cell wide."""

    name: Literal["unicode", "ascii"]
    states: dict[AgentState, str]
    dot: str
    rule: str
    tick: str
    axis: str
    full: str
    """A filled cell of the turn bar."""
    rest: str
    edges: tuple[str, str]
    eighths: str
    """A bar's last cell, from empty to full."""
    levels: str
    """A trend's cells, from lowest to highest."""
    braille: bool
    none: str
    """Stands for a number that does not exist."""
    ellipsis: str
    child: str
    up: str
    down: str
    separator: str
    frame: str
    """top-left, top-right, bottom-left, bottom-right, horizontal, vertical."""

    def __hash__(self) -> int:
        return hash(self.name)


UNICODE = Glyphs(
    name="unicode",
    states={
        "queue": "◔",
        "prefill": "▷",
        "decode": "▶",
        "tool": "◆",
        "wait": "◌",
        "done": "✓",
        "failed": "✗",
        "cut": "✂",
        "idle": "·",
    },
    dot="●",
    rule="─",
    tick="┤",
    axis="│",
    full="━",
    rest="─",
    edges=("▕", "▏"),
    eighths=" ▏▎▍▌▋▊▉█",
    levels="▁▂▃▄▅▆▇█",
    braille=True,
    none="–",
    ellipsis="…",
    child="↳",
    up="▴",
    down="▾",
    separator=" · ",
    frame="╭╮╰╯─│",
)

ASCII = Glyphs(
    name="ascii",
    states={
        "queue": "Q",
        "prefill": "P",
        "decode": "D",
        "tool": "T",
        "wait": "W",
        "done": "+",
        "failed": "x",
        "cut": "%",
        "idle": ".",
    },
    dot="*",
    rule="-",
    tick="|",
    axis="|",
    full="=",
    rest="-",
    edges=("[", "]"),
    eighths=" ...====#",
    levels="_.,:-=+#",
    braille=False,
    none="-",
    ellipsis="~",
    child=">",
    up="^",
    down="v",
    separator=" | ",
    frame="++++-|",
)


class Theme(Struct, frozen=True):
    """What a widget needs to draw: the glyph set, and the styles of the tones."""

    glyphs: Glyphs = UNICODE
    colour: bool = True
    palette: PaletteName = "dark"

    @property
    def tones(self) -> Mapping[str, Style]:
        return PALETTES[self.palette].tones if self.colour else PLAIN

    @property
    def colours(self) -> Palette:
        return PALETTES[self.palette]

    @property
    def ink(self) -> PaletteName | Literal[False]:
        """What `strip` draws with."""
        return self.palette if self.colour else False

    @property
    def css_class(self) -> str:
        """Of a screen: says which ground lies under its lines."""
        return self.palette if self.colour else "plain"


def theme_for(environ: Mapping[str, str], encoding: str | None, palette: str | None = None) -> Theme:
    """The theme a terminal can show: NO_COLOR, and ASCII where the encoding or the Linux console lacks the glyphs.

    `palette`, or WINDTUNNEL_THEME, names the colours.
    """
    unicode = (encoding or "ascii").lower().replace("-", "").startswith("utf")
    ascii_only = not unicode or environ.get("TERM") == "linux" or bool(environ.get("WINDTUNNEL_ASCII"))
    wanted = palette or environ.get("WINDTUNNEL_THEME") or NAMES[0]
    name = next((name for name in NAMES if name == wanted), None)
    if name is None:
        raise UsageError(f"{wanted} is no theme: choose one of {', '.join(NAMES)} (--theme, WINDTUNNEL_THEME)")
    return Theme(ASCII if ascii_only else UNICODE, colour=not environ.get("NO_COLOR"), palette=name)


@lru_cache(maxsize=1024)
def _style(tones: str, over: str, ink: PaletteName | bool) -> Style:
    if ink is False:
        table, ground = PLAIN, Style()
    else:
        palette = DARK if ink is True else PALETTES[ink]
        table, ground = palette.tones, Style(color=palette.text, bgcolor=palette.ground)
    return Style.combine((ground, *(table[name] for name in (*tones.split(), *over.split()))))


class Row(Strip):
    """Forgets itself: Textual's remembers that it is its own only part, and what refers to itself stays in memory until
    all that lives is looked through for garbage. A screen that is watched for an hour draws a hundred thousand rows.
    """

    __slots__ = ()

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        within = [cut for cut in cuts if cut <= self.cell_length]
        return [self] if within == [self.cell_length] else super().divide(within)


@lru_cache(maxsize=1024)
def strip(line: Line, width: int, colour: PaletteName | bool = True, over: str = "") -> Strip:
    """The line as a Strip of exactly `width` cells on the background, `over` laid on every piece.

    `colour` is a theme's `ink`; True is the first palette. Cached by value: an unchanged row costs one look-up.
    """
    segments: list[Segment] = []
    left = width
    run, was = "", ""
    for text, tones in (*line, ("", None)):
        if tones == was and tones is not None:
            run += text
            continue
        if run:
            if not run.isprintable():
                # Titles, tool names and generated text come from elsewhere: no escape sequence gets through.
                run = "".join(c if c.isprintable() else " " for c in run)
            size = len(run) if run.isascii() else _wide(run)
            if size > left:
                run, size = set_cell_size(run, left), left
            left -= size
            segments.append(Segment(run, _style(was, over, colour)))
        run, was = text, tones or ""
    if left > 0:
        segments.append(Segment(" " * left, _style("", over, colour)))
    return Row(segments, width)


def cells_of(text: str) -> int:
    """Width of a text in cells; most are ASCII and need no table."""
    return len(text) if text.isascii() else _wide(text)


_wide = lru_cache(maxsize=4096)(cell_len)


def plain(line: Line) -> str:
    """The line's text alone."""
    return "".join(text for text, _ in line)
