"""Which session a lane runs next, and how many sessions and calls may still start."""

import random
from collections import Counter

from msgspec import Struct

from windtunnel.traces.model import digest_of


def seeded(seed: int, *parts: object) -> random.Random:
    """An independent generator for each purpose; the same on every machine and in every process."""
    return random.Random(int(digest_of(str(seed), *(str(p) for p in parts)), 16))


class Draw(Struct, frozen=True):
    number: int
    """Position in the run's order of sessions, from 0."""
    index: int
    """Which of the run's traces."""
    copy: int
    """How often this trace was drawn before."""


class Deck:
    """An endless seeded shuffle: every trace once before any comes again."""

    def __init__(self, size: int, seed: int, sessions: int | None) -> None:
        self._size = size
        self._rng = seeded(seed, "deck")
        self._left = sessions
        self._pile: list[int] = []
        self._copies: Counter[int] = Counter()
        self._drawn = 0

    @property
    def exhausted(self) -> bool:
        return self._left == 0

    def next(self) -> Draw | None:
        """The next session, or None when no more may start."""
        if self._left == 0:
            return None
        if self._left is not None:
            self._left -= 1
        if not self._pile:
            self._pile = list(range(self._size))
            self._rng.shuffle(self._pile)
            self._pile.reverse()
        index = self._pile.pop()
        draw = Draw(number=self._drawn, index=index, copy=self._copies[index])
        self._copies[index] += 1
        self._drawn += 1
        return draw


class CallBudget:
    """`--calls K`: how many more calls may start."""

    def __init__(self, calls: int | None) -> None:
        self._left = calls

    @property
    def exhausted(self) -> bool:
        return self._left == 0

    def take(self) -> bool:
        if self._left is None:
            return True
        if self._left == 0:
            return False
        self._left -= 1
        return True
