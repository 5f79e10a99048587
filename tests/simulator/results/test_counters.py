"""How much counters grew, worked out on paper, with an engine that was restarted in between."""

import pytest

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results.cautions import cautions
from windtunnel.simulator.results.counters import COUNTERS, Counters, growth
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import EngineDelta, decode_summary, encode_summary
from windtunnel.simulator.results.text import render_summary

NS = 1_000_000_000


def sample(t, apart=None, **values):
    return EngineSample(t=t * NS, scrape_ms=1.0, apart=apart, **values)


def samples(**counters):
    """One a second, from each counter's values."""
    return [
        sample(t, **dict(zip(counters, row, strict=True))) for t, row in enumerate(zip(*counters.values(), strict=True))
    ]


def grown(made, counter="prompt_tokens"):
    return Counters(made).grown(counter)


def test_without_a_restart_it_is_the_last_less_the_first():
    values = [0.1, 0.7, 0.7, 1e9 / 3]
    counters = Counters(samples(prompt_tokens=values))
    assert counters.grown("prompt_tokens") == values[-1] - values[0]
    assert counters.restarts == []
    assert (counters.grown("preemptions"), Counters().grown("preemptions")) == (None, None)


@pytest.mark.parametrize(
    ("values", "grew"),
    [
        ([100, 150, 5, 30], 50 + 30),
        ([100, 150, 5, 400], 50 + 400),  # it outgrew its old value
        ([100, 150, 0, 0], 50),
        ([100, 150, 5, 30, 2, 2], 50 + 30 + 2),
        ([100, 150, None, 30], 50 + 30),
        ([100, None, 150, 160], 60),
        ([100, 150, 5, None], None),
        ([None, 150, 5, 30], None),
    ],
)
def test_after_a_drop_the_new_value_counts_from_0(values, grew):
    assert grown(samples(prompt_tokens=values)) == grew


def test_the_counters_of_an_engine_begin_anew_together():
    counters = Counters(samples(prefix_queries=[100, 130, 160], prefix_hits=[90, 95, 80]))
    assert (counters.grown("prefix_queries"), counters.grown("prefix_hits")) == (30 + 160, 5 + 80)
    assert counters.restarts == [2 * NS]


def replicas(t, **values):
    """By replica: its prompt tokens; the sample has their sum."""
    apart = {name: {"prompt_tokens": float(value)} for name, value in values.items()}
    return sample(t, apart if len(apart) > 1 else None, prompt_tokens=float(sum(values.values())))


def test_a_restart_of_one_replica_shows_though_the_sum_rises():
    counters = Counters([replicas(0, a=100, b=100), replicas(1, a=110, b=900), replicas(2, a=4, b=2000)])
    assert counters.grown("prompt_tokens") == 10 + 4 + 1900
    assert counters.restarts == [2 * NS]


def test_a_replica_that_goes_away_keeps_what_it_did():
    made = [replicas(0, a=100, b=100, c=0), replicas(1, a=110, b=120, c=0), replicas(2, a=115, c=0)]
    assert grown(made) == 15 + 20
    assert grown([*made, replicas(3, a=120, b=7, c=0)]) == 20 + 20 + 7


def test_replicas_that_are_not_told_apart_are_one():
    made = [replicas(0, a=100, b=100), replicas(1, a=250), replicas(2, a=40)]
    counters = Counters(made)
    assert (counters.grown("prompt_tokens"), counters.restarts) == (50 + 40, [2 * NS])


def test_every_counter_of_the_summary_is_one():
    assert set(EngineDelta.__struct_fields__) < set(COUNTERS)
    assert growth(sample(0, preemptions=9), sample(1, preemptions=2), "preemptions") == 2


def restarted(stream, kind=None):
    """An agent for a minute of calls; the engine begins anew at 30 s."""
    s = stream(1).phase(0, "steady").phase(60, "draining").end(60)
    name = s.session(0, 60)
    for second in range(60):
        s.call(name, second, second + 1, call=second, chunks=((second + 0.5, 100),), prompt_tokens=50, cached_tokens=0)
        since = second if second < 30 else second - 30
        base = 9000 if second < 30 else 0
        made = {
            "prefix_queries": base + 50 * since,
            "prefix_hits": base + 40 * since,
            "preemptions": base + since // 10,
        }
        made |= {"spec_drafts": base + 10 * since, "spec_accepted": base + 20 * since}
        s.add(sample(second, generation_tokens=base + 100 * since, prompt_tokens=base + 50 * since, **made))
    return s


def test_a_restart_is_held_against_the_run_and_its_sums_go_on(stream):
    s = restarted(stream)
    got = summarise({}, s.events())
    assert (got.valid, got.invalid_reasons) == (False, ("engine_restarted",))
    assert (got.engine_delta.generation_tokens, got.engine_delta.prompt_tokens) == (5800, 2900)
    assert (got.engine.hit_ratio, got.engine.acceptance_length, got.engine.preemptions) == (0.8, 3.0, 4)
    assert got.engine.restarted_s == (30.0,)
    text = " ".join(render_summary(got).split())
    assert "- engine_restarted: the engine's counters began anew: it was restarted" in text
    assert "just before is lost (at 30.0 s)" in text
    assert decode_summary(encode_summary(got)) == got


def test_while_the_run_goes_on_the_same_is_said(stream):
    fold = Fold({})
    for event in restarted(stream).events():
        fold.apply(event)
        reasons = fold.invalid_reasons()
        assert reasons == (("engine_restarted",) if event.t >= 30 * NS and fold.engine.latest.t >= 30 * NS else ())
    assert (fold.engine.hit_ratio, fold.engine.acceptance_length, fold.engine.preemptions) == (0.8, 3.0, 4)


def test_a_recording_is_whole_and_tells_when(stream):
    got = summarise({"kind": "recording"}, restarted(stream).events())
    assert (got.valid, got.engine.restarted_s) == (True, (30.0,))
    assert "the engine was restarted (at 30.0 s): what it says of itself lacks what it did just before" in cautions(got)


def test_a_run_without_a_restart_says_nothing_of_it(stream):
    s = stream(1).phase(0, "steady").phase(60, "draining").end(60)
    s.add(*samples(prompt_tokens=[1, 2, 3]))
    assert b"restarted" not in encode_summary(summarise({}, s.events()))


def test_many_restarts_are_told_in_short(stream):
    s = stream(1).phase(0, "steady").phase(60, "draining").end(60)
    s.add(*samples(prompt_tokens=[9, 1, 9, 1, 9, 1, 9, 1]))
    assert "(at 1.0 s, 3.0 s, 5.0 s and later)" in " ".join(render_summary(summarise({}, s.events())).split())
