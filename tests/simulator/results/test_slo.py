"""Service levels as they are written on the command line."""

import pytest

from windtunnel.simulator.results.slo import asked, parse, told, undecided
from windtunnel.simulator.results.summary import summarise
from windtunnel.traces.errors import UsageError


def test_conditions():
    first, second, third = parse(" ttft_s.p90<3, tpot_s.mean <= 5e-2 ,cache_hit_ratio>=0.9")
    assert (first.text, first.metric, first.statistic, first.relation, first.limit) == (
        "ttft_s.p90<3",
        "ttft_s",
        "p90",
        "<",
        3,
    )
    assert (second.statistic, second.relation, second.limit) == ("mean", "<=", 0.05)
    assert (third.statistic, third.limit) == (None, 0.9)
    assert parse("") == ()
    assert first.holds(2.9)
    assert not first.holds(3.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_s.p90", "is no condition"),
        ("ttft<3", "'ttft' in 'ttft<3' is no metric"),
        ("ttft_s<3", "needs one of mean, p50, p90, p95, p99, max"),
        ("ttft_s.p75<3", "'.p75' in 'ttft_s.p75<3' is none of mean, p50, p90, p95, p99, max"),
        ("output_tokens_per_s.p90>3", "is a single number"),
        ("ttft_s.p90<1e", "is no number"),
    ],
)
def test_mistakes_are_named_in_one_sentence(text, says):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["ttft_s.p90<-1", "ttft_s.p90<0", "ttft_s.p90<=0", "tpot_s.mean<=-0.1", "e2e_s.p50<3,makespan_s.p50<=0"],
)
def test_a_run_is_not_asked_for_what_none_can_meet(text):
    with pytest.raises(UsageError, match=r"can never be met: give a limit greater than zero$"):
        asked(text)
    assert parse(text), "a stored run that was asked for it can still be read"


def test_what_may_be_zero_may_be_asked_to_be():
    for text in ("failed_calls<=0", "throttled_s.max<=0", "ttft_s.p90>-1", "ttft_s.p90<3"):
        assert asked(text) == parse(text)
    with pytest.raises(UsageError, match="give a limit of zero or more"):
        asked("failed_calls<=-1")
    with pytest.raises(UsageError, match="is no finite number"):
        asked("ttft_s.p90<1e999")


def run(stream, *cut, ended=9, **more):
    """Calls of one second each in a window of 100 s, and some that its end cut after so many seconds."""
    s = stream().phase(0, "steady").phase(100, "draining").end(100)
    for n in range(ended):
        s.call(s.session(0, 100), n, n + 1, chunks=((n + 0.5, 1), (n + 1, 9)))
    for seconds in cut:
        s.call(s.session(0, 100, status="cut"), 100 - seconds, 100, cut=True, **more)
    return s


def judged(made, slo):
    found = summarise({"config": {"slo": slo}}, made.events()).slo
    assert found is not None
    return found


def test_a_call_that_was_cut_beyond_a_limit_breaks_it(stream):
    found = judged(run(stream, 40, 40), "e2e_s.p90<30")
    (condition,) = found.conditions
    assert (condition.value, condition.met, found.met) == (1, False, False)
    assert (found.calls_inside, found.calls_judged, found.sessions_inside) == (9, 11, 9)
    assert told(condition) == "e2e_s.p90<30: 1 of those that ended, not met: at least 40 with the 2 without an end"
    assert undecided(found) == []


def test_a_limit_that_calls_without_an_end_can_turn_is_not_decided(stream):
    found = judged(run(stream, 10, 10), "e2e_s.p90<30")
    (condition,) = found.conditions
    assert (condition.value, condition.met, found.met) == (1, None, False)
    assert (found.calls_inside, found.calls_judged, found.calls_undecided) == (9, 9, 2)
    assert told(condition) == "e2e_s.p90<30: 1 of those that ended, not decided: 2 calls without an end can turn it"
    assert undecided(found) == [condition]


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        ("e2e_s.p50<30", True),  # whatever becomes of two of eleven
        ("e2e_s.max<30", None),
        ("e2e_s.mean<30", None),
        ("e2e_s.max<9", False),
        ("e2e_s.max>5", True),
        ("ttft_s.p90<30", None),
        ("ttft_s.p90<9", False),
        ("ttft_visible_s.p90<9", None),  # they may have nothing visible
        ("tpot_s.p90<30", None),
        ("e2e_s.p90<0.9", False),
    ],
)
def test_what_can_turn_a_verdict(stream, slo, met):
    assert judged(run(stream, 10, 10), slo).conditions[0].met is met


def test_what_a_cut_call_had_counts(stream):
    made = run(stream, 10, 10, chunks=((92, 1), (98, 7)))
    assert judged(made, "ttft_s.p90<1.9").conditions[0].met is False
    assert judged(made, "ttft_s.p90<2.1").conditions[0].met is True
    assert judged(made, "tpot_s.p90<0.9").conditions[0].met is True  # 6 s for seven tokens
    assert judged(made, "tpot_s.p90<0.8").conditions[0].met is False
    assert judged(made, "ttft_s.p90<2.1").calls_judged == 11


def test_a_mean_is_told_where_few_are_without_an_end(stream):
    made = run(stream, 10, ended=30)
    assert judged(made, "e2e_s.mean<30").met
    assert not judged(made, "e2e_s.mean<1.1").met


def test_calls_of_a_run_that_was_killed_have_no_end_either(stream):
    made = run(stream, 40, 40)
    made.made = [event for event in made.made if not getattr(event, "cut", False)]
    assert judged(made, "e2e_s.p90<30").conditions[0].met is False
    assert judged(made, "e2e_s.p90<50").conditions[0].met is None


def test_sessions_without_an_end_can_turn_their_makespan(stream):
    s = stream().phase(0, "steady").phase(100, "draining").end(100)
    s.session(10, 20)
    s.session(60, 100, status="cut")
    found = judged(s, "makespan_s.p90<50")
    assert told(found.conditions[0]).endswith("not decided: 1 session without an end can turn it")
    assert judged(s, "makespan_s.p90<30").conditions[0].met is False


def test_what_all_ended_calls_say_alone_is_told_without_a_word_of_others(stream):
    (condition,) = judged(run(stream), "e2e_s.p90<30").conditions
    assert told(condition) == "e2e_s.p90<30: 1, met"
