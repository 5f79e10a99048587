"""Why the cache missed, in runs of the emulator whose pool says what it did."""

from pathlib import Path

import pytest

from windtunnel.simulator.emulator.kv import KvCache
from windtunnel.simulator.emulator.runs import RunPool
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.misses import CallCache, read, settings
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.virtual import VirtualRun
from windtunnel.traces.sources import load

CLAUDE = Path(__file__).parents[4] / "shared" / "traces" / "claude-code" / "local-run-2.1.332-async-subagents"
MODEL = "emulator --gpu H100 --model qwen3-coder-30b-a3b --quantization fp8 --max-model-len 32768"
"""Full attention only: whatever was computed stays until something has to make room."""


def played(out: Path, engine: str, **dials: object) -> list[CallCache]:
    config = RunConfig(**{"engine": engine, "fit": "scale", "max_context": 32768, "virtual": True, **dials}).checked()
    VirtualRun(config, load(config.traces), out).run()
    folder = RunFolder.open(out)
    unit, exact, holds = settings(folder.run)
    return [c for c in read(folder.events(), unit, {}, exact=exact, kv_tokens=holds).calls if c.cause]


class Pool:
    """When the first missing block of each admitted request had been evicted; None where it never was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.evicted: set[int] = set()
        self.gone: dict[str, bool] = {}
        evict, admit = RunPool._evict, KvCache.admit

        def evicting(pool, run, count):
            self.evicted.update(run.keys[max(0, len(run.keys) - count) :])
            evict(pool, run, count)

        def admitting(kv, request, hit, new, *, beside):
            at, most = hit.tokens // kv._size, (request.known - 1) // kv._size
            admitted = admit(kv, request, hit, new, beside=beside)
            if admitted and at < most:
                self.gone.setdefault(request.key, request.hashes[at] in self.evicted)
            return admitted

        monkeypatch.setattr(RunPool, "_evict", evicting)
        monkeypatch.setattr(KvCache, "admit", admitting)


def test_agents_that_never_pause_lose_their_prefix_in_the_queue_and_not_in_a_gap(tmp_path, monkeypatch):
    """Eight agents of up to 32,000 tokens on a cache of 96,000."""
    pool = Pool(monkeypatch)
    engine = f"{MODEL} --num-gpu-blocks-override 6000"
    found = played(tmp_path / "run", engine, agents=8, pace="none", duration_s=20.0)
    told = [c for c in found if c.cause != "rounding"]
    assert len(told) > 30
    assert all(c.gap_s == 0 for c in told)
    assert {c.cause for c in told} <= {"evicted_in_queue", "preempted"}
    assert sum(c.cause == "evicted_in_queue" for c in told) > 25
    evicted = [gone for key, gone in pool.gone.items() if any(key.endswith(f"-{c.session}-0-{c.call}") for c in told)]
    assert evicted
    assert all(evicted)


def test_recurrent_state_that_was_not_kept_was_not_evicted_however_long_the_run_is(tmp_path):
    """Eight agents on a cache that holds all their contexts six times over, and in time more than twice its size."""
    engine = "emulator --gpu H200 --model qwen3.6-35b-a3b --max-model-len 65536 --kv-cache-memory-bytes 40000000000"
    found = played(tmp_path / "run", engine, agents=8, duration_s=300.0)
    folder = RunFolder.open(tmp_path / "run")
    holds = folder.run["engine"]["kv_tokens"]
    fold = Fold(folder.run)
    fold.apply_all(folder.events())
    assert 8 * 32768 < holds / 2 < fold.cache.so_far.prompt - fold.cache.so_far.cached
    told = {c.cause for c in found if c.cause != "rounding"}
    assert "not_kept" in told
    assert told <= {"not_kept", "still_computing", "unknown"}


@pytest.mark.skipif(not CLAUDE.exists(), reason="the recorded sessions are not here")
def test_sub_agents_of_a_recorded_session(tmp_path, monkeypatch):
    """Every miss on a full-attention model with a small cache was an eviction, and none without a gap is put to one."""
    Pool(monkeypatch)
    engine = f"{MODEL} --num-gpu-blocks-override 3000"
    found = played(tmp_path / "run", engine, traces=(str(CLAUDE),), agents=6, pace="none", duration_s=30.0)
    told = [c for c in found if c.cause != "rounding"]
    assert len(told) > 10
    assert all(c.gap_s >= 0.05 for c in told if c.cause == "evicted")
    assert {c.cause for c in told} <= {"evicted", "evicted_in_queue", "preempted", "still_computing", "unknown"}
