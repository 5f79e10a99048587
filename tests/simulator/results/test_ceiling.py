"""What is not known is in no sum, and what a cache could hold is never more than the prompt that was counted."""

from msgspec.structs import replace

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results.ceiling import ceiling
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.text import render_summary

RUN = {"schema": "windtunnel.run/1", "agents": 2}
CHUNKS = ((11, 20), (14, 30))


def test_sums_without_the_tokens_of_some_calls_are_of_others(stream):
    """Two calls tell their tokens, one is cut with 7 that came; a completed one that tells none takes the sums away."""
    s = stream(agents=2).phase(10, "steady").phase(20, "draining").end(30)
    one, two = s.session(0, 30), s.session(0, 30, agent=1)
    s.call(one, 10.5, 15, chunks=CHUNKS, prompt_tokens=400)
    s.call(two, 10.5, 15, agent=1, chunks=CHUNKS, prompt_tokens=600)
    s.call(two, 16, 19, agent=1, call=1, chunks=((18, 7),), cut=True, completion_tokens=None, expected_prompt_tokens=90)
    known = summarise(RUN, s.events())
    assert (known.output_tokens, known.prompt_tokens) == (107, 1090)
    assert (known.output_tokens_per_s, known.prompt_tokens_per_s) == (10.7, 109.0)
    s.call(one, 15, 19, call=1, chunks=((17, 1), (18, 1)), completion_tokens=None, prompt_tokens=None)
    got = summarise(RUN, s.events())
    assert got.calls_without_usage == 1
    assert (got.output_tokens, got.prompt_tokens) == (None, None)
    assert (got.output_tokens_per_s, got.prompt_tokens_per_s) == (None, None)
    assert "tokens/s out not reported" in render_summary(got)


def test_rates_are_of_the_window_and_so_is_what_is_missing(stream):
    s = stream().phase(0, "warmup").phase(10, "steady").phase(20, "draining").end(30)
    one = s.session(0, 30)
    s.call(one, 1, 9, chunks=((2, 1), (9, 1)), completion_tokens=None, prompt_tokens=None)
    s.call(one, 10.5, 15, call=1, chunks=CHUNKS, prompt_tokens=400)
    got = summarise(RUN, s.events())
    assert (got.output_tokens_per_s, got.prompt_tokens_per_s) == (5.0, 40.0)
    assert (got.output_tokens, got.prompt_tokens) == (None, None)


def test_a_prompt_that_came_shorter_than_planned_lets_less_be_found(stream):
    s = stream().phase(10, "steady").phase(20, "draining").end(20)
    fields = {"prompt_tokens": 37_461, "cached_tokens": 37_440, "expected_prompt_tokens": 37_762}
    s.call(s.session(0, 20), 11, 15, chunks=CHUNKS, expected_cached_tokens=37_648, **fields)
    (call,) = [event for event in s.events() if isinstance(event, CallEnd)]
    assert ceiling(call) == 37_440  # 37,648 of 37,762 is 37,347 of 37,461, and more was found
    assert ceiling(replace(call, cached_tokens=0)) == 37_347
    assert ceiling(replace(call, cached_tokens=None, prompt_tokens=None)) == 37_648
    assert ceiling(replace(call, prompt_tokens=40_000, cached_tokens=0)) == 37_648
    assert ceiling(replace(call, expected_prompt_tokens=0, cached_tokens=0)) == 37_461
    assert ceiling(replace(call, expected_cached_tokens=None)) is None
    got = summarise(RUN, s.events())
    assert got.expected_cache_hit_ratio == got.cache_hit_ratio < 1
