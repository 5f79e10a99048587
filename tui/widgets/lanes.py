"""Lanes over time: a row of cells, one for each column of time, coloured and shaped by state.

What the engine works on is a thick bar, a tool a line, a wait a thin line; failures are marks. A wait for a first token
of which nobody knows whether it was queue or prefill is hollow. Without colour, and in ASCII, letters stand in the
cells.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from windtunnel.simulator.results.untold import SHOWN, LaneState
from windtunnel.tui.theme import ASCII, Glyphs, Line
from windtunnel.tui.widgets.compose import joined


def glyph(state: LaneState, glyphs: Glyphs) -> str:
    """Stands beside an agent's number."""
    return "?" if state == "first" else glyphs.states[state]


BARS: Mapping[LaneState, str] = {
    "decode": "▇",
    "prefill": "▇",
    "first": "═",
    "tool": "━",
    "queue": "╌",
    "wait": "─",
    "failed": "✗",
    "cut": " ",
    "done": " ",
    "idle": " ",
}
BLANK: frozenset[LaneState] = frozenset({"cut", "done", "idle"})
LETTERS: Mapping[LaneState, str] = {state: " " if state in BLANK else glyph(state, ASCII) for state in BARS}
LEGEND: tuple[LaneState, ...] = ("decode", "prefill", "first", "queue", "tool", "wait", "failed")
WAITING: tuple[LaneState, ...] = ("prefill", "first")
"""Ways to wait for a first token."""
WORDS: Mapping[LaneState, str] = {"first": "queue or prefill"}
QUIET: frozenset[LaneState] = frozenset({"wait"})
"""Without colour most of a picture would be their letter: it is dimmed."""


def marks(glyphs: Glyphs, colour: bool) -> Mapping[LaneState, str]:
    """A cell of each state."""
    return BARS if colour and glyphs.name == "unicode" else LETTERS


def tone(state: LaneState, colour: bool) -> str:
    if state == "first":
        return "prefill"
    return "faint" if state in QUIET and not colour else state


def word(state: LaneState) -> str:
    return WORDS.get(state, state)


@lru_cache(maxsize=2048)
def cells(ranks: bytes, glyphs: Glyphs, colour: bool, cursor: int | None = None) -> Line:
    """One lane; `cursor` is the column that the time cursor crosses."""
    drawn = marks(glyphs, colour)
    out: list[tuple[str, str]] = []
    at = 0
    for rank, run in groupby(ranks):
        state = SHOWN[rank]
        length = len(list(run))
        text, style = drawn[state] * length, tone(state, colour)
        if cursor is not None and at <= cursor < at + length:
            before = cursor - at
            out += [(text[:before], style), (glyphs.axis, "strong"), (text[before + 1 :], style)]
        else:
            out.append((text, style))
        at += length
    return tuple(piece for piece in out if piece[0])


def legend(glyphs: Glyphs, colour: bool, drawn: Collection[LaneState] = (), room: int = 200) -> Line:
    """`▇ decode  ━ tool`: what the cells mean, as far as there is room. `drawn`: states that there are; of the kinds of
    waiting for a first token only these are told, or the usual one.
    """
    told = [state for state in WAITING if state in drawn] or WAITING[:1]
    cell = marks(glyphs, colour)
    parts: list[Line] = [
        ((f"{cell[state]} ", tone(state, colour)), (word(state), "dim"))
        for state in LEGEND
        if state not in WAITING or state in told
    ]
    while parts and sum(len(text) for part in parts for text, _ in part) + 2 * len(parts) - 2 > room:
        parts.pop()
    return joined(parts)


def with_cursor(line: Line, column: int, axis: str) -> Line:
    """The line with the cursor standing in one of its columns."""
    out: list[tuple[str, str]] = []
    at = 0
    for text, style in line:
        # Everything drawn in a picture is one cell wide.
        if at <= column < at + len(text):
            out += [(text[: column - at], style), (axis, "strong"), (text[column - at + 1 :], style)]
        else:
            out.append((text, style))
        at += len(text)
    return tuple(piece for piece in out if piece[0])


def grouped(agents: int, rows: int) -> list[range]:
    """Agents that share a row, where there are more of them than rows: as even as can be, in order."""
    if agents <= rows:
        return [range(i, i + 1) for i in range(agents)]
    each = -(-agents // max(1, rows))
    return [range(i, min(agents, i + each)) for i in range(0, agents, each)]


TICK_MS = (
    *(100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 18_000_000, 36_000_000),
)


def axis(start: int, step: int, columns: int, glyphs: Glyphs, apart: int = 12) -> str:
    """Times at round places, `apart` columns from each other at least: `│0:10      │0:20`. ms since the run began."""
    every = next((t for t in TICK_MS if t >= apart * step), TICK_MS[-1])
    out = [" "] * columns
    first = -(-start // every) * every
    for t in range(max(0, first), start + step * columns, every):
        at = (t - start) // step
        label = glyphs.axis + clock(t, every)
        if at + len(label) <= columns:
            out[at : at + len(label)] = label
    return "".join(out)


def clock(t: int, every: int = 1000) -> str:
    """A length in ms as `1:20`, from an hour on `1:02:20`; with tenths where the times are that close."""
    total, rest = divmod(max(0, t), 1000)
    minutes, seconds = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    return f"{text}.{rest // 100}" if every < 1000 else text


def level(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Shares of 1 as one row of cells, from nothing to full; a blank where none is known."""
    top = len(glyphs.levels) - 1
    return "".join(" " if v is None else glyphs.levels[round(max(0.0, min(1.0, v)) * top)] for v in values)
