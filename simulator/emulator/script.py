"""What the emulated model says: words drawn from the prompt and the seed, the same on every machine.

The tokens are ordinary words, commas and line ends in an order that the built-in tokenizer reads back as the same
tokens, so that text sent back in a history finds the KV cache that its generation left.
"""

import math
import threading
from functools import cache, cached_property
from hashlib import blake2b
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.simulator.emulator.acceptance import Acceptance
from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.tokenizer import Vocabulary, builtin
from windtunnel.simulator.emulator.words import known

_CHUNK = 256
_TYPICAL_LENGTH = 180
_SIGN_SHARE = 0.12
_MOST_STEPS = 1 << 16
_WORD = (1 << 64) - 1
_DRAWS = _CHUNK + _CHUNK // 2
"""Uniform numbers for a chunk: a word for each place, and for every second one whether it is a sign."""
_UNUSED, _UNIT = np.uint64(11), np.float64(2.0**-53)
"""A uniform number has 53 of 64 bits."""


class Inventory(Struct, frozen=True, dict=True):
    """What a model speaks with: tokens that are read back as themselves when the text comes again."""

    words: NDArray[np.int64]
    """Ids of words with a leading space, the commonest first."""
    shares: NDArray[np.float64]
    """Cumulative frequencies of the words, 1 / rank."""
    signs: NDArray[np.int64]
    stop: int

    @cached_property
    def _guide(self) -> NDArray[np.int64]:
        """How many shares lie at or below each of 2^n even steps; of two shares none are in the same step."""
        least = np.diff(self.shares, prepend=0.0).min() if len(self.shares) else 0.0
        steps = 1 << max(0, math.ceil(-math.log2(least))) if least > 1 / _MOST_STEPS else 0
        return self.shares.searchsorted(np.arange(steps) / max(1, steps), side="right")

    def drawn(self, bits: NDArray[np.uint64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """A word for each uniform number, in [0, 1) and the upper 53 of these bits: the one whose share it falls in."""
        guide = self._guide
        if not len(guide):
            return self.words.take(self.shares.searchsorted(uniform, side="right"), mode="clip")
        # A search has to guess at each of its turns; this takes a third of its time.
        below = guide.take((bits >> np.uint64(65 - len(guide).bit_length())).view(np.int64))
        below += self.shares.take(below, mode="clip") <= uniform
        return self.words.take(below, mode="clip")

    @classmethod
    def of(cls, tokenizer: Vocabulary) -> Self:
        """From the words that this tokenizer has as one token each."""
        ids = np.array(tokenizer.spoken([" " + word for word in known() if word.isalpha()]))
        weights = 1.0 / (np.arange(len(ids)) + 8.0)
        signs = np.array(tokenizer.spoken([",", ".", ".\n", ":\n", ",", "."]))
        return cls(ids, np.cumsum(weights / weights.sum()), signs, tokenizer.stop)


@cache
def builtin_inventory() -> Inventory:
    """Of the built-in tokenizer."""
    return Inventory.of(builtin())


class _Dice(threading.local):
    """One generator for each thread, moved to where a stream begins: to make one takes several times as long."""

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._rng = np.random.Generator(self._philox)
        self._start = self._philox.state

    def at(self, key: int, counter: int) -> np.random.Generator:
        """`Generator(Philox(key=key, counter=counter))`, valid until the next call."""
        self._move(key, counter)
        return self._rng

    def bits(self, key: int, counter: int, count: int) -> NDArray[np.uint64]:
        """The raw numbers that this generator would make use of."""
        self._move(key, counter)
        bits: NDArray[np.uint64] = self._philox.random_raw(count)
        return bits

    def _move(self, key: int, counter: int) -> None:
        state = self._start["state"]
        state["counter"][:] = (counter & _WORD, counter >> 64, 0, 0)
        state["key"][:] = (key & _WORD, key >> 64)
        self._philox.state = self._start


_DICE = _Dice()


def hasher(seed: int) -> blake2b:
    """Takes a prompt's ids (four bytes each) in pieces: the output depends on the prompt and the seed."""
    return blake2b(digest_size=16, key=seed.to_bytes(8, "big", signed=True))


class Words:
    """The output of one request. A stop token stands at position `ends - 1` when `stops`."""

    def __init__(
        self,
        prompt: Tokens,
        seed: int,
        inventory: Inventory | None = None,
        *,
        digest: bytes | None = None,
        acceptance: Acceptance | None = None,
    ) -> None:
        """`digest`, where known: what `hasher(seed)` says of the prompt's bytes. `acceptance`: with speculation."""
        if digest is None:
            whole = hasher(seed)
            whole.update(prompt.tobytes())
            digest = whole.digest()
        self._inventory = inventory or builtin_inventory()
        self._key = int.from_bytes(digest, "big")
        if acceptance is not None:
            self.accepted = acceptance.of(digest).accepted
        self._listed: list[int] = []
        self._drawn: list[NDArray[np.int64]] = []
        self._stop: int | None = None

    def natural_length(self, least: int) -> int:
        """Where the model would end by itself, at least `least` tokens; remembered: the stop token stands there."""
        rng = _DICE.at(self._key, 1 << 64)
        self._stop = max(least, 1, round(_TYPICAL_LENGTH * float(rng.lognormal(0.0, 0.8))))
        return self._stop

    def tokens(self, start: int, stop: int) -> list[int]:
        while len(self._listed) < stop:
            done = len(self._listed) // _CHUNK
            self._draw(stop)
            for drawn in self._drawn[done:]:
                self._listed += drawn.tolist()
        return self._listed[start:stop]

    def first(self, count: int) -> NDArray[np.int64]:
        """The first `count` tokens."""
        self._draw(count)
        return (self._drawn[0] if count <= _CHUNK else np.concatenate(self._drawn))[:count]

    def _draw(self, count: int) -> None:
        """So that at least `count` tokens are drawn, and some in any case."""
        while len(self._drawn) * _CHUNK < max(1, count):
            self._drawn.append(self._chunk(len(self._drawn)))

    def _chunk(self, number: int) -> NDArray[np.int64]:
        signs = self._inventory.signs
        bits = _DICE.bits(self._key, number << 32, _DRAWS + _CHUNK // 4)
        uniform = (bits[:_DRAWS] >> _UNUSED).astype(np.float64) * _UNIT
        drawn = self._inventory.drawn(bits[:_CHUNK], uniform[:_CHUNK])
        # Signs stand at odd places only: two in a row would be read back as one token.
        places = (uniform[_CHUNK:] < 2 * _SIGN_SHARE).nonzero()[0] * 2 + 1
        if len(signs):
            chosen = _below(len(signs), bits[_DRAWS:], len(places))
            if chosen is None:  # once in a billion draws
                rng = _DICE.at(self._key, number << 32)
                rng.random(_DRAWS)
                chosen = rng.integers(0, len(signs), size=len(places))
            drawn[places] = signs[chosen]
        if self._stop is not None and 0 < self._stop - number * _CHUNK <= _CHUNK:
            drawn[self._stop - number * _CHUNK - 1] = self._inventory.stop
        return drawn


def _below(bound: int, bits: NDArray[np.uint64], count: int) -> NDArray[np.int64] | None:
    """What `Generator.integers(0, bound, size=count)` makes of these bits; None where it would draw again.

    Lemire's method ("Fast random integer generation in an interval", 2019), 32 bits each, the lower half of 64 first.
    """
    products = bits.astype("<u8", copy=False).view("<u4")[:count].astype(np.uint64) * np.uint64(bound)
    if count and (products & np.uint64(0xFFFFFFFF)).min() < bound:
        return None
    return (products >> np.uint64(32)).astype(np.int64)
