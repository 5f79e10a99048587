"""The timeline's keys: where and when one looks."""

from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.binding import Binding, BindingType

from windtunnel.tui.screens.full import FullScreen
from windtunnel.tui.screens.timeline_frame import Frame, Scope, columns_of, compose_timeline, place_of
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import Ending, View
from windtunnel.tui.window import Place, Window, latest, steps_from

PAINT_MS = 1000
"""Between two paintings while time goes on."""
PAN = 0.25
"""Of the window, with one key."""


class TimelineScreen(FullScreen[None]):
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

    def __init__(self, look: Theme, agent: int = 0, cursor: int | None = None) -> None:
        super().__init__(look, "timeline")
        self.view = View()
        self.scope = Scope(agent=agent, cursor=cursor)
        self.frame: Frame | None = None
        self.window: Window | None = None
        self.stage: tuple[Ending | None, bool, bool] = None, False, False
        """How the run ended and whether all of it had been read when the window was painted."""

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
        """Rows that every agent has anyway cannot be shared: there it waits for more agents."""
        self._change(alone=self.frame is None or self.frame.shared)

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
