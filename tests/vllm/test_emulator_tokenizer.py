"""The emulator with the model's own tokenizer counts every prompt as the real vLLM does: the same ids."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.serve import build

pytest.importorskip("jinja2")
pytest.importorskip("tokenizers")
pytestmark = pytest.mark.vllm

TOOL = {
    "name": "read",
    "description": "Reads é",
    "parameters": {"type": "object", "properties": {"p": {"type": "string"}}},
}
TOOLS = [
    {"type": "function", "function": TOOL},
    {"function": {"parameters": {}, "name": "bare"}, "type": "function", "x": 1},
]
STRICT = [{"type": "function", "function": TOOL | {"strict": False}, "defer_loading": True}]
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"p": "a<b>&é", "n": [1, 2.50]}'}}
SYSTEM = {"role": "system", "content": "Be kind.\nx-anthropic"}
USER = {"role": "user", "content": "read <|im_end|> a.py, please\n\n  now"}
TALK = [
    SYSTEM,
    USER,
    {"role": "assistant", "content": None, "reasoning": "hm\n", "tool_calls": [CALL, CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "x = 1\n"},
    {"role": "assistant", "content": "done\u2028", "tool_calls": []},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
]
BILLING = {"role": "system", "content": "x-anthropic-billing-header: 1\nBe kind."}
BROKEN = CALL | {"function": {"name": "read", "arguments": "{no json"}}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [USER]},
    "whole": {"messages": TALK, "tools": TOOLS},
    "strict": {"messages": TALK, "tools": STRICT},
    "no opening": {"messages": TALK, "add_generation_prompt": False},
    "gone on with": {
        "messages": [USER, {"role": "assistant", "content": "I will "}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "developer": {"messages": [{"role": "developer", "content": "dev"}, USER]},
    "developer later": {"messages": [SYSTEM, USER, {"role": "developer", "content": "dev"}]},
    "billing": {"messages": [BILLING, USER]},
    "broken arguments": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [BROKEN]}, USER]},
    "variables": {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False, "unknown": 1}},
    "special": {"messages": [USER], "add_special_tokens": True},
}
TEXTS = ["", " ", "a", "def f():\n    return 'é🎉'\n", "<|im_start|>user\nx<|im_end|>", "\r\n\t  x" * 40]
ANTHROPIC = {
    "system": [{"type": "text", "text": "x-anthropic-billing-header: 2"}, {"type": "text", "text": "be kind"}],
    "tools": [{"name": "read", "description": "d", "input_schema": {"properties": {}}, "cache_control": {"type": "e"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "a note"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "read", "input": {"p": "é"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]},
                {"type": "text", "text": "go"},
            ],
        },
    ],
}
RESPONSES = {
    "instructions": "be kind",
    "tools": [
        {"type": "function", "name": "read", "description": "d", "parameters": {"type": "object"}, "strict": True}
    ],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "name": "read", "arguments": '{"p":"a"}', "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ],
    "max_output_tokens": 1,
}


class Pair:
    def __init__(self, session: aiohttp.ClientSession, real: str, ours: str) -> None:
        self._session = session
        self._urls = (real, ours)

    async def ask(self, path: str, body: dict[str, Any]) -> list[tuple[int, Any]]:
        """Status and answer of the real server and of the emulator."""
        answers = []
        for url in self._urls:
            async with self._session.post(url + path, json={"model": "tiny"} | body) as response:
                answers.append((response.status, await response.json()))
        return answers


@pytest.fixture
async def pair(vllm_url: str, model_folder) -> AsyncIterator[Pair]:
    flags = ["--served-model-name", "tiny", "--tokenizer", str(model_folder), "--max-model-len", "4096"]
    engine, app = build(parse([*flags, "--gpu", "b200", "--model", "gpt-oss-20b"]), asyncio.get_running_loop())
    server = TestServer(app)
    await server.start_server()
    async with aiohttp.ClientSession() as session:
        yield Pair(session, vllm_url, str(server.make_url("")).rstrip("/"))
    engine.stop()
    await server.close()


async def test_conversations_are_the_same_ids(pair: Pair) -> None:
    for name, body in CONVERSATIONS.items():
        (status, real), (same, ours) = await pair.ask("/tokenize", body)
        assert (same, status) == (200, 200), (name, real, ours)
        assert ours["tokens"] == real["tokens"], name
        assert ours["count"] == real["count"] > 0


async def test_texts_are_the_same_ids(pair: Pair) -> None:
    for text in TEXTS:
        for special in (True, False):
            body = {"prompt": text, "add_special_tokens": special, "return_token_strs": True}
            (_, real), (_, ours) = await pair.ask("/tokenize", body)
            assert ours["tokens"] == real["tokens"], text
            assert ours["token_strs"] == real["token_strs"]
        (_, real_text), (_, our_text) = await pair.ask("/detokenize", {"tokens": real["tokens"]})
        assert our_text["prompt"].replace("<|im_end|>", "") in real_text["prompt"] or not text


async def test_all_three_apis_count_alike(pair: Pair) -> None:
    for choice in ({}, {"tool_choice": {"type": "none"}}, {"tools": None}):
        (status, real), (same, ours) = await pair.ask("/v1/messages/count_tokens", ANTHROPIC | choice)
        assert (same, ours) == (status, real)
        assert status == (200 if choice else 400), "tools without a parser"
    (_, real), (_, ours) = await pair.ask("/v1/responses", RESPONSES)
    assert ours["usage"]["input_tokens"] == real["usage"]["input_tokens"]
    chat = {"messages": TALK, "tools": TOOLS, "tool_choice": "none", "max_tokens": 1}
    (_, real), (_, ours) = await pair.ask("/v1/chat/completions", chat)
    assert ours["usage"]["prompt_tokens"] == real["usage"]["prompt_tokens"]


async def test_what_a_template_refuses_is_refused_alike(pair: Pair) -> None:
    for messages in ([USER, SYSTEM], [{"role": "critic", "content": "x"}]):
        (status, real), (same, ours) = await pair.ask("/v1/chat/completions", {"messages": messages})
        assert status == same == 400
        assert ours["error"]["message"] == real["error"]["message"]
