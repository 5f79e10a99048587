"""The fleet: one screen that says how fast it goes, whether it counts, where every agent is, and what limits them."""

from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.binding import Binding, BindingType

from windtunnel.tui.screens.board import Frame, Table, calm, compose_frame, paced
from windtunnel.tui.screens.heat import SHOWN
from windtunnel.tui.screens.listing import ListScreen
from windtunnel.tui.screens.reasons import ReasonsScreen
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.agents import SORTS


class FleetScreen(ListScreen[None, int]):
    """Shows `compose_frame` and turns keys into changes of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [
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
    SORTS = SORTS

    def __init__(self, look: Theme) -> None:
        super().__init__(look, "fleet", "regular expression over state, session and tool; ! inverts; escape clears")
        self.view = View()
        """What is shown."""
        self.latest = View()
        """The newest there is; another than `view` while the display is frozen."""
        self.beat = 0
        self.table = Table()
        self.frame: Frame | None = None

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
        typing = self.typing
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

    @property
    def asked(self) -> Table:
        return self.table

    def change(self, **changes: object) -> None:
        self.table = replace(self.table, **changes)
        self.draw()

    def action_move(self, by: int) -> None:
        """Down the table; in the map, a row of cells."""
        frame = self.frame
        if frame is not None and frame.cells is not None:
            self._step(by * frame.cells.columns)
        else:
            super().action_move(by)

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
            self.change(cursor=at)

    @property
    def page(self) -> int:
        cells = self.frame.cells if self.frame is not None else None
        return super().page // (1 if cells is None else cells.columns)

    @property
    def wheel(self) -> int:
        return 1 if self.table.map else super().wheel

    def action_edge(self, at: int) -> None:
        """In the map, of all agents: those that the filter hides have their cells too."""
        if not self.table.map:
            super().action_edge(at)
        elif self.frame is not None and self.frame.order:
            self.change(cursor=self.view.rows[at].agent)

    def action_open(self) -> None:
        if self.frame is not None and self.frame.shown:
            self.viewer.open_agent(self.table.cursor)

    def action_sort(self, by: int = 1) -> None:
        """By the next column; in the map, its next figure."""
        if self.table.map:
            self.change(map=SHOWN[(SHOWN.index(self.table.map) + by) % len(SHOWN)])
        else:
            super().action_sort(by)

    def action_reverse(self) -> None:
        """The other way round; in the map, the figure before."""
        if self.table.map:
            self.action_sort(-1)
        else:
            super().action_reverse()

    def action_map(self) -> None:
        self.change(map="" if self.table.map else SHOWN[0], top=0)

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
        self.change(frozen=not self.table.frozen)

    def go_back(self) -> None:
        """The freeze is left first, then the map, then a run that lies over another screen."""
        if self.table.frozen:
            self.action_freeze()
        elif self.table.map:
            self.action_map()
        elif self.table.away:
            self.dismiss()

    def on_click(self, event: events.Click) -> None:
        """A click on the head sorts, or turns the order."""
        if self.frame is None:
            return
        chosen = self.frame.head_at(event.screen_x, event.screen_y)
        if chosen is not None and self.table.map:
            self.change(map=chosen)
        elif chosen is not None:
            again = chosen == self.table.sort
            self.change(sort=chosen, backwards=again and not self.table.backwards, top=0)
        agent = self.frame.agent_at(event.screen_x, event.screen_y)
        if agent is not None:
            self.choose(agent)
