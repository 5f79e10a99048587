"""Every recorded Weka trace against its independent answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

FILES = tuple(f"weka-kv-cache-tester/trace_{n}.json" for n in ("0010", "0277", "0282", "0504"))


def load(path: Path) -> Trace:
    result = import_path(path)
    assert result.problems == ()
    (trace,) = result.traces
    return trace


@pytest.mark.parametrize("name", FILES)
def test_counts_equal_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[name], load(recorded / name)
    assert trace.header.id == answer["id"]
    assert len(trace.calls) == answer["llm_requests"]
    assert len(trace.calls_of(0)) == answer["top_level_requests"]
    assert len(trace.threads) - 1 == answer.get("subagents", 0)
    assert [c.usage.prompt for c in trace.calls_of(0)] == answer["prompts"]
    assert sum(c.usage.prompt or 0 for c in trace.calls) == answer["sum_in"]
    assert sum(c.usage.completion or 0 for c in trace.calls) == answer["sum_out"]
    assert max(c.usage.prompt or 0 for c in trace.calls) == answer["max_in"]
    assert max(c.start_s or 0 for c in trace.calls_of(0)) == answer["t_last"]
    stops: dict[str, int] = {}
    for call in trace.calls:
        stops[call.stop or ""] = stops.get(call.stop or "", 0) + 1
    assert stops == answer["stops"]


@pytest.mark.parametrize("name", FILES)
def test_prompts_add_up_to_the_recorded_tokens(name: str, recorded: Path) -> None:
    trace = load(recorded / name)
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls)
    assert faults(trace) == []


@pytest.mark.parametrize("name", FILES)
def test_equal_hash_prefixes_stay_equal(name: str, recorded: Path) -> None:
    """Two calls share as many leading tokens in the trace as their lists of hashes do, exactly."""
    trace = load(recorded / name)
    raw = json.loads((recorded / name).read_text())
    hashes = [r["hash_ids"] for r in raw["requests"] if "hash_ids" in r]
    streams = [flat(trace, ids) for c, ids in trace.prompts() if c.thread == 0]
    for at in range(1, min(len(hashes), 40)):
        same = common(hashes[at - 1], hashes[at])
        shared = shared_tokens(streams[at - 1], streams[at])
        assert same * 64 <= shared < (same + 1) * 64


def flat(trace: Trace, messages: Any) -> list[tuple[str, int]]:
    return [
        (trace.blocks[b].digest, trace.blocks[b].tokens)
        for m in messages
        for b in trace.message_blocks(trace.messages[m])
    ]


def common(a: list[Any], b: list[Any]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def shared_tokens(a: list[tuple[str, int]], b: list[tuple[str, int]]) -> int:
    at = common(a, b)
    whole = sum(n for _, n in a[:at])
    cut = at < len(a) and at < len(b) and a[at][0] == b[at][0]
    return whole + (min(a[at][1], b[at][1]) if cut else 0)


def test_sub_agents_start_and_join_where_they_did(recorded: Path) -> None:
    trace = load(recorded / FILES[1])
    first, second = trace.calls_of(0)[:2]
    assert [t.spawn_call for t in trace.threads[1:4]] == [first.id] * 3
    assert second.joins == (1, 2, 3)
    assert not any(t.background for t in trace.threads)
    assert sum(w.seconds or 0 for w in trace.waits if w.before == second.id) == 209.0
