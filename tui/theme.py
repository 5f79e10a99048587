"""Colours, glyphs and words of the screens.

A state is always shown three ways: glyph, word and colour, so that it survives NO_COLOR, colour blindness and a
screenshot in grey. Colours are Okabe and Ito's palette. Widgets name a tone ("tool", "dim", ...), never a colour.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from windtunnel.agents.events import AgentState

Line = tuple[tuple[str, str], ...]
"""One screen line as (text, tones) pieces; tones are space-separated names of `TONES`, or empty."""

BACKGROUND = "#0b0e14"
RAISED = "#141a24"
"""Background of dialogs and of the selected row."""

TONES: Mapping[str, Style] = {
    "": Style(),
    "text": Style(color="#c9d1d9"),
    "strong": Style(color="#f0f3f6", bold=True),
    "dim": Style(color="#7d8590"),
    "faint": Style(color="#4b535d"),
    "rule": Style(color="#2d333b"),
    "brand": Style(color="#56b4e9", bold=True),
    "key": Style(color="#56b4e9", bold=True),
    "good": Style(color="#00b384"),
    "warn": Style(color="#e69f00"),
    "bad": Style(color="#f0753a", bold=True),
    "queue": Style(color="#f0e442"),
    "prefill": Style(color="#56b4e9"),
    "decode": Style(color="#00b384"),
    "tool": Style(color="#e69f00"),
    "wait": Style(color="#cc79a7"),
    "done": Style(color="#7d8590"),
    "failed": Style(color="#f0753a", bold=True),
    "cut": Style(color="#a8a06a"),
    "idle": Style(color="#4b535d"),
    "graph": Style(color="#00b384"),
    "head": Style(color="#8b949e", bgcolor=RAISED),
    "sorted": Style(color="#f0f3f6", bgcolor=RAISED, bold=True),
    "select": Style(bgcolor="#1f2a3a"),
    "reverse": Style(reverse=True),
    "bold": Style(bold=True),
    "emulated": Style(color="#0b0e14", bgcolor="#e69f00", bold=True),
    "frozen": Style(color="#0b0e14", bgcolor="#56b4e9", bold=True),
    "alarm": Style(color="#0b0e14", bgcolor="#f0753a", bold=True),
}
"""Okabe-Ito hues; green and vermillion are lifted a little so that text in them keeps 4.5:1 on the dark background."""

PLAIN: Mapping[str, Style] = {
    name: Style(
        bold=style.bold or None,
        dim=name in {"dim", "faint", "rule", "done", "idle"} or None,
        underline=name in {"head", "sorted"} or None,
        reverse=name in {"select", "reverse", "emulated", "frozen", "alarm"} or None,
    )
    for name, style in TONES.items()
}
"""The same tones without any colour, for NO_COLOR."""

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
    eighths=" ........#",
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

    @property
    def tones(self) -> Mapping[str, Style]:
        return TONES if self.colour else PLAIN


def theme_for(environ: Mapping[str, str], encoding: str | None) -> Theme:
    """The theme a terminal can show: NO_COLOR, and ASCII where the encoding or the Linux console lacks the glyphs."""
    unicode = (encoding or "ascii").lower().replace("-", "").startswith("utf")
    ascii_only = not unicode or environ.get("TERM") == "linux" or bool(environ.get("WINDTUNNEL_ASCII"))
    return Theme(ASCII if ascii_only else UNICODE, colour=not environ.get("NO_COLOR"))


@lru_cache(maxsize=1024)
def _style(tones: str, over: str, colour: bool) -> Style:
    table = TONES if colour else PLAIN
    ground = Style(bgcolor=BACKGROUND) if colour else Style()
    return Style.combine((ground, *(table[name] for name in (*tones.split(), *over.split()))))


@lru_cache(maxsize=4096)
def strip(line: Line, width: int, colour: bool = True, over: str = "") -> Strip:
    """The line as a Strip of exactly `width` cells on the background, `over` laid on every piece.

    Cached by value: an unchanged row costs one look-up.
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
            size = cells_of(run)
            if size > left:
                run, size = set_cell_size(run, left), left
            left -= size
            segments.append(Segment(run, _style(was, over, colour)))
        run, was = text, tones or ""
    if left > 0:
        segments.append(Segment(" " * left, _style("", over, colour)))
    return Strip(segments, width)


def cells_of(text: str) -> int:
    """Width of a text in cells; most are ASCII and need no table."""
    return len(text) if text.isascii() else _wide(text)


_wide = lru_cache(maxsize=4096)(cell_len)


def plain(line: Line) -> str:
    """The line's text alone."""
    return "".join(text for text, _ in line)
