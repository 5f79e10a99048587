"""Salts and tags: what keeps one run's prompts apart from another's, and one copy of a trace from the next.

Both are single letters with spaces between them. A common letter after a space is one token in every vocabulary, small
ones too, so a salt or a tag costs the same number of tokens whatever it says; words and hex digits do not.
"""

from hashlib import blake2b

LETTERS = "abcdefghilmnoprs"
SALT_LETTERS = 16
TAG_LETTERS = 12


def _letters(seed: str, count: int) -> str:
    digest = blake2b(seed.encode(), digest_size=count).digest()
    return " ".join(LETTERS[byte % len(LETTERS)] for byte in digest)


def make_salt(run_id: str) -> str:
    """64 bits from the run's id; goes into `cache_salt`, or in front of the text where the engine has no salts."""
    return _letters(f"salt\0{run_id}", SALT_LETTERS)


def make_tag(run_id: str, trace_id: str, copy: int) -> str:
    """48 bits for the first user message of every thread of the `copy`-th replay of a trace in a run."""
    return _letters(f"tag\0{run_id}\0{trace_id}\0{copy}", TAG_LETTERS)


def as_text(letters: str) -> str:
    """As it stands in front of a message's text."""
    return f"({letters})\n"
