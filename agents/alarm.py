"""Wake-ups at the nanosecond that was asked for, as far as the kernel can.

Loop timers count whole milliseconds (epoll, libuv): whoever wants better must spin through the rest, which costs a
client that probes its own lateness 2% of a core. A timerfd is a file that becomes readable in time, and a loop waits
for files without a rest. Linux only.
"""

import asyncio
import ctypes
import heapq
import itertools
import os
import sys
from time import perf_counter_ns

_MONOTONIC = 1
"""The clock of `perf_counter_ns` on Linux."""
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC if sys.platform == "linux" else 0
_ABSOLUTE = 1
_NS = 1_000_000_000


class _Setting(ctypes.Structure):
    """`struct itimerspec`: an interval (none here) and the first time."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class Alarm:
    """The waits of one event loop, the earliest of them set in a timerfd."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError where the system has no timerfd."""
        self.loop = loop
        self._waits: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._fd = -1
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(_MONOTONIC, _FLAGS)
        except (AttributeError, TypeError) as error:  # no such function, or no library to look in
            raise OSError("the system has no timerfd") from error
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._fd, self._ring)

    async def wait_until(self, t_ns: int) -> None:
        """Return at `t_ns` of `perf_counter_ns` or a little after it."""
        woken: asyncio.Future[None] = self.loop.create_future()
        heapq.heappush(self._waits, (t_ns, next(self._numbers), woken))
        if self._waits[0][2] is woken:
            self._set(t_ns)
        await woken

    def close(self) -> None:
        """Free the file; nobody may be waiting."""
        if self._fd >= 0:
            if not self.loop.is_closed():
                self.loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _set(self, t_ns: int) -> None:
        setting = _Setting(0, 0, *divmod(max(1, t_ns), _NS))
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(setting), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _ring(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set to a later time since it rang
        now = perf_counter_ns()
        while self._waits and (self._waits[0][0] <= now or self._waits[0][2].done()):
            woken = heapq.heappop(self._waits)[2]
            if not woken.done():
                woken.set_result(None)
        if self._waits:
            self._set(self._waits[0][0])
