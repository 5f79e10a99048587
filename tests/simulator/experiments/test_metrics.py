"""Metrics as they are named on the command line, and what they are of a run."""

import msgspec
import pytest

from windtunnel.simulator.experiments.metrics import chosen, parse
from windtunnel.simulator.results.summary_model import Distribution
from windtunnel.traces.errors import UsageError


def test_every_percentile_of_a_summary_can_be_compared(made):
    ttft = Distribution(n=40, mean=1.5, p50=1.0, p90=2.0, p95=2.5, p99=2.9, max=3.0)
    summary = msgspec.structs.replace(made("s", 0, 0, 1.0).summary, ttft_s=ttft)
    found = [parse(f"ttft_s.{name}").of(summary, {}) for name in ("mean", "p50", "p90", "p95", "p99", "max")]
    assert found == [1.5, 1.0, 2.0, 2.5, 2.9, 3.0]
    assert [str(metric) for metric in chosen(["ttft_s.p95"])] == ["ttft_s.p95"]


def test_a_run_from_before_there_was_a_p95_does_not_report_it(made):
    ttft = Distribution(n=40, mean=1.5, p50=1.0, p90=2.0, p99=2.9, max=3.0)
    summary = msgspec.structs.replace(made("s", 0, 0, 1.0).summary, ttft_s=ttft)
    assert parse("ttft_s.p95").of(summary, {}) is None
    assert parse("ttft_s.p90").of(summary, {}) == 2.0


def test_a_percentile_that_is_none_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"'ttft_s.p75' needs one of mean, p50, p90, p95, p99, max, paired after"):
        parse("ttft_s.p75")
