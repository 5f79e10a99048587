"""HAR recordings and LiteLLM logs made up for the purpose."""

import base64
import json
from pathlib import Path

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, import_path
from windtunnel.traces.model import Trace

from .workload_logs import (
    FIRST,
    Json,
    anthropic_stream,
    chat_body,
    chat_stream,
    chat_usage,
    entry,
    har,
    lines,
    litellm,
    payloads,
)


def load(path: Path, value: Json | list[Json]) -> Imported:
    path.write_bytes(lines(value) if isinstance(value, list) else json.dumps(value).encode())
    result = import_path(path)
    assert [f for t in result.traces for f in faults(t)] == []
    return result


def check(trace: Trace) -> None:
    assert [(c.usage.prompt, c.usage.cached, c.usage.completion) for c in trace.calls] == [(700, 0, 30), (800, 700, 12)]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0, 2), (6, 7)]
    assert [(w.before, w.cause, w.seconds, w.tools, w.mark) for w in trace.waits] == [
        (1, "tool", 4.0, ("shell",), "derived")
    ]
    roles = [[trace.messages[m].role for m in ids] for _, ids in trace.prompts()]
    assert roles == [["system", "user"], ["system", "user", "assistant", "tool"]]
    assert trace.calls[1].append[0] == trace.calls[0].output
    assert trace.toolsets[trace.calls[0].tools or 0].names == ("shell",)
    asked = trace.messages[trace.calls[0].output or 0].tool_calls
    assert [(c.id, c.name, trace.blocks[c.arguments].text) for c in asked] == [("c1", "shell", '{"cmd":"ls"}')]


def test_a_recording_of_two_turns(tmp_path: Path) -> None:
    result = load(tmp_path / "r.har", har())
    (trace,) = result.traces
    check(trace)
    assert trace.header.agent == "shopper"
    assert [c.first_s for c in trace.calls] == [1.9, 6.9]
    assert [p.reason for p in result.problems] == ["entry 2: the request was answered with status 503 and left out"]


def test_litellm_payloads(tmp_path: Path) -> None:
    result = load(tmp_path / "p.jsonl", payloads())
    assert result.problems == ()
    check(result.traces[0])


def test_a_file_a_call(tmp_path: Path) -> None:
    first = litellm() | {"messages": FIRST, "timestamp": litellm()["timestamp"] - 5, "latency_sec": 2.0}
    first["response"] = payloads()[0]["response"]
    for name, value in (("b.json", first), ("a.json", litellm())):
        (tmp_path / name).write_text(json.dumps(value))
    result = import_path(tmp_path)
    assert result.problems == ()
    (trace,) = result.traces
    check(trace)
    assert trace.calls[0].marks == {"start": "derived"}


def test_a_cut_off_answer_is_kept_as_an_aborted_call(tmp_path: Path) -> None:
    value = har()
    value["log"]["entries"][2]["response"]["content"] = {"text": "", "encoding": "base64"}
    result = load(tmp_path / "r.har", value)
    assert [(c.usage.prompt, c.aborted) for c in result.traces[0].calls] == [(700, False), (None, True)]
    assert "entry 3: the response's body is no answer of a model" in result.problems[-1].reason


def test_anthropic_bodies_in_base64(tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 300}
    body = {
        "model": "claude-x",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Add two numbers."}]}],
    }
    one = entry(1, 500, body, "", path="messages")
    answer = anthropic_stream("Four, I would say.", usage)
    one["response"]["content"] = {"encoding": "base64", "text": base64.b64encode(answer.encode()).decode()}
    result = load(tmp_path / "r.har", {"log": {"entries": [one]}})
    assert result.problems == ()
    (call,) = result.traces[0].calls
    assert (call.usage.prompt, call.usage.cached, call.usage.completion, call.stop) == (510, 300, 40, "end_turn")
    assert call.params.max_tokens == 100


def test_responses_bodies(tmp_path: Path) -> None:
    asked = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}
    words = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the shop."}]}
    done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One file."}]}
    first = {"model": "big", "instructions": "Be brief.", "input": [words]}
    told = {"type": "function_call_output", "call_id": "c1", "output": "adder.py"}
    second = first | {"input": [words, asked, told]}

    def whole(output: Json, prompt: int) -> str:
        usage = {"input_tokens": prompt, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 8}}
        event = {"type": "response.completed", "response": {"model": "big", "output": [output], "usage": usage}}
        return f"event: response.completed\ndata: {json.dumps(event)}\n\n"

    entries = [entry(1, 500, first, whole(asked, 300)), entry(4, 500, second, whole(done, 340))]
    (trace,) = load(tmp_path / "r.har", {"log": {"entries": entries}}).traces
    assert [(c.usage.prompt, c.usage.cached, c.usage.completion) for c in trace.calls] == [(300, 8, 20), (340, 8, 20)]
    assert [(w.cause, w.seconds, w.tools) for w in trace.waits] == [("tool", 2.5, ("shell",))]
    assert len(trace.messages) == len({m.id for m in trace.messages}) == 5


def test_a_rewritten_history_begins_anew_and_a_stranger_is_a_session(tmp_path: Path) -> None:
    value = har()
    summary = [*FIRST, {"role": "user", "content": "Summary: the adder is fixed."}]
    other = [{"role": "system", "content": "You name things."}, {"role": "user", "content": "A name, please"}]
    value["log"]["entries"] += [
        entry(20, 1_000, chat_body(summary), chat_stream(["Good."], chat_usage(650, 600, 5))),
        entry(21, 1_000, {"model": "big", "messages": other}, chat_stream(["Shop."], chat_usage(40, 0, 5))),
    ]
    traces = load(tmp_path / "r.har", value).traces
    assert [[c.usage.prompt for c in t.calls] for t in traces] == [[700, 800, 650], [40]]
    assert [n for n in traces[0].header.notes if n.startswith("1 calls start from a context")]


def test_a_prompt_out_of_a_tool_call_is_a_sub_agent(tmp_path: Path) -> None:
    value = har()
    task = {"index": 0, "id": "c2", "function": {"name": "task", "arguments": '{"prompt": "Count every file there"}'}}
    inner = [{"role": "system", "content": "You count."}, {"role": "user", "content": "Count every file there"}]
    spoken = chat_stream(["Ask."], chat_usage(800, 700, 30), calls=[task])
    value["log"]["entries"][2]["response"]["content"]["text"] = spoken
    body = {"model": "small", "messages": inner}
    value["log"]["entries"].append(entry(9, 1_000, body, chat_stream(["One."], chat_usage(40, 0, 5))))
    (trace,) = load(tmp_path / "r.har", value).traces
    assert [(c.thread, c.usage.prompt) for c in trace.calls] == [(0, 700), (0, 800), (1, 40)]
    assert (trace.threads[1].spawn_call, trace.threads[1].tool_call_id) == (1, "c2")


@pytest.mark.parametrize("cut", [0, 40, 400])
def test_a_truncated_recording(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "r.har"
    path.write_text(json.dumps(har())[:cut])
    result = import_path(path)
    assert result.traces == ()
    assert result.problems
