"""Gemini CLI chats made up for the purpose."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

from .agent_logs import (
    Json,
    gemini_answer,
    gemini_document,
    gemini_head,
    gemini_log,
    gemini_messages,
    gemini_tool,
    gemini_user,
)


def write(path: Path, log: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    many = isinstance(log, list)
    path.write_text("".join(json.dumps(r) + "\n" for r in log) if many else json.dumps(log, indent=1))
    return path


def load(tmp_path: Path, log: Any) -> Trace:
    suffix = "jsonl" if isinstance(log, list) else "json"
    result = import_path(write(tmp_path / "chats" / f"session-1.{suffix}", log))
    assert result.problems == ()
    (trace,) = result.traces
    assert faults(trace) == []
    return trace


def texts(trace: Trace, call: int) -> list[str | None]:
    return [trace.blocks[b].text for m in trace.calls[call].append for b in trace.messages[m].blocks]


@pytest.mark.parametrize("log", [gemini_log(), gemini_document()], ids=["log", "document"])
def test_both_layouts_say_the_same(log: Any, tmp_path: Path) -> None:
    trace = load(tmp_path, log)
    assert (trace.header.agent, trace.header.id) == ("gemini-cli", "g-1")
    assert trace.header.title == "Fix the adder in the shop"
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_200, 5_260]
    assert [(c.usage.completion, c.usage.reasoning) for c in trace.calls] == [(90, 30), (40, 0), (12, 0)]
    assert [c.marks.get("completion") for c in trace.calls] == ["derived", None, None]
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [
        ("read_file", 4.0, 7.0),
        ("run_shell_command", 4.0, 7.0),
    ]
    roles = [trace.messages[m].role for m in trace.calls[1].append]
    assert roles == ["assistant", "tool", "tool"]
    assert [(w.before, w.cause) for w in trace.waits] == [(1, "tool"), (2, "human")]


def test_a_rewind_keeps_the_requests_and_takes_their_text_back(tmp_path: Path) -> None:
    log = [
        *gemini_log()[:-2],
        {"$rewindTo": "m1"},
        gemini_user(40, "m7", "Do it otherwise"),
        gemini_answer(43, "m8", "Otherwise.", (5_100, 0, 10, 0)),
    ]
    trace = load(tmp_path, log)
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_200, 5_100]
    assert trace.calls[2].keep == 1
    assert [t for t in texts(trace, 2) if t] == ["<session_context>\nToday is Tuesday.", "Do it otherwise"]


def test_a_compressed_context_replaces_the_messages(tmp_path: Path) -> None:
    summary = gemini_user(20, "s1", [{"text": "<state_snapshot>What was done</state_snapshot>"}])
    accepted: Json = {"id": "s2", "type": "gemini", "content": [{"text": "Understood."}]}
    log = gemini_log()
    log[-2:-2] = [{"$set": {"messages": [summary, accepted]}}]
    log[-1] = gemini_answer(33, "m6", "Changed.", (5_100, 0, 12, 0))
    trace = load(tmp_path, log)
    assert len(trace.calls) == 3
    assert trace.calls[2].keep == 1
    said = [t for t in texts(trace, 2) if t]
    assert said == ["<state_snapshot>What was done</state_snapshot>", "Understood.", "Then change it"]
    assert any("compacted" in n for n in trace.header.notes)


def test_a_list_that_only_adds_is_no_new_context(tmp_path: Path) -> None:
    log = gemini_log()
    log.insert(-2, {"$set": {"messages": gemini_messages()[:5]}})
    assert load(tmp_path, log).calls[2].base == 1
    assert "compacted" not in " ".join(load(tmp_path, log).header.notes)


def test_tools_of_answers_that_left_no_message(tmp_path: Path) -> None:
    log = gemini_log()
    answer = next(r for r in log if "toolCalls" in r)
    answer["toolCalls"].append(gemini_tool(12, "t3", "glob", "adder.py"))
    result = import_path(write(tmp_path / "session-1.jsonl", log[:-3]))
    (trace,) = result.traces
    assert [(r.name, r.start_s) for r in trace.tool_runs] == [
        ("read_file", 4.0),
        ("run_shell_command", 4.0),
        ("glob", None),
    ]
    reason = "1 further answers that only ran tools are merged into this one: their usage is lost"
    assert [(p.line, p.reason) for p in result.problems] == [(6, reason)]


def test_a_document_that_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "session-1.json", gemini_document())
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b'"Changed."')])
    result = import_path(path)
    (trace,) = result.traces
    assert [c.usage.prompt for c in trace.calls][:2] == [5_000, 5_200]
    lines = data[: data.index(b'"Changed."')].count(b"\n") + 1
    assert [p.line for p in result.problems if "cut off" in p.reason] == [lines]


def test_a_missing_time_leaves_a_wait_unknown(tmp_path: Path) -> None:
    document = gemini_document()
    for tool in document["messages"][1]["toolCalls"]:
        del tool["timestamp"]
    trace = import_path(write(tmp_path / "session-1.json", document)).traces[0]
    assert next((w.before, w.cause, w.seconds, w.mark) for w in trace.waits) == (1, "tool", None, "estimated")
    assert (trace.calls[1].start_s, trace.calls[1].marks.get("start")) == (None, None)


def sub_agent(tmp_path: Path, agent: str | None, asked: float = 4.5) -> Trace:
    """A sub-agent's chat in its parent's folder; `agent` is what the parent's call names."""
    log = gemini_log()
    for record in log:
        for tool in record.get("toolCalls", []):
            if tool["id"] == "t2":
                tool.update(name="invoke_agent", **({"agentId": agent} if agent else {}))
    write(tmp_path / "chats" / "session-1.jsonl", log)
    inner = [
        gemini_head("g-2", kind="subagent"),
        gemini_user(asked, "n1", "Look for the adder"),
        gemini_answer(6.5, "n2", "In adder.py.", (2_000, 0, 20, 0)),
    ]
    write(tmp_path / "chats" / "g-1" / "g-2.jsonl", inner)
    result = import_path(tmp_path)
    assert result.problems == ()
    (trace,) = result.traces
    return trace


@pytest.mark.parametrize("agent", ["g-2", None])
def test_a_sub_agent_is_a_thread_of_its_parent(agent: str | None, tmp_path: Path) -> None:
    trace = sub_agent(tmp_path, agent)
    assert faults(trace) == []
    assert [(t.name, t.parent, t.spawn_call, t.tool_call_id) for t in trace.threads[1:]] == [("agent", 0, 0, "t2")]
    assert [c.joins for c in trace.calls_of(0)] == [(), (1,), ()]
    before = trace.calls_of(0)[1].id
    assert [(w.cause, w.seconds) for w in trace.waits if w.before == before] == [("subagent", 3.0), ("tool", 0.0)]
    # a parent speaks in it, no person
    assert trace.header.title == "Fix the adder in the shop"


def test_one_file_brings_its_sub_agents_along(tmp_path: Path) -> None:
    whole = sub_agent(tmp_path, "g-2")
    alone = import_path(tmp_path / "chats" / "session-1.jsonl").traces[0]
    assert alone.calls == whole.calls


def test_a_chat_that_went_on_in_the_later_layout_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "session-1.json", gemini_document())
    write(tmp_path / "session-1.jsonl", gemini_log())
    result = import_path(tmp_path)
    assert len(result.traces) == 1
    assert [(Path(p.file).name, p.reason) for p in result.problems] == [
        ("session-1.json", "was left out: session-1.jsonl beside it goes on with this chat")
    ]
