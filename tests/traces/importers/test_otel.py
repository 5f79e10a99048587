"""OpenTelemetry exports made up for the purpose."""

import json
from pathlib import Path

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, import_path
from windtunnel.traces.model import Trace

from .workload_logs import Json, batch, lines, otel, otel_events, span


def load(path: Path, records: list[Json]) -> Imported:
    path.write_bytes(lines(records))
    result = import_path(path)
    assert [f for t in result.traces for f in faults(t)] == []
    return result


def words(trace: Trace, call: int) -> list[tuple[str, list[str | None]]]:
    ids = next(m for c, m in trace.prompts() if c.id == call)
    return [(trace.messages[m].role, [trace.blocks[b].text for b in trace.messages[m].blocks]) for m in ids]


def check(trace: Trace) -> None:
    assert (trace.header.agent, trace.header.agent_version, trace.header.models) == ("shopper", "3", ("big", "small"))
    assert [(c.thread, c.usage.prompt, c.usage.cached, c.usage.completion) for c in trace.calls] == [
        (0, 900, 100, 30),
        (0, 960, None, 20),
        (1, 400, None, 10),
    ]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0.5, 2.5), (5, 6.5), (8.5, 17.5)]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [(1, "tool", 2.0), (1, "client", 0.5)]
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs if r.name == "shell"] == [("shell", 2.5, 4.5)]


def test_spans_of_a_turn_with_a_tool_and_a_sub_agent(tmp_path: Path) -> None:
    result = load(tmp_path / "s.jsonl", otel())
    assert result.problems == ()
    (trace,) = result.traces
    check(trace)
    assert trace.threads[1].name == "looker"
    assert words(trace, 1)[-1] == ("tool", ["adder.py"])
    assert [role for role, _ in words(trace, 1)] == ["system", "user", "assistant", "tool"]


def test_a_batch_in_one_document(tmp_path: Path) -> None:
    spans = [s["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for s in otel()]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(batch(spans), indent=1))
    (trace,) = import_path(path).traces
    check(trace)
    path.write_text(json.dumps(batch(spans), indent=1)[:-200])
    result = import_path(path)
    assert [len(t.calls) for t in result.traces] == [3]
    assert any("cut off" in p.reason for p in result.problems)


def test_spans_without_messages_are_told_apart_by_their_tools(tmp_path: Path) -> None:
    spans = [
        span("a", "root", 1, 2, "chat", usage__input_tokens=100, usage__output_tokens=40),
        span("t", "root", 2, 6, "execute_tool", tool__name="grep", tool__call__arguments='{"for": "adder"}'),
        span("b", "root", 6, 7, "chat", usage__input_tokens=250, usage__output_tokens=30),
        span("root", "", 1, 7, "invoke_agent"),
        span("c", "again", 60, 61, "chat", usage__input_tokens=300, usage__output_tokens=10),
        span("again", "", 58, 61, "invoke_agent"),
    ]
    (trace,) = load(tmp_path / "s.jsonl", [batch(spans)]).traces
    assert [(w.before, w.cause, w.seconds, w.tools) for w in trace.waits] == [
        (1, "tool", 4.0, ("grep",)),
        (2, "human", 51.0, ()),
        (2, "client", 2.0, ()),
    ]
    first = trace.messages[trace.calls[0].output or 0]
    assert trace.blocks[first.tool_calls[0].arguments].text == '{"for": "adder"}'


def test_a_conversation_goes_on_in_the_next_file(tmp_path: Path) -> None:
    load(tmp_path / "1.jsonl", otel()[:3])
    load(tmp_path / "2.jsonl", otel()[3:])
    (trace,) = import_path(tmp_path).traces
    check(trace)


def test_claude_code_events(tmp_path: Path) -> None:
    result = load(tmp_path / "e.jsonl", otel_events())
    (trace,) = result.traces
    turns = [c for c in trace.calls if c.kind == "turn"]
    assert [(c.usage.prompt, c.usage.cached, c.usage.completion) for c in turns] == [(610, 500, 60), (690, 600, 20)]
    assert [(c.start_s, c.end_s) for c in turns] == [(0.5, 3.0), (8.0, 11.0)]
    (title,) = [c for c in trace.calls if c.kind == "auxiliary"]
    assert (title.usage.prompt, title.usage.completion, title.keep) == (5, 9, 0)
    prompts = {c.id: tuple(ids) for c, ids in trace.prompts()}
    assert prompts[turns[1].id][:2] == prompts[turns[0].id]
    assert [(w.cause, w.seconds) for w in trace.waits if w.before == turns[1].id] == [("tool", 1.5), ("client", 2.5)]
    assert [p.reason for p in result.problems] == ["a request that failed is not part of the session"]


def test_a_sub_agent_in_events_runs_inside_its_tool(tmp_path: Path) -> None:
    records = otel_events()[:3]
    inner = json.loads(json.dumps(records[1]))
    inner["ts"] = "2026-02-03T04:05:06.000Z"
    inner["attrs"] |= {"query_source": "agent:builtin:Explore", "duration_ms": 1_000}
    ran = json.loads(json.dumps(otel_events()[3]))
    ran["attrs"] |= {"tool_name": "Task", "duration_ms": 3_900}
    (trace,) = load(tmp_path / "e.jsonl", [*records, inner, ran]).traces
    assert [(c.thread, c.start_s, c.joins) for c in trace.calls] == [(0, 0.5, ()), (1, 4.0, ()), (0, 8.0, (1,))]
    assert (trace.threads[1].name, trace.threads[1].spawn_call) == ("agent:builtin:Explore", 0)
