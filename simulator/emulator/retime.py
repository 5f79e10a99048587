"""A closed loop's steps, scheduled once and timed as often as wanted.

With a fixed number of requests in flight, and the next one sent the moment one ends, which request computes what in
which step does not depend on how long the steps take. So a fit of the step time's constants plays such a run once and
computes its times again for each trial, in milliseconds.
"""

import copy
from collections.abc import Iterable
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.replay import NS, Ask, Played, play
from windtunnel.simulator.emulator.scheduler import Scheduler
from windtunnel.simulator.emulator.step import Limits, Step
from windtunnel.simulator.emulator.steptime import StepTime

Plain = tuple[int, int, int, int]
"""A step without prefill: sequences, tokens, context, windowed context, as StepTime.seconds takes them."""


class Recorder(StepTime):
    """Takes 1 ns for each step and keeps what each one was."""

    def __init__(self) -> None:  # the formula's factors are not needed here
        self.steps: list[Plain | Step] = []

    def of(self, step: Step) -> float:
        if step.chunks:
            kept = copy.copy(step)
            kept.requests = list(step.requests)
            kept.counts, kept.admitted, kept.sampling = [], [], []
            self.steps.append(kept)
        else:
            self.steps.append((step.sequences, step.tokens, step.context, step.windowed))
        return 1 / NS

    def seconds(
        self,
        sequences: int,
        tokens: int,
        context: int,
        windowed: int = 0,
        drafting: int | None = None,  # noqa: ARG002 - such runs have no speculation
    ) -> float:
        self.steps.append((sequences, tokens, context, windowed))
        return 1 / NS


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
        first = np.array([_seconds(steptime, a) for a, _ in self._ends])
        last = np.array([_seconds(steptime, b) if b is not a else 0.0 for a, b in self._ends])
        last = np.where([a is b for a, b in self._ends], first, last)
        took = first[self._which] + (last - first)[self._which] * self._share
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
