"""What each agent did over time, kept in a few bytes a stretch: for timelines on the screen and on a page.

A stretch is what one thread did from one time to another. They are added when they end, with the exact times of the
events that end them; what is still going on is added when somebody looks. Where several hold at once the later one of
`STATES` is what the agent did; of what it did within a column of a picture the longest is shown, and a failure always.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.agents.events import (
    AgentState,
    CallEnd,
    CallStart,
    Event,
    SessionEnd,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results import calls as of_call

STATES: tuple[AgentState, ...] = ("idle", "done", "cut", "failed", "wait", "queue", "tool", "prefill", "decode")
"""Of an agent whose threads do different things the last one of these is shown: what the engine works on goes first."""
RANK: Mapping[AgentState, int] = {state: rank for rank, state in enumerate(STATES)}
FINISHED: Mapping[str, AgentState] = {"completed": "done", "failed": "failed", "cut": "cut"}
"""State of an agent between two sessions, by how the first one ended."""
MS = 1_000_000
KEPT = 8192
"""Stretches of an agent; beyond that the older half is kept as a picture of `COARSE` columns."""
COARSE = 512
SESSION = 4095
"""Thread number of what holds for the agent as a whole."""
_WAIT, _QUEUE, _TOOL, _PREFILL, _DECODE = (RANK[state] for state in ("wait", "queue", "tool", "prefill", "decode"))
_FAILED = RANK["failed"]
_LATE_MS = 5_000
"""Stretches are stored as their ends are told, which may be this much out of order."""

Numbers = NDArray[np.int64]
Stretches = tuple[Numbers, Numbers, Numbers]
"""Starts and ends in ms since the origin, and ranks of states."""
_NOTHING: Numbers = np.empty(0, dtype=np.int64)
Cells = NDArray[np.int8]
"""Agents x columns; ranks of states."""


class Lane:
    """One agent. Times are ms since the origin."""

    __slots__ = ("_ends", "_last", "_marks", "_open", "_since", "_starts", "failures", "told")

    def __init__(self) -> None:
        self._starts, self._ends = array("I"), array("I")
        self._marks = array("H")
        """Thread and rank, as 16 * thread + rank."""
        self.failures = array("I")
        """When calls and sessions failed."""
        self._open: dict[int, tuple[int, int]] = {}
        """Thread to (rank, start) of what it does now."""
        self._last, self._since = 0, 0
        """Rank of what the agent as a whole is, and since when."""

    def __len__(self) -> int:
        return len(self._starts)

    def apply(self, event: Event) -> None:
        """Takes in an event of this agent; other kinds than sessions, calls and waits change nothing."""
        t = event.t // MS
        if isinstance(event, WaitEnd):
            self.wait_over(event.thread, event.t)
        elif isinstance(event, CallStart):
            self._open[event.thread] = _PREFILL, t
        elif isinstance(event, CallEnd):
            self._open.pop(event.thread, None)
            self._call(event)
        elif isinstance(event, WaitStart):
            self._open[event.thread] = _TOOL if event.cause == "tool" else _WAIT, t
        elif isinstance(event, SessionStart):
            self._becomes(_WAIT, t)
        elif isinstance(event, SessionEnd):
            known = t if event.known_t is None else event.known_t // MS
            self._becomes(RANK[FINISHED[event.status]], known)
            if event.status == "failed":
                self.failures.append(t)

    def wait_over(self, thread: int, t: int) -> None:
        """`t`: ns."""
        rank, since = self._open.get(thread, (_PREFILL, 0))
        if rank <= _TOOL:
            del self._open[thread]
            self._add(thread, rank, since, t // MS)

    def _becomes(self, rank: int, t: int) -> None:
        for thread, (held, since) in self._open.items():
            self._add(thread, held, since, t)
        self._open.clear()
        self._add(SESSION, self._last, self._since, t)
        self._last, self._since = rank, t

    def _call(self, event: CallEnd) -> None:
        thread, end = event.thread, of_call.ended_ns(event) // MS
        sent = end if event.t_sent is None else event.t_sent // MS
        first = end if event.t_first is None else event.t_first // MS
        admitted = sent
        if event.queued_s is not None:
            admitted = min(first, sent + round((event.queued_s + of_call.front_s(event)) * 1000))
        self._add(thread, _QUEUE, event.t_intended // MS, admitted)
        self._add(thread, _PREFILL, admitted, first)
        self._add(thread, _DECODE, first, end)
        if event.failure is not None and not event.cut:
            self.failures.append(end)

    def _add(self, thread: int, rank: int, start: int, end: int) -> None:
        if end <= start or not rank:
            return
        self._starts.append(max(0, start))
        self._ends.append(end)
        self._marks.append(16 * min(thread, SESSION) + rank)
        if len(self._starts) > KEPT:
            self._thin()

    def _thin(self) -> None:
        """The older half as a picture."""
        half = KEPT // 2
        old = tuple(np.array(a[:half], dtype=np.int64) for a in (self._starts, self._ends, self._marks))
        begin, end = int(old[0].min()), int(old[1].max())
        step = -(-(end - begin) // COARSE)
        cells = paint([(old[0], old[1], old[2] % 16)], begin, step, COARSE)[0]
        rest = self._starts[half:], self._ends[half:], self._marks[half:]
        self._starts, self._ends, self._marks = array("I"), array("I"), array("H")
        for first, columns, rank in runs(cells):
            self._add(SESSION, rank, begin + first * step, min(end, begin + (first + columns) * step))
        self._starts.extend(rest[0])
        self._ends.extend(rest[1])
        self._marks.extend(rest[2])

    def within(
        self,
        start: int,
        end: int,
        now: int,
        seen: Mapping[int, tuple[int, int]] | None = None,
        thread: int | None = None,
    ) -> Stretches:
        """What happened in [start, end) and goes on at `now`, that ms included; of one thread where one is asked for.

        `seen`: how far calls under way are, by thread: rank of their state, and since when.
        """
        parts = array("I"), array("I"), array("H")
        self.tell(start, now, seen or {}, *parts)
        if not parts[0]:
            return _NOTHING, _NOTHING, _NOTHING
        starts, ends, marks = (np.frombuffer(part, dtype=part.typecode).astype(np.int64) for part in parts)
        chosen = (ends > start) & (starts < end)
        if thread is not None:
            chosen &= marks // 16 == thread
        return starts[chosen], ends[chosen], marks[chosen] % 16

    def tell(
        self,
        start: int,
        now: int,
        seen: Mapping[int, tuple[int, int]],
        starts: "array[int]",
        ends: "array[int]",
        marks: "array[int]",
    ) -> None:
        """Adds the stretches that may reach beyond `start`, and what goes on, to what is given."""
        # Later stretches end later, but for a little: those that ended long before `start` are not looked at.
        low = bisect_right(self._ends, start - _LATE_MS)
        starts.extend(self._starts[low:])
        ends.extend(self._ends[low:])
        marks.extend(self._marks[low:])
        for begin, stop, mark in self._going_on(now, seen):
            starts.append(begin)
            ends.append(stop)
            marks.append(mark)

    def _going_on(self, now: int, seen: Mapping[int, tuple[int, int]]) -> Iterable[tuple[int, int, int]]:
        if self._last:
            yield self._since, max(now, self._since) + 1, 16 * SESSION + self._last
        for thread, (rank, since) in self._open.items():
            shown, changed = seen.get(thread, (rank, since)) if rank == _PREFILL else (rank, since)
            begin = changed if shown == _DECODE else since
            if begin > since:
                yield since, begin, 16 * thread + _PREFILL
            yield begin, max(now, begin) + 1, 16 * thread + shown

    def threads(self, start: int, end: int) -> list[int]:
        """Threads that did something in [start, end), in the order of their numbers."""
        found = {thread for thread, (_, since) in self._open.items() if since < end}
        for begin, stop, mark in zip(self._starts, self._ends, self._marks, strict=True):
            if stop > start and begin < end:
                found.add(mark // 16)
        return sorted(found - {SESSION})

    def settled(self, now: int) -> int:
        """Up to when nothing will change any more: calls under way tell their exact times when they end."""
        return min((since for rank, since in self._open.values() if rank == _PREFILL), default=now)

    def failed(self, start: int, end: int) -> list[int]:
        """Times of failures in [start, end)."""
        return [t for t in self.failures if start <= t < end]


def read(events: Iterable[Event]) -> list[Lane]:
    """The lanes of a run, by agent."""
    lanes: list[Lane] = []
    for event in events:
        if isinstance(event, CallStart | CallEnd | WaitStart | WaitEnd | SessionStart | SessionEnd):
            while len(lanes) <= event.agent:
                lanes.append(Lane())
            lanes[event.agent].apply(event)
    return lanes


def paint(found: Sequence[Stretches], start: int, step: int, columns: int) -> Cells:
    """The state of each agent in each column: what it did longest. `step`: ms of a column."""
    lengths = [len(starts) for starts, _, _ in found]
    if not sum(lengths):
        return np.zeros((len(found), columns), dtype=np.int8)
    starts, ends, ranks = (np.concatenate(part) for part in zip(*found, strict=True))
    return _painted(
        np.repeat(np.arange(len(found)), lengths), starts, ends, ranks, Grid(len(found), start, step, columns)
    )


def paint_lanes(
    lanes: Sequence[Lane], seen: Iterable[Mapping[int, tuple[int, int]]], now: int, start: int, step: int, columns: int
) -> Cells:
    """The same of lanes as they are at `now`, all of them at once: a screen cannot wait for each. `seen`: by lane."""
    starts, ends, marks, owners = array("I"), array("I"), array("H"), array("I")
    for number, (lane, under_way) in enumerate(zip(lanes, seen, strict=True)):
        before = len(starts)
        lane.tell(start, now, under_way, starts, ends, marks)
        owners.extend([number] * (len(starts) - before))
    if not starts:
        return np.zeros((len(lanes), columns), dtype=np.int8)
    numbers = (np.frombuffer(part, dtype=part.typecode).astype(np.int64) for part in (owners, starts, ends, marks))
    rows, begins, stops, held = numbers
    chosen = (stops > start) & (begins < start + step * columns)
    grid = Grid(len(lanes), start, step, columns)
    return _painted(rows[chosen], begins[chosen], stops[chosen], held[chosen] % 16, grid)


class Grid(NamedTuple):
    """So many rows of columns of `step` ms from `start` on."""

    rows: int
    start: int
    step: int
    columns: int


def _painted(rows: Numbers, starts: Numbers, ends: Numbers, ranks: Numbers, grid: Grid) -> Cells:
    """All agents lie one behind the other on one axis, cut wherever anything begins or ends."""
    step, span, cells = grid.step, grid.step * grid.columns, grid.rows * grid.columns
    begins = np.clip(starts - grid.start, 0, span) + rows * span
    stops = np.clip(ends - grid.start, 0, span) + rows * span
    cuts = _distinct(np.concatenate([begins, stops]))
    first, last = np.searchsorted(cuts, begins), np.searchsorted(cuts, stops)
    top = np.zeros(max(0, len(cuts) - 1), dtype=np.int64)
    for rank in range(1, len(STATES)):
        mine = ranks == rank
        held = np.bincount(first[mine], minlength=len(cuts)) - np.bincount(last[mine], minlength=len(cuts))
        top[np.cumsum(held[:-1]) > 0] = rank
    some = top > 0
    a, b, top = cuts[:-1][some], cuts[1:][some], top[some]
    # What lies over whole columns needs no weighing.
    low, high = -(-a // step), b // step
    over = high > low
    steps = np.zeros(cells + 1, dtype=np.int64)
    steps[low[over]] += top[over]
    steps[high[over]] -= top[over]
    out = np.cumsum(steps[:-1]).astype(np.int8)
    _weigh(out, a, b, top, step)
    return out.reshape(grid.rows, grid.columns)


def _distinct(numbers: Numbers) -> Numbers:
    """In order. NumPy's own loads a module of 50 ms before it begins, while a key waits for its picture."""
    ordered = np.sort(numbers)
    other = np.ones(len(ordered), dtype=bool)
    other[1:] = ordered[1:] != ordered[:-1]
    return ordered[other]


def _weigh(out: NDArray[np.int8], a: Numbers, b: Numbers, top: Numbers, step: int) -> None:
    """Of columns that something covers in part, the longest; of equal ones the later in `STATES`."""
    head = a % step > 0
    tail = (b % step > 0) & ((b // step > a // step) | ~head)
    columns = np.concatenate([a[head] // step, b[tail] // step])
    if not len(columns):
        return
    length = np.concatenate(
        [
            np.minimum(b[head], (a[head] // step + 1) * step) - a[head],
            b[tail] - np.maximum(a[tail], b[tail] // step * step),
        ]
    )
    states = np.concatenate([top[head], top[tail]])
    touched = _distinct(columns)
    place = np.searchsorted(touched, columns)
    size = len(touched) * len(STATES)
    share = np.bincount(place * len(STATES) + states, weights=length, minlength=size).reshape(-1, len(STATES))
    out[touched] = len(STATES) - 1 - np.argmax(share[:, ::-1], axis=1)


def mark_failures(cells: Cells, lanes: Sequence[Lane], start: int, step: int) -> None:
    """A column with a failure shows it, however short it was."""
    for row, lane in zip(cells, lanes, strict=True):
        for t in lane.failed(start, start + step * len(row)):
            row[(t - start) // step] = _FAILED


def together(cells: Cells) -> NDArray[np.int8]:
    """Several agents as one row: in each column the state of most of them; a failure of any."""
    columns = cells.shape[1]
    places = cells.astype(np.int64) * columns + np.arange(columns)
    counts = 2 * np.bincount(places.ravel(), minlength=len(STATES) * columns).reshape(len(STATES), columns)
    counts[0] = 1
    counts[_FAILED] *= len(cells)
    row: Cells = (len(STATES) - 1 - np.argmax(counts[::-1], axis=0)).astype(np.int8)
    return row


def runs(cells: NDArray[np.int8]) -> list[tuple[int, int, int]]:
    """(first column, columns, rank) of equal neighbours; idle ones left out."""
    cuts = np.flatnonzero(np.diff(cells)) + 1
    starts = [0, *cuts.tolist()]
    ends = [*cuts.tolist(), len(cells)]
    return [(a, b - a, int(cells[a])) for a, b in zip(starts, ends, strict=True) if cells[a]]
