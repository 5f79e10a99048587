"""Salts and tags: what keeps one run's prompts apart from another's, and one copy of a trace from the next.

Both always have the same shape, so that they cost the same number of tokens in every run. They are words, not hex: a
word costs the same in nearly every tokenizer, while hex digits split in ways that depend on their value.
"""

from hashlib import blake2b

WORDS = (  # noqa: SIM905 - 64 lines of a list would say less
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house "
    "service friend father power hour game line end member law car"
).split()
"""64 common words; each with a space in front is one token in the usual vocabularies."""

SALT_WORDS = 12
TAG_WORDS = 8


def _words(seed: bytes, count: int) -> str:
    digest = blake2b(seed, digest_size=count).digest()
    return " ".join(WORDS[byte % len(WORDS)] for byte in digest)


def make_salt(run_id: str) -> str:
    """Words from the run's id; goes into `cache_salt`, or in front of the text where the engine has no salts."""
    return _words(b"salt\0" + run_id.encode(), SALT_WORDS)


def make_tag(run_id: str, trace_id: str, copy: int) -> str:
    """Words for the first user message of every thread of the `copy`-th replay of a trace in a run."""
    return _words(f"tag\0{run_id}\0{trace_id}\0{copy}".encode(), TAG_WORDS)


def as_text(words: str) -> str:
    """As it stands in front of a message's text."""
    return f"({words})\n"
