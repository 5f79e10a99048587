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


class Stolen:
    """How much of this machine's time its host gave to other machines: a cause of lateness that nothing here shows.

    The fields of /proc/stat are those of proc_stat(5): eight kinds of core time, the last of them stolen.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._read()

    def share(self) -> float | None:
        """Of the cores' time since the last call, 0-1; None where the system does not say."""
        before, now = self._last, self._read()
        self._last = now
        if before is None or now is None or now[1] <= before[1]:
            return None
        return round(max(0, now[0] - before[0]) / (now[1] - before[1]), 4)

    def _read(self) -> tuple[int, int] | None:
        """Stolen and all, in ticks."""
        try:
            with self._stat.open(encoding="ascii") as file:
                name, *ticks = file.readline().split()[:9]
            spent = [int(tick) for tick in ticks]
        except (OSError, ValueError):
            return None
        return (spent[7], sum(spent)) if name == "cpu" and len(spent) == 8 else None


def resident_bytes() -> int | None:
    """Resident memory of this process, where /proc says."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
