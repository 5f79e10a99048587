"""The heat map: every agent as one cell, for fleets that no table can show at once. A pure function of view and size.

An agent keeps its cell: what the filter does not let through is dimmed and stays where it is.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from windtunnel.tui.figures import ceiling, count, percent, seconds, tenths, whole
from windtunnel.tui.theme import STATES, Glyphs, Line
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.compose import Part, cells, cut, pad, spread

CARD = (22, 4)
"""The size of a cell with room for an agent's session."""
TALL, FLAT = ((14, 3), (12, 3), (10, 3), (14, 2), (12, 2), (10, 2), (8, 2), (6, 2)), (8, 6, 5, 4, 3)
SIZES = (CARD, *TALL, *((wide, 1) for wide in FLAT))
"""Cells as (width, height), the gap at their right included, from the roomiest on."""
SMALLEST = (2, 1)
COLUMNS = (128, 100, 80, 64, 50, 40, 32, 25, 20, 16, 10, 8, 5, 4)
"""Agents in a row: numbers that one can count with."""
STEPS = 8
TTFT_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds from which on a cell is of the next colour."""
SHARE_STEPS = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


MAP = " map  "
"""Before the names of what can be shown."""


class Measure(Struct, frozen=True):
    """What the cells can show."""

    name: str
    unit: str
    value: Callable[[Row], float | None]
    text: Callable[[float], str]
    short: Callable[[float], str]
    """In two or three cells."""
    steps: tuple[float, ...] = ()
    """Fixed limits between the colours; empty where equal parts of what the largest value needs are used."""


MEASURES: dict[str, Measure] = {
    "tok/s": Measure("tok/s", "tok/s", lambda r: r.rate, tenths, whole),
    "context": Measure("context", "tokens", lambda r: r.context, count, lambda v: f"{v / 1000:.0f}k"),
    "cached": Measure(
        "cached", "of the prompt", lambda r: r.cached, percent, lambda v: f"{min(99.0, v * 100):.0f}", SHARE_STEPS
    ),
    "TTFT": Measure(
        "TTFT",
        "s",
        lambda r: r.ttft_s,
        seconds,
        lambda v: f"{v:.1f}".removeprefix("0") if v < 9.95 else f"{v:.0f}",
        TTFT_STEPS,
    ),
}
SHOWN = ("state", *MEASURES)
"""What `s` goes through."""
HEAD_END = len(MAP) + sum(len(name) + 3 for name in SHOWN)
"""Cells of the head that its names take."""


class Plan(Struct, frozen=True):
    """Where the cells stand."""

    wide: int
    high: int
    columns: int
    rows: int
    label: int
    """Cells of the numbers at the left."""

    def at(self, x: int, y: int) -> int | None:
        """The position of the cell at a column and row of the map."""
        column = (x - self.label) // self.wide
        return y // self.high * self.columns + column if x >= self.label and column < self.columns else None


def plan(agents: int, width: int, height: int) -> Plan:
    """The roomiest cells that let all agents be seen; the smallest, and scrolling, where none do."""
    label = len(str(max(agents, 10))) + 3
    room = width - label - 1
    for wide, high in (*SIZES, SMALLEST):
        most = room // wide
        columns = max(1, agents) if agents <= min(most, 8) else next((n for n in COLUMNS if n <= most), 1)
        rows = -(-agents // columns)
        if rows * high <= height or (wide, high) == SMALLEST:
            return Plan(wide=wide, high=high, columns=columns, rows=rows, label=label)
    raise AssertionError


def limits(measure: Measure, values: Sequence[float]) -> tuple[float, ...]:
    """From which value on a cell has the next colour."""
    if measure.steps:
        return measure.steps
    top = ceiling(max(values, default=0.0))
    return tuple(top * i / STEPS for i in range(1, STEPS))


def level(value: float, steps: Sequence[float]) -> int:
    return sum(value >= step for step in steps)


def heat_head(shown: str, width: int, right: Line) -> Line:
    """What can be shown, the present one marked."""
    out: list[tuple[str, str]] = [(MAP, "head")]
    for name in SHOWN:
        out += [(f" {name} ", "reverse" if name == shown else "head"), (" ", "head")]
    space = width - cells(tuple(out)) - cells(right)
    return (*out, (" " * max(0, space), "head"), *right)


def shown_at(x: int) -> str | None:
    """What a click on the map's head at cell `x` shows."""
    left = len(MAP)
    for name in SHOWN:
        if left <= x < left + len(name) + 2:
            return name
        left += len(name) + 3
    return None


def heat_lines(
    rows: Sequence[Row],
    kept: frozenset[int],
    shown: str,
    cursor: int,
    top: int,
    height: int,
    form: Plan,
    glyphs: Glyphs,
) -> list[Line]:
    """The map itself, from the row of cells `top` on."""
    measure = MEASURES.get(shown)
    steps: tuple[float, ...] = ()
    if measure is not None:
        steps = limits(measure, [v for v in map(measure.value, rows) if v is not None])
    lines: list[Line] = []
    for first in range(top * form.columns, len(rows), form.columns):
        if len(lines) + form.high > height:
            break
        band = rows[first : first + form.columns]
        parts = [_cell(row, shown, steps, row.agent in kept, row.agent == cursor, form, glyphs) for row in band]
        for y in range(form.high):
            number = f"{first + 1:>{form.label - 1}} " if y == 0 else " " * form.label
            lines.append(((number, "dim"), *(piece for part in parts for piece in part[y])))
    return lines


@lru_cache(maxsize=4096)
def _cell(
    row: Row, shown: str, steps: tuple[float, ...], kept: bool, marked: bool, form: Plan, glyphs: Glyphs
) -> tuple[Line, ...]:
    """One agent in `form.high` rows; of three the last is a gap."""
    measure, inner = MEASURES.get(shown), form.wide - 1
    glyph = glyphs.states[row.state]
    tone = f"cell-{row.state}"
    if measure is None:
        text = f"{glyph} {row.state}" if inner >= 9 else glyph
        more = "" if row.rate is None else _rate(row.rate, inner - 1) if inner >= 11 else tenths(row.rate)
    else:
        value = measure.value(row)
        tone = "cell-idle" if value is None else f"heat-{level(value, steps)}"
        text = glyphs.none if value is None else _number(measure, value, inner)
        if shown == "cached" and row.missed and len(text) < inner:
            text += "!"
        more = f"{glyph} {row.state}" if inner >= 9 else glyph
    if not kept:
        tone, text, more = "cell-idle", "", ""
    shown_lines = [text, more]
    if (form.wide, form.high) == CARD:
        shown_lines = _card(row, text, measure is None, inner, glyphs) if kept else ["", "", ""]
    body: list[Line] = [
        ((_placed(line, inner), "cursor" if marked else tone), (" ", "")) for line in shown_lines[: form.high]
    ]
    if form.high >= 3:
        body.append(((" " * form.wide, ""),))
    return tuple(body)


def _card(row: Row, text: str, by_state: bool, room: int, glyphs: Glyphs) -> list[str]:
    """What is shown, the session, and the other figures."""
    state = f"{glyphs.states[row.state]} {row.state}"
    inner = room - 2
    rate = glyphs.none if row.rate is None else _rate(row.rate, inner - cells(((state, ""),)) - 1)
    first, second = (state, rate) if by_state else (text, state)
    cached = percent(row.cached, glyphs.none) + ("!" if row.missed else " ")
    turns = f"{row.turn}/{row.turns}"
    return [
        f"{first}{second:>{max(1, inner - cells(((first, ''),)))}}",
        cut(row.title, inner, glyphs.ellipsis),
        f"{turns:<8}{count(row.context, glyphs.none):>6}{cached:>{inner - 14}}",
    ]


def _rate(rate: float, room: int) -> str:
    """With its unit; the decimal gives way."""
    text = f"{tenths(rate)} tok/s"
    return text if len(text) <= room else f"{whole(rate)} tok/s"


def _number(measure: Measure, value: float, room: int) -> str:
    text = measure.text(value)
    return text if len(text) <= room - (measure.name == "cached") else measure.short(value)


def _placed(text: str, width: int) -> str:
    """In the middle of a small cell; a blank from the left of one that holds words."""
    text = cut(text, width, "")
    left = 1 if width >= 9 else (width - cells(((text, ""),))) // 2
    return pad(" " * left + text, width)


def legend_line(view: View, shown: str, width: int, glyphs: Glyphs) -> Line:
    """What the colours mean, and the figures of all agents, also of those the filter hides."""
    measure = MEASURES.get(shown)
    if measure is None:
        counts = view.states()
        size = len(str(max(10, view.agents)))
        wide = width >= 100
        listed: list[Part] = []
        for weight, state in zip((5, 8, 9, 7, 6, 4, 4, 4, 2), STATES, strict=True):
            n = counts.get(state, 0)
            if n or state not in {"done", "failed", "cut", "idle"}:
                name = ((f" {glyphs.states[state]} ", f"cell-{state}"), (f" {state} " if wide else " ", "dim"))
                listed.append((weight, (*name, (f"{n:>{size}}", "text" if n else "faint"))))
        return spread(listed, [(9, _total(view))], width)
    wide = width >= 100
    values = sorted(v for v in map(measure.value, view.rows) if v is not None)
    steps = limits(measure, values)
    ramp: list[tuple[str, str]] = []
    for i, low in enumerate((0.0, *steps)):
        ramp.append((f" {measure.text(low) if measure.steps and wide else measure.short(low)} ", f"heat-{i}"))
    scale: Line = (*ramp, (f" {measure.unit}", "dim"))
    return spread([(9, scale)], [(8, _total(view)), (3, _spread(values, measure, glyphs))], width)


def _spread(values: Sequence[float], measure: Measure, glyphs: Glyphs) -> Line:
    """Smallest, middle and largest value now."""
    shown = [glyphs.none] * 3
    if values:
        shown = [measure.text(v) for v in (values[0], values[len(values) // 2], values[-1])]
    names = ("least", "median", "most")
    return tuple(
        piece
        for name, text in zip(names, shown, strict=True)
        for piece in ((f"{name} ", "dim"), (f"{text:>5}  ", "text"))
    )


def _total(view: View) -> Line:
    return (
        ("all ", "dim"),
        (f"{view.agents or len(view.rows)}", "strong"),
        (" agents ", "dim"),
        (f"{whole(view.out_rate)}", "strong"),
        (" tok/s", "dim"),
    )
