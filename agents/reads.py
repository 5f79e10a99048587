"""The two loops that every chunk of every stream passes through: compiled where a C compiler was there at installation.

`_reads.c` does what the functions here do, in a fifth of their time; results are the same to the byte. Where it is
absent, or `WINDTUNNEL_COMPILED=0` is in the environment, these run.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

from windtunnel.agents.compiled import compiled

__all__ = ["COMPILED", "COUNT", "TEXT", "alike", "pattern_of", "python_alike", "python_whole_chunks", "whole_chunks"]

Pieces = list[tuple[int, bytes]]
Found = tuple[bytes, Sequence[int], int] | None
Alike = Callable[[Pieces, int, bytes, tuple[bytes, ...], tuple[bytes | None, ...], int, int], Found]
WholeChunks = Callable[[bytes, int, Pieces], bool]

TEXT = rb'((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))++)'
"""Inside of a JSON string that is not empty (RFC 8259, 7), without backtracking."""
COUNT = rb"(0|[1-9]\d{0,8})"
"""A number that is a count for `sse_shapes.Count`, too."""


@lru_cache(64)
def pattern_of(literals: tuple[bytes, ...]) -> "re.Pattern[bytes]":
    """A text, then the literals with a count between any two of them. Compiling takes longer than a hundred events."""
    return re.compile(TEXT + COUNT.join(map(re.escape, literals)))


def python_alike(
    pieces: Pieces,
    first: int,
    opening: bytes,
    literals: tuple[bytes, ...],
    fixed: tuple[bytes | None, ...],
    completion: int,
    before: int,
) -> Found:
    """Of the events from `first` on those that look alike; None where not even one does. Each piece must be one.

    Alike are `opening`, a text, and the literals with a count between any two of them: the one that `fixed` says or
    any, and at place `completion` (-1: nowhere) one that is larger than in the event before, there `before` at first.
    Returned are the texts as one JSON string, the tokens of each event (by how much that count grew; 1 without it) and
    the last of these counts.
    """
    start, match = len(opening), pattern_of(literals).fullmatch
    held = [(group, value) for group, value in enumerate(fixed) if value is not None]
    texts: list[bytes] = []
    totals = [before]
    for number in range(first, len(pieces)):
        data = pieces[number][1]
        found = match(data, start) if data.startswith(opening) else None
        if found is None:
            break
        text, *numbers = found.groups()
        if any(numbers[group] != value for group, value in held):
            break
        if completion >= 0:
            total = int(numbers[completion])
            if total <= totals[-1]:
                break
            totals.append(total)
        texts.append(text)
    if not texts:
        return None
    tokens = [1] * len(texts) if completion < 0 else [total - earlier for earlier, total in pairwise(totals)]
    return b'"%b"' % b"".join(texts), tokens, totals[-1]


def python_whole_chunks(data: bytes, t: int, pieces: Pieces) -> bool:  # noqa: ARG001
    """Whether `data`, which begins where an HTTP chunk begins, is whole chunks and not the last of them: then their
    bodies are put behind the pieces, each with the time `t`. In Python the parser is as quick, and gets all of them.
    """
    return False


_found = compiled("windtunnel.agents._reads")
COMPILED = _found is not None
alike: Alike = python_alike if _found is None else _found.alike
whole_chunks: WholeChunks = python_whole_chunks if _found is None else _found.whole_chunks
