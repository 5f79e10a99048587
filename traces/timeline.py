"""One session along time: who was doing what, and a time axis on which long idle stretches are folded.

An agent's hours are mostly waiting. Stretches in which no request was in flight and that would take more columns than
`FOLD` are drawn `FOLD` columns wide and say how long they were, so that the rest is seen.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from windtunnel.traces.model import Call, Trace, Wait

State = Literal["call", "tool", "human", "client", "subagent"]
FOLD = 7
"""Columns of a folded stretch."""


class Stretch(Struct, frozen=True):
    """What a thread did from one time to another, s."""

    state: State
    start: float
    end: float
    call: int
    """The call itself, or the call that the wait came before."""


class Lane(Struct, frozen=True):
    """A thread along time."""

    thread: int
    name: str
    depth: int
    """0 for the main agent, 1 for its sub-agents, and so on."""
    stretches: tuple[Stretch, ...]
    calls: int

    @property
    def start(self) -> float:
        return self.stretches[0].start

    @property
    def end(self) -> float:
        return max(s.end for s in self.stretches)


class Column(Struct, frozen=True):
    """One character's time on the axis."""

    start: float
    end: float
    folded: float | None = None
    """Length of the whole folded stretch that the column is a part of, s."""
    part: int = 0
    """Which of the stretch's columns it is."""


def lanes(trace: Trace) -> list[Lane]:
    """Threads with a known time, in the order they are numbered."""
    waits: dict[int, list[Wait]] = {}
    for wait in trace.waits:
        waits.setdefault(wait.before, []).append(wait)
    out = []
    for thread in trace.threads:
        calls = trace.calls_of(thread.id)
        stretches = _stretches(calls, waits)
        if stretches:
            name = "main" if thread.id == 0 else thread.name or f"sub-agent {thread.id}"
            out.append(Lane(thread.id, name, _depth(trace, thread.id), tuple(stretches), len(calls)))
    return out


def _depth(trace: Trace, thread: int) -> int:
    depth, seen = 0, {thread}
    parent = trace.threads[thread].parent
    while parent is not None and parent not in seen:
        seen.add(parent)
        depth += 1
        parent = trace.threads[parent].parent
    return depth


def _stretches(calls: Sequence[Call], waits: dict[int, list[Wait]]) -> list[Stretch]:
    out: list[Stretch] = []
    until: float | None = None
    for call in calls:
        start = call.start_s if call.start_s is not None else call.end_s
        if start is None:
            continue
        if until is not None and start > until:
            out += _gap(until, start, waits.get(call.id, []), call.id)
        end = max(start, call.end_s if call.end_s is not None else start)
        out.append(Stretch("call", start, end, call.id))
        until = end if until is None else max(until, end)
    return out


def _gap(begin: float, end: float, waits: Sequence[Wait], call: int) -> list[Stretch]:
    """The waits before a call in the time they had; one of unknown length takes what the others leave."""
    known = sum(w.seconds for w in waits if w.seconds is not None)
    unknown = sum(w.seconds is None for w in waits)
    left = max(0.0, end - begin - known)
    out: list[Stretch] = []
    at = begin
    for wait in waits:
        length = left / unknown if wait.seconds is None else wait.seconds
        stop = min(end, at + length)
        if stop > at:
            out.append(Stretch(wait.cause, at, stop, call))
        at = stop
    if end - at > 1e-6:
        out.append(Stretch("client", at, end, call))
    return out


def axis(found: Sequence[Lane], columns: int) -> list[Column]:
    """At most `columns` columns from the first time to the last one, long stretches without a call folded."""
    asked = columns
    while len(out := _axis(found, asked)) > columns:
        asked = max(1, asked - (len(out) - columns))
    return out


def _axis(found: Sequence[Lane], columns: int) -> list[Column]:
    begin = min(lane.start for lane in found)
    end = max(lane.end for lane in found)
    idle = sorted(_idle(found), key=lambda gap: gap[0] - gap[1])[: columns * 2 // (3 * FOLD)]
    step = (end - begin) / columns or 1.0
    folded: list[tuple[float, float]] = []
    for _ in range(12):
        folded = sorted((a, b) for a, b in idle if b - a > step * FOLD)
        rest = sum(b - a for a, b in _between(begin, folded, end))
        new = max(rest, 1e-3) / max(columns // 3, columns - FOLD * len(folded))
        if abs(new - step) < step * 0.01:
            break
        step = new
    out: list[Column] = []
    for (start, stop), (_, until) in zip(_between(begin, folded, end), [*folded, (end, end)], strict=True):
        out += _even(start, stop, step, columns)
        if until > stop:
            width = (until - stop) / FOLD
            out += [Column(stop + i * width, stop + (i + 1) * width, until - stop, i) for i in range(FOLD)]
    return out or [Column(begin, end)]


def _between(begin: float, folded: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """What is not folded: before, between and behind the folded stretches; some may be empty."""
    starts = [begin, *(b for _, b in folded)]
    return list(zip(starts, [*(a for a, _ in folded), end], strict=True))


def _even(begin: float, end: float, step: float, most: int) -> list[Column]:
    number = min(most, round((end - begin) / step))
    if number < 1:
        number = 1 if end > begin else 0
    width = (end - begin) / number if number else 0.0
    return [Column(begin + i * width, begin + (i + 1) * width) for i in range(number)]


def _idle(found: Sequence[Lane]) -> list[tuple[float, float]]:
    """Stretches between the first and the last time in which no request was in flight."""
    spans = sorted((s.start, s.end) for lane in found for s in lane.stretches if s.state == "call")
    out = []
    until = spans[0][1]
    for start, end in spans[1:]:
        if start > until:
            out.append((until, start))
        until = max(until, end)
    return out


def states(lane: Lane, columns: Sequence[Column]) -> list[State | None]:
    """What the thread did for most of each column; None before its start and after its end."""
    out: list[State | None] = []
    first = 0
    for column in columns:
        shares: dict[State, float] = {}
        while first < len(lane.stretches) and lane.stretches[first].end < column.start:
            first += 1
        for stretch in lane.stretches[first:]:
            if stretch.start > column.end:
                break
            part = min(stretch.end, column.end) - max(stretch.start, column.start)
            if part > 0 or column.start <= stretch.start < column.end or stretch.start == stretch.end == column.end:
                shares[stretch.state] = shares.get(stretch.state, 0.0) + max(part, 0.0)
        most = max(shares.values(), default=0.0)
        out.append(next((s for s in ("call", *shares) if shares.get(s) == most), None))
    return out
