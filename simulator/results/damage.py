"""What of a run's events could not be read, in one sentence: figures that are made without it must say so."""

from collections.abc import Sequence
from pathlib import Path

from windtunnel.traces.model import Problem

SHOWN = 3
KEPT = 1000
"""A reader keeps no more problems than these (see store.py)."""


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
