"""Text that comes in pieces."""

from collections.abc import Sequence

TAIL_CHARS = 200
JOIN_AT = 256
"""Pieces are joined when there are this many, which keeps a long stream's memory at its text."""
_LONG_CHARS = 1 << 18
"""Joining more than this holds the event loop: a megabyte of fresh memory costs a millisecond."""


class Text:
    """A text in the making. What was joined is not touched again before the end."""

    __slots__ = ("_halves", "_joined", "_pieces")

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._pieces: list[str] = []
        self._halves = False
        """Half of a surrogate pair was seen."""

    def length(self) -> int:
        """Characters so far."""
        return sum(map(len, self._joined)) + sum(map(len, self._pieces))

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if len(self._pieces) >= JOIN_AT:
            self._join()

    def add_long(self, pieces: Sequence[str], *, halves: bool) -> None:
        """Pieces that are long as they are; `halves`: surrogates may be among them."""
        self._join()
        self._joined += pieces
        self._halves |= halves

    def whole(self) -> str:
        self._join()
        text = "".join(self._joined)
        return whole(text) if self._halves else text

    def parts(self) -> tuple[str, tuple[str, ...]]:
        """The text and nothing more, or, of a long one, how it begins and what follows."""
        self._join()
        if self._halves or sum(map(len, self._joined)) <= _LONG_CHARS:
            return self.whole(), ()
        first, *more = filter(None, self._joined)
        return first, tuple(more)

    def _join(self) -> None:
        text = "".join(self._pieces)
        self._joined.append(text)
        self._halves |= not _encodable(text)
        self._pieces.clear()


def join(parts: list[str], most: int = 0) -> None:
    """Make one of them; of its end, `most` characters or all."""
    parts[:] = ["".join(parts)[-most:]]


def whole(text: str) -> str:
    """Join surrogate halves that came in separate events; a half left alone becomes U+FFFD."""
    if _encodable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _encodable(text: str) -> bool:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True
