"""Time as a parameter: the real clock, and a virtual one on which hours pass in seconds, the same every time.

Everything that waits takes a `Clock`. `VirtualClock.run` drives ordinary asyncio code (`sleep`, `wait_for`, timeouts,
queues) on an event loop without sockets or threads whose time jumps to the next timer as soon as nothing else is ready.
"""

import asyncio
from collections.abc import Callable, Coroutine
from time import perf_counter_ns
from typing import Any, Protocol, TypeVar

from windtunnel.agents.alarm import Alarm

_T = TypeVar("_T")
_SPIN_NS = 400_000
"""The last part of a wait is spent yielding, because loop timers count in whole milliseconds (epoll, libuv)."""


class Clock(Protocol):
    """Nanoseconds from an arbitrary origin that never go back."""

    def now_ns(self) -> int: ...

    async def sleep_until(self, t_ns: int) -> None:
        """Return at `t_ns`, never before it. A time in the past returns after one pass of the loop."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    """`time.perf_counter_ns`; waits end less than a millisecond late on an idle loop. `close` it, or drop it, after."""

    def __init__(self) -> None:
        self._alarm: Alarm | None = None
        self._spins = False
        """The system has no alarm: the last part of a wait is spent yielding."""

    def now_ns(self) -> int:
        return perf_counter_ns()

    async def sleep_until(self, t_ns: int) -> None:
        left = t_ns - perf_counter_ns()
        if left <= 0:
            await asyncio.sleep(0)
            return
        alarm = None if self._spins else self._alarm_here()
        while left > 0:
            if alarm is not None:
                await alarm.wait_until(t_ns)
            else:
                await asyncio.sleep((left - _SPIN_NS) / 1e9 if left > _SPIN_NS else 0)
            left = t_ns - perf_counter_ns()

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(perf_counter_ns() + round(seconds * 1e9))

    def close(self) -> None:
        """Free what the waits used."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None

    def __del__(self) -> None:
        self.close()

    def _alarm_here(self) -> Alarm | None:
        loop = asyncio.get_running_loop()
        if self._alarm is None or self._alarm.loop is not loop:
            self.close()
            try:
                self._alarm = Alarm(loop)
            except (OSError, NotImplementedError):  # a loop may not watch files
                self._spins = True
        return self._alarm


class VirtualClock:
    """A clock that stands still while code runs and jumps when every task waits.

        clock = VirtualClock()
        result = clock.run(main(clock))

    Repeated `run` calls go on where the one before stopped. Code on this loop can use no sockets and no threads.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._loop_time = _Time(start_ns / 1e9)
        self._loop: asyncio.AbstractEventLoop | None = None

    def drive(self, beside: "Beside") -> None:
        """What lives on this time beside the loop's timers is asked before each of them."""
        self._loop_time.beside = beside

    def now_ns(self) -> int:
        return round(self._loop_time.seconds * 1e9)

    async def sleep_until(self, t_ns: int) -> None:
        if t_ns <= self.now_ns():
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(t_ns / 1e9, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.now_ns() + round(seconds * 1e9))

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run `main` to its end on virtual time; tasks it leaves behind are cancelled, as `asyncio.run` does."""
        with asyncio.Runner(loop_factory=lambda: _VirtualLoop(self._loop_time)) as runner:
            self._loop = runner.get_loop()
            return runner.run(main)

    def soon(self, what: Callable[..., object], *given: object) -> None:
        """Call `what` in the loop's next pass; this may be asked for anywhere, in a signal's handler too."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *given)


class DeadlockError(RuntimeError):
    """Every task waits and no timer is set: nothing could ever happen again."""


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


Beside = Callable[[int | None], int | None]
"""Goes on up to a time (ns; None: without end), or to the first moment at which the loop has to look; says that one."""


class _Time:
    """The seconds shared by a clock and the loops it runs."""

    __slots__ = ("beside", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.beside: Beside | None = None


class _Jump:
    """Stands where a loop keeps its selector: instead of waiting for sockets it moves the time."""

    def __init__(self, time: _Time) -> None:
        self._time = time

    def select(self, timeout: float | None) -> list[object]:
        time = self._time
        if time.beside is not None:
            at = time.beside(None if timeout is None else round((time.seconds + timeout) * 1e9))
            if at is not None:
                time.seconds = max(time.seconds, at / 1e9)
                return []
        if timeout is None:
            raise DeadlockError("every task waits for something that can no longer happen on virtual time")
        time.seconds += timeout
        return []


class _VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop with the selector replaced; `_selector` and `_process_events` are its extension points."""

    def __init__(self, time: _Time) -> None:
        super().__init__()
        self._time = time
        self._selector = _Jump(time)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._time.seconds

    def _process_events(self, event_list: list[object]) -> None:
        """No sockets, no events."""

    def _write_to_self(self) -> None:
        """Nothing sleeps, so nothing needs waking."""
