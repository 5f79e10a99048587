"""The fleet: one screen that says how fast it goes, whether it counts, where every agent is, and what limits them."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.agents import SORTS, arranged, columns, head, row_line
from windtunnel.tui.widgets.compose import Part, clip, cut, spread
from windtunnel.tui.widgets.engine import engine_line
from windtunnel.tui.widgets.header import agents_line, result_lines, status_line, title_line, why_line
from windtunnel.tui.widgets.lines import Lines
from windtunnel.tui.widgets.plot import graph

if TYPE_CHECKING:
    from windtunnel.tui.app import Viewer


class Table(Struct, frozen=True):
    """What the user asked of the table."""

    sort: str = "agent"
    backwards: bool = False
    pattern: str = ""
    """Regular expression over a row's words; a leading `!` keeps the rows that do not match."""
    cursor: int = 0
    """Agent under the cursor."""
    top: int = 0
    """First shown position."""
    frozen: tuple[Row, ...] | None = None


class Frame(Struct, frozen=True):
    """A whole screen, and where its table is."""

    lines: tuple[Line, ...]
    marked: int | None
    first: int
    """Screen line of the table's first row."""
    shown: tuple[int, ...]
    """Agents in the table's visible rows."""
    order: tuple[int, ...]
    """All agents that the filter lets through, in order."""
    table: Table
    """The table with cursor and top moved to where they are valid."""


def matcher(pattern: str) -> tuple[re.Pattern[str], bool]:
    """The filter's expression and whether it is inverted. What is no regular expression is taken literally."""
    inverted = pattern.startswith("!")
    text = pattern[1:] if inverted else pattern
    try:
        return re.compile(text, re.IGNORECASE), inverted
    except re.error:
        return re.compile(re.escape(text), re.IGNORECASE), inverted


def kept(rows: Sequence[Row], pattern: str) -> list[Row]:
    if pattern in {"", "!"}:
        return list(rows)
    expression, inverted = matcher(pattern)
    return [r for r in rows if bool(expression.search(words(r))) != inverted]


def words(row: Row) -> str:
    """What the filter looks at: number, state, session, trace, tool or reason."""
    miss = "miss" if row.missed else ""
    return f"{row.agent + 1:02d} {row.state} {row.title} {row.trace} {row.doing.label} {row.doing.text} {miss}"


def graph_height(height: int, agents: int) -> int:
    """Rows of the graph: two at least; more where every agent fits anyway, up to a quarter of the screen."""
    fixed = 6
    return max(2, min(height - fixed - max(agents, 8), height // 4, 12))


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
    glyphs = look.glyphs
    lines: list[Line] = [title_line(view, width, glyphs), status_line(view, width, glyphs)]
    if (view.why or view.failures) and view.ending != "died":
        lines.append(why_line(view, width, glyphs))
    tall = graph_height(height, view.agents or len(view.rows))
    results = result_lines(view, width, glyphs, 2) if view.headline else []
    tall = max(2, tall - len(results) - len(lines) + 2)
    lines += results
    lines += graph(view.history.output, width - 1, tall, glyphs)
    lines += [agents_line(view, width, glyphs, look.colour), engine_line(view, width, glyphs)]
    rows = table.frozen if table.frozen is not None else view.rows
    order = arranged(kept(rows, table.pattern), table.sort, table.backwards)
    room = max(1, height - len(lines) - 1 - (1 if footer else 0))
    position = next((i for i, r in enumerate(order) if r.agent == table.cursor), 0)
    cursor = order[position].agent if order else table.cursor
    top = max(0, min(table.top, position, len(order) - room))
    top = max(top, position - room + 1)
    shown = order[top : top + room]
    spec = columns(width, max(view.agents, len(view.rows)))
    lines.append(
        head(spec, table.sort, table.backwards, width, glyphs, _aside(view, table, top, len(shown), len(order)))
    )
    first = len(lines)
    lines += [row_line(row, spec, width, glyphs, still=view.ending is not None) for row in shown]
    if not shown:
        lines += _empty(view, table, width)
    lines += [()] * (height - len(lines) - (1 if footer else 0))
    if footer:
        lines.append(footer_line(view, table, width, aside))
    marked = first + position - top if shown else None
    return Frame(
        lines=tuple(lines[:height]),
        marked=marked,
        first=first,
        shown=tuple(r.agent for r in shown),
        order=tuple(r.agent for r in order),
        table=replace(table, top=top, cursor=cursor),
    )


def _aside(view: View, table: Table, top: int, shown: int, total: int) -> Line:
    """At the right of the table's head: frozen, the filter, and which part of the rows is shown."""
    out: list[tuple[str, str]] = []
    if table.frozen is not None:
        out.append((" FROZEN ", "frozen"))
    if table.pattern:
        out.append((f" /{cut(table.pattern, 20)}/ {total} of {view.agents or len(view.rows)}", "key"))
    if shown < total:
        out.append((f" {top + 1}-{top + shown} of {total}", "head"))
    if out:
        out.append((" ", "head"))
    return tuple(out)


def _empty(view: View, table: Table, width: int) -> list[Line]:
    if table.pattern and view.rows:
        text = f"no agent matches {table.pattern!r}: / changes the filter, escape clears it"
    elif view.ending is not None:
        text = "no agent ever started"
    else:
        text = view.note or "waiting for the first agent"
    return [(), (("  ", ""), (cut(text, width - 4), "dim"))]


def footer_line(view: View, table: Table, width: int, aside: Line) -> Line:
    keys = [
        (9, "enter", "open"),
        (6, "/", "filter"),
        (7, "s", "sort"),
        (5, "space", "go on" if table.frozen is not None else "freeze"),
        (3, "p", "picture"),
        (8, "?", "help"),
        (9, "q", "quit" if view.ending is None else "close"),
    ]
    parts = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    right: list[Part] = [(1, ((view.run, "faint"),))] if width >= 100 else []
    if aside:
        right = [(0, clip(aside, width - 4))]
    return spread(parts, right, width, "   " if width >= 100 else "  ")


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


class FleetScreen(Screen[None]):
    """Shows `compose_frame` and turns keys into changes of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup,ctrl+b", "page(-1)", "page up"),
        Binding("pagedown,ctrl+f", "page(1)", "page down"),
        Binding("home,g", "edge(0)", "first"),
        Binding("end,G", "edge(-1)", "last"),
        Binding("enter", "open", "open"),
        Binding("slash", "filter", "filter"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "reverse", "reverse"),
        Binding("space", "freeze", "freeze"),
        Binding("escape", "clear", "clear"),
    ]
    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    FleetScreen Lines { height: 1fr; }
    FleetScreen Input { dock: bottom; height: 1; border: none; padding: 0 1; display: none; }
    FleetScreen Input:focus { border: none; }
    """

    def __init__(self, look: Theme) -> None:
        super().__init__()
        self.look = look
        self.body = Lines(look, id="fleet")
        self.view = View()
        self.aside: Line = ()
        self.beat = 0
        self.table = Table()
        self.frame: Frame | None = None
        self.filter_box = Input(
            id="filter", placeholder="regular expression over state, session and tool; ! inverts; escape clears"
        )

    def compose(self) -> ComposeResult:
        yield self.body
        yield self.filter_box

    @property
    def viewer(self) -> "Viewer":
        return cast("Viewer", self.app)

    def update_view(self, view: View, aside: Line = ()) -> None:
        self.beat += 1
        self.view, self.aside = replace(view, rows=paced(view.rows, self.view.rows, self.beat)), aside
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted:
            return
        width, height = self.size
        typing = self.filter_box.display
        frame = compose_frame(
            self.view,
            self.table,
            width,
            height - (1 if typing else 0),
            self.look,
            footer=not typing,
            aside=self.aside,
        )
        self.frame, self.table = frame, frame.table
        self.body.show(frame.lines, frame.marked)

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()

    def _change(self, **changes: object) -> None:
        self.table = replace(self.table, **changes)
        self.draw()

    def action_move(self, by: int) -> None:
        if self.frame is None or not self.frame.order:
            return
        order = self.frame.order
        at = order.index(self.table.cursor) if self.table.cursor in order else 0
        self._change(cursor=order[max(0, min(len(order) - 1, at + by))])

    def action_page(self, by: int) -> None:
        room = len(self.frame.shown) if self.frame else 1
        self.action_move(by * max(1, room - 1))

    def action_edge(self, at: int) -> None:
        if self.frame is not None and self.frame.order:
            self._change(cursor=self.frame.order[at])

    def action_open(self) -> None:
        if self.frame is not None and self.frame.order:
            self.viewer.open_agent(self.table.cursor)

    def action_sort(self, by: int) -> None:
        self._change(sort=SORTS[(SORTS.index(self.table.sort) + by) % len(SORTS)], backwards=False, top=0)

    def action_reverse(self) -> None:
        self._change(backwards=not self.table.backwards)

    def action_freeze(self) -> None:
        self._change(frozen=None if self.table.frozen is not None else self.view.rows)

    def action_filter(self) -> None:
        box = self.filter_box
        box.display = True
        box.value = self.table.pattern
        box.focus()
        self.draw()

    def action_clear(self) -> None:
        """Escape: leaves the filter, then the freeze."""
        if self.filter_box.display or self.table.pattern:
            self._hide_filter()
            self._change(pattern="", top=0)
        elif self.table.frozen is not None:
            self._change(frozen=None)

    def _hide_filter(self) -> None:
        self.filter_box.display = False
        self.set_focus(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.display:
            self._change(pattern=event.value, top=0)

    def on_input_submitted(self) -> None:
        self._hide_filter()
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """A click selects; a click on the selected row opens it; a click on the head sorts."""
        if self.frame is None:
            return
        row = event.screen_y - self.frame.first
        if 0 <= row < len(self.frame.shown):
            agent = self.frame.shown[row]
            if agent == self.table.cursor:
                self.action_open()
            else:
                self._change(cursor=agent)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)
