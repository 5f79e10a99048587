"""The name that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a word that is close to a known one, else nothing."""
    matches = get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean {matches[0]}?)" if matches else ""
