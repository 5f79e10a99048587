"""Clocks that were set back while a session was recorded: which times mean nothing then.

The time from a line before the step to one after it is not known. What was measured wholly after it keeps its length,
but not its place beside what came before, until the clock has passed where it stood.
"""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from windtunnel.traces.importers.pieces import Exchange, ThreadDraft
from windtunnel.traces.model import without_times

SLACK_S = 0.0015
STEPPED = "the clock went back"
"""How the note in a header begins."""


class Steps(Struct):
    """Exchanges, by thread number and key."""

    across: set[tuple[int, str]] = set()
    """The time since the exchange before is not known."""
    adrift: set[tuple[int, str]] = set()
    """Their place in time is not known."""
    lost: int = 0
    """Exchanges whose own times contradict each other and were dropped."""

    def note(self) -> tuple[str, ...]:
        if not (self.across or self.adrift or self.lost):
            return ()
        unknown = self.lost + len(self.adrift)
        return (f"{STEPPED} while the session was recorded: times of {unknown} calls are unknown",)


def steps_back(threads: Sequence[ThreadDraft]) -> Steps:
    """Find the steps, and drop the times that contradict each other."""
    steps = Steps()
    for number, thread in enumerate(threads):
        before: Exchange | None = None
        reached = begun = 0.0
        for exchange in thread.exchanges:
            steps.lost += _drop_contradictions(exchange)
            derived = "start" in exchange.marks
            if exchange.end is not None:
                at = (number, exchange.key)
                if before is not None and _earlier(exchange.end, before, derived=derived):
                    steps.across.add(at)
                if exchange.end < (reached if derived else begun) - SLACK_S:
                    steps.adrift.add(at)
                reached = max(reached, exchange.end)
                begun = max(begun, exchange.start or 0.0)
                before = exchange
    return steps


def _earlier(end: float, before: Exchange, *, derived: bool) -> bool:
    """Whether an answer ends before the exchange before it: requests with a start of their own may run side by side."""
    other = before.end if derived else before.start
    return other is not None and end < other - SLACK_S


def _drop_contradictions(exchange: Exchange) -> bool:
    """Whether its times stood in no order, as of a request that was under way when the clock went back."""
    known = [t for t in (exchange.start, exchange.first, exchange.end) if t is not None]
    if all(b >= a - SLACK_S for a, b in pairwise(known)):
        return False
    exchange.start = exchange.first = exchange.end = None
    exchange.marks = without_times(exchange.marks)
    return True
