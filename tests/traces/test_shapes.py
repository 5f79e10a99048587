"""Single calls of one size, named like a trace."""

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.errors import TraceError
from windtunnel.traces.sources import load


def test_a_shape_is_many_different_single_calls_of_that_size():
    loaded = load(["shape:512x256"])
    assert len({t.header.id for t in loaded.traces}) == len(loaded.traces) == 64
    assert len({t.blocks[0].digest for t in loaded.traces}) == 64
    for trace in loaded.traces:
        assert faults(trace) == []
        (call,) = trace.calls
        assert trace.prompt_tokens()[call.id] == 512
        assert call.usage is not None
        assert (call.usage.prompt, call.usage.completion) == (512, 256)


def test_k_is_1024_tokens():
    assert load(["shape:8kx1.5K"]).traces[0].prompt_tokens() == {0: 8192}
    assert load(["shape:8kx1.5K"]).traces[0].blocks[1].tokens == 1536


@pytest.mark.parametrize("bad", ["shape:", "shape:512", "shape:512x", "shape:0x5", "shape:5x0.1", "shape:ax5"])
def test_a_wrong_shape_says_how_it_is_written(bad):
    with pytest.raises(TraceError, match=f"{bad}"):
        load([bad])
