"""What the live view says of the cache, and of what the cache would have to hold, against the summary."""

import msgspec
import pytest

from windtunnel.agents.events import CallEnd, CallStart, Phase, RunStart, SessionEnd, SessionStart
from windtunnel.simulator.results.fold import STATES, Fold
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.results.working_set import working_set

NS = 1_000_000_000


def ended(t, sent, session="a", thread=0, call=0, cached=0, expected=0, **more):
    return CallEnd(
        t=t * NS,
        agent=0,
        session=session,
        thread=thread,
        call=call,
        request_id=f"{session}{thread}{call}",
        t_intended=sent * NS,
        t_sent=sent * NS,
        t_first=sent * NS + NS // 2,
        t_last=t * NS,
        t_end=t * NS,
        prompt_tokens=1000,
        completion_tokens=100,
        cached_tokens=cached,
        expected_cached_tokens=expected,
        **more,
    )


def begin(t, session="a"):
    return SessionStart(t=t * NS, agent=0, session=session, trace="t", title="x", copy=0, calls_total=9, turns_total=9)


EVENTS = [
    RunStart(t=0, agents=1, wall_clock=0.0),
    Phase(t=0, phase="warmup"),
    begin(1),
    ended(3, 1, cached=0, expected=0),
    Phase(t=4 * NS, phase="steady"),
    ended(6, 3, call=1, cached=100, expected=800),
    ended(8, 5, call=2, cached=900, expected=900),
    ended(9, 8, thread=1, call=3, cached=500, expected=900),
    ended(11, 9, call=4, cached=0, expected=900, failure="timeout"),
]


def test_shares_are_of_the_whole_run_until_the_window_has_calls_and_then_the_summarys() -> None:
    fold = Fold()
    fold.apply_all(EVENTS[:6])
    # The window's first call was intended before it began.
    assert fold.cache.shown.share == pytest.approx(100 / 2000)
    assert fold.cache.shown.expected_share == pytest.approx(800 / 2000)
    fold.apply_all(EVENTS[6:])
    summary = summarise({}, [*EVENTS, Phase(t=20 * NS, phase="done")])
    assert fold.cache.shown.share == pytest.approx(summary.cache_hit_ratio) == pytest.approx(1400 / 2000)
    assert fold.cache.shown.expected_share == pytest.approx(summary.expected_cache_hit_ratio) == pytest.approx(0.9)
    assert fold.cache.so_far.cached == summary.cached_tokens == 1500


FOUND_MORE = [
    *EVENTS[:5],
    ended(6, 5, call=1, cached=900, expected=100, expected_cached_exact=110),
    ended(8, 7, call=2, cached=100, expected=500, expected_cached_exact=510),
    ended(9, 8, call=3, cached=None, expected=0, expected_cached_exact=0),
]


def test_what_was_found_could_be_found() -> None:
    """The engine finds again what it generated itself, and prompts of messages are estimates."""
    fold = Fold()
    fold.apply_all(FOUND_MORE)
    summary = summarise({}, [*FOUND_MORE, Phase(t=20 * NS, phase="done")])
    assert fold.cache.shown.share == summary.cache_hit_ratio == 1000 / 2000
    # Of the calls that told their hits: a third one would pull the bound below them.
    assert fold.cache.shown.expected_share == summary.expected_cache_hit_ratio == 1400 / 2000
    assert summary.expected_cache_hit_ratio_exact == 1410 / 2000
    assert fold.rows[0].expected_share == 500 / 1000


def test_without_hits_the_ceiling_is_of_all_calls() -> None:
    blind = [msgspec.structs.replace(e, cached_tokens=None) if isinstance(e, CallEnd) else e for e in FOUND_MORE]
    fold = Fold()
    fold.apply_all(blind)
    summary = summarise({}, [*blind, Phase(t=20 * NS, phase="done")])
    assert (fold.cache.window.share, summary.cache_hit_ratio) == (None, None)
    assert fold.cache.window.expected_share == summary.expected_cache_hit_ratio == 600 / 3000


def test_a_stored_ceiling_below_its_hits_is_raised_and_a_higher_one_kept(tmp_path) -> None:
    summary = summarise({}, [*FOUND_MORE, Phase(t=20 * NS, phase="done")])
    old = msgspec.structs.replace(summary, expected_cache_hit_ratio=0.0, expected_cache_hit_ratio_exact=0.6)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "summary.json").write_bytes(encode_summary(old))
    stored = RunFolder.open(tmp_path).summary()
    assert (stored.expected_cache_hit_ratio, stored.expected_cache_hit_ratio_exact) == (0.5, 0.6)


def test_what_was_missed_stands_at_the_time_of_the_first_token() -> None:
    fold = Fold()
    fold.apply_all(EVENTS)
    missed = fold.series.rates("missed")
    assert [i for i, tokens in enumerate(missed) if tokens] == [3, 8, 9]
    assert missed[3] == 700
    assert missed[8] == 400


def test_the_working_set_is_the_reports_at_every_moment() -> None:
    events = [
        *EVENTS,
        SessionEnd(t=12 * NS, agent=0, session="a", status="failed", reason="timeout"),
        begin(13, "b"),
        ended(15, 13, session="b"),
    ]
    fold = Fold()
    held = dict(working_set(events, 16.0, 16))
    seen = {}
    for event in events:
        fold.apply(event)
        seen[event.t // NS] = fold.held.tokens
    for second in (3, 6, 8, 9, 11, 12, 13, 15):
        assert seen[second] == held[second], second
    assert (seen[3], seen[9], seen[12], seen[15]) == (1100, 2200, 0, 1100)


def starts(t, prompt, session="a", thread=0, call=0):
    return CallStart(
        t=t * NS,
        agent=0,
        session=session,
        thread=thread,
        call=call,
        turn=1,
        turns=9,
        request_id=f"{session}{thread}{call}",
        t_intended=t * NS,
        expected_prompt_tokens=prompt,
    )


def test_the_working_set_counts_a_call_from_its_start() -> None:
    """Four contexts that do not fit are four times the cache at once, not when the first of them has been answered."""
    fold = Fold()
    events = [begin(1), starts(1, 900), starts(2, 400, thread=1), begin(2, "b"), starts(2, 5000, "b"), ended(4, 1)]
    fold.apply_all(events[:5])
    assert fold.held.tokens == 900 + 400 + 5000
    fold.apply(events[5])
    assert fold.held.tokens == 1100 + 400 + 5000
    assert working_set(events, 4.0, 4) == [(0.0, 0.0), (1.0, 900.0), (2.0, 6300.0), (3.0, 6300.0), (4.0, 6500.0)]


def test_the_working_set_is_not_known_while_a_first_call_does_not_tell_its_length() -> None:
    fold = Fold()
    fold.apply_all([begin(1), starts(1, 0)])
    assert not fold.held.known
    fold.apply(ended(3, 1))
    assert fold.held.known
    fold.apply(starts(4, 0, call=1))
    assert fold.held.known
    assert fold.held.tokens == 1100


def test_agents_in_each_state_over_time_make_up_all_the_time_of_all_agents(busy) -> None:
    fold = Fold()
    fold.apply_all(busy.events())
    spent = {name: sum(fold.series.amounts(name, [0, fold.t + 1])) for name in STATES}
    assert spent["tool"] == pytest.approx(sum(fold.series.amounts("in_tool", [0, fold.t + 1])), abs=0.5)
    assert spent["prefill"] > 20
    assert sum(spent.values()) == pytest.approx(fold.elapsed_s * len(fold.agents), rel=0.05)
