"""Following a run folder: reads what was added, folds it, and says what there is to see.

A run that goes on, one that ended and one that was killed are the same code path; so is playing a finished one again.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from windtunnel.agents.events import CallEnd, Event
from windtunnel.simulator.results.facts import is_recording
from windtunnel.simulator.results.first_look import first_look, is_long
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.fold_rows import Activity, CallLine
from windtunnel.simulator.results.lanes import MS
from windtunnel.simulator.results.liveness import last_written, state
from windtunnel.simulator.results.store import EVENTS_FILE, TEXT_FILE, RunFolder, Tail
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.traces.errors import UsageError
from windtunnel.tui.history import Histories
from windtunnel.tui.playing import Playing
from windtunnel.tui.snapshot import BUSY, NS, Plans, head_of, view_of
from windtunnel.tui.texts import Texts, Traces
from windtunnel.tui.transcript import Story, Turn
from windtunnel.tui.view import Ending, Row, View
from windtunnel.tui.window import Painter, Place, Window

READ_BYTES = 1 << 17
"""Read at once; a long run is opened in steps so that the screen can say how far it is."""
READ_S = 0.01
"""Spent on reading in one go: longer would hold up the keys."""
LOOK_S = 1.0
"""Between looks at whether the run is alive."""


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
        self.tail = Tail(folder.path / EVENTS_FILE)
        self.texts = Texts(folder.path / TEXT_FILE)
        self.traces = Traces()
        self.details: dict[tuple[str, int], str] = {}
        """What the server said about failed calls, by (session, call)."""
        self.summary: Summary | None = None
        self.ending: Ending | None = None
        self.silent_s: float | None = None
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
        """UsageError when the folder is no run."""
        return cls(RunFolder.open(path), wall, monotonic, **options)

    def poll(self) -> View:
        """Reads what was added and says what the run is like now."""
        began = self.monotonic()
        self._open_long()
        behind = self._read(began)
        if not behind:
            self._look(began)
        self.view = view_of(
            self._head,
            self.fold,
            self.plans,
            ending=self.ending,
            silent_s=self.silent_s,
            summary=self.summary,
            speed=self.speed,
            history=self.histories.of(self.fold, ended=self.ending is not None),
        )
        if behind and self._past is None:
            self.view = msgspec.structs.replace(self.view, reading=True)
        elif behind:
            self.view = msgspec.structs.replace(self.view, unread=self.tail.unread)
        return self.view

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
        self._past = self.fold, self.plans
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
        while events := self.tail.poll(READ_BYTES):
            self._apply(events)
            if not self.whole and self.monotonic() - began > READ_S:
                return True
        if self._past is not None:
            (self.fold, self.plans), self._past = self._past, None
            self.painter = Painter()
        return False

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
            events = self.tail.poll(READ_BYTES)
            if not events:
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
            if self.ending is not None:
                self.play(0.0, 1.0)
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
        self.tail = Tail(self.folder.path / EVENTS_FILE)
        self.fold, self.plans, self.painter = Fold(self.folder.run), Plans(), Painter()
        self.details.clear()
        self._pending.clear()
        self._past = None
        self.summary = self.ending = self.silent_s = self._looked = None

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
            self.silent_s = self.wall() - last_written(self.folder)

    def _conclude(self) -> None:
        try:
            self.summary = self.folder.summary()
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
        return self.painter.window(self.fold, self.view, place, cursor)

    def story(self, agent: int) -> Story:
        """One agent's session so far: its calls, what it was sent, what it wrote."""
        shown = next((r for r in self.view.rows if r.agent == agent), Row(agent=agent))
        if agent >= len(self.fold.agents):
            return Story(row=shown)
        found = self.fold.agents[agent]
        row = found.row
        turns = [_ended(line, row.session, self.details) for line in found.calls if line.t_end >= row.session_since_t]
        for activity in sorted(found.activities.values(), key=lambda a: a.since):
            if activity.state in BUSY:
                call = self.plans.calls.get((agent, activity.thread))
                turns.append(_running(activity, call.pinned_tokens if call is not None else 0))
        trace, note = self.traces.get(self.folder, row.trace)
        return Story(
            row=shown,
            session=row.session,
            title=row.title,
            trace_id=row.trace,
            turns=tuple(turns),
            trace=trace,
            trace_note=note,
            written=self.texts.of(row.session),
            text_kept=self.texts.path.exists(),
        )

    def wait_for_trace(self, agent: int) -> None:
        """Blocks until the agent's trace has been read: for pictures."""
        if agent < len(self.fold.agents):
            self.traces.wait(self.folder, self.fold.agents[agent].row.trace)

    def close(self) -> None:
        self.tail.close()
        self.texts.close()
        self.traces.close()


def _ended(line: CallLine, session: str, details: dict[tuple[str, int], str]) -> Turn:
    return Turn(
        thread=line.thread,
        call=line.call,
        turn=line.turn,
        turns=line.turns,
        done=True,
        prompt=line.prompt_tokens,
        cached=line.cached_tokens,
        missed=line.missed_tokens,
        miss_cause=line.miss_cause,
        completion=line.completion_tokens,
        ttft_s=line.ttft_s,
        tpot_s=line.tpot_s,
        latency_s=line.e2e_s,
        recorded_s=line.recorded_latency_s,
        waited_s=line.waited_s,
        wait_label=line.wait_label,
        failure=line.failure,
        detail=details.get((session, line.call), ""),
        cut=line.cut,
    )


def _running(activity: Activity, pinned: int) -> Turn:
    return Turn(
        thread=activity.thread,
        call=activity.call,
        turn=activity.turn,
        turns=activity.turns,
        prompt=activity.prompt,
        completion=activity.tokens,
        exact=activity.exact,
        pinned=pinned,
        tail=activity.tail,
    )
