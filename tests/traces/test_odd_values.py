"""Figures that no session can have had, in sessions that are otherwise sound: shown, never raised, never a hang."""

from itertools import product

import pytest
from msgspec.structs import replace

from windtunnel.traces.check import contradictions, faults
from windtunnel.traces.model import Usage
from windtunnel.traces.pictures import Pen
from windtunnel.traces.profile import profile, session_figures
from windtunnel.traces.profile_text import compared_lines, profile_lines
from windtunnel.traces.resample import resample
from windtunnel.traces.timeline_text import timeline_lines
from windtunnel.traces.turns import turn_rows
from windtunnel.traces.turns_text import turn_lines

SECONDS = (None, 0.0, -5.0, 1e-9, 1e9, 1e300)
TOKENS = (None, 0, -3, 10**12)


def variants(trace):
    """The trace with one odd figure, in every place where there is one."""
    for i, seconds in product(range(len(trace.calls)), SECONDS):
        for field in ("start_s", "first_s", "end_s"):
            yield replace(trace, calls=_with(trace.calls, i, **{field: seconds}))
    for i, seconds in product(range(len(trace.waits)), SECONDS):
        yield replace(trace, waits=_with(trace.waits, i, seconds=seconds))
    for i, (start, end) in product(range(len(trace.tool_runs)), product(SECONDS, SECONDS)):
        yield replace(trace, tool_runs=_with(trace.tool_runs, i, start_s=start, end_s=end))
    for i, tokens in product(range(len(trace.calls)), TOKENS):
        yield replace(trace, calls=_with(trace.calls, i, usage=Usage(tokens, tokens, tokens, tokens)))


def _with(items, at, **fields):
    return (*items[:at], replace(items[at], **fields), *items[at + 1 :])


def test_every_view_of_every_variant(small):
    number = 0
    for trace in variants(small):
        number += 1
        described = profile([trace])
        session_figures(trace)
        rows = turn_rows(trace)
        for width in (80, 160):
            pen = Pen(width)
            lines = profile_lines([trace], described, pen) + timeline_lines(trace, pen) + turn_lines(trace, rows, pen)
            assert max(map(len, lines)) <= width
    assert number > 150


def test_what_is_made_of_odd_sessions_is_sound(small):
    for trace in list(variants(small))[::3]:
        for made in resample([trace], 1, seed=1):
            assert faults(made) == []
            assert contradictions(made) == []


@pytest.mark.parametrize("far", [1e5, 1e9, 1e300])
def test_two_hundred_gaps_of_any_length_fit_the_time_line(far, small):
    """More idle stretches than could be folded."""
    calls = tuple(
        replace(
            small.calls[0], id=i, start_s=min(far, 1e290) * i * (1 + i % 3), end_s=min(far, 1e290) * i * (1 + i % 3) + 1
        )
        for i in range(200)
    )
    trace = replace(small, calls=calls, waits=(), tool_runs=(), threads=small.threads[:1])
    for width in (80, 160):
        assert max(map(len, timeline_lines(trace, Pen(width)))) <= width


def test_a_profile_beside_an_empty_one(small):
    given = profile([small])
    blind = profile([replace(small, calls=(), waits=(), tool_runs=())])
    assert all(len(line) <= 80 for line in compared_lines(given, blind, Pen(80)))
