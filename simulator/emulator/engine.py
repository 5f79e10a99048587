"""The step loop in real time: a shell around `core` that sleeps until each step's end and hands its tokens out.

Deadlines are absolute, so pace does not drift: a step that is handed out late does not delay the next one. A token
never leaves before its step has ended.
"""

import asyncio
from collections.abc import Callable

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.metrics import Metrics
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Output

Sink = Callable[[Output], None]
"""Where a request's outputs go; called as they come, must not block."""


class Engine:
    def __init__(self, core: Core, metrics: Metrics, clock: Callable[[], int], loop: asyncio.AbstractEventLoop) -> None:
        self.core = core
        self.metrics = metrics
        self.late_ns = 0
        """Worst delay between a step's end and its tokens going out."""
        self._clock = clock
        self._loop = loop
        self._sinks: dict[Request, Sink] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        return len(self._sinks)

    def now(self) -> int:
        return self._clock()

    def submit(self, request: Request, sink: Sink) -> None:
        self._sinks[request] = sink
        idle = self.core.due is None
        self.core.submit(request, self._clock())
        if idle:
            self._arm()

    def abort(self, request: Request) -> None:
        """The client went away."""
        if self._sinks.pop(request, None) is not None and self.core.abort(request):
            self.metrics.end(request, self._clock(), "abort")

    def reset_prefix_cache(self, *, preempt: bool = False) -> bool:
        return self.core.reset_prefix_cache(preempt=preempt)

    def stop(self) -> None:
        """No further step is handed out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        core, sinks = self.core, self._sinks
        while core.due is not None and core.due <= (now := self._clock()):
            self.late_ns = max(self.late_ns, now - core.due)
            turn = core.turn()
            self.metrics.turn(turn)
            for output in turn.outputs:
                sink = sinks.pop(output.request) if output.finished else sinks.get(output.request)
                if sink is not None:
                    sink(output)
        self._arm()

    def _arm(self) -> None:
        if self.core.due is None:
            return
        # Loop timers tick in milliseconds and may fire up to half of one early.
        delay = max(0.0, (self.core.due - self._clock()) / 1e9)
        self._timer = self._loop.call_later(delay + 0.0005 if delay else 0.0, self._fire)
