"""What a recording says of the cache of the server that answered it, and how much of that rests on filler."""

from collections.abc import Sequence

from windtunnel.simulator.results.misses import RETENTION_S
from windtunnel.simulator.results.text import count
from windtunnel.simulator.results.why_text import Paper, percent
from windtunnel.traces.breakers import LetGo, Report


def filler(tokens: int, prompt: int, paper: Paper) -> list[str]:
    """How many prompt tokens stand for what the log does not hold."""
    if not tokens:
        return []
    text = (
        f"{tokens:,} of the prompt tokens ({percent(tokens / max(1, prompt))}) are filler for what the log does not "
        "hold: whether that changed is not known, it counts as equal."
    )
    return paper.wrapped(text, "")


def let_go(sessions: Sequence[tuple[str, Report]], paper: Paper, limit: int) -> list[str]:
    """The calls that found less than half of what an earlier prompt had put into the server's cache; the dearest."""
    found = [(label, gone) for label, report in sessions for gone in report.let_go]
    if not found:
        return []
    late = [gone for _, gone in found if _late(gone)]
    soon = [gone for _, gone in found if gone.idle_s is not None and not _late(gone)]
    tokens = sum(gone.missed_tokens for _, gone in found)
    parts = [
        f"{len(late):,} after more than {_time(RETENTION_S)} without use, as providers let a prefix go" if late else "",
        f"{len(soon):,} sooner" if soon else "",
        f"{len(found) - len(late) - len(soon):,} at times that are not told"
        if len(found) > len(late) + len(soon)
        else "",
    ]
    text = (
        f"The server's own cache: {count(len(found), 'call')} found less than half of what an earlier prompt had put "
        f"there, {tokens:,} tokens less in all: {', '.join(part for part in parts if part)}."
    )
    lines = ["", *paper.wrapped(text, "")]
    dearest = sorted(found, key=lambda one: -one[1].missed_tokens)[:limit]
    for label, gone in dearest:
        where = f", {label}" if len(sessions) > 1 else ""
        thread = f", thread {gone.thread}" if gone.thread else ""
        said = f"of {gone.common_tokens:,}: call {gone.call}{thread}, {_idle(gone)}{where}"
        lines += paper.wrapped(f"{gone.missed_tokens:>13,} {said}", "", " " * 14)
    if len(found) > len(dearest):
        lines.append(f"{'':>13} and {count(len(found) - len(dearest), 'more call')} (--limit)")
    return lines


def _late(gone: LetGo) -> bool:
    return gone.idle_s is not None and gone.idle_s > RETENTION_S


def _idle(gone: LetGo) -> str:
    return "unused for a time that is not told" if gone.idle_s is None else f"unused for {_time(gone.idle_s)}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
