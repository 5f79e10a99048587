"""What the emulated model says: words drawn from the prompt and the seed, the same on every machine.

The tokens are ordinary words, commas and line ends in an order that the built-in tokenizer reads back as the same
tokens, so that text sent back in a history finds the KV cache that its generation left.
"""

import math
import threading
from collections.abc import Sequence
from functools import cache, cached_property
from hashlib import blake2b
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.simulator.emulator.acceptance import Acceptance
from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.loops import LOOPS
from windtunnel.simulator.emulator.tokenizer import Vocabulary, builtin
from windtunnel.simulator.emulator.words import known

_CHUNK = 256
_TYPICAL_LENGTH = 180
_SIGN_SHARE = 0.12
_MOST_STEPS = 1 << 16
_WORD = (1 << 64) - 1
_DRAWS = _CHUNK + _CHUNK // 2
"""Uniform numbers for a chunk: a word for each place, and for every second one whether it is a sign."""
_BITS = _DRAWS + _CHUNK // 4
"""Numbers of 64 bits for a chunk; which sign stands somewhere takes half a one."""
_SIGN_BITS = np.uint64(math.ceil(2 * _SIGN_SHARE * 2**53) << 11)
"""A sign stands where a number is below."""


class Inventory(Struct, frozen=True, dict=True):
    """What a model speaks with: tokens that are read back as themselves when the text comes again."""

    words: NDArray[np.int64]
    """Ids of words with a leading space, the commonest first."""
    shares: NDArray[np.float64]
    """Cumulative frequencies of the words, 1 / rank."""
    signs: NDArray[np.int64]
    stop: int

    @cached_property
    def _bounds(self) -> NDArray[np.uint64]:
        """The shares as numbers of 64 bits; the upper 53 of these say which word it is."""
        whole = np.minimum(np.ceil(self.shares * 2.0**53), 2.0**53 - 1).astype(np.uint64)
        return whole << np.uint64(11)

    @cached_property
    def _guide(self) -> NDArray[np.int64]:
        """How many shares lie at or below each of 2^n even steps; of two shares none are in the same step."""
        least = np.diff(self.shares, prepend=0.0).min() if len(self.shares) else 0.0
        steps = 1 << max(1, math.ceil(-math.log2(least))) if least > 1 / _MOST_STEPS else 0
        return self.shares.searchsorted(np.arange(steps) / max(1, steps), side="right")

    def drawn(self, bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        """A word for each number: the one in whose share it falls."""
        guide, bounds = self._guide, self._bounds
        if not len(guide):
            return self.words.take(bounds.searchsorted(bits, side="right"), mode="clip")
        # A search has to guess at each of its turns; this takes a third of its time.
        below = guide.take((bits >> np.uint64(65 - len(guide).bit_length())).view(np.int64))
        below += bounds.take(below, mode="clip") <= bits
        return self.words.take(below, mode="clip")

    def signs_for(self, halves: NDArray[np.uint32]) -> NDArray[np.int64]:
        """A sign for each number of 32 bits."""
        return self.signs.take((halves * (len(self.signs) * 2.0**-32)).astype(np.int64))

    def chunks(self, key: int, chunks: range) -> NDArray[np.int64]:
        """The words and signs of these chunks, one chunk behind the other."""
        if LOOPS is None or not len(self._guide):
            return self.numpy_chunks(key, chunks)
        drawn = np.empty(len(chunks) * _CHUNK, dtype=np.int64)
        words = self._guide, self._bounds, self.words, self.signs
        LOOPS.draw(key & _WORD, key >> 64, chunks.start, int(_SIGN_BITS), *words, drawn)
        return drawn

    def numpy_chunks(self, key: int, chunks: range) -> NDArray[np.int64]:
        """The same without a compiler."""
        rows = np.stack([_DICE.bits(key, chunk << 32, _BITS) for chunk in chunks])
        drawn = self.drawn(rows[:, :_CHUNK])
        # Signs stand at odd places only: two in a row would be read back as one token.
        signed = rows[:, _CHUNK:_DRAWS] < _SIGN_BITS
        if len(self.signs):
            halves = rows[:, _DRAWS:].astype("<u8", copy=False).view("<u4")
            used = np.arange(_CHUNK // 2) < signed.sum(axis=1)[:, np.newaxis]
            drawn[:, 1::2][signed] = self.signs_for(halves[used])
        return drawn.reshape(-1)

    @classmethod
    def of(cls, tokenizer: Vocabulary) -> Self:
        """From the words that this tokenizer has as one token each."""
        ids = np.array(tokenizer.spoken([" " + word for word in known() if word.isalpha()]))
        weights = 1.0 / (np.arange(len(ids)) + 8.0)
        signs = np.array(tokenizer.spoken([",", ".", ".\n", ":\n", ",", "."]))
        return cls(ids.astype(np.int64), np.cumsum(weights / weights.sum()), signs.astype(np.int64), tokenizer.stop)


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
_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def hasher(seed: int) -> blake2b:
    """Takes a prompt's ids (four bytes each) in pieces: the output depends on the prompt and the seed."""
    return blake2b(digest_size=16, key=seed.to_bytes(8, "big", signed=True))


class Unread:
    """Stands where words would, in a run that keeps no text: ids that are the same for the same prompt.

    They are only compared with each other; which they are changes nothing.
    """

    def __init__(self, prompt: Tokens, hashes: Sequence[int], block_size: int) -> None:
        """`hashes`: of the prompt's full blocks."""
        rest = prompt[len(hashes) * block_size :].tolist()
        self._first = hash((hashes[-1] if hashes else 0, *rest)) & 0x7FFF_FFFF

    def tokens(self, start: int, stop: int) -> Sequence[int]:
        return range(self._first + start, self._first + stop)

    def first(self, count: int) -> Tokens:
        return np.arange(self._first, self._first + count, dtype=np.uint32)


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
        self._ids = _NONE
        self._stop: int | None = None

    def natural_length(self, least: int) -> int:
        """Where the model would end by itself, at least `least` tokens; remembered: the stop token stands there."""
        rng = _DICE.at(self._key, 1 << 64)
        self._stop = max(least, 1, round(_TYPICAL_LENGTH * float(rng.lognormal(0.0, 0.8))))
        return self._stop

    def tokens(self, start: int, stop: int) -> list[int]:
        if len(self._listed) < stop:
            self._draw(stop)
            self._listed += self._ids[len(self._listed) :].tolist()
        return self._listed[start:stop]

    def first(self, count: int) -> NDArray[np.int64]:
        """The first `count` tokens."""
        if len(self._ids) < count:
            self._draw(count)
        return self._ids[:count]

    def _draw(self, count: int) -> None:
        """So that at least `count` tokens are drawn: chunk by chunk, so that it is the same however many they are."""
        done = len(self._ids)
        chunks = range(done // _CHUNK, -(-count // _CHUNK))
        if not chunks:
            return
        drawn = self._inventory.chunks(self._key, chunks)
        if self._stop is not None and done < self._stop <= done + len(drawn):
            drawn[self._stop - 1 - done] = self._inventory.stop
        self._ids = np.concatenate((self._ids, drawn)) if done else drawn
