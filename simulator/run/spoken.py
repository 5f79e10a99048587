"""What the emulated model says, as text: worked out once for a whole answer and cut to where it has come.

A client over HTTP puts an answer together from its chunks. The emulator's answers are known when they begin, so that a
look at a stream only cuts them; the pieces are those that the chunks carry, one for each token.
"""

import numpy as np
from numpy.typing import NDArray

from windtunnel.agents.sse import TAIL_CHARS
from windtunnel.simulator.emulator.tokenizer import Vocabulary


class Spoken:
    """One answer. `ends[k]` is the length of the text of its first k tokens."""

    __slots__ = ("_ends", "_text", "first_visible")

    def __init__(self, text: str, ends: NDArray[np.int64]) -> None:
        self._text = text
        self._ends = ends.data
        self.first_visible: int | None = int(ends.searchsorted(0, side="right")) - 1 if text else None
        """The first token that says something."""

    def text(self, tokens: int) -> str:
        """Of the first `tokens` tokens."""
        return self._text[: self._ends[tokens]]

    def tail(self, tokens: int) -> str:
        end = self._ends[tokens]
        return self._text[end - TAIL_CHARS if end > TAIL_CHARS else 0 : end]


class Speech:
    """Token ids to text, each piece decoded when it is first seen."""

    def __init__(self, tokenizer: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._pieces: NDArray[np.object_] = np.empty(0, dtype=np.object_)
        """By token id."""
        self._lengths: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """Characters of each piece; -1 for one that was not seen yet."""

    def spoken(self, ids: NDArray[np.int64]) -> Spoken:
        if not len(ids):
            return Spoken("", np.zeros(1, dtype=np.int64))
        missing = int(ids.max()) + 1 - len(self._lengths)
        if missing > 0:
            self._lengths = np.concatenate((self._lengths, np.full(missing, -1)))
            self._pieces = np.concatenate((self._pieces, np.empty(missing, dtype=np.object_)))
        lengths = self._lengths.take(ids)
        if lengths.min() < 0:
            for token in set(ids[lengths < 0].tolist()):
                piece = self._pieces[token] = self._tokenizer.decode([token])
                self._lengths[token] = len(piece)
            lengths = self._lengths.take(ids)
        ends = np.zeros(len(ids) + 1, dtype=np.int64)
        lengths.cumsum(out=ends[1:])
        return Spoken("".join(self._pieces.take(ids).tolist()), ends)
