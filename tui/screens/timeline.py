"""The timeline: what every agent did when, under what the engine did, with a cursor in time."""

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from windtunnel.agents.events import AgentState
from windtunnel.simulator.results.lanes import STATES, together
from windtunnel.tui.figures import ceiling, count, percent, tenths, whole
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import Ending, View
from windtunnel.tui.widgets.compose import Part, clip, filled, pad, spread
from windtunnel.tui.widgets.header import phase_part, title_line
from windtunnel.tui.widgets.lanes import axis, cells, clock, grouped, legend, level, with_cursor
from windtunnel.tui.widgets.lines import Lines
from windtunnel.tui.widgets.plot import braille_rows, gauge
from windtunnel.tui.window import Place, Window, fitting, latest, steps_from

if TYPE_CHECKING:
    from windtunnel.tui.app import Viewer

WIDE, MIDDLE = 150, 100
PAINT_MS = 1000
PAN = 0.25
"""Of the window, with one key."""


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
    alone: bool = False
    """Each agent has its own row, even where not all of them are seen then."""
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


def graph_rows(height: int, agents: int) -> int:
    """Two at least; more where every lane has its place anyway, up to a fifth of the screen."""
    return max(2, min(height - 6 - 2 * max(agents, 4), height // 5, 10))


def compose_timeline(
    view: View, window: Window, scope: Scope, width: int, height: int, look: Theme, aside: Line = ()
) -> Frame:
    """The screen's lines. A pure function."""
    glyphs, place = look.glyphs, window.place
    left = label_width(width, len(window.cells))
    cursor = None if scope.cursor is None else place.column(scope.cursor)
    lines: list[Line] = [title_line(view, width, glyphs), _moment_line(view, window, scope, width, look)]
    agents = max(len(window.cells), 1)
    tall = graph_rows(height, agents)
    lines += [(*label, *_crossed(picture, cursor, glyphs.axis)) for label, picture in _engine(window, left, tall, look)]
    room = max(1, height - len(lines) - 3)
    apart = 2 if agents * 2 <= room else 1
    rows = grouped(agents, agents if scope.alone else room) if window.cells else []
    at = next((i for i, row in enumerate(rows) if scope.agent in row), 0)
    top = max(0, min(scope.top, at, len(rows) - room), at - room + 1)
    shown = rows[top : top + room]
    lines.append(_head(window, rows, shown, left, width, look))
    first = len(lines)
    shared = len(rows) < len(window.cells)
    for row in shown:
        lines += [_lane(row, view, window, scope, cursor, left, look, shared=shared), *[()] * (apart - 1)]
    if not window.cells:
        lines += [(), (("  ", ""), (view.note or "waiting for the first agent", "dim"))]
    lines += [()] * (height - len(lines) - 2)
    lines.append(_agent_line(view, window, scope, width, look))
    lines.append(footer(scope, width, aside))
    return Frame(
        lines=tuple(lines[:height]),
        marked=first + (at - top) * apart if shown else None,
        first=first,
        apart=apart,
        left=left,
        rows=tuple(shown),
        scope=replace(scope, top=top),
    )


def _crossed(picture: Line, cursor: int | None, mark: str) -> Line:
    return picture if cursor is None else with_cursor(picture, cursor, mark)


def _engine(window: Window, left: int, tall: int, look: Theme) -> list[tuple[Line, Line]]:
    """Output tokens/s as a graph, and the KV cache in use, over the same columns as the lanes."""
    glyphs = look.glyphs
    top = ceiling(max((v for v in window.out if v is not None), default=0.0))
    rows = braille_rows(window.out, window.place.columns, tall, top, braille=glyphs.braille)
    names = [""] * tall
    names[0] = count(top) if any(window.out) else "tok/s"
    names[-1] = "0"
    if tall >= 3:
        names[1] = "tok/s"
    out: list[tuple[Line, Line]] = [
        (((f"{name:>{left - 1}}", "dim"), (glyphs.tick, "faint")), ((row, "graph"),))
        for name, row in zip(names, rows, strict=True)
    ]
    full = "KV" if left < 20 else "KV in use"
    out.append((((f"{full:>{left - 1}}", "dim"), (glyphs.axis, "faint")), ((level(window.kv, glyphs), "dim"),)))
    return out


def _head(window: Window, rows: list[range], shown: list[range], left: int, width: int, look: Theme) -> Line:
    """Times above the lanes; at the left what a row is."""
    place = window.place
    each = max((len(row) for row in rows), default=1)
    name = f" {each} a row" if each > 1 else " agent" if left >= 20 else " #"
    if each > 1 and left >= 20:
        name = f" {each} agents a row, most"
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
        label: Line = ((f" {name:>{2 * digits + 1}} ", "dim"), (glyphs.states[state], state))
    else:
        shown = view.rows[row.start] if row.start < len(view.rows) else None
        state = shown.state if shown is not None and scope.cursor is None else state
        label = ((f" {row.start + 1:>0{digits}} ", "dim"), (glyphs.states[state], state))
        if left >= 20 and shown is not None:
            label = (*label, (f" {pad(shown.title, left - digits - 5, ellipsis=glyphs.ellipsis)}", "text"))
    return (*filled(label, left), *cells(ranks, glyphs, colour, cursor))


@lru_cache(maxsize=512)
def _merged(lanes: tuple[bytes, ...]) -> bytes:
    """Several agents as one lane."""
    return together(np.frombuffer(b"".join(lanes), dtype=np.int8).reshape(len(lanes), -1)).tobytes()


def state_at(ranks: bytes, window: Window, scope: Scope) -> AgentState:
    """What a lane shows at the cursor."""
    at = window.place.column(window.now if scope.cursor is None else scope.cursor)
    return STATES[ranks[at]] if 0 <= at < len(ranks) else "idle"


def _moment_line(view: View, window: Window, scope: Scope, width: int, look: Theme) -> Line:
    """Where the run is, and the engine at the cursor."""
    glyphs, m, none = look.glyphs, window.moment, look.glyphs.none
    now = scope.cursor is None
    word = "at " if not now else "now" if view.ending is None else "end"
    at = (window.now if now else cast("int", scope.cursor)) - window.began
    when = clock(at, window.place.step)
    full, rest = gauge(m.kv or 0.0, 10 if width >= MIDDLE else 6, glyphs)
    parts: list[Part] = [
        (5, phase_part(view, width, glyphs)),
        (0, ((word, "dim"), (f"{when:>8}", "brand"))),
        (9, ((f"{whole(m.out, none):>6}", "strong"), (" tok/s", "dim"))),
        (
            8,
            (
                ("KV ", "dim"),
                (glyphs.edges[0], "faint"),
                (full, _pressure(m.kv)),
                (rest, ""),
                (glyphs.edges[1], "faint"),
                (f" {percent(m.kv, none):>4}", "text"),
            ),
        ),
        (7, (("running ", "dim"), (f"{_number(m.running, none):>4}", "text"))),
        (7, (("queue ", "dim"), (f"{_number(m.waiting, none):>4}", "warn" if (m.waiting or 0) >= 0.5 else "text"))),
        (6, _preempted(view, window, scope, none)),
        (4, (("in flight ", "dim"), (f"{_number(m.in_flight, none):>4}", "decode"))),
        (3, (("tool ", "dim"), (f"{_number(m.in_tool, none):>4}", "tool"))),
        (3, (("wait ", "dim"), (f"{_number(m.idle, none):>4}", "wait"))),
        (2, ((f"{count(m.prompt, none):>6}", "text"), (" tok/s in", "dim"))),
    ]
    return spread(parts, [], width)


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
    right: list[Part] = [(6, legend(glyphs, look.colour))]
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
        (8, ((f"{glyphs.states[state]} {state:<8}", state),)),
        (4, ((title, "text"),)),
    ]
    return spread(left, right, width)


def footer(scope: Scope, width: int, aside: Line) -> Line:
    keys = [
        (9, "enter", "open"),
        (8, "escape", "back"),
        (8, "+ -", "zoom"),
        (5, "left right", "pan"),
        (8, ", .", "cursor"),
        (6, "up down", "agent"),
        (6, "z", "all"),
        (5, "end", "now"),
        (3, "l", "together" if scope.alone else "one a row"),
        (7, "?", "help"),
        (2, "q", "quit"),
    ]
    parts: list[Part] = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    mode: Line = (("follows now", "good") if scope.start is None else ("looking back", "warn"),)
    right: list[Part] = [(0, clip(aside, width - 4)) if aside else (10, mode)]
    return spread(parts, right, width)


class TimelineScreen(Screen[None]):
    """Shows `compose_timeline` and turns keys into changes of the scope."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,t,backspace", "back", "back"),
        Binding("plus,equals_sign,i", "zoom(-1)", "closer"),
        Binding("minus,underscore,o", "zoom(1)", "farther"),
        Binding("left,h", "pan(-1)", "earlier"),
        Binding("right", "pan(1)", "later"),
        Binding("home,g", "start", "start"),
        Binding("end,G", "follow", "follow now"),
        Binding("z", "all", "all of the run"),
        Binding("comma,less_than_sign", "move(-1)", "cursor back"),
        Binding("full_stop,greater_than_sign", "move(1)", "cursor forth"),
        Binding("shift+left", "move(-10)", "cursor back by ten"),
        Binding("shift+right", "move(10)", "cursor forth by ten"),
        Binding("up,k", "agent(-1)", "agent above"),
        Binding("down,j", "agent(1)", "agent below"),
        Binding("pageup,ctrl+b", "page(-1)", "page up"),
        Binding("pagedown,ctrl+f", "page(1)", "page down"),
        Binding("l", "alone", "one agent a row, or several"),
        Binding("enter", "open", "open the agent then"),
    ]
    AUTO_FOCUS = ""
    DEFAULT_CSS = "TimelineScreen Lines { height: 1fr; }"

    def __init__(self, look: Theme, agent: int = 0) -> None:
        super().__init__()
        self.look = look
        self.body = Lines(look, id="timeline")
        self.view = View()
        self.aside: Line = ()
        self.scope = Scope(agent=agent)
        self.frame: Frame | None = None
        self.window: Window | None = None
        self.stage: tuple[Ending | None, bool, bool] = None, False, False
        """How the run ended and whether all of it had been read when the window was painted."""

    def compose(self) -> ComposeResult:
        yield self.body

    @property
    def viewer(self) -> "Viewer":
        return cast("Viewer", self.app)

    def update_view(self, view: View, aside: Line = ()) -> None:
        self.view, self.aside = view, aside
        self.draw(fresh=False)

    def draw(self, *, fresh: bool = True) -> None:
        """`fresh`: whatever was asked is shown at once; as time goes on the picture is painted once a second."""
        if not self.is_mounted:
            return
        width, height = self.size
        shown, now = self.window, self.viewer.source.span()[1]
        stage = self.view.ending, self.view.reading, bool(self.view.unread)
        if fresh or shown is None or not 0 <= now - shown.now < PAINT_MS or stage != self.stage:
            shown = self.window = self.viewer.source.window(self.place, self.scope.cursor)
            self.stage = stage
        frame = compose_timeline(self.view, shown, self.scope, width, height, self.look, self.aside)
        self.frame, self.scope = frame, frame.scope
        self.body.show(frame.lines, frame.marked)

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()

    def _change(self, **changes: object) -> None:
        self.scope = replace(self.scope, **changes)
        self.draw()

    @property
    def place(self) -> Place:
        began, now = self.viewer.source.span()
        return place_of(self.scope, began, now, self.columns, over=self.view.ending is not None)

    @property
    def columns(self) -> int:
        return columns_of(self.size.width, self.viewer.source.agents)

    def action_back(self) -> None:
        self.dismiss()

    def action_zoom(self, by: int) -> None:
        """About the cursor, which stays where it is on the screen."""
        old = self.place
        step = steps_from(old.step, by)
        if step == old.step:
            return
        if self.scope.start is None and self.scope.cursor is None:
            self._change(step=step)
            return
        middle = self.scope.cursor if self.scope.cursor is not None else old.start + old.step * old.columns // 2
        self._look(middle - old.column(middle) * step, step)

    def _look(self, start: int, step: int) -> None:
        """Shows the window from `start` on; at the run's end it follows now again."""
        began, now = self.viewer.source.span()
        last = latest(began, now, step, self.columns)
        start = max(began // step * step, start // step * step)
        following = start >= last and self.scope.cursor is None
        self._change(step=step, start=None if following else min(start, last))
        if self.scope.cursor is not None:
            place = self.place
            self._change(cursor=max(place.start, min(self.scope.cursor, place.end - step, now)))

    def action_pan(self, by: int) -> None:
        place = self.place
        self._look(place.start + by * max(1, round(PAN * place.columns)) * place.step, place.step)

    def action_start(self) -> None:
        self._look(0, self.place.step)

    def action_follow(self) -> None:
        self._change(start=None, cursor=None)

    def action_all(self) -> None:
        self._change(step=None, start=None)

    def action_move(self, by: int) -> None:
        """The time cursor; at the window's edge the window moves with it."""
        began, now = self.viewer.source.span()
        place = self.place
        at = self.scope.cursor if self.scope.cursor is not None else now
        column = place.column(at) + by
        t = max(began, place.start + column * place.step)
        if t > now:
            self.action_follow()
            return
        if column < 0 or column >= place.columns:
            past = column if column < 0 else column - place.columns + 1
            self._change(start=max(0, place.start + past * place.step))
        elif self.scope.start is None:
            # What is being looked at stands still.
            self._change(start=place.start, step=place.step)
        self._change(cursor=t)

    def action_agent(self, by: int) -> None:
        agents = len(self.window.cells) if self.window is not None else 0
        if agents:
            self._change(agent=max(0, min(agents - 1, self.scope.agent + by)))

    def action_page(self, by: int) -> None:
        shown = sum(map(len, self.frame.rows)) if self.frame is not None else 1
        self.action_agent(by * max(1, shown - 1))

    def action_alone(self) -> None:
        self._change(alone=not self.scope.alone)

    def action_open(self) -> None:
        if self.window is not None and self.window.cells:
            self.viewer.open_agent(self.scope.agent, self.scope.cursor)

    def on_click(self, event: events.Click) -> None:
        """A click on a lane puts both cursors there; one on the same agent again opens it."""
        if self.frame is None:
            return
        row, column = (event.screen_y - self.frame.first) // self.frame.apart, event.screen_x - self.frame.left
        if not 0 <= row < len(self.frame.rows):
            return
        agents = self.frame.rows[row]
        if column < 0 and self.scope.agent in agents:
            self.action_open()
            return
        began, now = self.viewer.source.span()
        place = self.place
        t = place.start + column * place.step
        agent = self.scope.agent if self.scope.agent in agents else agents.start
        if column < 0 or not began <= t + place.step or t > now:
            self._change(agent=agent)
        else:
            self._change(agent=agent, cursor=max(began, t), start=place.start, step=place.step)

    def on_mouse_scroll_down(self) -> None:
        self.action_agent(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_agent(-3)
