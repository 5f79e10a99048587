"""The recorded Qwen Code chat against its independent answer and the scripted model's log."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import detect, import_path
from windtunnel.traces.model import Trace

RUN = "qwen-code/local-run"
CHAT = f"{RUN}/chats/00f287c5-0867-45ca-81b0-17145e76d27c.jsonl"
SPAN_S = 28.008
"""The answer (28.094) takes the last assistant record; the response ended 0.09 s before it was written down."""


@pytest.fixture(scope="module")
def trace(recorded: Path) -> Trace:
    result = import_path(recorded / CHAT)
    assert result.problems == ()
    return result.traces[0]


def test_counts_equal_the_answer(trace: Trace, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers[CHAT]
    assert len(trace.calls) == answer["llm_requests"]
    assert sum(c.usage.prompt or 0 for c in trace.calls) == answer["sum_promptTokenCount"]
    assert sum(c.usage.cached or 0 for c in trace.calls) == answer["sum_cachedContentTokenCount"]
    assert sum(c.usage.completion or 0 for c in trace.calls) == answer["sum_candidatesTokenCount"]
    assert sum(c.usage.reasoning or 0 for c in trace.calls) == answer["sum_thoughtsTokenCount"]
    assert max(c.usage.prompt or 0 for c in trace.calls) == answer["max_prompt_tokens"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    assert sum(r.end_s is not None for r in trace.tool_runs) == answer["tool_results"]
    assert len(trace.threads) == 1
    assert [c.kind for c in trace.calls] == ["turn"] * 10


def test_times_come_from_the_telemetry(trace: Trace, answers: dict[str, dict[str, Any]]) -> None:
    lengths = [(c.end_s or 0) - (c.start_s or 0) for c in trace.calls]
    assert sum(lengths) == pytest.approx(answers[CHAT]["sum_api_duration_ms"] / 1000, abs=1e-3)
    runs = [(r.end_s or 0) - (r.start_s or 0) for r in trace.tool_runs]
    assert sum(runs) == pytest.approx(answers[CHAT]["sum_tool_duration_ms"] / 1000, abs=1e-3)
    assert max(c.end_s or 0 for c in trace.calls) == pytest.approx(SPAN_S, abs=1e-3)
    assert sum(r.error for r in trace.tool_runs) == 2
    assert {c.marks.get("end", "recorded") for c in trace.calls} == {"recorded"}


def test_tool_calls_have_the_ids_of_the_wire(recorded: Path, trace: Trace) -> None:
    wire = [json.loads(line) for line in (recorded / RUN / "wire.jsonl").read_text().splitlines()]
    assert [[r.tool_call_id for r in trace.tool_runs if r.call == c.id] for c in trace.calls] == [
        [i for i, _ in w["calls"]] for w in wire if w["kind"] == "LLM"
    ]


def test_prompts_add_up(trace: Trace) -> None:
    assert faults(trace) == []
    assert [c.base for c in trace.calls] == [None, *range(9)]
    assert all(c.append[0] == trace.calls[c.id - 1].output for c in trace.calls[1:])


def test_it_is_not_taken_for_claude_code(recorded: Path) -> None:
    assert detect(recorded / CHAT) == "qwen-code"
