"""Until its first token a call waits for queue and prefill, and for what is neither: HTTP and tokenizing."""

import pytest
from msgspec.structs import replace

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.diagnose import diagnose
from windtunnel.simulator.results.breakdown import break_down
from windtunnel.simulator.results.calls import front_s
from windtunnel.simulator.results.misses import CallCache
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.sources import load

S = 1_000_000_000
TOLD = CallEnd(
    t=9 * S, agent=0, session="s0", thread=0, call=1, request_id="r", t_intended=S, t_sent=S, t_first=5 * S,
    t_last=9 * S, t_end=9 * S, queued_s=1.0, prefilled_s=0.5,
)  # fmt: skip
LITTLE = CallCache(
    "s0", "t", 0, 0, 1, 0.0, first=False, prompt=60_000, cached=59_000, missed=600, diverged=200, fresh=200,
    cause="evicted", gap_s=42.0,
)  # fmt: skip


def parts(call, caches):
    (time,) = break_down([call], [], caches)
    assert time.seconds == pytest.approx(8.0)
    return {part.name: part.seconds for part in time.parts}


def test_a_long_cached_prompt_is_tokenized_and_hardly_prefilled():
    assert parts(TOLD, {("s0", 1): LITTLE}) == pytest.approx(
        {
            "front": 2.5,
            "queue": 1.0,
            "prefill_new": 0.1,
            "prefill_missed": 0.3,
            "prefill_diverged": 0.1,
            "decode": 4.0,
        }
    )


@pytest.mark.parametrize("change", [{"prefilled_s": None}, {"prefilled_s": 7.0}, {"queued_s": None}])
def test_there_is_none_where_the_engine_does_not_tell_it_or_says_more_than_was(change):
    call = replace(TOLD, **change)
    assert front_s(call) == 0.0
    assert "front" not in parts(call, {("s0", 1): LITTLE})


def test_an_emulated_run_over_long_cached_prompts_tells_it_apart(tmp_path):
    config = config_of(["library", "--agents", "2", "--duration", "60", "--no-text"])
    engine = "emulator --gpu B200 --model qwen3-coder-30b-a3b"
    virtual_run(replace(config, engine=engine), load(config.traces), tmp_path / "r")
    found, summary, _ = diagnose(tmp_path / "r")
    ends = [e for e in RunFolder.open(tmp_path / "r").events() if isinstance(e, CallEnd) and e.t_first]
    assert len(ends) > 20
    assert [front_s(e) for e in ends] == pytest.approx([0.032 + e.prompt_tokens / 1e6 for e in ends], abs=2e-9)
    assert 0.02 < found.bottleneck.parts["front"] == found.bottleneck.shares["front"] < 0.1
    assert found.bottleneck.kind == "decode"
    assert summary.ttft_s.p50 > 0.03
