"""What holds a run back where there is little to tell it from."""

import pytest
from msgspec.structs import fields

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results.bottleneck import find, never_found
from windtunnel.simulator.results.breakdown import CallTime, Part
from windtunnel.simulator.results.miss_words import CAUSES
from windtunnel.simulator.results.misses import CallCache
from windtunnel.simulator.results.summary_model import EngineSummary, Summary

S = 1_000_000_000


def test_where_all_wait_and_no_call_has_ended_nothing_is_known():
    nothing = {field.name: None for field in fields(Summary)}
    summary = Summary(**{**nothing, "invalid_reasons": (), "engine": EngineSummary(), "failures": {}})
    samples = [EngineSample(t=t * S, scrape_ms=1, waiting=3, running=1.0) for t in range(4)]
    found = find(summary, [], samples, working_set=None, settings={"scheduler_config.max_num_seqs": 1})
    assert (found.kind, found.share, found.shares) == ("unknown", 0.0, {})


def summary_of(**known):
    nothing = {field.name: None for field in fields(Summary)}
    return Summary(**{**nothing, "invalid_reasons": (), "engine": EngineSummary(), "failures": {}, **known})


def time_of(**seconds):
    causes = {"prefill_missed": CAUSES["caching_off"]}
    parts = tuple(Part(name, value, "derived", "", causes.get(name, "")) for name, value in seconds.items())
    return CallTime("s", 0, 0, 0, 0.0, parts)


@pytest.mark.parametrize(
    ("on", "says"),
    [
        (False, "prefix caching is off: 90% of the prompt tokens that were computed had been sent before"),
        (True, "prefix caching is on, and no call found anything in it: 90% of"),
        (None, "no call found anything in it: 90% of"),
    ],
)
def test_a_prefix_cache_without_a_hit_is_not_blamed_on_compute(on, says):
    settings = {"prefix_caching": on, "scheduler_config.max_num_seqs": 99}
    settings["scheduler_config.max_num_batched_tokens"] = 8192
    samples = [EngineSample(t=S, scrape_ms=1, waiting=1, running=1.0, kv_usage=0.1)]
    times = [time_of(prefill_missed=2.0, held_up=5.0, queue=1.0, decode=1.5, prefill_new=0.5)]
    found = find(summary_of(), times, samples, working_set=None, settings=settings, unfound=0.9)
    assert found.kind == "prefix_cache"
    assert found.share == pytest.approx(0.2 + 0.9 * 0.5 + 0.9 * 0.1)
    assert found.shares["prefill_compute"] == pytest.approx(0.05 + 0.1 * 0.5 + 0.1 * 0.1)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.evidence[0].startswith(says)
    assert "45% of the calls' time is decode that such prompts hold up" in found.evidence


def test_a_match_unit_above_what_prompts_have_in_common_is_told_beside_compute():
    summary = summary_of(expected_cache_hit_ratio=0.0, expected_cache_hit_ratio_exact=0.8)
    found = find(summary, [time_of(prefill_new=3.0)], [], working_set=None, settings={"block_size": 8192})
    assert found.kind == "prefill_compute"
    assert found.evidence == (
        "80% of the prompt tokens had been sent before, and its match unit of 8,192 tokens leaves them no place in it",
    )


def test_what_was_never_found_is_a_share_of_what_was_computed():
    def call(missed, cause):
        return CallCache("s", "t", 0, 0, 0, 0.0, False, 100, 0, missed, 0, 100 - missed, cause)

    assert never_found([call(80, "caching_off"), call(0, None)]) == 0.4
    assert never_found([call(80, "evicted")]) == never_found([]) == 0.0
