"""How much of a session's time a request is in flight, at several caps on its idle gaps.

The cap is the load dial of a replay: the same sessions keep an engine busy or leave it idle, depending on how long an
agent may wait for its tools and its user.
"""

from collections.abc import Sequence

from msgspec import Struct

from windtunnel.traces.model import Trace

CAPS: tuple[float | None, ...] = (0.0, 10.0, 60.0, None)
"""Seconds an idle gap lasts at most; None leaves it as recorded."""


class Duty(Struct, frozen=True):
    """Sessions on the time axis on which no idle gap is longer than a cap."""

    cap_s: float | None
    length_s: float
    """Time of all sessions one after the other."""
    duty_cycle: float
    """Share of that time with a request of the session in flight."""
    in_flight: float
    """Requests in flight on average over that time: above the duty cycle where sub-agents run side by side."""


class Busy(Struct, frozen=True):
    """One session's time with requests in flight."""

    work_s: float
    """Sum of the requests' durations."""
    busy_s: float
    """Time with at least one in flight."""
    gaps_s: tuple[float, ...]
    """Idle time between them, each gap for itself."""


def busy(trace: Trace) -> Busy | None:
    """When requests were in flight; None where no call says both its start and its end."""
    spans = sorted((c.start_s, c.end_s) for c in trace.calls if c.start_s is not None and c.end_s is not None)
    if not spans:
        return None
    begin, until = spans[0]
    together = 0.0
    gaps: list[float] = []
    for start, end in spans[1:]:
        if start > until:
            together += until - begin
            gaps.append(start - until)
            begin = start
        until = max(until, end)
    return Busy(sum(end - start for start, end in spans), together + until - begin, tuple(gaps))


def duty(sessions: Sequence[Busy], caps: Sequence[float | None] = CAPS) -> list[Duty]:
    """The duty cycle at each cap, sessions weighted by their length as lanes that run them one by one meet them."""
    out = []
    for cap in caps:
        idle = sum(gap if cap is None else min(gap, cap) for s in sessions for gap in s.gaps_s)
        busy_s = sum(s.busy_s for s in sessions)
        length = busy_s + idle
        if length > 0:
            work = sum(s.work_s for s in sessions)
            out.append(Duty(cap, round(length, 3), round(busy_s / length, 4), round(work / length, 4)))
    return out
