import pytest
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Usage
from windtunnel.traces.stats import KEYS, SessionStats, session_stats, span, total


def test_figures_of_a_small_session(small):
    assert session_stats(small) == SessionStats(
        id="s1",
        source="test",
        calls=4,
        tool_runs=2,
        threads=2,
        prompt_tokens=170 + 40 + 307 + 332,
        cached_tokens=0 + 170 + 300,
        completion_tokens=28 + 9 + 5 + 5,
        reasoning_tokens=12,
        max_prompt_tokens=332,
        first_prompt_tokens=170,
        span_s=66.5,
        estimated_calls=1,
        filler_tokens=150,
        filler_share=round((150 + 150 + 150) / (170 + 40 + 307 + 332), 4),
    )


def test_what_is_not_reported_is_none_and_not_zero(small):
    calls = (replace(c, usage=Usage(), start_s=None, first_s=None, end_s=None, marks={}) for c in small.calls)
    blind = replace(small, calls=tuple(calls), tool_runs=())
    stats = session_stats(blind)
    assert stats.prompt_tokens == 170 + 40 + 307 + 332
    assert (stats.cached_tokens, stats.completion_tokens, stats.reasoning_tokens, stats.span_s) == (None,) * 4
    assert stats.estimated_calls == 4


def test_totals_have_the_contract_keys(small):
    a = session_stats(small)
    blind = replace(a, cached_tokens=None, max_prompt_tokens=9000)
    both = total([a, blind])
    assert tuple(both) == (*KEYS, "filler_share")
    assert both["calls"] == 8
    assert both["cached_tokens"] == a.cached_tokens
    assert both["max_prompt_tokens"] == 9000
    assert both["span_s"] == 133.0
    assert total([])["calls"] == 0
    assert total([])["cached_tokens"] is None


def test_a_recorded_session_starts_with_its_first_event(small):
    """The first call of a recording may start later: the user typed, or the first answer was lost."""
    later = tuple(replace(c, start_s=c.start_s + 30, first_s=None, end_s=c.end_s + 30) for c in small.calls)
    assert span(replace(small, calls=later)) == 96.5
    rows = replace(small, calls=later, tool_runs=(), header=replace(small.header, started_at=None))
    assert span(rows) == 96.5 - 30
    assert span(replace(small, calls=())) == 4.2
    assert span(replace(small, calls=(), tool_runs=())) is None


def test_shares_of_a_total_are_weighted_by_prompts(small):
    a = session_stats(small)
    b = replace(a, filler_share=0.0, prompt_tokens=a.prompt_tokens * 3)
    assert total([a, b])["filler_share"] == round(a.filler_share / 4, 4)
    assert total([])["filler_share"] == 0.0


def test_the_library_adds_up():
    stats = [session_stats(read_trace(library.path(n)).traces[0]) for n in library.names()]
    assert all(s.estimated_calls == 0 and s.cached_tokens is not None and s.filler_tokens > 5_000 for s in stats)
    figures = total(stats)
    assert figures["calls"] == sum(s.calls for s in stats)
    assert figures["max_prompt_tokens"] == pytest.approx(150_000, rel=0.01)
