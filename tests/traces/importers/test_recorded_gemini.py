"""Every recorded Gemini CLI chat against its independent answer."""

from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

RUN = "gemini/local-run-0.61.0"
LOCAL = f"{RUN}/chats/session-2026-11-29T12-46-10ef9c99.jsonl"
MERGED = "gemini/session-2026-01-16T11-01-file-ops-37b7abef.json"
FILES = ("gemini/session-2025-10-27T19-55-981c87cb.json", MERGED, LOCAL)
PROBLEMS = {
    # answers that only ran tools were added to the message before, their usage with them
    MERGED: ["2 further answers", "1 further answers", "1 further answers"],
}


def load(path: Path) -> Trace:
    return import_path(path).traces[0]


@pytest.mark.parametrize("name", FILES)
def test_counts_equal_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, result = answers[name], import_path(recorded / name)
    (trace,) = result.traces
    assert len(trace.calls) == answer["llm_requests"]
    assert [c.usage.prompt for c in trace.calls] == answer["prompts"]
    assert sum(c.usage.prompt or 0 for c in trace.calls) == answer["sum_input"]
    assert sum(c.usage.cached or 0 for c in trace.calls) == answer["sum_cached"]
    assert sum(c.usage.reasoning or 0 for c in trace.calls) == answer["sum_thoughts"]
    # the source counts thoughts apart from the output; a trace's completion has both
    assert sum(c.usage.completion or 0 for c in trace.calls) == answer["sum_output"] + answer["sum_thoughts"]
    assert max(c.usage.prompt or 0 for c in trace.calls) == answer["max_prompt_tokens"]
    assert trace.calls[0].usage.prompt == answer["first_prompt_tokens"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    assert sum(r.error for r in trace.tool_runs) == answer["tool_status"].get("error", 0)
    assert list(trace.header.models) == answer["models"]
    assert len(trace.threads) == 1
    reasons = [p.reason for p in result.problems]
    assert all(r.startswith(p) for r, p in zip(reasons, PROBLEMS.get(name, []), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_span_equals_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    trace = load(recorded / name)
    last = max([c.end_s or 0 for c in trace.calls] + [r.end_s or 0 for r in trace.tool_runs])
    assert last == pytest.approx(answers[name]["span_s"], abs=0.003)


@pytest.mark.parametrize("name", FILES)
def test_prompts_add_up(name: str, recorded: Path) -> None:
    trace = load(recorded / name)
    assert faults(trace) == []
    assert not any("shorter" in n for n in trace.header.notes)


def test_results_are_not_taken_twice(recorded: Path) -> None:
    """The later layout has each result twice: with its call and as a message of its own."""
    trace = load(recorded / LOCAL)
    results = [
        m.tool_call_id for c in trace.calls for m in map(trace.messages.__getitem__, c.append) if m.role == "tool"
    ]
    assert len(results) == len(set(results)) == len(trace.tool_runs)


def test_a_person_approves_or_types(recorded: Path) -> None:
    trace = load(recorded / FILES[0])
    waits = {(w.before, w.cause): w.seconds for w in trace.waits}
    assert waits[2, "tool"] == pytest.approx(941.605)
    assert [b for b, cause in waits if cause == "human"] == [3, 4]
    assert waits[4, "human"] == pytest.approx(2.322)
