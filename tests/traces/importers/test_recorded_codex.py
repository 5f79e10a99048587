"""Every recorded Codex rollout against its independent answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import codex, import_path
from windtunnel.traces.model import Trace

RUN = "codex/local-run-0.171.0-subagents"
DAY = f"{RUN}/sessions/2026/11/29"
MAIN = f"{DAY}/rollout-2026-11-29T12-45-25-01a22756-bd11-7013-8775-fdfa016dd7c1.jsonl"
ABORTED = f"{DAY}/rollout-2026-11-29T12-45-30-01a22756-cefa-7682-8622-c6cf3e7d95cc.jsonl"
LONG = "codex/localpush/rollout-2026-02-23T12-47-42-019c8a53-a0dd-7130-bcd7-95445d84846a.jsonl"
OLD = "codex/agentcmd/rollout-2025-09-24T20-12-23-01997ea4-a70d-7da3-8c20-c736db82a7c5.jsonl"
FILES = (
    OLD,
    MAIN,
    f"{DAY}/rollout-2026-11-29T12-45-26-01a22756-c0b9-7963-9a38-65e7bc6c726e.jsonl",
    f"{DAY}/rollout-2026-11-29T12-45-26-01a22756-c125-77c3-9d8a-0128800462d4.jsonl",
    ABORTED,
    "codex/localpush/rollout-2026-02-23T12-40-23-019c8a4c-ed82-79a1-aa28-7738fc5ab61a.jsonl",
    LONG,
    "codex/localpush/rollout-2026-02-23T13-19-38-019c8a70-dda7-7f33-98ea-f30553347322.jsonl",
    "codex/localpush/rollout-2026-02-23T20-34-25-019c8bfe-ec25-79e0-97d7-bda6a9c575ff.jsonl",
    "codex/tracelab-2026.jsonl",
)
ABORTED_CALLS = {
    # the answer counts requests with usage; the turn was interrupted while a third request was under way, whose inputs
    # and times are known (the scripted model's log has it)
    ABORTED: 1,
}
SPANS = {
    # the last call or tool ends earlier than the log: after it come only a task_complete record or a prompt that was
    # never answered
    LONG: 3257.068,
    MAIN: 6.422,
    FILES[2]: 2.441,
    FILES[3]: 2.421,
}


def alone(path: Path) -> Trace:
    (trace,) = codex.read(path).traces
    return trace


@pytest.mark.parametrize("name", FILES)
def test_counts_equal_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[name], alone(recorded / name)
    calls = [c for c in trace.calls if not c.aborted]
    assert len(calls) == answer["llm_requests"]
    assert len(trace.calls) - len(calls) == ABORTED_CALLS.get(name, 0)
    assert [c.usage.prompt for c in calls] == answer["prompts"]
    assert sum(c.usage.prompt or 0 for c in calls) == answer["sum_input_tokens"]
    assert sum(c.usage.cached or 0 for c in calls) == answer["sum_cached_input_tokens"]
    assert sum(c.usage.completion or 0 for c in calls) == answer["sum_output_tokens"]
    assert sum(c.usage.reasoning or 0 for c in calls) == answer.get("sum_reasoning_output_tokens", 0)
    assert max(c.usage.prompt or 0 for c in calls) == answer["max_prompt_tokens"]
    assert calls[0].usage.prompt == answer["first_prompt_tokens"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    assert sum(r.end_s is not None for r in trace.tool_runs) == answer["tool_results"]
    assert list(trace.header.models) == answer["models"]
    assert trace.header.agent_version == answer["cli_version"]


@pytest.mark.parametrize("name", FILES)
def test_span_equals_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    trace = alone(recorded / name)
    last = max([c.end_s or 0 for c in trace.calls] + [r.end_s or 0 for r in trace.tool_runs])
    assert last == pytest.approx(SPANS.get(name, answers[name]["span_s"]), abs=0.003)


@pytest.mark.parametrize("name", FILES)
def test_prompts_add_up_to_the_recorded_tokens(name: str, recorded: Path) -> None:
    trace = alone(recorded / name)
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls if c.usage.prompt is not None)
    assert faults(trace) == []


def test_a_folder_joins_sub_agents_to_their_parent(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    (trace,) = import_path(recorded / RUN / "sessions").traces
    assert faults(trace) == []
    wire = answers[f"{RUN}/wire.jsonl"]
    assert len(trace.calls) == wire["requests_with_tools"] + wire["tool_less_requests"]
    assert sum(c.kind == "compaction" for c in trace.calls) == wire["tool_less_requests"]
    assert sum(c.aborted for c in trace.calls) == 1
    assert [t.name for t in trace.threads] == [None, "Anscombe", "Arendt", "Dewey"]
    assert [t.spawn_call is not None and t.background for t in trace.threads[1:]] == [True, True, True]
    assert [c.joins for c in trace.calls_of(0) if c.joins] == [(1,), (2,)] or [
        c.joins for c in trace.calls_of(0) if c.joins
    ] == [(1, 2)]


def test_times_equal_the_wire(recorded: Path) -> None:
    (trace,) = import_path(recorded / RUN / "sessions").traces
    zero = trace.header.started_at or 0.0
    wire = [json.loads(line) for line in (recorded / RUN / "wire.jsonl").read_text().splitlines()]
    ends = sorted(w["t_end"] - zero for w in wire)
    ours = sorted(c.end_s or 0 for c in trace.calls)
    assert ours == pytest.approx(ends, abs=0.15)
    starts = sorted(w["t"] - zero for w in wire)
    # not stored: derived from the last input, so up to 0.35 s early (the client prepares the request)
    assert sorted(c.start_s or 0 for c in trace.calls) == pytest.approx(starts, abs=0.35)


def test_dropped_reasoning_explains_shorter_prompts(recorded: Path) -> None:
    """At a new prompt the server forgets the reasoning of the turn before: the prefix ends where that began."""
    trace = alone(recorded / OLD)
    (call,) = [
        c
        for c in trace.calls
        if c.base is not None and (c.usage.prompt or 0) < (trace.calls[c.id - 1].usage.prompt or 0)
    ]
    sums = trace.prompt_tokens()
    kept = next(tuple(ids) for c, ids in trace.prompts() if c.id == call.id)[: call.keep]
    assert call.usage.cached == 2_560
    assert sum(trace.message_tokens(m) for m in kept) < sums[call.id - 1]


def test_an_image_is_a_stand_in(recorded: Path) -> None:
    trace = alone(recorded / OLD)
    (image,) = [b for b in trace.blocks if b.media]
    assert image.media == "image/png"
    assert image.text is None
    assert 64 <= image.tokens <= 3_587


def test_old_tool_times_come_from_the_output(recorded: Path) -> None:
    trace = alone(recorded / OLD)
    assert sum((r.end_s or 0) > (r.start_s or 0) for r in trace.tool_runs) > 0
    assert {r.mark for r in trace.tool_runs if (r.end_s or 0) > (r.start_s or 0)} == {"derived"}
