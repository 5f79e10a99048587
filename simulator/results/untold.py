"""When calls waited for their first token and nobody knows for how much of that in the engine's queue.

A server tells how long a call was queued when the call ends. Of one that was cut, of one under way, and of every call
of a server that tells nothing, all before the first token is one stretch, queue or prefill. Lanes have it as prefill;
here is which of their prefill it is.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from windtunnel.agents.events import AgentState, CallEnd, Event
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.lanes import MS, RANK, STATES, Cells, Stretches, paint

LaneState = AgentState | Literal["first"]
SHOWN: tuple[LaneState, ...] = (*STATES, "first")
"""What a cell may show, by its rank."""
FIRST = len(STATES)
LATE_MS = 5_000
"""Ends are told at most so much out of order."""
_PREFILL = RANK["prefill"]
Span = tuple[int, int]
"""Start and end, ms since the origin."""


class Calls:
    """Of one agent, in the order in which they ended; ms since the origin."""

    __slots__ = ("ends", "firsts", "sent", "threads")

    def __init__(self) -> None:
        self.sent, self.firsts, self.ends, self.threads = array("I"), array("I"), array("I"), array("I")


class Untold:
    """Of all agents; 16 bytes a call."""

    def __init__(self) -> None:
        self._calls: dict[int, Calls] = {}
        self._told = False
        """Any call has told how long it was queued."""

    def apply(self, event: Event) -> None:
        """Takes in the end of a call; nothing else changes anything."""
        if not isinstance(event, CallEnd):
            return
        if event.queued_s is not None:
            self._told = True
        if event.queued_s is not None or event.t_sent is None:
            return
        ended = of_call.ended_ns(event)
        calls = self._calls.setdefault(event.agent, Calls())
        calls.sent.append(event.t_sent // MS)
        calls.firsts.append((ended if event.t_first is None else event.t_first) // MS)
        calls.ends.append(ended // MS)
        calls.threads.append(event.thread)

    def spans(self, agent: int, start: int, thread: int | None = None) -> list[Span]:
        """Those that may reach beyond `start`; of one thread where one is asked for."""
        calls = self._calls.get(agent)
        if calls is None:
            return []
        low = bisect_right(calls.ends, start - LATE_MS)
        found = zip(calls.sent[low:], calls.firsts[low:], calls.threads[low:], strict=True)
        return [(sent, first) for sent, first, of in found if thread in (None, of)]

    def mark(self, cells: Cells, rows: Sequence[tuple[int, Sequence[Span]]], start: int, step: int) -> None:
        """Of each row's prefill, what is not told. `rows`: an agent, and its calls under way."""
        if not self._told:
            # A server that tells nothing, in a run however long: there is nothing to look up.
            cells[cells == _PREFILL] = FIRST
            return
        mark(cells, [(*self.spans(agent, start), *under_way) for agent, under_way in rows], start, step)


def mark(cells: Cells, spans: Sequence[Sequence[Span]], start: int, step: int) -> None:
    """Of each row's prefill, what falls into its spans is waiting for the first token."""
    if any(spans):
        found = [_stretches(row) for row in spans]
        hit = paint(found, start, step, cells.shape[1]) > 0
        cells[hit & (cells == _PREFILL)] = FIRST


def _stretches(spans: Sequence[Span]) -> Stretches:
    both: NDArray[np.int64] = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1], np.full(len(both), _PREFILL, dtype=np.int64)
