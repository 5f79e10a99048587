"""Comparing: which configuration is better, by how much and how sure that is; then curves, and what differs."""

from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.binding import Binding, BindingType

from windtunnel.tui.comparing import Comparing, Contrast
from windtunnel.tui.screens.compare_frame import PAGES, Frame, compose_compare
from windtunnel.tui.screens.compare_parts import Looked, chained
from windtunnel.tui.screens.full import FullScreen
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View


class CompareScreen(FullScreen[None]):
    """Shows `compose_compare` of what its source knows by now."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("home,g", "edge(0)", "first"),
        Binding("end,G", "edge(-1)", "last"),
        Binding("left,h", "metric(-1)", "the metric before"),
        Binding("right,l", "metric(1)", "the next metric"),
        Binding("b", "versus", "of a ladder: against the base, or the previous step"),
        Binding("tab", "page(1)", "figures, curves, settings"),
        Binding("shift+tab", "page(-1)", "the part before"),
        Binding("pageup,ctrl+b", "scroll_settings(-5)", "scroll the settings up"),
        Binding("pagedown,ctrl+f", "scroll_settings(5)", "scroll the settings down"),
        Binding("enter", "open", "open its runs"),
        Binding("escape,c", "back", "back"),
    ]

    def __init__(self, look: Theme, source: Comparing, *, nested: bool = True) -> None:
        super().__init__(look, "compare")
        self.source = source
        self.nested = nested
        """Whether there is a screen to go back to."""
        self.looked = Looked()
        self.contrast = Contrast()
        self.frame: Frame | None = None

    def update_view(self, view: View, aside: Line = ()) -> None:  # noqa: ARG002 -- what every full screen takes
        self.aside = aside
        self._poll()
        self.draw()

    def _poll(self) -> None:
        before = self.contrast
        self.source.wanted = (self.looked.cursor, 0)
        self.contrast = self.source.poll()
        if len(before.columns) < 2 <= len(self.contrast.columns) and self.looked == Looked():
            # The base by itself says nothing: what it is compared with is looked at first.
            self.looked = replace(self.looked, cursor=1)

    def draw(self) -> None:
        if not self.is_mounted:
            return
        width, height = self.size
        frame = compose_compare(self.contrast, self.looked, width, height, self.look, self.aside, nested=self.nested)
        self.frame, self.looked = frame, frame.looked
        self.body.show(frame.lines, frame.marked)

    def on_mount(self) -> None:
        """What is known by now is read; that it is drawn is every full screen's own."""
        self._poll()

    def on_unmount(self) -> None:
        self.source.close()

    def _change(self, **changes: object) -> None:
        self.looked = replace(self.looked, **changes)
        self.draw()

    def action_move(self, by: int) -> None:
        self._change(cursor=max(0, min(len(self.contrast.columns) - 1, self.looked.cursor + by)))

    def action_edge(self, at: int) -> None:
        self._change(cursor=0 if at == 0 else max(0, len(self.contrast.columns) - 1))

    def action_metric(self, by: int) -> None:
        if len(self.contrast.metrics) < 2:
            self.viewer.say("there is no other metric here", "dim")
            return
        self._change(metric=(self.looked.metric + by) % max(1, len(self.contrast.metrics)))

    def action_versus(self) -> None:
        if not chained(self.contrast):
            self.viewer.say("these are all compared with A: b is for ladders", "dim")
            return
        self._change(versus="base" if self.looked.versus == "previous" else "previous")

    def action_page(self, by: int) -> None:
        if self.frame is not None and self.frame.whole:
            self.viewer.say("everything is on the screen: there is no other page", "dim")
            return
        self._change(page=(self.looked.page + by) % len(PAGES))

    def action_scroll_settings(self, by: int) -> None:
        self._change(scroll=max(0, self.looked.scroll + by))

    def action_open(self) -> None:
        """The one run of the column, or the list of them."""
        if not self.contrast.columns:
            return
        column = self.contrast.columns[self.looked.cursor]
        if len(column.paths) == 1:
            self.viewer.trips.open_run(column.paths[0])
        elif column.paths:
            self.viewer.trips.open_some(column.name, column.paths)
        else:
            self.viewer.say(column.step.failure or "it has no runs", "warn")

    def action_back(self) -> None:
        if self.nested:
            self.dismiss()

    def on_click(self, event: events.Click) -> None:
        """A click selects; a click on the selected row opens its runs."""
        if self.frame is None:
            return
        row = event.screen_y - self.frame.first
        if 0 <= row < len(self.frame.shown):
            place = self.frame.shown[row]
            if place == self.looked.cursor:
                self.action_open()
            else:
                self._change(cursor=place)

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll_settings(2)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll_settings(-2)
