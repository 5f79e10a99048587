"""Qwen Code chats made up for the purpose."""

import json
from pathlib import Path

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, import_path
from windtunnel.traces.model import Trace

from .agent_logs import (
    Json,
    call_part,
    chained,
    qwen_answer,
    qwen_event,
    qwen_log,
    qwen_response,
    qwen_result,
    qwen_run,
    qwen_user,
    stamp,
)

DONE = (6_000, 5_000, 20, 0)


def write(path: Path, log: list[Json]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in log))
    return path


def load(tmp_path: Path, log: list[Json]) -> Trace:
    result = import_path(write(tmp_path / "chats" / "q-1.jsonl", log))
    assert result.problems == ()
    (trace,) = result.traces
    return trace


def agent_log() -> list[Json]:
    """A sub-agent's two requests between the call of the `agent` tool and its result."""
    ask, task = (5_000, 0, 50, 0), "Find the adder and say where it is"
    return chained(
        [
            qwen_user(1, "Where is the adder?"),
            qwen_response(4, 2_500, ask),
            qwen_answer(4.1, [call_part("a1", "agent", prompt=task, subagent_type="explore")], ask),
            qwen_response(7, 2_000, (3_000, 0, 30, 0), prompt_id="q-1#explore-x#0", subagent_name="explore"),
            qwen_response(11, 3_000, (3_200, 2_900, 20, 0), prompt_id="q-1#explore-x#1", subagent_name="explore"),
            qwen_run(11.5, 7_000, "agent", 4, prompt=task, subagent_type="explore"),
            qwen_result(11.6, "a1", "agent", "It is in adder.py."),
            qwen_response(14, 2_000, DONE),
            qwen_answer(14.1, [{"text": "In adder.py."}], DONE),
        ]
    )


def test_a_session(tmp_path: Path) -> None:
    trace = load(tmp_path, qwen_log())
    assert faults(trace) == []
    assert (trace.header.agent, trace.header.agent_version) == ("qwen-code", "0.15.10")
    assert (trace.header.id, trace.header.title) == ("q-1", "Fix the adder in the shop")
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_200, 5_260]
    assert [c.usage.cached for c in trace.calls] == [0, 4_096, 5_120]
    assert [(c.usage.completion, c.usage.reasoning) for c in trace.calls] == [(90, 30), (40, 0), (12, 0)]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0.5, 3.0), (6.5, 8.0), (30.0, 32.0)]
    assert [(r.start_s, r.end_s) for r in trace.tool_runs] == [(3.3, 3.5), (4.0, 6.0)]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [
        (1, "tool", 2.2),
        (1, "client", 1.3),
        (2, "human", 21.0),
        (2, "client", 1.0),
    ]


def test_thoughts_counted_apart_are_added(tmp_path: Path) -> None:
    """Google's own API does not count thoughts as candidates: the total says so."""
    log = qwen_log()
    log[2]["usageMetadata"]["totalTokenCount"] += 30
    call = load(tmp_path, log).calls[0]
    assert (call.usage.completion, call.usage.reasoning, call.marks["completion"]) == (120, 30, "derived")


def test_a_request_beside_the_conversation_is_auxiliary(tmp_path: Path) -> None:
    log = qwen_log()
    log.insert(9, qwen_response(9.5, 300, (400, 0, 6, 0), response_text="Fix the adder"))
    trace = load(tmp_path, log)
    assert [(c.kind, c.thread, c.usage.prompt) for c in trace.calls] == [
        ("turn", 0, 5_000),
        ("turn", 0, 5_200),
        ("auxiliary", 0, 400),
        ("turn", 0, 5_260),
    ]
    assert len(trace.threads) == 1
    assert [trace.blocks[b].digest for m in trace.calls[3].append for b in trace.messages[m].blocks][:2] == [
        trace.blocks[b].digest for m in trace.calls[0].append for b in trace.messages[m].blocks
    ]
    assert trace.blocks[trace.messages[trace.calls[2].output or 0].blocks[0]].text == "Fix the adder"


def test_a_compaction_and_what_comes_after_it(tmp_path: Path) -> None:
    log = qwen_log()
    summary = {"role": "user", "parts": [{"text": "What was done: " * 40}]}
    payload = {"info": {"originalTokenCount": 5_240}, "compressedHistory": [summary]}
    log[9:9] = [
        qwen_response(20, 4_000, (5_300, 5_120, 200, 0)),
        {"timestamp": stamp(20.1), "type": "system", "subtype": "chat_compression", "systemPayload": payload},
    ]
    trace = load(tmp_path, log)
    assert [(c.kind, c.usage.prompt) for c in trace.calls] == [
        ("turn", 5_000),
        ("turn", 5_200),
        ("compaction", 5_300),
        ("turn", 5_260),
    ]
    said = [trace.blocks[b].text for m in trace.calls[3].append for b in trace.messages[m].blocks]
    assert [t for t in said if t] == ["What was done: " * 40, "Then change it"]
    assert faults(trace) == []


def test_a_rewound_conversation_goes_on_from_there(tmp_path: Path) -> None:
    log = qwen_log()
    log[9]["parentUuid"] = "u-0"
    trace = load(tmp_path, log)
    last = trace.calls[2]
    said = [trace.blocks[b].text for m in last.append for b in trace.messages[m].blocks]
    assert [t for t in said if t] == ["Fix the adder in the shop", "Then change it"]
    assert any("went back to an earlier point" in n for n in trace.header.notes)
    assert faults(trace) == []


def test_a_lost_record_leaves_its_figures(tmp_path: Path) -> None:
    log = qwen_log()
    del log[2]
    result = import_path(write(tmp_path / "q-1.jsonl", log))
    (trace,) = result.traces
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_200, 5_260]
    assert [c.kind for c in trace.calls] == ["turn"] * 3
    assert [(p.line, p.reason[:31]) for p in result.problems] == [(2, "the answer's own record is miss")]


def test_a_log_cut_in_its_last_record(tmp_path: Path) -> None:
    path = write(tmp_path / "q-1.jsonl", qwen_log())
    path.write_bytes(path.read_bytes()[:-150])
    result = import_path(path)
    (trace,) = result.traces
    assert [(c.kind, c.usage.completion) for c in trace.calls] == [("turn", 90), ("turn", 40), ("turn", 12)]
    assert next((p.line, p.reason) for p in result.problems) == (12, "the last line is cut off")


def test_a_response_without_usage_is_estimated(tmp_path: Path) -> None:
    log = [r for r in qwen_log() if r["type"] != "system"]
    for record in log:
        record.pop("usageMetadata", None)
    result = import_path(write(tmp_path / "q-1.jsonl", log))
    (trace,) = result.traces
    assert {(c.marks["prompt"], c.marks["completion"], c.marks["end"]) for c in trace.calls} == {
        ("estimated", "estimated", "derived")
    }
    assert [p.line for p in result.problems] == [2, 5, 7]
    assert faults(trace) == []


def test_a_sub_agent_that_only_telemetry_tells_of(tmp_path: Path) -> None:
    trace = load(tmp_path, agent_log())
    assert faults(trace) == []
    assert [(t.name, t.parent, t.spawn_call, t.background) for t in trace.threads] == [
        (None, None, None, False),
        ("explore", 0, 0, False),
    ]
    assert [(c.thread, c.usage.prompt) for c in trace.calls] == [(0, 5_000), (1, 3_000), (1, 3_200), (0, 6_000)]
    assert trace.calls[3].joins == (1,)
    assert trace.tool_runs[0].thread == 1
    assert [(w.before, w.cause, w.seconds) for w in trace.waits if w.before == 3] == [
        (3, "subagent", 7.5),
        (3, "client", 0.5),
    ]


def transcript() -> list[Json]:
    """The text of that sub-agent: each tool call is a record of its own, usage stands with text only."""
    base = {"agentId": "explore-7f3c", "agentName": "explore", "isSidechain": True}
    usage = (3_200, 2_900, 20, 0)
    return [
        {**record, **base}
        for record in chained(
            [
                qwen_user(4.9, "Find the adder and say where it is"),
                qwen_answer(7.1, [call_part("b1", "grep", pattern="def add")], None),
                qwen_answer(7.2, [call_part("b2", "glob", pattern="*.py")], None),
                qwen_result(7.4, "b1", "grep", "adder.py:1"),
                qwen_result(7.5, "b2", "glob", "adder.py"),
                qwen_answer(11.1, [{"text": "In adder.py."}], usage),
            ]
        )
    ]


def with_transcript(tmp_path: Path, **meta: object) -> Imported:
    write(tmp_path / "chats" / "q-1.jsonl", agent_log())
    path = write(tmp_path / "subagents" / "q-1" / "agent-explore-7f3c.jsonl", transcript())
    path.with_suffix(".meta.json").write_text(json.dumps({"agentType": "explore", **meta}))
    return import_path(tmp_path)


def test_a_sub_agent_with_a_transcript(tmp_path: Path) -> None:
    result = with_transcript(tmp_path, toolUseId="a1")
    assert result.problems == ()
    (trace,) = result.traces
    assert faults(trace) == []
    assert [(t.name, t.spawn_call) for t in trace.threads] == [(None, None), ("explore", 0)]
    inner = trace.calls_of(1)
    assert [(c.usage.prompt, c.usage.completion) for c in inner] == [(3_000, 30), (3_200, 20)]
    assert [c.name for c in trace.messages[inner[0].output or 0].tool_calls] == ["grep", "glob"]
    assert [r.name for r in trace.tool_runs] == ["agent", "grep", "glob"]
    assert [w.cause for w in trace.waits if w.before == inner[1].id] == ["tool", "client"]


def test_a_transcript_that_does_not_fit_the_telemetry(tmp_path: Path) -> None:
    write(tmp_path / "chats" / "q-1.jsonl", agent_log())
    write(tmp_path / "subagents" / "q-1" / "agent-explore-7f3c.jsonl", transcript()[:5])
    result = import_path(tmp_path)
    (trace,) = result.traces
    assert [c.usage.prompt for c in trace.calls_of(1)] == [3_000, 3_200]
    reason = "tells of another number of requests than the session's telemetry: its text is lost"
    assert [p.reason for p in result.problems] == [reason]


def test_a_background_agent_is_not_waited_for(tmp_path: Path) -> None:
    (trace,) = with_transcript(tmp_path, toolUseId="a1", isBackgrounded=True).traces
    assert trace.threads[1].background
    assert [c.joins for c in trace.calls] == [()] * 4


def test_equal_tool_ids_of_two_threads_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "chats" / "q-1.jsonl", agent_log())
    text = json.dumps(transcript()).replace('"b1"', '"a1"')
    write(tmp_path / "subagents" / "q-1" / "agent-explore-7f3c.jsonl", json.loads(text))
    (trace,) = import_path(tmp_path).traces
    assert [r.tool_call_id for r in trace.tool_runs] == ["a1", "a1@agent-explore-7f3c", "b2"]
    assert [trace.calls[r.call].thread for r in trace.tool_runs] == [0, 1, 1]


def test_a_failed_request_is_none(tmp_path: Path) -> None:
    log = qwen_log()
    log.insert(1, qwen_event(2, "api_error", error_message="500", duration_ms=500))
    assert len(load(tmp_path, log).calls) == 3


def test_a_missing_time_leaves_a_wait_unknown(tmp_path: Path) -> None:
    log = [r for r in qwen_log() if r["type"] != "system"]
    for record in log:
        if record["type"] == "tool_result":
            del record["timestamp"]
    result = import_path(write(tmp_path / "q-1.jsonl", log))
    (trace,) = result.traces
    assert next((w.before, w.cause, w.seconds) for w in trace.waits) == (1, "tool", None)
    assert sum("no usable timestamp" in p.reason for p in result.problems) == 2
