"""Past runs: the newest first, each with what was run and what it came to; opened, played again, or compared."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.binding import Binding, BindingType

from windtunnel.tui.past import Past, Shelf
from windtunnel.tui.playing import REPLAY
from windtunnel.tui.screens.listing import ListScreen
from windtunnel.tui.screens.runs_frame import Choice, Frame, compose_runs
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.shelf import SORTS

READ_S = 0.08
"""Spent on reading in one round."""
LOOK_S = 2.0
"""Between looks at what there is: hundreds of folders are some milliseconds."""


class RunsScreen(ListScreen[Path | None, Path]):
    """Lists a shelf. With a `subject` it answers with the run to compare that one with."""

    BINDINGS: ClassVar[list[BindingType]] = [
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
    SORTS = SORTS

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
        super().__init__(look, "runs", "model, engine, GPU, folder, valid, live, ...; ! inverts")
        self.shelf = shelf
        self.wall = wall
        self.subject = subject
        self.nested = nested
        """Whether there is a screen to go back to."""
        self.choice = Choice()
        self.frame: Frame | None = None
        self._against = against
        self._told: dict[Path, tuple[str, str]] = {}
        self._looked: float | None = None

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
        typing = self.typing
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
            about=self.shelf.about if self.subject is None else "",
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

    @property
    def asked(self) -> Choice:
        return self.choice

    def change(self, **changes: object) -> None:
        self.choice = replace(self.choice, **changes)
        self.draw()

    def action_open(self) -> None:
        under = self.frame.under if self.frame is not None else None
        if under is None:
            return
        if self.subject is not None:
            self.dismiss(under.path)
        elif under.kind in {"damaged", "unstarted"}:
            self.viewer.say(under.reason, "bad")
        elif under.kind == "starting":
            self.viewer.say("it is being prepared: wait until it has begun", "warn")
        elif under.opens:
            self.viewer.trips.open_run(under.path)
        elif under.kind == "experiment":
            self.viewer.trips.open_comparison([under.path])
        elif under.kind == "folder":
            self.viewer.trips.open_runs(under.path)
        else:
            self.viewer.say(under.about or "it is still being read", "warn")

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
            into = under.kind in {"experiment", "folder"}
            self.viewer.say("only runs are compared" + (": enter opens this" if into else ""), "warn")
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

    def go_back(self) -> None:
        """The marks are left first, then the screen."""
        if self.choice.marked:
            self.change(marked=())
        else:
            self.action_back()

    def action_back(self) -> None:
        if self.nested:
            self.dismiss(None)

    def on_click(self, event: events.Click) -> None:
        if self.frame is None:
            return
        row = event.screen_y - self.frame.first
        if 0 <= row < len(self.frame.shown):
            self.choose(self.frame.shown[row])
