"""One walk over a run's events, and what every metric is computed from.

The walk keeps what happened (calls, sessions, samples, spans) and decides nothing but the window; `metrics` says what
the figures are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from windtunnel.agents.events import (
    CallEnd,
    CallStart,
    ClientSample,
    EngineSample,
    Event,
    GpuSample,
    Note,
    Phase,
    RunEnd,
    RunStart,
    SessionEnd,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results import unended
from windtunnel.simulator.results.calls import (
    NS,
    Counts,
    Times,
    completed,
    ended_ns,
    in_one_piece,
    never_sent,
    token_chunks,
)
from windtunnel.simulator.results.counters import Counters
from windtunnel.simulator.results.occupancy import Occupancy, Spans
from windtunnel.simulator.results.unended import Looks, Unended
from windtunnel.simulator.results.validity import is_recording, is_window

CUT_SHORT_S = 0.001
WaitKey = tuple[int, str, int, int, str]


class Window(Struct, frozen=True):
    """The measured stretch of a run: half open, ns since the origin."""

    start: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / NS

    def holds(self, t: int | None) -> bool:
        return t is not None and self.start <= t < self.end


class Arrivals(Struct, frozen=True):
    """Every chunk of the run whose tokens are known: when it arrived and how many tokens it carried.

    Of calls without an end the tokens that progress told of.
    """

    times: Times
    counts: Counts

    def inside(self, window: Window) -> float:
        """Tokens that arrived inside the window."""
        return float(self.counts[(self.times >= window.start) & (self.times < window.end)].sum())

    def parts(self, edges: Sequence[float]) -> list[float]:
        """Tokens that arrived between each edge (ns, ascending) and the next, the last edge included."""
        ends = [*edges[:-1], np.nextafter(edges[-1], np.inf)]
        places = np.searchsorted(ends, self.times, side="right")
        sums: list[float] = np.bincount(places, weights=self.counts, minlength=len(ends) + 1)[1:-1].tolist()
        return sums


class Session(Struct, gc=False):
    start: SessionStart
    end: SessionEnd | None = None


class ToolWait(Struct, frozen=True, gc=False):
    start: int
    end: int


class Tally:
    """Plain lists in event order. `window` is None without a steady state of a second."""

    def __init__(self, run: dict[str, Any], events: Iterable[Event], looks: Looks | None = None) -> None:
        """`looks`: asked only where calls have no end; not needed with a list of all events."""
        self.run = run
        self.run_start: RunStart | None = None
        self.run_end: RunEnd | None = None
        self.phases: list[Phase] = []
        self.calls: list[CallEnd] = []
        self.open_calls: dict[str, CallStart] = {}
        self.sessions: dict[str, Session] = {}
        self.tool_waits: list[ToolWait] = []
        self.engine: list[EngineSample] = []
        self.counters = Counters()
        """The engine's, over the whole run."""
        self.gpu: list[GpuSample] = []
        self.client: list[ClientSample] = []
        self.notes: list[Note] = []
        self.first_t = 0
        self.last_t = 0
        self._spans = Spans()
        self._waits: dict[WaitKey, WaitStart] = {}
        self._recording = is_recording(run)
        self._known: dict[str, int] = {}
        """Until when each session of a recording is known to have gone on: nobody knows of more than its calls."""
        self._chunks: list[tuple[Times, Counts]] = []
        """Of the first calls: as many as somebody asked for."""
        self._looks = unended.held(events) if looks is None and isinstance(events, Sequence) else looks
        self._seen = False
        self.window: Window | None = None
        self.window_calls: list[CallEnd] = []
        self.occupancy = Occupancy()
        self.more(events)

    def more(self, events: Iterable[Event]) -> None:
        """Takes in what follows in the file: a run that goes on is walked through once."""
        self._read(events)
        for found in ("arrivals", "unended", "engine_in_window", "inside"):
            self.__dict__.pop(found, None)
        self.window = self._find_window()
        self.window_calls = self._window_calls()
        self.occupancy = self._occupancy(self.window) if self.window else Occupancy()

    @property
    def agents(self) -> int:
        """As the run was told; lanes that had a session where nobody could say how many there would be."""
        if self.run_start is not None and self.run_start.agents:
            return self.run_start.agents
        return len({session.start.agent for session in self.sessions.values()})

    @cached_property
    def arrivals(self) -> Arrivals:
        self._chunks += map(token_chunks, self.calls[len(self._chunks) :])
        chunks = [(times, counts) for times, counts in self._chunks if len(counts)]
        if len(self.unended.times):
            chunks.append((self.unended.times, self.unended.counts))
        if not chunks:
            return Arrivals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))
        return Arrivals(np.concatenate([times for times, _ in chunks]), np.concatenate([n for _, n in chunks]))

    @cached_property
    def unended(self) -> Unended:
        """What calls without an end had come to. A run that ended has none, and its progress is not looked at again."""
        if not self.open_calls or self._looks is None:
            return unended.NOTHING
        return unended.read(self.open_calls.values(), self._looks, self.last_t)

    @property
    def end_t(self) -> int:
        return self.run_end.t if self.run_end is not None else self.last_t

    def _read(self, events: Iterable[Event]) -> None:
        for event in events:
            if not self._seen:
                self.first_t, self._seen = event.t, True
            self.last_t = max(self.last_t, event.t)
            match event:
                case CallEnd():
                    self._call_end(event)
                case CallStart():
                    self.open_calls[event.request_id] = event
                case WaitStart():
                    self._waits[event.agent, event.session, event.thread, event.call, event.cause] = event
                case WaitEnd():
                    self._wait_end(event)
                case SessionStart():
                    self.sessions[event.session] = Session(event)
                case SessionEnd():
                    self._session_end(event)
                case ClientSample():
                    self.client.append(event)
                case EngineSample():
                    self.engine.append(event)
                    self.counters.add(event)
                case GpuSample():
                    self.gpu.append(event)
                case Phase():
                    self.phases.append(event)
                case Note():
                    self.notes.append(event)
                case RunStart():
                    self.run_start = self.run_start or event
                case RunEnd():
                    self.run_end = event
                case _:
                    pass

    def _call_end(self, event: CallEnd) -> None:
        self.open_calls.pop(event.request_id, None)
        if never_sent(event):
            return
        self.calls.append(event)
        self._known[event.session] = max(self._known.get(event.session, 0), ended_ns(event))
        if event.t_sent is not None:
            # How much of an answer in one piece was waiting for its first token is not known: none counts as that.
            first = event.t_sent if in_one_piece(event) else event.t_first
            _flight(self._spans, event.agent, event.t_sent, first, ended_ns(event))

    def _wait_end(self, event: WaitEnd) -> None:
        start = self._waits.pop((event.agent, event.session, event.thread, event.call, event.cause), None)
        if start is not None and start.cause == "tool":
            self._spans.add(event.agent, "tool", start.t, event.t)
            # The end of a session ends its waits too: a wait that was cut short says nothing about tools.
            if start.seconds is None or event.t - start.t >= (start.seconds - CUT_SHORT_S) * NS:
                self.tool_waits.append(ToolWait(start.t, event.t))

    def _session_end(self, event: SessionEnd) -> None:
        session = self.sessions.get(event.session)
        if session is None:
            return
        session.end = event
        until = self._known.get(event.session, session.start.t) if self._recording else event.t
        self._spans.add(event.agent, "live", session.start.t, until)
        for key in [key for key in self._waits if key[1] == event.session]:
            wait = self._waits.pop(key)
            if wait.cause == "tool" and not self._recording:
                self._spans.add(wait.agent, "tool", wait.t, event.t)

    def _occupancy(self, window: Window) -> Occupancy:
        """What never ended lasted until the last event: the run was killed, or is still going on.

        Of a recording this is known of calls only: a wait that no call has ended counts nowhere.
        """
        spans = self._spans.copy()
        for session in self.sessions.values():
            if session.end is None:
                start = session.start
                until = self._known.get(start.session, start.t) if self._recording else self.last_t
                spans.add(start.agent, "live", start.t, until)
        for wait in self._waits.values():
            if wait.cause == "tool" and not self._recording:
                spans.add(wait.agent, "tool", wait.t, self.last_t)
        for call in self.open_calls.values():
            _flight(spans, call.agent, call.t, None, self.last_t)
        return spans.integrate(window.start, window.end)

    def _find_window(self) -> Window | None:
        """From the first `steady` to the next phase, or to the run's end; None where that is too short to be one."""
        for index, phase in enumerate(self.phases):
            if phase.phase == "steady":
                following = self.phases[index + 1 :]
                end = following[0].t if following else self.end_t
                window = Window(phase.t, end)
                return window if is_window(window.seconds, self.run) else None
        return None

    def _window_calls(self) -> list[CallEnd]:
        """Completed calls that were intended inside the window."""
        window = self.window
        if window is None:
            return []
        return [call for call in self.calls if completed(call) and window.holds(call.t_intended)]

    def client_in_window(self) -> list[ClientSample]:
        return [sample for sample in self.client if self.window and self.window.holds(sample.t)]

    @cached_property
    def engine_in_window(self) -> list[EngineSample]:
        return [sample for sample in self.engine if self.window and self.window.holds(sample.t)]

    @cached_property
    def inside(self) -> Counters:
        """The engine's, over the window."""
        return Counters(self.engine_in_window)

    def gpu_in_window(self) -> list[GpuSample]:
        return [sample for sample in self.gpu if self.window and self.window.holds(sample.t)]

    def failures(self) -> dict[str, int]:
        """Failed calls by name, and sessions that failed without a failed call by theirs; most frequent first."""
        failed = [call for call in self.calls if call.failure is not None and not call.cut]
        count = Counter(call.failure for call in failed if call.failure is not None)
        told = {call.session for call in failed}
        for session in self.sessions.values():
            end = session.end
            if end is not None and end.status == "failed" and end.session not in told:
                count[end.reason or "unknown"] += 1
        return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def _flight(spans: Spans, agent: int, sent: int, first: int | None, end: int) -> None:
    spans.add(agent, "call", sent, end)
    spans.add(agent, "stall", sent, first if first is not None else end)
