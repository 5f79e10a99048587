"""How a parked request goes on where drafts are verified: with known acceptance, all its steps to the end are known.

Steps are counted from the last one that was walked through: before step `n` of the course is decided, `n` steps have
returned since, because those that were in flight when it began return first.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.step import Limits


class Course:
    __slots__ = ("_counted", "_depth", "_prompt", "_width", "gains", "last", "path", "start")

    def __init__(self, request: Request, limits: Limits, depth: int, start: int) -> None:
        """`depth`: steps in flight when a step is decided, itself included; `start`: number of the course's step 1."""
        drafts, accepts = limits.speculative_tokens, request.accepts
        self.start = start
        at = request.produced
        self.path = [at]
        """Output tokens after each step to return, up to the first that ends the request."""
        while at < request.ends:
            at += 1 + (accepts(at, drafts) if accepts else 0)
            self.path.append(at)
        self.gains = [after - before for before, after in pairwise(self.path)]
        self._prompt = request.prompt_tokens
        self._depth = self._counted = depth
        self._width = 1 + drafts
        room = limits.max_model_len - depth * self._width - self._prompt
        self.last = min(len(self.path) - 2, bisect_right(self.path, room))
        """The step that has to be walked through again: the end is near."""
        if depth > 1:
            self.last = min(self.last, bisect_left(self.path, request.max_tokens - 1))

    def verified(self, before: int) -> list[int]:
        """Tokens that each verification brought, from where this was last asked to the step with number `before`."""
        counted, self._counted = self._counted, before - self.start + self._depth
        return self.gains[counted : self._counted]

    def context(self, step: int) -> int:
        """Tokens that attention reads for the request in a step of the course."""
        return self._prompt + self.path[step] - 1 + self._depth * self._width

    def growth(self, first: int) -> NDArray[np.int64]:
        """By how much that grows with each step from `first` on until the course ends."""
        return np.array(self.gains[first - 1 : max(self.last - 1, 0)], dtype=np.int64)

    def look(self, after: int, room: int, kept: int, until: int) -> int:
        """The next step in which blocks are lacking, given back or findable; the arguments as of `KvCache.bounds`."""
        path, prompt, low = self.path, self._prompt, after + 1
        return min(
            bisect_right(path, room + 1 - self._depth * self._width - prompt, low),
            bisect_left(path, min(until, kept + 1) - prompt, low),
        )

    def full(self, after: int, until: int) -> int:
        """The step of the course before whose decision a step returns that makes more findable."""
        return bisect_left(self.path, until + 1 - self._prompt, after + 1)


class Growth:
    """By how much a sum grows in each step to come."""

    def __init__(self) -> None:
        self._first = 0
        self._values = np.zeros(1024, dtype=np.int64)

    def add(self, number: int, values: NDArray[np.int64]) -> None:
        """More in the steps from `number` on."""
        start = number - self._first
        stop = start + len(values)
        if stop > len(self._values):
            kept = self._values[start:]
            self._values = np.zeros(2 * (len(kept) + len(values)), dtype=np.int64)
            self._values[: len(kept)] = kept
            self._first, start, stop = number, 0, len(values)
        self._values[start:stop] += values

    def at(self, number: int) -> int:
        place = number - self._first
        return int(self._values[place]) if place < len(self._values) else 0

    def clear(self) -> None:
        self._values[:] = 0
