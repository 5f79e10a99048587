"""The step loop as pure code over times: no clock, no I/O.

Whoever owns the clock submits requests, asks when the current step ends (`due`), and calls `turn` then. Steps follow
each other at exact times, however late `turn` is called. With asynchronous scheduling the next step is already decided
when one begins, as in vLLM: a request that arrives meanwhile joins one step later.
"""

from msgspec import Struct

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Output, Scheduler, Step
from windtunnel.simulator.emulator.steptime import StepTime


class Turn(Struct, frozen=True):
    """What a finished step returned."""

    ended: int
    """ns."""
    tokens: int
    """Computed in the step."""
    outputs: list[Output]


class Leap(Struct, frozen=True):
    """What a stretch of equal decode steps returned: at each time of `ends`, one token for each request."""

    ends: list[int]
    """ns."""
    requests: list[Request]
    tokens: list[list[int]]
    """For each request, one token a step."""


class Core:
    def __init__(self, scheduler: Scheduler, steptime: StepTime, *, asynchronous: bool = True) -> None:
        self.scheduler = scheduler
        self.steptime = steptime
        self.asynchronous = asynchronous
        scheduler.asynchronous = asynchronous
        self.due: int | None = None
        """When the running step ends, ns; None while idle."""
        self._running: Step | None = None
        self._ahead: Step | None = None
        """The step after the running one, where it is decided ahead."""

    def submit(self, request: Request, now: int) -> None:
        """A request arrives at `now`; an idle engine begins a step for it at once."""
        self.scheduler.add(request)
        if self._running is None:
            self._begin(now)

    def abort(self, request: Request) -> bool:
        return self.scheduler.abort(request)

    def reset_prefix_cache(self, *, preempt: bool = False) -> bool:
        """Forget what is cached; with `preempt` running requests begin anew and what is in flight for them is lost."""
        if preempt:
            for step in (self._running, self._ahead):
                if step is not None:
                    step.sampling.clear()
            if self._ahead is not None:
                self.scheduler.drop(self._ahead)
            self._ahead = None
        return self.scheduler.reset_prefix_cache(preempt=preempt)

    def turn(self) -> Turn:
        """The running step ends, and the next one begins at that very time."""
        step, ended = self._running, self.due
        assert step is not None
        assert ended is not None
        outputs = self.scheduler.complete(step)
        self._begin(ended)
        return Turn(ended, step.tokens, outputs)

    def leap(self, until: int) -> Leap | None:
        """All at once the equal decode steps that end by `until`; None where the next step is not one of several.

        Times, tokens and bookkeeping are those that calling `turn` in a loop would have given.
        """
        running, ahead, ended = self._running, self._ahead, self.due
        if running is None or ended is None or ended > until or not running.pure_decode:
            return None
        if running.requests != self.scheduler.running:
            return None
        if self.asynchronous and (ahead is None or ahead.requests != running.requests):
            return None
        most = self.scheduler.stretch()
        if most < 2:
            return None
        sequences = len(running.requests)
        window = self.scheduler.limits.window
        grows = sum(1 for request in running.requests if request.computed < window)
        last = ahead or running
        ends: list[int] = []
        while len(ends) < most and ended <= until:
            ends.append(ended)
            # The step that begins now: the one decided ahead, or the one after the running one.
            n = len(ends) - (ahead is not None)
            seconds = self.steptime.seconds(
                sequences, sequences, last.context + n * sequences, last.windowed + n * grows
            )
            ended += round(seconds * 1e9)
        self.due = ended
        for step in (running, ahead):
            if step is not None:
                step.context += len(ends) * sequences
                step.windowed += len(ends) * grows
        return Leap(ends, running.requests, self.scheduler.skip(len(ends)))

    def _begin(self, now: int) -> None:
        step = self._ahead or self._schedule(now)
        self._ahead = None
        self._running = step
        if step is None:
            self.due = None
            return
        self.due = now + round(self.steptime.of(step) * 1e9)
        if self.asynchronous:
            self._ahead = self._schedule(now)

    def _schedule(self, now: int) -> Step | None:
        step = self.scheduler.schedule()
        if step is not None:
            for request in step.admitted:
                request.scheduled_at = now
        return step
