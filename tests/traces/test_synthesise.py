import os
import subprocess
import sys

import numpy as np
import pytest
import zstandard

from windtunnel.traces import library
from windtunnel.traces.behaviour import CLIENTS
from windtunnel.traces.check import faults
from windtunnel.traces.fit import largest
from windtunnel.traces.format import encode_trace, read_trace
from windtunnel.traces.stats import session_stats
from windtunnel.traces.synthesise import LIBRARY, main, synthesise

TRACES = {n: read_trace(library.path(n)).traces[0] for n in library.names()}
CALLS = [c for t in TRACES.values() for c in t.calls]


def test_the_bundle_is_what_the_plans_say():
    assert sorted(p.name for p in LIBRARY) == library.names()
    assert len(TRACES) >= 16
    assert sum(library.path(n).stat().st_size for n in library.names()) < 3_000_000
    for plan in LIBRARY:
        trace = TRACES[plan.name]
        assert faults(trace) == []
        assert trace.header.synthetic
        assert trace.header.shape_only
        assert trace.header.title == plan.name
        assert all(b.text is None for b in trace.blocks)
        assert len(trace.calls_of(0)) == plan.calls
        assert len(trace.threads) == 1 + plan.agents
        assert session_stats(trace).max_prompt_tokens == pytest.approx(plan.peak, rel=0.02)


@pytest.mark.parametrize("name", ["explain-regex", "review-patch", "memory-leak"])
def test_the_generator_gives_the_bundled_lines_bit_for_bit(name):
    plan = next(p for p in LIBRARY if p.name == name)
    bundled = zstandard.ZstdDecompressor().decompress(library.path(name).read_bytes())
    assert encode_trace(synthesise(plan)) == bundled


def test_not_seeded_by_the_process(tmp_path):
    """Another process with another hash seed writes the same."""
    code = (
        "import sys; from windtunnel.traces.synthesise import LIBRARY, synthesise;"
        "from windtunnel.traces.format import fingerprint; print(fingerprint(synthesise(LIBRARY[1])))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    from windtunnel.traces.format import fingerprint

    assert said.stdout.strip() == fingerprint(TRACES[LIBRARY[1].name])


def test_other_seeds_give_other_sessions():
    one, two = (synthesise(LIBRARY[2], seed) for seed in (1, 2))
    assert encode_trace(one) != encode_trace(two)
    assert faults(one) == faults(two) == []


def test_command_writes_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr("windtunnel.traces.synthesise.LIBRARY", LIBRARY[:2])
    assert main(["--out", str(tmp_path / "new"), "--seed", "5"]) == 0
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["explain-regex.jsonl.zst", "rename-flag.jsonl.zst"]


def test_small_group_fits_32k():
    fits = {n for n, t in TRACES.items() if largest(t) <= 32_768}
    assert fits == set(library.SMALL)
    assert len(fits) >= 4


def test_shapes_that_must_be_there():
    main_calls = sorted(len(t.calls_of(0)) for t in TRACES.values())
    assert main_calls[0] == 1
    assert main_calls[-1] > 300
    assert 40 <= np.median(main_calls) <= 55
    peaks = [session_stats(t).max_prompt_tokens for t in TRACES.values()]
    assert 16_000 <= min(peaks) < 17_000
    assert 149_000 < max(peaks) <= 150_000
    assert any(c.kind == "compaction" for c in CALLS)
    assert any(t.background for x in TRACES.values() for t in x.threads)
    assert any(
        len(x.messages[c.output].tool_calls) > 1 for x in TRACES.values() for c in x.calls if c.output is not None
    )
    assert any(len(c.joins) > 1 for c in CALLS)
    assert {w.cause for t in TRACES.values() for w in t.waits} == {"tool", "human", "client", "subagent"}


def test_figures_are_those_of_real_traffic():
    p50, p90, p99 = np.percentile([c.usage.completion for c in CALLS], [50, 90, 99])
    assert p50 == pytest.approx(216, rel=0.1)
    assert p90 == pytest.approx(898, rel=0.1)
    assert p99 == pytest.approx(3687, rel=0.2)
    cached = sum(c.usage.cached for c in CALLS) / sum(c.usage.prompt for c in CALLS)
    assert 0.94 < cached < 0.975
    tool = [r.end_s - r.start_s for t in TRACES.values() for r in t.tool_runs if r.thread is None]
    assert np.median(tool) == pytest.approx(0.3, rel=0.35)
    assert np.percentile(tool, 90) == pytest.approx(13.6, rel=0.45)
    human = [w.seconds for t in TRACES.values() for w in t.waits if w.cause == "human"]
    assert 60 < np.median(human) < 130
    assert 0.8 < sum(c.stop == "tool_use" for c in CALLS) / len(CALLS) < 0.96
    assert 0.25 < sum(len(t.threads) > 1 for t in TRACES.values()) / len(TRACES) < 0.45


def test_sessions_of_a_client_share_their_front():
    fronts = {}
    for trace in TRACES.values():
        first = trace.calls[0]
        system = trace.messages[first.append[0]]
        front = (trace.blocks[trace.toolsets[first.tools].block], trace.blocks[system.blocks[0]])
        assert all(b.filler for b in front)
        fronts.setdefault(trace.header.agent, set()).add(tuple((b.digest, b.tokens) for b in front))
    assert set(fronts) == set(CLIENTS)
    assert all(len(found) == 1 for found in fronts.values())
    own = [b.digest for t in TRACES.values() for b in t.blocks if not b.filler]
    assert len(set(own)) == len(own)


@pytest.mark.parametrize("name", library.names())
def test_times_and_caches_are_possible(name):
    trace = TRACES[name]
    waits = {}
    for wait in trace.waits:
        waits[wait.before] = waits.get(wait.before, 0.0) + wait.seconds
    last_end = {}
    previous_prompt = {}
    for call in trace.calls:
        assert call.start_s < call.first_s < call.end_s
        if call.base is None:
            assert call.usage.cached <= call.usage.prompt
        else:
            assert call.start_s == pytest.approx(last_end[call.thread] + waits[call.id], abs=0.002)
            assert call.usage.cached <= previous_prompt[call.thread]
        last_end[call.thread] = call.end_s
        previous_prompt[call.thread] = call.usage.prompt
    for thread in trace.threads[1:]:
        calls = trace.calls_of(thread.id)
        spawn = trace.calls[thread.spawn_call]
        assert calls[0].start_s == pytest.approx(spawn.end_s + thread.spawn_delay_s, abs=0.002)
        joining = [c for c in trace.calls if thread.id in c.joins]
        assert len(joining) == 1
        assert joining[0].start_s >= calls[-1].end_s
        assert joining[0].thread == 0
    answered = {m.tool_call_id for m in trace.messages if m.role == "tool"}
    assert {r.tool_call_id for r in trace.tool_runs} == answered
