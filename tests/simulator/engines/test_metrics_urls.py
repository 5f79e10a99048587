"""`--metrics-url` on the command line: what is taken, what is refused, and that it changes no work."""

import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments.runs import workload
from windtunnel.traces.errors import UsageError

ONE, OTHER = "http://gpu1:8000/metrics", "http://gpu2:8000/metrics"


def test_several_are_taken_and_written_down():
    config = config_of(["--target", "http://balancer", "--metrics-url", ONE, "--metrics-url", OTHER])
    assert config.metrics_urls == (ONE, OTHER)
    assert list(config.as_json()["metrics_urls"]) == [ONE, OTHER]


def test_where_metrics_are_read_is_no_part_of_the_work():
    plain, read = config_of(["--target", "http://a"]), config_of(["--target", "http://a", "--metrics-url", ONE])
    assert workload({"config": plain.as_json()}) == workload({"config": read.as_json()})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--metrics-url", "gpu1:8000/metrics"], "give a whole URL"),
        (["--metrics-url", ONE, "--metrics-url", ONE], "counted twice"),
        (["--virtual", "--metrics-url", ONE], "exclude each other"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, says):
    with pytest.raises(UsageError, match=says):
        config_of(words)
