"""A closed loop's steps, scheduled once and timed as often as wanted.

With a fixed number of requests in flight, and the next one sent the moment one ends, which request computes what in
which step does not depend on how long the steps take. So a fit of the step time's constants plays such a run once and
computes its times again for each trial, in milliseconds.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.replay import NS, Ask, Fill, Played, play
from windtunnel.simulator.emulator.request import Script
from windtunnel.simulator.emulator.scheduler import Scheduler
from windtunnel.simulator.emulator.step import Limits, Step
from windtunnel.simulator.emulator.steptime import StepTime

Plain = tuple[int, int, int, int]
"""A step without prefill: sequences, tokens, context, windowed context, as StepTime.seconds takes them."""


class Recorder(StepTime):
    """Keeps what each step was; takes as long as `inner` says, or 1 ns."""

    def __init__(self, inner: StepTime | None = None) -> None:  # the formula's factors are not needed here
        self.steps: list[Plain | Step] = []
        self._inner = inner

    def _took(self) -> float:
        return _seconds(self._inner, self.steps[-1]) if self._inner is not None else 1 / NS

    def of(self, step: Step) -> float:
        if step.chunks:
            kept = copy.copy(step)
            kept.requests = list(step.requests)
            kept.counts, kept.admitted, kept.sampling = [], [], []
            self.steps.append(kept)
        else:
            self.steps.append((step.sequences, step.tokens, step.context, step.windowed))
        return self._took()

    def seconds(
        self,
        sequences: int,
        tokens: int,
        context: int,
        windowed: int = 0,
        drafting: int | None = None,  # noqa: ARG002 - such runs have no speculation
    ) -> float:
        self.steps.append((sequences, tokens, context, windowed))
        return self._took()


class Schedule:
    """Steps in the order in which they ran, and at which step's end each request arrived, began and ended."""

    def __init__(self, played: Played, steps: list[Plain | Step]) -> None:
        self.played = played
        self._ends, self._which, self._share = _stretches(steps)

    @classmethod
    def of(
        cls,
        limits: Limits,
        asks: Iterable[Ask],
        concurrency: int,
        *,
        counted: int | None = None,
        asynchronous: bool = True,
    ) -> Self:
        recorder = Recorder()
        core = Core(Scheduler(limits), recorder, asynchronous=asynchronous, lazy=True)
        return cls(play(core, asks, concurrency=concurrency, counted=counted), recorder.steps)

    def timed(self, steptime: StepTime) -> Played:
        """The run as it would have gone with these step times."""
        took = _durations(steptime, self._ends, self._which, self._share)
        clock = np.concatenate([[0.0], np.cumsum(took)])
        ended = np.rint(clock * NS).astype(np.int64)
        played = self.played
        return replace(
            played,
            asked=ended[played.asked],
            scheduled=ended[played.scheduled],
            first=ended[played.first],
            last=ended[played.last],
        )


class Frozen:
    """An open loop's steps as they were with some constants, to be timed with others nearby.

    Each request keeps the steps that it waited for and ran in, and how far the running step was when it arrived.
    """

    def __init__(
        self,
        limits: Limits,
        asks: Iterable[Ask],
        steptime: StepTime,
        *,
        asynchronous: bool = True,
        script: Callable[[int], Script] = Fill,
    ) -> None:
        recorder = Recorder(steptime)
        core = Core(Scheduler(limits), recorder, asynchronous=asynchronous, lazy=True)
        self.played = play(core, asks, script=script)
        ended = np.array(core._ends, dtype=np.int64)  # noqa: SLF001 - nobody else wants all of them
        self._ends, self._which, self._share = _stretches(recorder.steps[: len(ended)])
        took = np.rint(self._durations(steptime) * NS)
        self._met = np.searchsorted(ended, self.played.asked, side="right")
        self._first = np.searchsorted(ended, self.played.first)
        self._last = np.searchsorted(ended, self.played.last)
        self._left = np.clip((ended[self._met] - self.played.asked) / took[self._met], 0.0, 1.0)
        """Share of the running step that was still to come."""

    def timed(self, steptime: StepTime) -> Played:
        """Arrivals at their own times, first and last tokens where these step times put them."""
        took = self._durations(steptime) * NS
        clock = np.cumsum(took)
        waited = clock[self._first] - clock[self._met] + self._left * took[self._met]
        first = self.played.asked + np.rint(waited).astype(np.int64)
        ran = np.rint(clock[self._last] - clock[self._first]).astype(np.int64)
        return replace(self.played, first=first, last=first + ran)

    def _durations(self, steptime: StepTime) -> NDArray[np.float64]:
        return _durations(steptime, self._ends, self._which, self._share)


def _durations(
    steptime: StepTime,
    ends: list[tuple[Plain | Step, Plain | Step]],
    which: NDArray[np.int64],
    share: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Seconds of each step."""
    first = np.array([_seconds(steptime, a) for a, _ in ends])
    last = np.array([_seconds(steptime, b) if b is not a else np.nan for a, b in ends])
    last = np.where(np.isnan(last), first, last)
    took: NDArray[np.float64] = first[which] + (last - first)[which] * share
    return took


def _seconds(steptime: StepTime, step: Plain | Step) -> float:
    return steptime.seconds(*step) if isinstance(step, tuple) else steptime.of(step)


def _stretches(
    steps: list[Plain | Step],
) -> tuple[list[tuple[Plain | Step, Plain | Step]], NDArray[np.int64], NDArray[np.float64]]:
    """Runs of steps that differ in their contexts only, which grow evenly: the first and the last step of each.

    And for each step the number of its run, and how far it is from the run's first step to the last.
    """
    ends: list[tuple[Plain | Step, Plain | Step]] = []
    which = np.empty(len(steps), dtype=np.int64)
    share = np.zeros(len(steps))
    start = 0
    while start < len(steps):
        stop = start + 1
        while stop < len(steps) and _even(steps, start, stop):
            stop += 1
        which[start:stop] = len(ends)
        share[start:stop] = np.linspace(0.0, 1.0, stop - start)
        ends.append((steps[start], steps[stop - 1]))
        start = stop
    return ends, which, share


def _even(steps: list[Plain | Step], start: int, at: int) -> bool:
    """Whether the step at `at` goes on with the run that began at `start`."""
    one, two, new = steps[start], steps[at - 1], steps[at]
    if not (isinstance(one, tuple) and isinstance(two, tuple) and isinstance(new, tuple)) or one[:2] != new[:2]:
        return False
    if at - start == 1:
        return 0 < new[2] - two[2] <= new[0]
    second = steps[start + 1]
    assert isinstance(second, tuple)
    return (new[2] - two[2], new[3] - two[3]) == (second[2] - one[2], second[3] - one[3])
