"""Tool calls of the emulated model, on all three APIs: the same call, well formed, and only a harmless one."""

import json

import msgspec
import numpy as np
import pytest
from msgspec import Raw

from windtunnel.simulator.emulator.script_calls import drawn
from windtunnel.simulator.emulator.tokenizer import builtin

FLAGS = ("--tool-calls", "1", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
SCHEMA = {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]}
CHAT = [{"type": "function", "function": {"name": "Read", "parameters": SCHEMA}}]
ANTHROPIC = [{"name": "Read", "input_schema": SCHEMA}]
RESPONSES = [{"type": "function", "name": "Read", "parameters": SCHEMA}]
USER = [{"role": "user", "content": "look"}]
WANTED = {"file_path": "README.md"}


async def test_chat(serve) -> None:
    engine = await serve(*FLAGS)
    body = {"messages": USER, "tools": CHAT, "stream_options": {"include_usage": True}}
    events = await engine.stream("/v1/chat/completions", body)
    choices = [e["choices"][0] for e in events[:-1] if e["choices"]]
    deltas = [call for c in choices for call in c["delta"].get("tool_calls", ())]
    assert (deltas[0]["function"]["name"], deltas[0]["type"], deltas[0]["index"]) == ("Read", "function", 0)
    assert deltas[0]["id"].startswith("chatcmpl-tool-")
    assert json.loads("".join(d["function"]["arguments"] for d in deltas)) == WANTED
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["tool_calls"]
    assert not any(c["delta"].get("content") for c in choices)
    _, whole = await engine.post("/v1/chat/completions", {"messages": USER, "tools": CHAT})
    (call,) = whole["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == WANTED
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["usage"]["completion_tokens"] == events[-2]["usage"]["completion_tokens"]
    # Sent back, the call is read as the tokens that it was: all that was computed is found again.
    told = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}, *USER]
    _, after = await engine.post("/v1/chat/completions", {"messages": told, "tools": CHAT, "max_tokens": 1})
    known = whole["usage"]["total_tokens"] - 1
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16


async def test_ids_of_every_token_are_told_where_asked_for(serve) -> None:
    engine = await serve(*FLAGS)
    body = {"messages": USER, "tools": CHAT, "return_token_ids": True, "stream_options": {"include_usage": True}}
    events = await engine.stream("/v1/chat/completions", body)
    ids = [i for e in events[:-1] if e["choices"] for i in e["choices"][0].get("token_ids") or ()]
    assert len(ids) == events[-2]["usage"]["completion_tokens"]
    assert (
        builtin().decode(ids)
        == '\n<tool_call>\n{"name": "Read", "arguments": {"file_path": "README.md"}}\n</tool_call>'
    )


async def test_messages(serve) -> None:
    engine = await serve(*FLAGS)
    body = {"model": "gpt-oss-20b", "max_tokens": 500, "messages": USER, "tools": ANTHROPIC}
    events = await engine.events("/v1/messages", body)
    starts = [data["content_block"] for name, data in events if name == "content_block_start"]
    assert [(s["type"], s["name"], s["input"]) for s in starts] == [("tool_use", "Read", {})]
    parts = [data["delta"] for name, data in events if name == "content_block_delta"]
    assert {p["type"] for p in parts} == {"input_json_delta"}
    assert json.loads("".join(p["partial_json"] for p in parts)) == WANTED
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"
    _, whole = await engine.post("/v1/messages", body)
    assert whole["content"][0]["input"] == WANTED
    assert whole["stop_reason"] == "tool_use"


async def test_responses(serve) -> None:
    engine = await serve(*FLAGS)
    events = await engine.events("/v1/responses", {"input": "look", "tools": RESPONSES})
    names = list(dict.fromkeys(name.removeprefix("response.") for name, _ in events))
    steps = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    assert names == ["created", "in_progress", *steps, "completed"]
    (item,) = events[-1][1]["response"]["output"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "Read", "completed")
    assert json.loads(item["arguments"]) == WANTED
    _, whole = await engine.post("/v1/responses", {"input": "look", "tools": RESPONSES})
    assert whole["output"][0]["arguments"] == item["arguments"]
    _, words = await engine.post("/v1/responses", {"input": "look", "tools": RESPONSES, "tool_choice": "none"})
    assert words["output"][0]["type"] == "message"


async def test_a_pinned_length_is_kept_and_a_cut_call_says_so(serve) -> None:
    engine = await serve(*FLAGS)
    call = await engine.call(True, USER, 40, tools=CHAT)
    assert len(call["ids"]) == 40
    _, cut = await engine.post("/v1/chat/completions", {"messages": USER, "tools": CHAT, "max_tokens": 3})
    assert cut["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("name", ["Write", "rm", "Agent", "apply_patch", "Edit"])
def test_what_changes_things_is_never_called(name: str) -> None:
    tool = Raw(msgspec.json.encode({"function": {"name": name, "parameters": SCHEMA}}))
    prompts = [np.array([n], dtype=np.uint32) for n in range(30)]
    assert all(drawn(prompt, 0, 1.0, [tool], builtin()) is None for prompt in prompts)


def test_the_share_of_calls_is_the_one_asked_for_and_every_draw_is_repeated() -> None:
    tools = [Raw(msgspec.json.encode(tool)) for tool in CHAT]
    prompts = [np.array([n, 7], dtype=np.uint32) for n in range(400)]
    called = [drawn(prompt, 3, 0.25, tools, builtin()) is not None for prompt in prompts]
    assert 70 < sum(called) < 130
    assert called == [drawn(prompt, 3, 0.25, tools, builtin()) is not None for prompt in prompts]
    assert not any(drawn(prompt, 3, 0.0, tools, builtin()) for prompt in prompts)


def test_a_shell_gets_nothing_but_a_list() -> None:
    schema = {"properties": {"cmd": {"type": "string"}, "workdir": {"type": "string"}}, "required": ["cmd"]}
    tool = Raw(msgspec.json.encode({"function": {"name": "exec_command", "parameters": schema}}))
    call = drawn(np.array([1], dtype=np.uint32), 0, 1.0, [tool], builtin())
    assert call is not None
    assert json.loads(call.arguments) == {"cmd": "ls"}
    assert "".join(call.shown) == call.arguments
