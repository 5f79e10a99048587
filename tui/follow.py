"""Following a run folder: reads what was added, folds it, and says what there is to see.

A run that goes on, one that ended and one that was killed are the same code path; so is playing a finished one again.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from windtunnel.agents.events import CallEnd, Event
from windtunnel.simulator.results.damage import DAMAGED, in_words, lost
from windtunnel.simulator.results.eventless import with_events, without_events
from windtunnel.simulator.results.first_look import first_look, is_long
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.fold_long import LongFold
from windtunnel.simulator.results.lanes import MS
from windtunnel.simulator.results.lines import COARSE
from windtunnel.simulator.results.liveness import last_written, state
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.validity import in_words as reason_in_words
from windtunnel.simulator.results.validity import is_recording
from windtunnel.traces.errors import UsageError
from windtunnel.tui.history import Histories
from windtunnel.tui.playing import REPLAY, Playing
from windtunnel.tui.snapshot import NS, Plans, head_of, view_of
from windtunnel.tui.stories import Asked, Stories
from windtunnel.tui.transcript import Story
from windtunnel.tui.view import Ending, View
from windtunnel.tui.window import Painter, Place, Window

READ_BYTES = 1 << 17
"""Read at once; a long run is opened in steps so that the screen can say how far it is."""
OUTLINE_BYTES = 8 << 20
"""So much of a long run's end is read in full: every call that was under way then."""
READ_S = 0.01
"""Spent on reading in one go: longer would hold up the keys."""
LOOK_S = 1.0
"""Between looks at whether the run is alive."""
GONE = "its events are missing: what its figures were made of cannot be looked at"


class Follower:
    """`poll` four times a second. The clocks are given: Unix time, and a monotonic one, both in seconds."""

    def __init__(
        self,
        folder: RunFolder,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        *,
        speed: float | None = None,
        at_s: float | None = None,
        whole: bool = False,
    ) -> None:
        self.folder = folder
        self.wall, self.monotonic = wall, monotonic
        self.whole = whole
        self.playing = Playing(speed, at_s) if speed is not None or at_s is not None else None
        """None: the run is shown as it stands, and not played again."""
        self.fold = Fold(folder.run)
        self.plans = Plans()
        self.histories = Histories()
        self.tail = folder.tail()
        self.stories = Stories(folder)
        self.details: dict[tuple[str, int], str] = {}
        """What the server said about failed calls, by (session, call)."""
        self.summary: Summary | None = None
        self.ending: Ending | None = None
        self._last_sign: float | None = None
        """Unix time of the last sign of life of a run that died."""
        self._past: tuple[Fold, Plans] | None = None
        """Where the whole of a long run is read into, while a first look at it is shown."""
        self._pending: deque[Event] = deque()
        self._looked: float | None = None
        self._head = head_of(folder.run, folder.path.name)
        self.painter = Painter()
        self.view = View()
        """The latest one."""

    @classmethod
    def open(cls, path: Path, wall: Callable[[], float], monotonic: Callable[[], float], **options: Any) -> Self:
        """UsageError when the folder is no run, or is to be played and has no events."""
        folder = RunFolder.open(path)
        played = options.get("speed") is not None or options.get("at_s") is not None
        return cls(with_events(folder) if played else folder, wall, monotonic, **options)

    def poll(self) -> View:
        """Reads what was added and says what the run is like now."""
        began = self.monotonic()
        self._open_long()
        behind = self._read(began)
        if not behind:
            self._look(began)
        self.fold.problems = len(self.tail.problems)
        self.view = view_of(
            self._head,
            self.fold,
            self.plans,
            ending=self.ending,
            silent_s=None if self._last_sign is None else max(0.0, self.wall() - self._last_sign),
            summary=self.summary,
            speed=self.speed,
            history=self.histories.of(self.fold, ended=self.ending is not None),
        )
        if behind and self._past is None:
            self.view = msgspec.structs.replace(self.view, reading=True)
        elif behind:
            self.view = msgspec.structs.replace(self.view, unread=self.tail.unread)
        self._doubt()
        return self.view

    def _doubt(self) -> None:
        """Says of a result that what stands beside it is not all that happened."""
        missing = without_events(self.folder) if self.ending is not None and not self.tail.read else ""
        if not missing and not self.tail.problems:
            return
        view, reasons = self.view, self.view.invalid
        if (missing or lost(self.tail.problems)) and DAMAGED not in reasons:
            reasons = (*reasons, DAMAGED)
        self.view = msgspec.structs.replace(
            view,
            valid=view.valid if reasons == view.invalid else False,
            invalid=reasons,
            why=(*view.why, *(GONE if missing else reason_in_words(r) for r in reasons[len(view.invalid) :])),
            damaged=missing or in_words(self.tail.problems),
            missing=missing,
        )

    def read_on(self) -> bool:
        """Between two polls: reads a little more of what there is; False when there is no more."""
        return self._read(self.monotonic())

    def _open_long(self) -> None:
        """Of a long run that is over, what can be had without reading it: its figures, its end, its past in outline."""
        fresh = self.tail.read == 0 and not self.fold.t
        if not fresh or self.whole or self.playing is not None or not is_long(self.folder):
            return
        self._conclude()
        if self.summary is None:
            return
        self._past = LongFold(self.folder.run), self.plans
        self.fold, events = first_look(self.folder)
        self.plans = Plans()
        for event in events:
            self.plans.apply(event)

    @property
    def speed(self) -> str:
        """How fast the screen goes: with the run, on a virtual clock, or as it is played."""
        if self.playing is not None:
            return self.playing.label
        if self.folder.run.get("virtual") is True:
            return "virtual time"
        return "real time 1.0x" if self.ending is None else ""

    def _read(self, began: float) -> bool:
        """Takes in new events; True when there are more than fit into this poll."""
        if self.playing is not None:
            return self._play(self.playing.moment_s(began), began)
        while (events := self.tail.step(self._next_bytes())) or not self.tail.ended:
            self._apply(events)
            if not self.whole and self.monotonic() - began > READ_S:
                return True
        if self._past is not None:
            (self.fold, self.plans), self._past = self._past, None
            self.painter = Painter()
        return False

    def _next_bytes(self) -> int:
        """How much to read at once. The past of a long run is read in outline, its end in full."""
        outline = self._past is not None and self.tail.left > OUTLINE_BYTES
        self.tail.leave_out = (COARSE,) if outline else ()
        return READ_BYTES

    def _play(self, moment: float, began: float) -> bool:
        """Applies what has happened by the played moment; reads no further than that needs."""
        until = int(moment * NS)
        while True:
            due: list[Event] = []
            while self._pending and self._pending[0].t <= until:
                due.append(self._pending.popleft())
            self._apply(due)
            if self._pending:
                return False
            events = self.tail.step(READ_BYTES)
            if not events and self.tail.ended:
                return False
            self._pending.extend(events)
            if not self.whole and self.monotonic() - began > READ_S:
                return True

    def pause(self) -> None:
        """Of a played run: stand still, or go on."""
        if self.playing is not None:
            self.playing.pause(self.monotonic())

    def change_speed(self, by: int) -> None:
        """Play faster (+1) or slower (-1); a finished run that only stands there is played from its start."""
        if self.playing is None:
            if self.ending is not None and not self.view.missing:
                self.play(0.0, REPLAY)
        else:
            self.playing.change(by, self.monotonic())

    def play(self, at_s: float, speed: float) -> None:
        """Play the run from this moment on."""
        self._forget()
        self.playing = Playing(speed, at_s)

    def seek(self, steps: int) -> None:
        """So many steps forth or back. Going back reads the run again from its start."""
        if self.playing is None:
            return
        now = self.monotonic()
        to = max(0.0, self.playing.moment_s(now) + steps * self.playing.step_s)
        if steps < 0:
            self._forget()
        elif self.ending is not None:
            return
        self.playing.set(to, now)

    def _forget(self) -> None:
        """As if nothing had been read."""
        self.tail.close()
        self.tail = self.folder.tail()
        self.fold, self.plans, self.painter = Fold(self.folder.run), Plans(), Painter()
        self.histories = Histories()
        self.details.clear()
        self._pending.clear()
        self._past = None
        self.summary = self.ending = self._last_sign = self._looked = None

    def _apply(self, events: list[Event]) -> None:
        fold, plans = self._past or (self.fold, self.plans)
        for event in events:
            fold.apply(event)
            plans.apply(event)
            if isinstance(event, CallEnd) and event.detail and len(self.details) < 1000:
                self.details[event.session, event.call] = event.detail

    def _look(self, now: float) -> None:
        """Whether the run goes on, ended or died; the summary when there is one."""
        if self.ending is not None:
            return
        if self._looked is not None and now - self._looked < LOOK_S and self.fold.status is None:
            return
        self._looked = now
        if self.playing is not None:
            if self._pending:
                return
            if self.fold.status is not None:
                self._conclude()
                self.ending = self.fold.status
            elif state(self.folder, self.wall()) == "died":
                self.ending = "died"
            return
        if "engine" not in self.folder.run or is_recording(self.folder.run):
            self._head = head_of(self.folder.reload(), self.folder.path.name)
            self.fold.run = self.folder.run
        self._conclude()
        if self.summary is None and state(self.folder, self.wall()) == "died":
            # Killed before it ended, or between its end and its summary.
            self.ending = self.fold.status or "died"
            self._last_sign = last_written(self.folder)

    def _conclude(self) -> None:
        try:
            self.summary = self.folder.summary(strict=True)
        except UsageError:
            self.summary = None
        if self.summary is not None:
            self.ending = self.summary.status

    @property
    def agents(self) -> int:
        """Lanes so far."""
        return len(self.fold.agents)

    def span(self) -> tuple[int, int]:
        """When the run began and its latest moment, ms since its origin."""
        return self.fold.started_t // MS, self.fold.t // MS

    def window(self, place: Place, cursor: int | None) -> Window:
        """A stretch of the timeline, and the engine at the cursor."""
        return self.painter.window(self.fold, self.plans, self.view, place, cursor)

    def story(self, agent: int, at: int | None = None) -> Story:
        """An agent's session so far, or the one it had at a moment (ms since the run's origin)."""
        return self.stories.story(self.fold, self.plans, self.view, self.details, Asked(agent, at))

    def wait_for_trace(self, agent: int) -> None:
        """Blocks until the agent's trace has been read: for pictures."""
        self.stories.wait(self.fold, agent)

    def close(self) -> None:
        self.tail.close()
        self.stories.close()
