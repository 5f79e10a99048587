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

TICK_NS = 1_500_000
"""Lateness that is no sign of an overloaded machine: timers tick in milliseconds, and tokens must not come early."""

Sink = Callable[[Output], None]
"""Where a request's outputs go; called as they come, must not block."""


class Engine:
    def __init__(
        self,
        core: Core,
        metrics: Metrics,
        clock: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        front: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`front`: ns that a prompt of so many tokens takes on its way to the scheduler."""
        self.core = core
        self.metrics = metrics
        self.late_ns = 0
        """Worst delay between a step's end and its tokens going out."""
        self.steps_ns = 0
        """Length of all steps together."""
        self.behind_ns = 0
        """By how much tokens went out late, all steps together, beyond what a timer's tick explains."""
        self._clock = clock
        self._loop = loop
        self.front = front
        self._sinks: dict[Request, Sink] = {}
        self._coming: dict[Request, asyncio.TimerHandle] = {}
        """On their way to the scheduler."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        return len(self._sinks)

    def now(self) -> int:
        return self._clock()

    def submit(self, request: Request, sink: Sink) -> None:
        self._sinks[request] = sink
        way = request.arrival + self.front(request.prompt_tokens) - self._clock()
        if way > 0:
            self._coming[request] = self._loop.call_later(way / 1e9, self._enter, request)
        else:
            self._enter(request)

    def _enter(self, request: Request) -> None:
        self._coming.pop(request, None)
        idle, now = self.core.due is None, self._clock()
        self.core.submit(request, now)
        if idle and self.core.due is not None:
            self.steps_ns += self.core.due - now
            self._arm()

    def abort(self, request: Request) -> None:
        """The client went away. vLLM then forgets the request: no counter of ended ones and no histogram has it."""
        if self._sinks.pop(request, None) is None:
            return
        if (coming := self._coming.pop(request, None)) is not None:
            coming.cancel()
        else:
            self.core.abort(request)

    def reset_prefix_cache(self, *, preempt: bool = False) -> bool:
        return self.core.reset_prefix_cache(preempt=preempt)

    def stop(self) -> None:
        """No further step is handed out."""
        for coming in self._coming.values():
            coming.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        core, sinks, due, now = self.core, self._sinks, self.core.due, self._clock()
        if due is not None and due <= now:
            self.late_ns = max(self.late_ns, now - due)
            self.behind_ns += max(0, now - due - TICK_NS)
            turn = core.turn()
            if core.due is not None:
                self.steps_ns += core.due - due
            self.metrics.turn(turn)
            for output in turn.outputs:
                sink = sinks.pop(output.request) if output.finished else sinks.get(output.request)
                if sink is not None:
                    sink(output)
        # One step a round of the loop: requests get in between even where the machine cannot keep up.
        self._arm()

    def _arm(self) -> None:
        if self.core.due is None:
            return
        # Loop timers tick in milliseconds and may fire up to half of one early.
        delay = max(0.0, (self.core.due - self._clock()) / 1e9)
        self._timer = self._loop.call_later(delay + 0.0005 if delay else 0.0, self._fire)
