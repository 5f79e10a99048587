"""Time as a parameter: the real clock, and a virtual one on which hours pass in seconds, the same every time.

Everything that waits takes a `Clock`. `VirtualClock.run` drives ordinary asyncio code (`sleep`, `wait_for`, timeouts,
queues) on an event loop without sockets or threads whose time jumps to the next timer as soon as nothing else is ready.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heappop, heappush
from time import perf_counter_ns
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from msgspec import Struct

from windtunnel.agents.alarm import Alarm

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_SPIN_NS = 400_000
"""The last part of a wait is spent yielding, because loop timers count in whole milliseconds (epoll, libuv)."""
_RESOLUTION_S = 1e-9
"""What is due within that time of virtual time is due now."""


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

    def call_at(self, t_ns: int, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts) -> "Cancellable":
        """`callback` is called at that time; for where a task would only sleep."""
        timer: Cancellable = asyncio.get_running_loop().call_at(t_ns / 1e9, callback, *args)
        return timer

    async def repeat(self, look: Callable[[], int | None]) -> None:
        """Calls `look` at once, then at the time that it says (ns), until it says None; nobody is woken for that."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        timer: Cancellable | None = None

        def again() -> None:
            nonlocal timer
            at = look()
            if at is None:
                _wake(over)
            elif at <= self.now_ns():
                timer = loop.call_soon(again)
            else:
                timer = loop.call_at(at / 1e9, again)

        again()
        try:
            await over
        finally:
            if timer is not None:
                timer.cancel()

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run `main` to its end on virtual time; tasks it leaves behind are cancelled, as `asyncio.run` does."""
        with asyncio.Runner(loop_factory=lambda: _VirtualLoop(self._loop_time)) as runner:
            self._loop = runner.get_loop()
            return runner.run(main)

    def soon(self, what: Callable[..., object], *given: object) -> None:
        """Call `what` in the loop's next pass; this may be asked for anywhere, in a signal's handler too."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *given)


class Cancellable(Protocol):
    def cancel(self) -> object: ...


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


class _Entry(Struct, gc=False):
    """A call that the loop has to make; fits `asyncio.Handle` as far as asyncio looks at one."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    gone: bool = False

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone


class _Timer(float):
    """The same at a time: that many seconds. Its order in a heap is that of floats."""

    __slots__ = ("args", "callback", "context", "gone")

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    gone: bool

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        return float(self)


class _VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, but for its rounds: where that one waits for sockets this one moves the time.

    A round is what asyncio makes of one, in the same order, and costs a fraction of it: hours of many agents are
    hundreds of thousands of rounds.
    """

    _stopping: bool
    get_debug = bool
    """False, as a call that costs nothing: every future asks."""

    def __init__(self, time: _Time) -> None:
        super().__init__()
        self._time = time
        self._soon: deque[_Entry | _Timer] = deque()
        self._later: list[_Timer] = []

    def time(self) -> float:
        return self._time.seconds

    def call_soon(self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None) -> Any:
        entry = _Entry(callback, args, copy_context() if context is None else context)
        self._soon.append(entry)
        return entry

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> Any:
        return self.call_soon(callback, *args, context=context)  # appending is; nothing sleeps, so nothing is woken

    def call_at(
        self, when: float, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> Any:
        timer = _Timer(when)
        timer.callback, timer.args, timer.gone = callback, args, False
        timer.context = copy_context() if context is None else context
        heappush(self._later, timer)
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> Any:
        return self.call_at(self._time.seconds + delay, callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: Any = None,
        context: Context | None = None,
    ) -> asyncio.Task[_T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def close(self) -> None:
        super().close()
        self._soon.clear()
        self._later.clear()

    def _run_once(self) -> None:
        soon, later, time = self._soon, self._later, self._time
        while later and later[0].gone:
            heappop(later)
        at: float | None = later[0] if later else None
        if soon or self._stopping:
            at = time.seconds
        if not self._jump(at):
            if at is None:
                raise DeadlockError("every task waits for something that can no longer happen on virtual time")
            time.seconds = max(time.seconds, float(at))
        end = time.seconds + _RESOLUTION_S
        while later and later[0] < end:
            soon.append(heappop(later))
        for _ in range(len(soon)):
            entry = soon.popleft()
            if not entry.gone:
                entry.context.run(entry.callback, *entry.args)  # an error is a bug, and ends the run

    def _jump(self, at: float | None) -> bool:
        """Whether what lives beside the timers made the time go on, and not beyond `at`."""
        time = self._time
        if time.beside is None:
            return False
        reached = time.beside(None if at is None else round(max(time.seconds, at) * 1e9))
        if reached is None:
            return False
        time.seconds = max(time.seconds, reached / 1e9)
        return True
