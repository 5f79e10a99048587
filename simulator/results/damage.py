"""What of a run's events could not be read, in one sentence: figures that are made without it must say so."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from windtunnel.simulator.results.summary_model import Summary
from windtunnel.traces.model import Problem

SHOWN = 3
DAMAGED = "damaged"
"""The reason among those of `validity`."""
KEPT = 1000
"""A reader keeps no more problems than these (see store.py)."""


TORN = "the last line is incomplete"
"""What a run that was killed leaves, or one that is just writing: nothing that could be read is missing."""


def lost(problems: Sequence[Problem]) -> bool:
    """Whether whole lines are missing from what was read."""
    return any(problem.reason != TORN for problem in problems)


def judged(summary: Summary, problems: Sequence[Problem]) -> Summary:
    """A summary as it stands where `problems` were met in the events that figures beside it are made of."""
    if not lost(problems) or DAMAGED in summary.invalid_reasons:
        return summary
    return replace(summary, valid=False, invalid_reasons=(*summary.invalid_reasons, DAMAGED))


def in_words(problems: Sequence[Problem]) -> str:
    """`3 lines of events.jsonl could not be read (line 7, line 9, ...; why): what stood there is missing`."""
    if not problems:
        return ""
    many = f"{KEPT:,} lines or more" if len(problems) >= KEPT else f"{len(problems):,} lines"
    count = "1 line" if len(problems) == 1 else many
    places = [f"line {problem.line}" for problem in problems[:SHOWN]] + (["..."] if len(problems) > SHOWN else [])
    name = Path(problems[0].file).name
    reason = problems[0].reason
    return f"{count} of {name} could not be read ({', '.join(places)}; {reason}): what stood there is missing"
