"""Why the cache missed, in words."""

from typing import Literal

Cause = Literal[
    "caching_off",
    "rounding",
    "part_of_block",
    "still_computing",
    "preempted",
    "not_kept",
    "evicted_in_queue",
    "evicted",
    "expired",
    "unknown",
]
CAUSES: dict[str, str] = {
    "caching_off": "nothing was ever found: is caching off?",
    "rounding": "rounding to blocks and to planned counts",
    "part_of_block": "no more than a block may have; the block size is not known",
    "still_computing": "the same beginning was being computed",
    "preempted": "the engine was preempting requests",
    "not_kept": "not kept by the engine",
    "evicted_in_queue": "evicted while it waited in the engine's queue",
    "evicted": "evicted since",
    "expired": "unused for more than 5 minutes, as providers let a prefix go",
    "unknown": "unknown: nothing tells what let it go",
}

SHORT: dict[str, str] = {
    "caching_off": "caching off?",
    "rounding": "match unit",
    "part_of_block": "block?",
    "still_computing": "being computed",
    "preempted": "preempted",
    "not_kept": "not kept",
    "evicted_in_queue": "evicted, queued",
    "evicted": "evicted",
    "expired": "let go",
    "unknown": "unknown",
}


def said(cause: str | None, gap_s: float | None = None) -> str:
    """A cause in words; empty where there is none."""
    if cause == "evicted" and gap_s is not None:
        return f"evicted during a gap of {gap_s:.0f} s"
    return CAUSES.get(cause or "", "")


def in_short(cause: str | None, gap_s: float | None = None) -> str:
    """The same in a word or two, for a table."""
    gap = f", {gap_s:.0f} s gap" if cause == "evicted" and gap_s is not None else ""
    return SHORT.get(cause or "", "") + gap
