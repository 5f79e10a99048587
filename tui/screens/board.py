"""What the fleet screen shows: header, pictures, and all agents as a table or as a map. Pure functions."""

from collections.abc import Sequence
from textwrap import wrap

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.tui.matching import matcher
from windtunnel.tui.screens.heat import HEAD_END, Plan, heat_head, heat_lines, legend_line, plan, shown_at
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.agents import Columns, arranged, columns, head, names_end, row_line, sort_at
from windtunnel.tui.widgets.band import BESIDE_WIDTH, Shape, band_lines, shape
from windtunnel.tui.widgets.compose import Part, cells, clip, cut, first_seen, spread
from windtunnel.tui.widgets.digits import HEIGHT
from windtunnel.tui.widgets.engine import engine_line
from windtunnel.tui.widgets.header import agents_line, result_lines, status_line, title_line, why_line

CALM = 4
"""Looks at a run, four a second, for which the figures of all agents stand still."""
ALL_IN_TWO = 118
"""Columns on which a run's result fits two lines; on fewer it gets three."""
NARROWEST = 80
"""Columns that everything is made for; on fewer, lines are cut at their right end."""
MAP_BAND_HEIGHT = 34
"""Rows of a screen from which on the map leaves room for the pictures."""
MAP_LINES = 2
"""Below the cells: the agent under the cursor, and the legend."""


class Table(Struct, frozen=True):
    """What the user asked of the screen."""

    sort: str = "agent"
    backwards: bool = False
    pattern: str = ""
    """Regular expression over a row's words; a leading `!` keeps the rows that do not match."""
    cursor: int = 0
    """Agent under the cursor."""
    top: int = 0
    """First shown position; of the map, its first row of cells."""
    frozen: bool = False
    map: str = ""
    """What the map shows; empty for the table."""
    away: bool = False
    """It lies over another screen: escape goes back there."""


class Frame(Struct, frozen=True):
    """A whole screen, and where its agents are."""

    lines: tuple[Line, ...]
    marked: int | None
    first: int
    """Screen line of the table's first row, or the map's."""
    shown: tuple[int, ...]
    """Agents in the table's visible rows, or in the map's visible cells."""
    order: tuple[int, ...]
    """All agents that the filter lets through, in order."""
    table: Table
    """The table with cursor and top moved to where they are valid."""
    cells: Plan | None = None
    """Of the map."""
    columns: Columns | None = None
    """Of the table."""
    over: Line = ()
    """What the table's head has no room for."""

    def head_at(self, x: int, y: int) -> str | None:
        """What a click there sorts the table by, or shows in the map; None beside the head."""
        if y != self.first - 1:
            return None
        return sort_at(self.columns, x) if self.columns is not None else shown_at(x)

    def agent_at(self, x: int, y: int) -> int | None:
        """The agent drawn at a cell of the screen."""
        row = y - self.first
        position = row if self.cells is None else self.cells.at(x, row) if row >= 0 else None
        return self.shown[position] if position is not None and 0 <= position < len(self.shown) else None


def kept(rows: Sequence[Row], pattern: str) -> list[Row]:
    if pattern in {"", "!"}:
        return list(rows)
    expression, inverted = matcher(pattern)
    return [r for r in rows if bool(expression.search(words(r))) != inverted]


def words(row: Row) -> str:
    """What the filter looks at: number, state, session, trace, tool or reason."""
    miss = "miss" if row.missed else ""
    return f"{row.agent + 1:02d} {row.state} {row.title} {row.trace} {row.doing.label} {row.doing.text} {miss}"


def compose_frame(
    view: View,
    table: Table,
    width: int,
    height: int,
    look: Theme,
    *,
    footer: bool = True,
    aside: Line = (),
) -> Frame:
    """The screen's lines. A pure function: the same view, table and size give the same lines."""
    lines = header_lines(view, table, width, height, look)
    room = max(1, height - len(lines) - 1 - (1 if footer else 0))
    body = _map if table.map else _rows
    frame = body(view, table, width, room, look, lines)
    lines = [*frame.lines, *([()] * (height - len(frame.lines) - (1 if footer else 0)))]
    if footer:
        lines.append(footer_line(view, table, width, aside or frame.over))
    if width < NARROWEST:
        lines = [clip(line, width) for line in lines]
    return replace(frame, lines=tuple(lines[:height]))


def header_lines(view: View, table: Table, width: int, height: int, look: Theme) -> list[Line]:
    """Everything above the agents."""
    glyphs = look.glyphs
    # While the run goes on reasons come and go: they stand behind a key, so that nothing moves.
    told = (view.why or view.failures) and view.ending not in {None, "died"}
    why = [why_line(view, width, glyphs)] if told else []
    results = result_lines(view, width, 2 if width >= ALL_IN_TWO else 3)
    form = _shape(view, table, width, height, 5 + len(why) + len(results))
    if results and not table.map and width >= BESIDE_WIDTH:
        room = height - 5 - len(view.rows)
        if len(why) + len(results) + form.rows > room >= HEIGHT:
            # Every agent has a row only where the results stand beside the curve, and the reasons maybe too.
            within = bool(why) and room == HEIGHT
            why = [] if within else why
            form, results = Shape(kind="beside", rows=room - len(why), why=within), []
    lines = [title_line(view, width, glyphs, frozen=table.frozen)]
    lines += [status_line(view, width, glyphs, form.kind), *why, *results]
    if form.rows:
        lines += band_lines(view, width, form, look)
    if not table.map and (form.kind == "line" or width < 100):
        lines.append(agents_line(view, width, glyphs, look.colour))
    return [*lines, engine_line(view, width, glyphs)]


def _shape(view: View, table: Table, width: int, height: int, fixed: int) -> Shape:
    """The band above a table; above a map it gets what the cells leave, and gives way to them on a low screen."""
    agents = max(view.agents or len(view.rows), 8)
    if not table.map:
        return shape(width, height, agents, fixed + (1 if width < 100 else 0))
    if height < MAP_BAND_HEIGHT:
        return Shape(kind="line", rows=0)
    fixed += MAP_LINES
    room = height - fixed - HEIGHT
    form = plan(len(view.rows), width, room)
    return shape(width, height, min(room, form.rows * form.high), fixed)


def _rows(view: View, table: Table, width: int, room: int, look: Theme, above: Sequence[Line]) -> Frame:
    """The agents as a table, in the user's order."""
    order = arranged(kept(view.rows, table.pattern), table.sort, table.backwards)
    position = next((i for i, r in enumerate(order) if r.agent == table.cursor), 0)
    cursor = order[position].agent if order else table.cursor
    top = first_seen(table.top, position, room, len(order))
    shown = order[top : top + room]
    spec = columns(width, max(view.agents, len(view.rows)), table.sort)
    right, over = _aside(view, table, top, len(shown), len(order)), ()
    if names_end(spec) + cells(right) > width:
        right, over = (), right
    lines = [*above, head(spec, table.sort, table.backwards, width, look.glyphs, right)]
    first = len(lines)
    lines += [row_line(row, spec, width, look.glyphs, still=view.ending is not None) for row in shown]
    if not shown:
        lines += _empty(view, table, width)
    return Frame(
        lines=tuple(lines),
        marked=first + position - top if shown else None,
        first=first,
        shown=tuple(r.agent for r in shown),
        order=tuple(r.agent for r in order),
        table=replace(table, top=top, cursor=cursor),
        columns=spec,
        over=over,
    )


def _map(view: View, table: Table, width: int, room: int, look: Theme, above: Sequence[Line]) -> Frame:
    """The agents as cells, in their lanes' order, with the agent under the cursor in full below them."""
    glyphs, rows = look.glyphs, view.rows
    through = kept(rows, table.pattern)
    height = max(1, room - MAP_LINES)
    form = plan(len(rows), width, height)
    position = next((i for i, r in enumerate(rows) if r.agent == table.cursor), 0)
    cursor = rows[position].agent if rows else table.cursor
    at, fit = position // form.columns, max(1, height // form.high)
    top = first_seen(table.top, at, fit, form.rows)
    shown = rows[top * form.columns : (top + fit) * form.columns]
    right, over = _aside(view, table, top * form.columns, len(shown), len(rows)), ()
    if HEAD_END + sum(len(text) for text, _ in right) > width:
        right, over = (), right
    lines = [*above, heat_head(table.map, width, right)]
    first = len(lines)
    drawn = heat_lines(rows, frozenset(r.agent for r in through), table.map, cursor, top, height, form, glyphs)
    lines += drawn if rows else _empty(view, table, width)[:height]
    lines += [()] * (first + height - len(lines))
    if rows:
        spec = columns(width, max(view.agents, len(rows)))
        lines.append(row_line(rows[position], spec, width, glyphs, still=view.ending is not None))
        lines.append(legend_line(view, table.map, width, glyphs))
    return Frame(
        lines=tuple(lines),
        marked=first + height if rows else None,
        first=first,
        shown=tuple(r.agent for r in shown),
        order=tuple(r.agent for r in through),
        table=replace(table, top=top, cursor=cursor),
        cells=form,
        over=over,
    )


def _aside(view: View, table: Table, top: int, shown: int, total: int) -> Line:
    """At the right of the table's head: the filter, and which part of the rows is shown."""
    out: list[tuple[str, str]] = []
    if table.pattern:
        of = len(kept(view.rows, table.pattern)) if table.map else total
        out.append((f" /{cut(table.pattern, 20)}/ {of} of {view.agents or len(view.rows)}", "key"))
    if shown < total:
        out.append((f" {top + 1}-{top + shown} of {total}", "head"))
    if out:
        out.append((" ", "head"))
    return tuple(out)


def _empty(view: View, table: Table, width: int) -> list[Line]:
    if table.pattern and view.rows:
        text = f"no agent matches {table.pattern!r}: / changes the filter, escape clears it"
    elif view.missing:
        text = view.missing
    elif view.ending is not None:
        text = "no agent ever started"
    else:
        text = view.note or "waiting for the first agent"
    return [(), *((("  ", ""), (line, "dim")) for line in wrap(text, width - 4))]


def footer_line(view: View, table: Table, width: int, aside: Line) -> Line:
    replay, still = view.speed.startswith("replay"), view.speed.endswith("paused")
    over = view.ending is not None and not replay
    keys = [
        (9, "enter", "open"),
        *([(9 if view.invalid else 6, "v", "why")] if (view.invalid or view.failures) and width >= 64 else []),
        *([(8, "[ ]", "speed")] if replay else []),
        *([(9 if still else 7, "space", "go on" if still else "pause"), (5, "{ }", "seek")] if replay else []),
        (5, "/", "filter"),
        (6, "s", "show" if table.map else "sort"),
        (5, "m", "table" if table.map else "map"),
        (4, "t", "timeline"),
        (7, "c", "compare"),
        (6, "r", "runs"),
        *([(5, "]", "replay")] if over and not view.recording and not view.missing else []),
        *(
            []
            if replay or (over and not table.frozen)
            else [(9 if table.frozen else 4, "space", "go on" if table.frozen else "freeze")]
        ),
        (2, "p", "picture"),
        (10, "?", "help"),
        *([(9, "escape", "back")] if table.away else [(9, "q", "quit" if view.ending is None else "close")]),
    ]
    parts = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    right: list[Part] = [(1, ((view.run, "faint"),))] if width >= 100 else []
    if aside:
        right = [(0, clip(aside, width - 4))]
    return spread(parts, right, width, "   " if width >= 100 else "  ")


def calm(view: View, shown: View, beat: int) -> View:
    """The figures of all agents stand for a second, so that they can be read; each agent's row is of now."""
    leapt = abs((view.elapsed_s or 0.0) - (shown.elapsed_s or 0.0)) > 1.0
    if beat % CALM == 0 or leapt or view.ending is not None or view.phase != shown.phase:
        return view
    return replace(
        view,
        out_rate=shown.out_rate,
        in_rate=shown.in_rate,
        counted=shown.counted or tuple(shown.states().items()),
        in_flight=shown.in_flight,
        in_tool=shown.in_tool,
        waiting=shown.waiting,
        calls=shown.calls,
        cached=shown.cached,
        could_be_cached=shown.could_be_cached,
        in_flight_mean=shown.in_flight_mean,
        in_tool_mean=shown.in_tool_mean,
        waiting_mean=shown.waiting_mean,
        lag_p99_ms=shown.lag_p99_ms,
        engine=shown.engine,
        history=shown.history,
    )


def paced(rows: tuple[Row, ...], shown: tuple[Row, ...], beat: int) -> tuple[Row, ...]:
    """Rows that only wrote on are shown every second time, in turns: half the work, and no change of state is late."""
    if len(rows) != len(shown):
        return rows
    return tuple(
        old if (new.agent + beat) % 2 and old.state == new.state and _wrote_on(old, new) else new
        for old, new in zip(shown, rows, strict=True)
    )


def _wrote_on(old: Row, new: Row) -> bool:
    """Whether nothing but the text, the tokens so far and the speed of a call has changed."""
    return new.state == "decode" and replace(new, rate=old.rate, doing=old.doing, context=old.context) == old
