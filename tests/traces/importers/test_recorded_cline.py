"""Every recorded Cline session against its independent answer and what crossed the wire."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import cline, import_path
from windtunnel.traces.model import Trace

RUN = "cline/local-run-3.0.65-errors"
LOCAL = f"{RUN}/sessions/1795956540620_5pr3y/1795956540620_5pr3y.messages.json"
FORKED = "cline/sdk-fixture/1784094124598_rruoq.messages.json"
COMPACTED = "cline/sdk-fixture/agentic.compaction.json"
KEPT_ONLY = "cline/sdk-fixture/basic.compaction.json"
HAND_MADE = "cline/sdk-fixture/success.messages.json"
SHOWN = "cline/ui_messages-coregems.scrubbed.json"
UNCOUNTED = {
    # the answer counts messages with figures; the first answer of this one has none, but a model wrote it: it is a
    # call whose sizes are estimated
    HAND_MADE: 1,
}
SPANS = {
    # 1.3 s in the answer lie between the two answers; what came before each has no time
    HAND_MADE: 1.333,
}


def alone(path: Path) -> Trace:
    (trace,) = cline.read(path).traces
    assert faults(trace) == []
    return trace


def last_time(trace: Trace) -> float:
    return max([c.end_s or 0 for c in trace.calls] + [r.end_s or 0 for r in trace.tool_runs])


@pytest.mark.parametrize("name", [LOCAL, FORKED, COMPACTED, HAND_MADE])
def test_messages_equal_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[name], alone(recorded / name)
    assert len(trace.calls) == answer["assistant_messages"]
    calls = [c for c in trace.calls if c.usage.prompt is not None]
    assert len(calls) == answer["llm_requests"]
    assert len(trace.calls) - len(calls) == UNCOUNTED.get(name, 0)
    assert [c.usage.prompt for c in calls] == answer["prompts"]
    assert sum(c.usage.prompt or 0 for c in calls) == answer["sum_inputTokens"]
    assert sum(c.usage.cached or 0 for c in calls) == answer["sum_cacheReadTokens"]
    assert sum(c.usage.completion or 0 for c in calls) == answer["sum_outputTokens"]
    assert max(c.usage.prompt or 0 for c in calls) == answer["max_prompt_tokens"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    answered = {m.tool_call_id for m in trace.messages if m.role == "tool"}
    assert len(answered) == answer["tool_results"]
    assert sorted(trace.header.models) == answer["models"]
    assert len(trace.threads) == 1
    assert last_time(trace) == pytest.approx(SPANS.get(name, answer["span_s"]), abs=0.001)


def test_kept_messages_of_a_compaction_hold_no_request(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    """Their answers were counted where they were given: these are copies without figures."""
    result = import_path(recorded / KEPT_ONLY)
    assert len(result.traces) == answers[KEPT_ONLY]["llm_requests"] == 0
    assert [p.reason for p in result.problems] == ["holds no request to a model: nothing to replay"]


def test_what_was_shown_equals_the_answer(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[SHOWN], alone(recorded / SHOWN)
    usages = [c.usage for c in trace.calls]
    assert len(usages) == answer["llm_requests"]
    assert [u.prompt for u in usages] == answer["prompts"]
    cached = sum(u.cached or 0 for u in usages)
    assert cached == answer["sum_cacheReads"]
    assert sum(u.prompt or 0 for u in usages) - cached == answer["sum_tokensIn"] + answer["sum_cacheWrites"]
    assert sum(u.completion or 0 for u in usages) == answer["sum_tokensOut"]
    assert max(u.prompt or 0 for u in usages) == answer["max_prompt_tokens_incl_cache"]
    assert sum(c.aborted for c in trace.calls) == answer["cancelled"]["streaming_failed"]
    # 61 tools, 6 commands (2 of them were asked for first) and 6 results: each a call; none is shown twice
    kinds = answer["kinds"]
    shown = kinds["say/tool"] + kinds["say/command"] + kinds["ask/command"] + kinds["say/completion_result"]
    assert len(trace.tool_runs) == shown == 73
    assert any("4 calls start from a context that was compacted" in n for n in trace.header.notes)
    # the log goes on with the client's own entries after the last answer
    assert last_time(trace) == pytest.approx(answer["span_s"], abs=1.0)


def test_a_shortened_history_keeps_its_beginning(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    """Four times the middle of the history was left out, once earlier file texts were replaced: the prompt shrank, its
    first messages stayed."""
    trace = alone(recorded / SHOWN)
    prompts = {c.id: [trace.messages[m] for m in ids] for c, ids in trace.prompts()}
    system = trace.blocks[prompts[0][0].blocks[0]]
    shrunk = [
        c
        for c, before in zip(trace.calls[1:], trace.calls, strict=False)
        if (c.usage.prompt or 0) < (before.usage.prompt or 0) * 0.9
    ]
    assert len(shrunk) == answers[SHOWN]["deleted_ranges"] + 1
    for call in shrunk:
        kept = trace.blocks[prompts[call.id][0].blocks[0]]
        assert kept.digest == system.digest
        # the provider still had the system prompt, and nothing after it was the same
        if call.usage.cached:
            assert kept.tokens == system.tokens == call.usage.cached == 8_096
        assert prompts[call.id][1].role == "user"


def test_the_session_equals_the_wire(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    (trace,) = import_path(recorded / RUN).traces
    zero = trace.header.started_at or 0.0
    lines = [json.loads(line) for line in (recorded / RUN / "wire.jsonl").read_text().splitlines()]
    wire = [w for w in lines if w["kind"] != "ERR"]
    answer = answers[f"{RUN}/wire.jsonl"]
    assert len(trace.calls) == len(wire) == answer["requests_with_tools"]
    assert len(lines) - len(wire) == answer["injected_500"] == 1
    assert len(trace.tool_runs) == answer["tool_calls"]
    for call, request in zip(trace.calls, wire, strict=True):
        used = request["usage"]
        assert (call.usage.prompt, call.usage.cached, call.usage.completion) == (
            used["in"],
            used["cached"],
            used["out"],
        )
        # reasoning is inside the output and not told apart
        assert call.usage.reasoning is None
        late = (call.end_s or 0) - (request["t_end"] - zero)
        assert 0 <= late < 0.16
        # not stored: when the last input came. The request after the failed one was sent again 2 s later
        early = request["t"] - zero - (call.start_s or 0)
        assert 0 < early < (2.2 if request["i"] == 6 else 0.6)
        assert call.marks == {"start": "derived"}
        assert [r.name for r in trace.tool_runs if r.call == call.id] == [name for _, name in request["calls"]]


def test_parallel_tools_end_when_their_message_says(recorded: Path) -> None:
    (trace,) = import_path(recorded / RUN).traces
    first = [r for r in trace.tool_runs if r.call == 0]
    took = [(r.end_s or 0) - (r.start_s or 0) for r in first]
    assert took == pytest.approx([0.136, 0.171, 1.697], abs=0.002)
    assert {r.mark for r in first} == {"derived"}
    # `cat` of a file that is not there; a failing test run counts as a success in this log
    assert [r.error for r in trace.tool_runs].count(True) == 1


def test_the_index_and_the_sessions_give_one_session(recorded: Path) -> None:
    for path in (recorded / RUN, recorded / RUN / "db/sessions.db", recorded / RUN / "sessions"):
        assert [(t.header.id, len(t.calls)) for t in import_path(path).traces] == [("1795956540620_5pr3y", 10)]


def test_a_fork_names_where_it_came_from(recorded: Path) -> None:
    trace = alone(recorded / FORKED)
    assert "begins as a copy of session 1784094053271_p8pzo" in trace.header.notes


@pytest.mark.parametrize("name", [LOCAL, FORKED, SHOWN])
def test_a_cut_off_file_keeps_its_first_requests(name: str, recorded: Path, tmp_path: Path) -> None:
    data = (recorded / name).read_bytes()
    path = tmp_path / Path(name).name
    path.write_bytes(data[: len(data) * 6 // 10])
    result = import_path(path)
    (problem,) = [p for p in result.problems if "cut off" in p.reason]
    assert problem.line is not None
    whole = alone(recorded / name)
    (trace,) = result.traces
    assert faults(trace) == []
    assert 0 < len(trace.calls) < len(whole.calls)
    kept = [c.usage.prompt for c in trace.calls if c.usage.prompt is not None]
    assert kept == [c.usage.prompt for c in whole.calls][: len(kept)]
