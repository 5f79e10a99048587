"""What holds a run back where there is little to tell it from."""

from msgspec.structs import fields

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results.bottleneck import find
from windtunnel.simulator.results.summary_model import EngineSummary, Summary

S = 1_000_000_000


def test_where_all_wait_and_no_call_has_ended_nothing_is_known():
    nothing = {field.name: None for field in fields(Summary)}
    summary = Summary(**{**nothing, "invalid_reasons": (), "engine": EngineSummary(), "failures": {}})
    samples = [EngineSample(t=t * S, scrape_ms=1, waiting=3, running=1.0) for t in range(4)]
    found = find(summary, [], samples, working_set=None, settings={"scheduler_config.max_num_seqs": 1})
    assert (found.kind, found.share, found.shares) == ("unknown", 0.0, {})
