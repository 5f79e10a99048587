"""What the emulated model says, as text: worked out once for a whole answer and cut to where it has come.

A client over HTTP puts an answer together from its chunks. The emulator's answers are known when they begin, so that a
look at a stream only cuts them; the pieces are those that the chunks carry, one for each token.
"""

from itertools import accumulate
from typing import cast

import numpy as np
from numpy.typing import NDArray

from windtunnel.agents.sse import TAIL_CHARS
from windtunnel.simulator.emulator.loops import LOOPS
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
        self._pieces: list[str | None] = []
        """By token id."""

    def spoken(self, ids: NDArray[np.int64]) -> Spoken:
        if not len(ids):
            return Spoken("", np.zeros(1, dtype=np.int64))
        ends = np.empty(len(ids) + 1, dtype=np.int64)
        text = self._said(ids, ends)
        if text is None:
            self._learn(ids)
            text = self._said(ids, ends)
            assert text is not None
        return Spoken(text, ends)

    def _said(self, ids: NDArray[np.int64], ends: NDArray[np.int64]) -> str | None:
        """The text, and in `ends` how far it has come with each token; None where a piece is not known yet."""
        if LOOPS is not None:
            text: str | None = LOOPS.speak(ids, self._pieces, ends)
            return text
        known = self._pieces
        said = [known[token] if token < len(known) else None for token in ids.tolist()]
        if None in said:
            return None
        pieces = cast("list[str]", said)
        ends[0] = 0
        ends[1:] = list(accumulate(map(len, pieces)))
        return "".join(pieces)

    def _learn(self, ids: NDArray[np.int64]) -> None:
        known = self._pieces
        known += [None] * (int(ids.max()) + 1 - len(known))
        for token in set(ids.tolist()):
            if known[token] is None:
                known[token] = self._tokenizer.decode([token])
