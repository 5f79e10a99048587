"""The four sources of prompt tokens, and why the cache missed, from made-up events."""

import pytest

from windtunnel.agents.events import CallEnd, EngineSample, SessionStart
from windtunnel.simulator.results.bottleneck import LOST
from windtunnel.simulator.results.miss_words import CAUSES, SHORT, in_short, said
from windtunnel.simulator.results.misses import OFF_CALLS, Live, provided, read, unit_known
from windtunnel.traces.breakers import Break

S = 1_000_000_000


def session(name="s0", trace="t"):
    return SessionStart(t=0, agent=0, session=name, trace=trace, title="", copy=0, calls_total=9, turns_total=9)


def ended(call, sent, prompt, cached, expected, *, session="s0", thread=0, took=1.0, **more):
    return CallEnd(
        t=int((sent + took) * S),
        agent=0,
        session=session,
        thread=thread,
        call=call,
        request_id=f"{session}-{call}",
        t_intended=int(sent * S),
        t_sent=int(sent * S),
        t_first=int((sent + took / 2) * S),
        t_end=int((sent + took) * S),
        prompt_tokens=prompt,
        cached_tokens=cached,
        expected_cached_tokens=expected,
        **more,
    )


def broken(call, against, before, prompt, common):
    return Break(call, 0, call + 1, against, "date", "", "system prompt", None, None, prompt, before, common, None)


def test_each_token_is_counted_once():
    events = [session(), ended(0, 0, 1000, 0, 0), ended(1, 2, 1200, 992, 992), ended(2, 9, 1400, 512, 1184)]
    report = read(events, 16, {})
    assert [(c.cached, c.missed, c.diverged, c.fresh) for c in report.calls] == [
        (0, 0, 0, 1000),
        (992, 0, 0, 208),
        (512, 672, 0, 216),
    ]
    assert sum(report.total(k) for k in ("cached", "missed", "diverged", "fresh")) == report.total("prompt") == 3600
    assert [c.first for c in report.calls] == [True, False, False]


def test_an_eviction_tells_the_gap_since_the_thread_s_last_call():
    events = [session(), ended(0, 0, 1000, 0, 0), ended(1, 2, 1200, 992, 992), ended(2, 33.5, 1400, 512, 1184)]
    last = read(events, 16, {}, kv_tokens=1500).calls[-1]
    assert (last.cause, last.gap_s, last.missed) == ("evicted", 30.5, 672)


def test_nothing_was_evicted_while_there_was_room():
    events = [session(), ended(0, 0, 1000, 0, 0, completion_tokens=400), ended(1, 33, 1500, 512, 1392)]
    room = (100_000, 3_000, 2_900, 1_700, 1_600, None)
    causes = [read(events, 16, {}, kv_tokens=holds).calls[-1].cause for holds in room]
    assert causes == ["not_kept", "not_kept", "unknown", "unknown", "evicted", "unknown"]


@pytest.mark.parametrize("holds", [100_000, 1_600, None])
def test_an_answer_that_stayed_nowhere_was_not_evicted_however_full_the_cache(holds):
    """Windows stay where prompts end: after the thread's last one its answer is missing, and nothing else."""
    for cached in (992, 976):
        events = [session(), ended(0, 0, 1000, 0, 0, completion_tokens=400), ended(1, 33, 1500, cached, 1392)]
        assert read(events, 16, {}, kv_tokens=holds).calls[-1].cause == "not_kept"


def test_what_was_used_since_the_thread_s_last_call_decides_and_not_what_was_computed_before():
    """An hour of other work, and then nobody: the prompt's beginning was still there when it was looked up."""
    before = [ended(i, 10 * i, 9000, 0, 0, session=f"old{i}") for i in range(50)]
    mine = [ended(0, 600, 1000, 0, 0), ended(1, 602, 1200, 160, 992)]
    assert read([*before, *mine], 16, {}, kv_tokens=100_000).calls[-1].cause == "not_kept"
    others = [ended(0, 601.1, 20_000, 0, 0, session=f"new{i}", took=0.5) for i in range(3)]
    for served, cause in ((3, "evicted"), (2, "unknown"), (1, "not_kept")):
        assert read([*before, *others[:served], *mine], 16, {}, kv_tokens=65_000).calls[-1].cause == cause
    later = [ended(0, 603.2, 20_000, 0, 0, session=f"new{i}", took=0.5) for i in range(3)]
    assert read([*before, *later, *mine], 16, {}, kv_tokens=65_000).calls[-4].cause == "not_kept"


def test_without_a_gap_it_was_evicted_in_the_queue():
    others = [ended(0, 1.0, 20_000, 0, 0, session=f"o{i}", took=4) for i in range(3)]
    for queued, gap, cause in ((3.0, 0.0, "evicted_in_queue"), (0.3, 0.5, "evicted"), (None, 0.0, "evicted_in_queue")):
        mine = [ended(0, 0, 1000, 0, 0), ended(1, 1.0 + gap, 1200, 160, 992, took=8, queued_s=queued)]
        last = read([*others, *mine], 16, {}, kv_tokens=50_000).calls[-1]
        assert (last.cause, last.gap_s) == (cause, gap)


def test_a_prompt_sent_before_its_predecessor_had_a_token_found_it_being_computed():
    events = [session(), ended(0, 0, 1000, 16, 16, took=4), ended(1, 1, 1200, 16, 992)]
    assert read(events, 16, {}, kv_tokens=1000).calls[-1].cause == "still_computing"


def test_what_had_to_make_room_counts_against_the_cache():
    lost = {cause for cause, words in CAUSES.items() if any(word in words for word in LOST)}
    assert lost == {"evicted", "evicted_in_queue", "preempted"}


def test_a_provider_s_cache_lets_go_what_was_not_used_for_minutes():
    """What other people send there is not seen, so nothing is said of room."""
    events = [session(), ended(0, 0, 9000, 16, 16), ended(1, 302, 9600, 0, 8992), ended(2, 603, 9900, 0, 9600)]
    calls = read(events, 16, {}, provided=True).calls
    assert [(c.cause, c.gap_s) for c in calls] == [(None, None), ("expired", 301.0), ("unknown", 300.0)]
    assert provided({"kind": "recording", "engine": {"name": None, "model": "m"}})
    assert not provided({"kind": "recording", "engine": {"name": "vllm"}})
    assert not provided({"engine": {"name": None}})


def test_a_changed_prompt_loses_what_its_predecessor_would_have_given_in_whole_blocks():
    breaks = {("t", 1): broken(1, 0, 990, 1190, 300)}
    events = [session(), ended(0, 0, 1000, 0, 0), ended(1, 2, 1200, 304, 304)]
    last = read(events, 16, breaks).calls[-1]
    assert (last.culprit, last.cached, last.missed) == ("date", 304, 0)
    assert last.diverged == 1000 // 16 * 16 - 304
    assert last.fresh == 1200 - 992


def test_a_change_costs_nothing_where_its_predecessor_was_not_sent_in_this_run():
    breaks = {("t", 5): broken(5, 4, 990, 1190, 300)}
    only = read([session(), ended(5, 2, 1200, 0, 0)], 16, breaks).calls[0]
    assert (only.culprit, only.diverged, only.fresh) == (None, 0, 1200)


def test_a_beginning_that_another_prompt_is_still_computing():
    events = [session(), session("s1"), ended(0, 0, 1000, 0, 0, took=4), ended(0, 1, 1000, 0, 800, session="s1")]
    events += [ended(1, 6, 1200, 992, 992), ended(1, 7, 1200, 992, 992, session="s1")]
    assert [c.cause for c in read(events, 16, {}).calls] == [None, "still_computing", None, None]


@pytest.mark.parametrize(("before", "after", "grew"), [(0, 2, True), (7, 2, True), (7, 0, False)])
def test_preemptions_between_two_calls_are_said(before, after, grew):
    """An engine whose counter fell was restarted, and counts from 0."""
    counted = [EngineSample(t=t * S, scrape_ms=1, preemptions=n) for t, n in ((1, before), (3, before), (4, after))]
    events = [session(), *counted, ended(0, 0, 1000, 512, 512), ended(1, 5, 1200, 512, 992)]
    assert (read(events, 16, {}).calls[-1].cause == "preempted") == grew


def test_small_differences_are_rounding_and_a_cache_that_is_off_is_said():
    events = [session(), ended(0, 0, 9000, 16, 16), ended(1, 2, 9600, 8960, 8992)]
    assert read(events, 16, {}).calls[-1].cause == "rounding"
    assert read(events, 16, {}, exact=True, kv_tokens=9000).calls[-1].cause == "evicted", (
        "token ids are counted exactly"
    )
    events = [session(), ended(0, 0, 1000, 0, 0), ended(1, 2, 1200, 0, 992)]
    assert read(events, 16, {}).calls[-1].cause == "caching_off"


@pytest.mark.parametrize(("missed", "cause"), [(15, "part_of_block"), (127, "part_of_block"), (600, "unknown")])
def test_of_blocks_of_unknown_size_what_a_usual_one_explains_is_nobodys_fault(missed, cause):
    run = {"kind": "recording", "engine": {"name": "vllm"}}
    events = [session(), ended(0, 0, 1000, 100, 100), ended(1, 40, 1200, 1000 - missed, 1000)]
    assert not unit_known(run)
    assert read(events, 1, {}, exact=True, unit_known=unit_known(run)).calls[-1].cause == cause
    live = Live(run)
    live.call_end(events[1])
    assert live.call_end(events[2]).cause == cause
    told = {"kind": "recording", "engine": {"name": "vllm", "block_size": 16}}
    assert unit_known(told)
    assert unit_known({"engine": {}}), "a run plans with a unit of 1 then"


def test_calls_that_failed_or_did_not_say_are_left_out():
    events = [
        session(),
        ended(0, 0, 1000, 0, 0),
        ended(1, 2, 1200, 0, 992, failure="engine_gone"),
        ended(2, 3, 1200, 0, 992, cut=True),
        ended(3, 4, 1200, None, 992),
    ]
    report = read(events, 16, {})
    assert ([c.call for c in report.calls], report.unknown) == ([0], 1)


def test_a_run_that_goes_on_is_judged_by_the_same_rule_as_one_that_is_over():
    counted = [EngineSample(t=t * S, scrape_ms=1, preemptions=n) for t, n in ((1, 0), (3, 0), (41, 2))]
    ends = [
        ended(0, 0, 1000, 0, 0, took=4),
        ended(0, 1, 1000, 0, 800, session="s1", took=5),
        ended(1, 8, 1200, 992, 992),
        ended(2, 33, 1500, 512, 1184),
        ended(1, 40, 1200, 96, 992, session="s1", took=2),
        ended(3, 45, 9000, 1480, 1488),
    ]
    run = {"engine": {"block_size": 16, "kv_tokens": 1000}}
    live = Live(run)
    told = []
    for event in sorted([*counted, *ends], key=lambda e: e.t):
        if isinstance(event, EngineSample):
            live.sample(event)
        else:
            told.append(live.call_end(event))
    late = {
        (c.session, c.call): c for c in read([session(), session("s1"), *counted, *ends], 16, {}, kv_tokens=1000).calls
    }
    assert [(c.cause, c.missed, c.gap_s) for c in told] == [
        (late[c.session, c.call].cause, late[c.session, c.call].missed, late[c.session, c.call].gap_s) for c in told
    ]
    assert not live.off(over=True)
    assert [c.cause for c in told] == [None, "still_computing", None, "evicted", "preempted", "rounding"]
    assert (said("evicted", 24.0), in_short("evicted", 24.0)) == ("evicted during a gap of 24 s", "evicted, 24 s gap")
    assert set(SHORT) == set(CAUSES)


def test_what_the_engine_can_hold_may_be_learnt_later():
    live = Live({})
    assert live.call_end(ended(0, 0, 1000, 10, 10)).cause is None
    live.learn({"engine": {"block_size": 16, "kv_tokens": 100_000}, "route": "tokens"})
    assert live.call_end(ended(1, 5, 1200, 16, 992)).cause == "not_kept"
    live.session_end("s0")
    again = live.call_end(ended(0, 9, 1000, 0, 900))
    assert (again.first, again.gap_s) == (True, None)
    assert live.call_end(ended(1, 11, 1200, None, 992)) is None


def test_that_caching_is_off_is_said_of_a_run_that_goes_on_after_some_calls_only():
    live = Live({})
    causes = [live.call_end(ended(i, 10 * i, 1000, 0, 800)).cause for i in range(OFF_CALLS + 1)]
    assert causes == ["unknown"] * (OFF_CALLS - 1) + ["caching_off"] * 2
    assert live.off()
    few = Live({})
    few.call_end(ended(0, 0, 1000, 0, 800))
    assert (few.off(), few.off(over=True)) == (False, True)
