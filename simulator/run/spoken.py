"""What the emulated model says, as text: worked out once for a whole answer and cut to where it has come.

A client over HTTP puts an answer together from its chunks. The emulator's answers are known when they begin, so that a
look at a stream only cuts them; the pieces are those that the chunks carry, one for each token.
"""

from collections.abc import Sequence
from itertools import accumulate

from windtunnel.agents.sse import TAIL_CHARS
from windtunnel.simulator.emulator.tokenizer import Vocabulary


class Spoken:
    """One answer. `ends[k]` is the length of the text of its first k tokens."""

    __slots__ = ("_ends", "_text", "first_visible")

    def __init__(self, text: str, ends: Sequence[int]) -> None:
        self._text = text
        self._ends = ends
        self.first_visible: int | None = next((k for k in range(len(ends) - 1) if ends[k + 1]), None)
        """The first token that says something."""

    def text(self, tokens: int) -> str:
        """Of the first `tokens` tokens."""
        return self._text[: self._ends[tokens]]

    def tail(self, tokens: int) -> str:
        end = self._ends[tokens]
        return self._text[max(0, end - TAIL_CHARS) : end]


class Speech:
    """Token ids to text, each piece decoded when it is first seen."""

    def __init__(self, tokenizer: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def spoken(self, ids: Sequence[int]) -> Spoken:
        known = self._pieces
        try:
            pieces = list(map(known.__getitem__, ids))
        except KeyError:
            for token in set(ids) - known.keys():
                known[token] = self._tokenizer.decode([token])
            pieces = list(map(known.__getitem__, ids))
        return Spoken("".join(pieces), list(accumulate(map(len, pieces), initial=0)))
