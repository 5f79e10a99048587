"""Which draft tokens are accepted: drawn from a table, the same for a seed, a prompt and a place in the output.

A place is asked once for each time that drafts for it are verified: a request that was preempted, or that is walked
through instead of parked, finds the same answer. As in vLLM's rejection sampling the first draft that is not
accepted ends the row, so that probabilities are those of a draft whose predecessors were accepted.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.flags import Settings

_CHUNK = 256
"""Places drawn at once."""


class Acceptance:
    """Draws for one engine. `conditional`: for each draft position, its probability if all before it were accepted."""

    def __init__(self, conditional: Sequence[float], seed: int) -> None:
        self.conditional = np.array(conditional, dtype=np.float64)
        self._seed = seed.to_bytes(8, "big", signed=True)

    @property
    def length(self) -> float:
        """Mean number of tokens that one verification yields, the one that is not a draft included."""
        return 1.0 + float(np.cumprod(self.conditional).sum())

    def of(self, key: bytes) -> "Drawn":
        """The draws of the request with this key: what tells it from others and is the same in every run."""
        return Drawn(self, int.from_bytes(blake2b(key, digest_size=16, key=self._seed).digest(), "big"))


class Drawn:
    """Which drafts of one request are accepted."""

    __slots__ = ("_accepted", "_key", "_table")

    def __init__(self, table: Acceptance, key: int) -> None:
        self._table = table
        self._key = key
        self._accepted: list[int] = []

    def accepted(self, position: int, drafted: int) -> int:
        """How many of `drafted` draft tokens for output tokens from `position` on are accepted."""
        while position >= len(self._accepted):
            self._extend()
        accepted = self._accepted[position]
        return min(drafted, accepted)

    def _extend(self) -> None:
        conditional = self._table.conditional
        # A counter of its own, beside those that the words of the same request are drawn with.
        counter = (1 << 96) + (len(self._accepted) // _CHUNK << 32)
        rng = np.random.Generator(np.random.Philox(key=self._key, counter=counter))
        passed = rng.random((_CHUNK, len(conditional))) < conditional
        self._accepted += np.logical_and.accumulate(passed, axis=1).sum(axis=1).tolist()


def acceptance_of(settings: "Settings") -> Acceptance | None:
    """Which drafts are accepted, for all requests of an engine; None without speculation."""
    drafted = settings.speculation
    return None if drafted is None else Acceptance(drafted.acceptance, settings.seed)
