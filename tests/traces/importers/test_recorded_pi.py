"""The recorded pi session against its independent answer."""

from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

NAME = "pi/large-session.jsonl"


@pytest.fixture(scope="module")
def trace(recorded: Path) -> Trace:
    result = import_path(recorded / NAME)
    assert result.problems == ()
    (trace,) = result.traces
    return trace


def test_counts_equal_the_answer(trace: Trace, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers[NAME]
    usages = [c.usage for c in trace.calls]
    assert len(trace.calls) == answer["llm_requests"]
    # a request stopped before any usage came has none: unknown, not 0
    assert [u.prompt or 0 for u in usages] == answer["prompts"]
    assert sum(u.prompt is None for u in usages) == answer["zero_usage_messages"]
    cached = sum(u.cached or 0 for u in usages)
    assert cached == answer["sum_cacheRead"]
    assert sum(u.prompt or 0 for u in usages) - cached == answer["sum_input"] + answer["sum_cacheWrite"]
    assert sum(u.completion or 0 for u in usages) == answer["sum_output"]
    assert max(u.prompt or 0 for u in usages) == answer["max_prompt_incl_cache"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    assert sum(r.end_s is not None for r in trace.tool_runs) == answer["tool_results"]
    stops = answer["stopReasons"]
    assert sum(c.aborted for c in trace.calls) == stops["aborted"] + stops["error"]
    assert sum(c.stop == "tool_use" for c in trace.calls) == stops["toolUse"]
    assert sum(c.stop == "end_turn" for c in trace.calls) == stops["stop"]
    assert sorted(trace.header.models) == answer["models"]
    assert len(trace.threads) == 1


def test_span_equals_the_answer(trace: Trace, answers: dict[str, dict[str, Any]]) -> None:
    last = max(c.end_s or 0 for c in trace.calls)
    # a message's own time is a few ms before that of its line
    assert last == pytest.approx(answers[NAME]["span_s"], abs=0.01)


def test_prompts_add_up_to_the_recorded_tokens(trace: Trace) -> None:
    assert faults(trace) == []


def test_times_are_recorded(trace: Trace) -> None:
    """Start: the message's own time; end: that of its line. A tool's start is not stored: when the answer ended."""
    assert all(c.marks == {} for c in trace.calls if not c.aborted)
    assert {r.mark for r in trace.tool_runs if r.end_s is not None} == {"derived"}
    call = trace.calls[1]
    assert (call.start_s, call.end_s) == (pytest.approx(49.248, abs=0.01), pytest.approx(53.028, abs=0.001))
    causes = {w.cause for w in trace.waits}
    assert causes >= {"tool", "human"}
    human = sum(w.cause == "human" for w in trace.waits)
    assert human == 87  # 88 prompts, the first of which nothing came before


def test_the_prompt_grows_as_the_cache_says(trace: Trace) -> None:
    """Nearly every call extends the one before: what is kept covers what the provider found in its cache."""
    sums = trace.prompt_tokens()
    prompts = {c.id: ids for c, ids in trace.prompts()}
    for call in trace.calls[1:]:
        if call.usage.cached and call.base is not None:
            kept = sum(trace.message_tokens(m) for m in prompts[call.id][: call.keep])
            # the marked position lies before the end of the prompt, so less than what is kept was found
            assert kept >= call.usage.cached - 64 or call.usage.cached > (trace.calls[call.base].usage.prompt or 0)
    assert sums[trace.calls[-1].id] == trace.calls[-1].usage.prompt


def test_a_cut_off_line_costs_itself(recorded: Path, tmp_path: Path) -> None:
    data = (recorded / NAME).read_bytes()
    path = tmp_path / "cut.jsonl"
    path.write_bytes(data[: len(data) * 6 // 10])
    result = import_path(path)
    (cut,) = result.traces
    assert faults(cut) == []
    last = path.read_bytes().count(b"\n") + 1
    assert (last, "the last line is cut off") in [(p.line, p.reason) for p in result.problems]
