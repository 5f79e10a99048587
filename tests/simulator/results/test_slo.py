"""Service levels as they are written on the command line."""

import pytest

from windtunnel.simulator.results.slo import parse
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
