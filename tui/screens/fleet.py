"""The fleet: one screen that says how fast it goes, whether it counts, where every agent is, and what limits them."""

from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from windtunnel.tui.screens.board import Frame, Table, calm, compose_frame, paced
from windtunnel.tui.screens.full import FullScreen
from windtunnel.tui.screens.heat import SHOWN
from windtunnel.tui.screens.reasons import ReasonsScreen
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.agents import SORTS


class FleetScreen(FullScreen[None]):
    """Shows `compose_frame` and turns keys into changes of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup,ctrl+b", "page(-1)", "page up"),
        Binding("pagedown,ctrl+f", "page(1)", "page down"),
        Binding("home,g", "edge(0)", "first"),
        Binding("end,G", "edge(-1)", "last"),
        Binding("left,h", "aside(-1)", "left"),
        Binding("right,l", "aside(1)", "right"),
        Binding("enter", "open", "open"),
        Binding("slash", "filter", "filter"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "reverse", "reverse"),
        Binding("m", "map", "map"),
        Binding("v", "why", "why the result does not count, and what failed"),
        Binding("space", "freeze", "freeze"),
        Binding("escape", "clear", "clear"),
    ]
    DEFAULT_CSS = """
    FleetScreen Input { dock: bottom; height: 1; border: none; padding: 0 1; display: none; }
    FleetScreen Input:focus { border: none; }
    """

    def __init__(self, look: Theme) -> None:
        super().__init__(look, "fleet")
        self.view = View()
        """What is shown."""
        self.latest = View()
        """The newest there is; another than `view` while the display is frozen."""
        self.beat = 0
        self.table = Table()
        self.frame: Frame | None = None
        self.filter_box = Input(
            id="filter", placeholder="regular expression over state, session and tool; ! inverts; escape clears"
        )

    def compose(self) -> ComposeResult:
        yield self.body
        yield self.filter_box

    def update_view(self, view: View, aside: Line = ()) -> None:
        self.latest, changed, self.aside = view, aside != self.aside, aside
        if not self.table.frozen:
            self.beat += 1
            rows = paced(view.rows, self.view.rows, self.beat)
            self.view = replace(calm(view, self.view, self.beat), rows=rows)
        elif not changed:
            return
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

    def _change(self, **changes: object) -> None:
        self.table = replace(self.table, **changes)
        self.draw()

    def action_move(self, by: int) -> None:
        """Down the table; in the map, a row of cells."""
        frame = self.frame
        if frame is not None and frame.cells is not None:
            self._step(by * frame.cells.columns)
        elif frame is not None and frame.order:
            order = frame.order
            at = order.index(self.table.cursor) if self.table.cursor in order else 0
            self._change(cursor=order[max(0, min(len(order) - 1, at + by))])

    def action_aside(self, by: int) -> None:
        """To the next cell of the map; without one, through a run that is played again."""
        if self.table.map:
            self._step(by)
        else:
            self.viewer.action_seek(by)

    def _step(self, by: int) -> None:
        """By so many cells, and not out of the map."""
        at = self.table.cursor + by
        if 0 <= at < len(self.view.rows):
            self._change(cursor=at)

    def action_page(self, by: int) -> None:
        if self.frame is None:
            return
        cells, room = self.frame.cells, len(self.frame.shown)
        self.action_move(by * max(1, (room // cells.columns if cells is not None else room) - 1))

    def action_edge(self, at: int) -> None:
        if self.frame is not None and self.frame.order:
            self._change(cursor=self.view.rows[at].agent if self.table.map else self.frame.order[at])

    def action_open(self) -> None:
        if self.frame is not None and self.frame.shown:
            self.viewer.open_agent(self.table.cursor)

    def action_sort(self, by: int) -> None:
        """By the next column; in the map, its next figure."""
        if self.table.map:
            self._change(map=SHOWN[(SHOWN.index(self.table.map) + by) % len(SHOWN)])
        else:
            self._change(sort=SORTS[(SORTS.index(self.table.sort) + by) % len(SORTS)], backwards=False, top=0)

    def action_reverse(self) -> None:
        """The other way round; in the map, the figure before."""
        if self.table.map:
            self.action_sort(-1)
        else:
            self._change(backwards=not self.table.backwards)

    def action_map(self) -> None:
        self._change(map="" if self.table.map else SHOWN[0], top=0)

    def action_why(self) -> None:
        self.viewer.put(ReasonsScreen(self.look, self.view))

    def action_freeze(self) -> None:
        """Holds what is shown, all of it; the run and its reading go on, and going on shows the present.

        A run that is played again stands still itself.
        """
        if self.viewer.playing:
            self.viewer.action_pause()
            return
        if self.table.frozen:
            self.view = self.latest
        self._change(frozen=not self.table.frozen)

    def action_filter(self) -> None:
        box = self.filter_box
        box.display = True
        box.value = self.table.pattern
        box.focus()
        self.draw()

    def action_clear(self) -> None:
        """Escape: leaves the filter, then the freeze, then the map, then a run that lies over another screen."""
        if self.filter_box.display or self.table.pattern:
            self._hide_filter()
            self._change(pattern="", top=0)
        elif self.table.frozen:
            self.action_freeze()
        elif self.table.map:
            self.action_map()
        elif self.table.away:
            self.dismiss()

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
        """A click selects; a click on what is selected opens it; a click on the head sorts, or turns the order."""
        if self.frame is None:
            return
        chosen = self.frame.head_at(event.screen_x, event.screen_y)
        if chosen is not None and self.table.map:
            self._change(map=chosen)
        elif chosen is not None:
            again = chosen == self.table.sort
            self._change(sort=chosen, backwards=again and not self.table.backwards, top=0)
        agent = self.frame.agent_at(event.screen_x, event.screen_y)
        if agent is not None and agent == self.table.cursor:
            self.action_open()
        elif agent is not None:
            self._change(cursor=agent)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(1 if self.table.map else 3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-1 if self.table.map else -3)
