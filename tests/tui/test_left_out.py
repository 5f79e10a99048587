"""A finished run's screen says when its latencies leave out the long calls."""

from pathlib import Path

import msgspec

from windtunnel.simulator.results.store import RunFolder
from windtunnel.tui.snapshot import headline

GOLDEN = Path(__file__).parents[1] / "simulator" / "results" / "golden"


def test_latencies_that_leave_out_long_calls_are_told_so():
    summary = RunFolder.open(GOLDEN).summary()
    assert summary is not None
    many = msgspec.structs.replace(summary, calls_begun=42, calls_unended=16)
    assert headline(many)[2] == ("left out", "16 of 42 (long ones)")
    few = msgspec.structs.replace(summary, calls_begun=320, calls_unended=16)
    older = msgspec.structs.replace(summary, calls_begun=None, calls_unended=None)
    for other in (few, older):
        assert "left out" not in dict(headline(other))
        assert len(headline(other)) == len(headline(many)) - 1
