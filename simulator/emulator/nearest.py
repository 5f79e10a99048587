"""The name that was probably meant."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a word that is close to a known one, else nothing."""
    from difflib import get_close_matches  # seldom needed, and slow to load

    matches = get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean {matches[0]}?)" if matches else ""
