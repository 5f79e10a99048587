"""How a process of the client is doing: how late its event loop is, how busy it is, how large."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from windtunnel.agents.clock import Clock

NS = 1_000_000_000
PROBE_NS = 47_000_000
"""Event-loop lateness is probed this often. Waking up costs more than looking, and a period that does not divide the
progress' quarter of a second meets it as often as chance would."""
LOOK = 2
"""Sockets are looked at with each so many-th probe: a look costs 0.1 us for each stream."""


class Health(Struct, frozen=True, tag=True):
    """One process over about a second."""

    lag_us: tuple[int, ...]
    """Lateness of each probe."""
    cpu: float
    """Share of one core."""
    rss: int | None
    """Resident bytes; None where /proc does not say."""
    blocked: int = 0
    """Most streams at one look whose request was taken slower than it was written."""


async def probe(clock: Clock, tell: Callable[[int, Health], None], blocked: Callable[[], int]) -> None:
    """Calls `tell(now_ns, health)` once a second, for ever. `blocked` says how many streams are blocked now."""
    lag: list[int] = []
    most = number = 0
    since, cpu = clock.now_ns(), time.process_time()
    due, tell_at = since, since + NS
    while True:
        due += PROBE_NS
        await clock.sleep_until(due)
        now = clock.now_ns()
        lag.append(max(0, now - due) // 1000)
        if now - due > PROBE_NS:  # a blocked loop missed probes: each of them would have been late too
            missed = (now - due) // PROBE_NS
            lag.extend(max(0, now - due - k * PROBE_NS) // 1000 for k in range(1, missed + 1))
            due += missed * PROBE_NS
        number += 1
        if number % LOOK == 0:
            most = max(most, blocked())
        if now >= tell_at:
            tell_at += NS * ((now - tell_at) // NS + 1)
            spent = time.process_time()
            share = round((spent - cpu) * NS / (now - since), 4)
            tell(now, Health(tuple(lag), share, resident_bytes(), max(most, blocked())))
            lag.clear()
            since, cpu, most = now, spent, 0


def resident_bytes() -> int | None:
    """Resident memory of this process, where /proc says."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
