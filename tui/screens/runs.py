"""Past runs: the newest first, each with what was run and what it came to; opened, played again, or compared."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from windtunnel.tui.past import Past, Shelf
from windtunnel.tui.playing import REPLAY
from windtunnel.tui.screens.full import FullScreen
from windtunnel.tui.screens.runs_frame import Choice, Frame, compose_runs
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.shelf import SORTS

READ_S = 0.08
"""Spent on reading in one round."""
LOOK_S = 2.0
"""Between looks at what there is: hundreds of folders are some milliseconds."""


class RunsScreen(FullScreen[Path | None]):
    """Lists a shelf. With a `subject` it answers with the run to compare that one with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup,ctrl+b", "page(-1)", "page up"),
        Binding("pagedown,ctrl+f", "page(1)", "page down"),
        Binding("home,g", "edge(0)", "first"),
        Binding("end,G", "edge(-1)", "last"),
        Binding("enter", "open", "open the run"),
        Binding("space,x", "mark", "mark the run to be compared"),
        Binding("c", "compare", "compare the marked runs"),
        Binding("R", "replay", "play the run again, 10 times as fast"),
        Binding("slash", "filter", "filter"),
        Binding("s", "sort", "sort by the next column"),
        Binding("S", "reverse", "reverse the order"),
        Binding("escape", "clear", "clear the filter and the marks, then back"),
        Binding("r", "back", "back"),
    ]
    DEFAULT_CSS = """
    RunsScreen Input { dock: bottom; height: 1; border: none; padding: 0 1; display: none; }
    RunsScreen Input:focus { border: none; }
    """

    def __init__(
        self,
        look: Theme,
        shelf: Shelf,
        wall: Callable[[], float],
        *,
        subject: Path | None = None,
        against: Callable[[Path], tuple[str, str]] | None = None,
        nested: bool = True,
    ) -> None:
        super().__init__(look, "runs")
        self.shelf = shelf
        self.wall = wall
        self.subject = subject
        self.nested = nested
        """Whether there is a screen to go back to."""
        self.choice = Choice()
        self.frame: Frame | None = None
        self.filter_box = Input(id="filter", placeholder="model, engine, GPU, folder, valid, live, ...; ! inverts")
        self._against = against
        self._told: dict[Path, tuple[str, str]] = {}
        self._looked: float | None = None

    def compose(self) -> ComposeResult:
        yield self.body
        yield self.filter_box

    def update_view(self, view: View, aside: Line = ()) -> None:  # noqa: ARG002 -- what every full screen takes
        self.aside = aside
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted:
            return
        now = self.wall()
        if self._looked is None or not 0 <= now - self._looked < LOOK_S:
            self._looked = now
            self.shelf.look()
        first = self.frame.shown if self.frame is not None else ()
        entries = [p for p in self.shelf.poll(READ_S, first) if p.path != self.subject]
        width, height = self.size
        typing = self.filter_box.display
        frame = self._frame(entries, now, width, height - (1 if typing else 0), footer=not typing)
        if self._tell(frame.shown):
            if self.choice.cursor is None:
                # The newest one that did the same work is what is most likely asked for.
                like = (path for path in frame.shown if self._told[path][1] == "good")
                self.choice = replace(frame.choice, cursor=next(like, frame.choice.cursor))
            frame = self._frame(entries, now, width, height - (1 if typing else 0), footer=not typing)
        self.frame, self.choice = frame, frame.choice
        self.body.show(frame.lines, frame.marked)

    def _frame(self, entries: Sequence[Past], now: float, width: int, height: int, *, footer: bool) -> Frame:
        return compose_runs(
            entries,
            self.choice,
            str(self.shelf.root),
            width,
            height,
            now,
            self.look,
            subject=self.subject.name if self.subject is not None else "",
            against=self._told,
            problem=self.shelf.problem,
            unread=self.shelf.unread,
            footer=footer,
            aside=self.aside,
            nested=self.nested,
        )

    def _tell(self, shown: Sequence[Path]) -> bool:
        """Finds out how the visible ones stand to the subject, each once; whether there was one to be told."""
        if self._against is None or self.subject is None:
            return False
        new = [path for path in shown if path not in self._told]
        for path in new:
            self._told[path] = self._against(path)
        return bool(new)

    def _change(self, **changes: object) -> None:
        self.choice = replace(self.choice, **changes)
        self.draw()

    def action_move(self, by: int) -> None:
        if self.frame is None or not self.frame.order:
            return
        order = self.frame.order
        at = order.index(self.choice.cursor) if self.choice.cursor in order else 0
        self._change(cursor=order[max(0, min(len(order) - 1, at + by))])

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, len(self.frame.shown) - 1 if self.frame else 1))

    def action_edge(self, at: int) -> None:
        if self.frame is not None and self.frame.order:
            self._change(cursor=self.frame.order[at])

    def action_open(self) -> None:
        under = self.frame.under if self.frame is not None else None
        if under is None:
            return
        if self.subject is not None:
            self.dismiss(under.path)
        elif under.kind == "damaged":
            self.viewer.say(under.reason, "bad")
        elif under.opens:
            self.viewer.trips.open_run(under.path)
        elif under.kind == "experiment":
            self.viewer.trips.open_comparison([under.path])
        elif under.kind == "folder":
            self.viewer.trips.open_runs(under.path)

    def action_replay(self) -> None:
        under = self.frame.under if self.frame is not None else None
        if under is None or self.subject is not None:
            return
        if not under.opens:
            self.viewer.say("only a run can be played again", "warn")
        elif under.live:
            self.viewer.say("it is still going on: enter watches it live", "warn")
        else:
            self.viewer.trips.open_run(under.path, speed=REPLAY)

    def action_mark(self) -> None:
        under = self.frame.under if self.frame is not None else None
        if under is None or self.subject is not None:
            return
        if not under.opens:
            self.viewer.say("only runs are compared: enter opens this", "warn")
            return
        marked = self.choice.marked
        left = tuple(path for path in marked if path != under.path)
        self.choice = replace(self.choice, marked=left if under.path in marked else (*marked, under.path))
        self.action_move(1)

    def action_compare(self) -> None:
        under = self.frame.under if self.frame is not None else None
        if self.subject is not None:
            self.action_open()
            return
        marked = self.choice.marked
        if len(marked) == 1 and under is not None and under.opens and under.path != marked[0]:
            marked = (*marked, under.path)
        if len(marked) > 1:
            self.viewer.trips.open_comparison(marked)
        elif under is None:
            return
        elif under.kind == "experiment":
            self.action_open()
        elif marked:
            self.viewer.say("move to another run and press c: it is compared with A", "key")
        else:
            self.action_mark()
            if self.choice.marked:
                self.viewer.say("that is A: move to another run and press c again", "key")

    def action_sort(self) -> None:
        self._change(sort=SORTS[(SORTS.index(self.choice.sort) + 1) % len(SORTS)], backwards=False, top=0)

    def action_reverse(self) -> None:
        self._change(backwards=not self.choice.backwards)

    def action_filter(self) -> None:
        box = self.filter_box
        box.display = True
        box.value = self.choice.pattern
        box.focus()
        self.draw()

    def action_clear(self) -> None:
        """Escape: leaves the filter, then the marks, then the screen."""
        if self.filter_box.display or self.choice.pattern:
            self._hide_filter()
            self._change(pattern="", top=0)
        elif self.choice.marked:
            self._change(marked=())
        else:
            self.action_back()

    def action_back(self) -> None:
        if self.nested:
            self.dismiss(None)

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
        """A click selects; a click on the selected row opens it."""
        if self.frame is None:
            return
        row = event.screen_y - self.frame.first
        if 0 <= row < len(self.frame.shown):
            path = self.frame.shown[row]
            if path == self.choice.cursor:
                self.action_open()
            else:
                self._change(cursor=path)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)
