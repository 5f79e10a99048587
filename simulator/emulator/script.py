"""What the emulated model says: words drawn from the prompt and the seed, the same on every machine.

The tokens are ordinary words, commas and line ends in an order that the built-in tokenizer reads back as the same
tokens, so that text sent back in a history finds the KV cache that its generation left.
"""

import threading
from functools import cache
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
_WORD = (1 << 64) - 1


class Inventory(Struct, frozen=True):
    """What a model speaks with: tokens that are read back as themselves when the text comes again."""

    words: NDArray[np.int64]
    """Ids of words with a leading space, the commonest first."""
    shares: NDArray[np.float64]
    """Cumulative frequencies of the words, 1 / rank."""
    signs: NDArray[np.int64]
    stop: int

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
        state = self._start["state"]
        state["counter"][:] = (counter & _WORD, counter >> 64, 0, 0)
        state["key"][:] = (key & _WORD, key >> 64)
        self._philox.state = self._start
        return self._rng


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
        self._ids: list[int] = []
        self._drawn: list[NDArray[np.int64]] = []
        self._stop: int | None = None

    def natural_length(self, least: int) -> int:
        """Where the model would end by itself, at least `least` tokens; remembered: the stop token stands there."""
        rng = _DICE.at(self._key, 1 << 64)
        self._stop = max(least, 1, round(_TYPICAL_LENGTH * float(rng.lognormal(0.0, 0.8))))
        return self._stop

    def tokens(self, start: int, stop: int) -> list[int]:
        while len(self._ids) < stop:
            self._extend()
        return self._ids[start:stop]

    def first(self, count: int) -> NDArray[np.int64]:
        """The first `count` tokens."""
        while len(self._ids) < count:
            self._extend()
        return np.concatenate(self._drawn)[:count]

    def _extend(self) -> None:
        words, shares, signs = self._inventory.words, self._inventory.shares, self._inventory.signs
        chunk = len(self._ids) // _CHUNK
        rng = _DICE.at(self._key, chunk << 32)
        drawn = words.take(shares.searchsorted(rng.random(_CHUNK), side="right"), mode="clip")
        # Signs stand at odd places only: two in a row would be read back as one token.
        places = (rng.random(_CHUNK // 2) < 2 * _SIGN_SHARE).nonzero()[0] * 2 + 1
        if len(signs):
            drawn[places] = signs[rng.integers(0, len(signs), size=len(places))]
        if self._stop is not None and 0 < self._stop - chunk * _CHUNK <= _CHUNK:
            drawn[self._stop - chunk * _CHUNK - 1] = self._inventory.stop
        self._drawn.append(drawn)
        self._ids += drawn.tolist()
