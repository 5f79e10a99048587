"""Random numbers that are the same on every machine and in every Python: BLAKE2b in counter mode, or SHAKE-128."""

import math
import struct
from collections.abc import Sequence
from hashlib import blake2b, shake_128
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T")
_EIGHT = struct.Struct("<8Q").unpack
_NUMBERS = tuple(i.to_bytes(8, "little") for i in range(8))


def u16(key: str, count: int) -> NDArray[np.uint16]:
    """`count` uniform 16-bit numbers of a key; fewer of the same key are a prefix of more."""
    return np.frombuffer(_bytes(key, count), dtype="<u2")[:count].astype(np.uint16, copy=False)


def u16_few(key: str, count: int) -> tuple[int, ...]:
    """The same numbers: sooner where there are few of them."""
    return struct.unpack_from(f"<{count}H", _bytes(key, count))


def u16_many(key: str, count: int) -> NDArray[np.uint16]:
    """Others of the same kind, from SHAKE-128 (FIPS 202): many of them take a sixth of the time."""
    return np.frombuffer(shake_128(key.encode()).digest(2 * count), dtype="<u2").astype(np.uint16, copy=False)


def _bytes(key: str, count: int) -> bytes:
    name = blake2b(key.encode(), digest_size=32).digest()
    blocks = (count + 31) // 32
    if blocks <= len(_NUMBERS):
        return b"".join([blake2b(number, key=name).digest() for number in _NUMBERS[:blocks]])
    return b"".join([blake2b(i.to_bytes(8, "little"), key=name).digest() for i in range(blocks)])


class Stream:
    """A seeded source of draws. Two streams of equal parts draw the same; different parts are independent."""

    def __init__(self, *parts: object) -> None:
        self._key = blake2b("\0".join(map(str, parts)).encode(), digest_size=32).digest()
        self._count = 0
        self._held: list[int] = []
        """Drawn and not yet given, the next one last."""

    def u64(self) -> int:
        if not self._held:
            self._held = list(_EIGHT(blake2b(self._count.to_bytes(8, "little"), key=self._key).digest()))
            self._held.reverse()
            self._count += 1
        return self._held.pop()

    def uniform(self) -> float:
        """In [0, 1)."""
        return (self.u64() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        return (self.u64() * n) >> 64

    def between(self, low: int, high: int) -> int:
        """Whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[_T]) -> _T:
        return choices[self.below(len(choices))]

    def weighted(self, choices: Sequence[tuple[_T, float]]) -> _T:
        at = self.uniform() * sum(w for _, w in choices)
        for choice, weight in choices:
            at -= weight
            if at < 0:
                return choice
        return choices[-1][0]

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        out, draw = list(items), self.u64
        for i in range(len(out) - 1, 0, -1):
            j = (draw() * (i + 1)) >> 64
            out[i], out[j] = out[j], out[i]
        return out

    def normal(self) -> float:
        return math.sqrt(-2.0 * math.log(1.0 - self.uniform())) * math.cos(2.0 * math.pi * self.uniform())

    def lognormal(self, median: float, p90: float) -> float:
        """Log-normal by its median and 90th percentile."""
        return median * math.exp(self.normal() * math.log(p90 / median) / 1.2815515655446004)
