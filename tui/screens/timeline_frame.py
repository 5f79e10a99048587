"""The timeline's lines: what every agent did when, under what the engine did, with a cursor in time."""

from collections.abc import Sequence
from functools import lru_cache
from textwrap import wrap
from typing import cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.results.lanes import RANK, together
from windtunnel.simulator.results.untold import FIRST, SHOWN, LaneState
from windtunnel.tui.figures import ceiling, count, percent, tenths, whole
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.compose import Part, clip, filled, first_seen, pad, spread
from windtunnel.tui.widgets.header import phase_part, title_line
from windtunnel.tui.widgets.lanes import (
    WAITING,
    axis,
    cells,
    clock,
    glyph,
    grouped,
    legend,
    level,
    tone,
    with_cursor,
    word,
)
from windtunnel.tui.widgets.plot import braille_rows, gauge
from windtunnel.tui.window import Place, Window, fitting, latest

WIDE, MIDDLE = 150, 100
FIXED = 6
"""Lines that are neither graph nor lanes; one of them is the KV cache's."""
LEAST_GRAPH, MOST_GRAPH = 2, 14
NAMED = 24
"""Cells of the agent under the cursor and its state, beside which the legend stands."""


class Scope(Struct, frozen=True):
    """What the user asked of the timeline. ms since the run's origin."""

    step: int | None = None
    """None: the whole run."""
    start: int | None = None
    """None: the window ends with now."""
    cursor: int | None = None
    """None: now."""
    agent: int = 0
    """Under the cursor."""
    alone: bool | None = None
    """Each agent has its own row, even where not all of them are seen then. None: where two screens show them all."""
    top: int = 0
    """First row that is shown."""


class Frame(Struct, frozen=True):
    """A whole screen, and where its lanes are."""

    lines: tuple[Line, ...]
    marked: int | None
    first: int
    """Screen line of the first lane."""
    apart: int
    """Screen lines from a lane to the next."""
    left: int
    """Screen column of the first cell."""
    rows: tuple[range, ...]
    """Agents of each shown row."""
    scope: Scope
    shared: bool = False
    """Rows stand for several agents."""


def label_width(width: int, agents: int) -> int:
    return 32 if width >= WIDE else 24 if width >= MIDDLE else 8 if agents < 100 else 11


def columns_of(width: int, agents: int) -> int:
    return max(8, width - label_width(width, agents) - 1)


def place_of(scope: Scope, began: int, now: int, columns: int, *, over: bool) -> Place:
    """The stretch that is shown in so many columns."""
    step = scope.step if scope.step is not None else fitting(began, now, columns, over=over)
    if scope.start is None:
        return Place(latest(began, now, step, columns), step, columns)
    return Place(max(0, scope.start) // step * step, step, columns)


class Plan(Struct, frozen=True):
    """How a screen's lines are given away."""

    tall: int
    """Of the graph."""
    rows: tuple[range, ...]
    """Agents of each row, those that do not fit as well."""
    apart: int
    room: int
    """Rows that are seen."""


def planned(agents: int, height: int, alone: bool | None) -> Plan:
    """Every agent has its own row; the graph makes room for that. Only more than twice the rows share them.

    `height`: with the KV cache's line.
    """
    room = height - FIXED - LEAST_GRAPH
    if agents == room + 1:
        room = agents
    room = max(1, room)
    own = agents <= 2 * room if alone is None else alone
    rows = grouped(agents, agents if own else room) if agents else []
    apart = 2 if 2 * max(len(rows), 4) <= room else 1
    shown = min(len(rows), room)
    spare = height - FIXED - (2 * max(shown, 4) if apart == 2 else shown)
    tall = max(1, height - FIXED - room, min(spare, height // 5, MOST_GRAPH))
    return Plan(tall, tuple(rows), apart, min(room, max(1, (height - FIXED - tall) // apart)))


def compose_timeline(
    view: View, window: Window, scope: Scope, width: int, height: int, look: Theme, aside: Line = ()
) -> Frame:
    """The screen's lines. A pure function."""
    glyphs, place = look.glyphs, window.place
    left = label_width(width, len(window.cells))
    cursor = None if scope.cursor is None else place.column(scope.cursor)
    lines: list[Line] = [title_line(view, width, glyphs), _moment_line(view, window, scope, width, look)]
    scraped = _scraped(view, window)
    plan = planned(len(window.cells), height + (not scraped), scope.alone)
    engine = _engine(window, left, plan.tall, look)[: plan.tall + scraped]
    lines += [(*label, *_crossed(picture, cursor, glyphs.axis)) for label, picture in engine]
    rows, room, apart = plan.rows, plan.room, plan.apart
    at = next((i for i, row in enumerate(rows) if scope.agent in row), 0)
    top = first_seen(scope.top, at, room, len(rows))
    shown = rows[top : top + room]
    lines.append(_head(window, rows, shown, left, width, look))
    first = len(lines)
    shared = len(rows) < len(window.cells)
    choice = "one a row" if shared else "together" if len(rows) > room else ""
    for row in shown:
        lines += [_lane(row, view, window, scope, cursor, left, look, shared=shared), *[()] * (apart - 1)]
    if not window.cells:
        lines += [(), *((("  ", ""), (line, "dim")) for line in wrap(empty(view), width - 4))]
    lines += [()] * (height - len(lines) - 2)
    lines.append(_agent_line(view, window, scope, width, look))
    lines.append(footer(scope, width, aside, choice))
    return Frame(
        lines=tuple(lines[:height]),
        marked=first + (at - top) * apart if shown else None,
        first=first,
        apart=apart,
        left=left,
        rows=tuple(shown),
        scope=replace(scope, top=top),
        shared=shared,
    )


def empty(view: View) -> str:
    """Why there are no agents."""
    if view.missing or view.ending is None:
        return view.missing or view.note or "waiting for the first agent"
    return "no agent ever started"


def _crossed(picture: Line, cursor: int | None, mark: str) -> Line:
    return picture if cursor is None else with_cursor(picture, cursor, mark)


def _engine(window: Window, left: int, tall: int, look: Theme) -> list[tuple[Line, Line]]:
    """Output tokens/s as a graph, and the KV cache in use, over the same columns as the lanes."""
    glyphs = look.glyphs
    top = ceiling(max((v for v in window.out if v is not None), default=0.0))
    rows = braille_rows(window.out, window.place.columns, tall, top, braille=glyphs.braille)
    names = [""] * tall
    names[-1] = "0"
    names[0] = count(top) if any(window.out) else "tok/s"
    if tall >= 3:
        names[1] = "tok/s"
    elif any(window.out) and left >= 20:
        names[0] = f"tok/s  {count(top)}"
    out: list[tuple[Line, Line]] = [
        (((f"{name:>{left - 1}}", "dim"), (glyphs.tick, "faint")), ((row, "graph"),))
        for name, row in zip(names, rows, strict=True)
    ]
    full = "KV" if left < 20 else "KV in use"
    out.append((((f"{full:>{left - 1}}", "dim"), (glyphs.axis, "faint")), ((level(window.kv, glyphs), "dim"),)))
    return out


def _head(window: Window, rows: Sequence[range], shown: Sequence[range], left: int, width: int, look: Theme) -> Line:
    """Times above the lanes; at the left what a row is."""
    place = window.place
    each = max((len(row) for row in rows), default=1)
    name = " agent" if left >= 20 else " #"
    if each > 1:
        says = ("agents a row: what most of them do", "a row: what most of them do", "a row: what most do", "a row")
        name = next(text for say in says if len(text := f" {each} {say}") < left or say == says[-1])
    if len(shown) < len(rows):
        of = " of " if left >= 20 else "/"
        name = f" {shown[0].start + 1}-{shown[-1].stop}{of}{len(window.cells)}"
    times = axis(place.start - window.began, place.step, place.columns, look.glyphs)
    return filled(((pad(name, left), "head"), (times, "head")), width, "head")


def _lane(
    row: range, view: View, window: Window, scope: Scope, cursor: int | None, left: int, look: Theme, *, shared: bool
) -> Line:
    """`shared`: rows stand for several agents, all but maybe the last one."""
    glyphs, colour = look.glyphs, look.colour
    if len(row) == 1:
        ranks = window.cells[row.start]
    else:
        ranks = _merged(tuple(window.cells[i] for i in row))
    state = state_at(ranks, window, scope)
    digits = max(2, len(str(len(window.cells))))
    if shared:
        name = f"{row.start + 1}-{row.stop}" if len(row) > 1 else str(row.stop)
        label: Line = ((f" {name:>{2 * digits + 1}} ", "dim"), (glyph(state, glyphs), tone(state, colour)))
    else:
        shown = view.rows[row.start] if row.start < len(view.rows) else None
        state = shown.state if shown is not None and scope.cursor is None else state
        label = ((f" {row.start + 1:>0{digits}} ", "dim"), (glyph(state, glyphs), tone(state, colour)))
        if left >= 20 and shown is not None:
            label = (*label, (f" {pad(shown.title, left - digits - 5, ellipsis=glyphs.ellipsis)}", "text"))
    return (*filled(label, left), *cells(ranks, glyphs, colour, cursor))


@lru_cache(maxsize=512)
def _merged(lanes: tuple[bytes, ...]) -> bytes:
    """Several agents as one lane."""
    ranks = np.frombuffer(b"".join(lanes), dtype=np.int8).reshape(len(lanes), -1)
    prefill, first = RANK["prefill"], ranks == FIRST
    row = together(np.where(first, np.int8(prefill), ranks))
    row[(row == prefill) & (2 * first.sum(axis=0) > (first | (ranks == prefill)).sum(axis=0))] = FIRST
    return row.tobytes()


def state_at(ranks: bytes, window: Window, scope: Scope) -> LaneState:
    """What a lane shows at the cursor."""
    at = window.place.column(window.now if scope.cursor is None else scope.cursor)
    return SHOWN[ranks[at]] if 0 <= at < len(ranks) else "idle"


def _moment_line(view: View, window: Window, scope: Scope, width: int, look: Theme) -> Line:
    """Where the run is, and the engine at the cursor."""
    glyphs, m, none = look.glyphs, window.moment, look.glyphs.none
    now = scope.cursor is None
    word = "at " if not now else "now" if view.ending is None else "end"
    at = (window.now if now else cast("int", scope.cursor)) - window.began
    when = clock(at, window.place.step)
    parts: list[Part] = [
        (5, phase_part(view, width, glyphs)),
        (0, ((word, "dim"), (f"{when:>8}", "brand"))),
        (9, ((f"{whole(m.out, none):>6}", "strong"), (" tok/s", "dim"))),
        *(_cache(view, window, scope, width, look) if _scraped(view, window) else ()),
        (4, (("in flight ", "dim"), (f"{_number(m.in_flight, none):>4}", "decode"))),
        (3, (("tool ", "dim"), (f"{_number(m.in_tool, none):>4}", "tool"))),
        (3, (("wait ", "dim"), (f"{_number(m.idle, none):>4}", "wait"))),
        (2, ((f"{count(m.prompt, none):>6}", "text"), (" tok/s in", "dim"))),
    ]
    return spread(parts, [], width)


def _scraped(view: View, window: Window) -> bool:
    """Of a recording's server nothing but its answers may be known."""
    return not view.recording or any(kv is not None for kv in window.kv)


def _cache(view: View, window: Window, scope: Scope, width: int, look: Theme) -> list[Part]:
    """What the engine's own metrics say."""
    glyphs, m, none = look.glyphs, window.moment, look.glyphs.none
    full, rest = gauge(m.kv or 0.0, 10 if width >= MIDDLE else 6, glyphs)
    kv: Line = (
        ("KV ", "dim"),
        (glyphs.edges[0], "faint"),
        (full, _pressure(m.kv)),
        (rest, ""),
        (glyphs.edges[1], "faint"),
        (f" {percent(m.kv, none):>4}", "text"),
    )
    return [
        (8, kv),
        (7, (("running ", "dim"), (f"{_number(m.running, none):>4}", "text"))),
        (7, (("waiting ", "dim"), (f"{_number(m.waiting, none):>4}", "warn" if (m.waiting or 0) >= 0.5 else "text"))),
        (6, _preempted(view, window, scope, none)),
    ]


def _preempted(view: View, window: Window, scope: Scope, none: str) -> Line:
    """Of the run so far; at a moment of the past how many in that column."""
    if scope.cursor is None:
        return (("preempted ", "dim"), (f"{whole(view.engine.preemptions, none):>4}", "text"))
    n = window.moment.preempted
    return (("preempted ", "dim"), (f"{'+' + whole(n) if n else whole(n, none):>4}", "warn" if n else "text"))


def _pressure(kv: float | None) -> str:
    return "bad" if kv is not None and kv >= 0.95 else "warn" if kv is not None and kv >= 0.85 else "decode"


def _number(value: float | None, none: str) -> str:
    """A mean over a column need not be whole."""
    if value is None:
        return none
    return whole(value) if abs(value - round(value)) < 0.05 or value >= 100 else tenths(value)


def _agent_line(view: View, window: Window, scope: Scope, width: int, look: Theme) -> Line:
    """The agent under the cursor, what it did then; at the right what the cells mean."""
    glyphs = look.glyphs
    drawn = {state for i, state in enumerate(SHOWN) if state in WAITING and any(i in row for row in window.cells)}
    right: list[Part] = [(6, legend(glyphs, look.colour, drawn, width - NAMED))]
    step = window.place.step
    pace = f"{step / 1000:g} s" if step < 60_000 else f"{step / 60_000:g} min"
    right.append((2, ((f"{pace} a column", "dim"),)))
    if scope.agent >= len(window.cells):
        return spread([], right, width)
    shown = view.rows[scope.agent] if scope.agent < len(view.rows) else None
    now = shown is not None and scope.cursor is None
    state = shown.state if shown is not None and now else state_at(window.cells[scope.agent], window, scope)
    title = shown.title if shown is not None else ""
    left: list[Part] = [
        (9, ((f"agent {scope.agent + 1:02d}", "brand"),)),
        (8, ((f"{glyph(state, glyphs)} {word(state):<8}", tone(state, look.colour)),)),
        (4, ((title, "text"),)),
    ]
    return spread(left, right, width)


def footer(scope: Scope, width: int, aside: Line, choice: str = "") -> Line:
    """`choice`: what `l` would do."""
    keys = [
        (9, "enter", "open"),
        (8, "escape", "back"),
        (8, "+ -", "zoom"),
        (5, "left right", "pan"),
        (8, ", .", "cursor"),
        (6, "up down", "agent"),
        (6, "z", "all"),
        (5, "end", "now"),
        *(((6, "l", choice),) if choice else ()),
        (9, "?", "help"),
        (2, "q", "quit"),
    ]
    parts: list[Part] = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    mode: Line = (("follows now", "good") if scope.start is None else ("looking back", "warn"),)
    right: list[Part] = [(0, clip(aside, width - 4)) if aside else (10, mode)]
    return spread(parts, right, width)
