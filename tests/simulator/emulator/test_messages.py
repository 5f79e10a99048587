"""Anthropic's Messages: shapes, counts and refusals as vLLM 0.32 was seen to give them for the same requests."""

import pytest

USER = [{"role": "user", "content": "Say hello to the file and then stop.\n" * 12}]
TOOL = {"name": "Read", "description": "Reads a file", "input_schema": {"properties": {"path": {"type": "string"}}}}
HISTORY = [
    {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "x"},
            {"type": "text", "text": "let me"},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [{"type": "text", "text": t} for t in ("one", "two")],
            },
            {"type": "text", "text": "go on"},
        ],
    },
]
AS_CHAT = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "reasoning": "hmm",
        "content": "let me",
        "tool_calls": [{"type": "function", "id": "t1", "function": {"name": "Read", "arguments": '{"path": "a"}'}}],
    },
    {"role": "tool", "tool_call_id": "t1", "content": "one\ntwo"},
    {"role": "user", "content": "go on"},
]
PARSER = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


def ask(**more):
    return {"model": "gpt-oss-20b", "max_tokens": 6, "messages": USER} | more


async def test_a_stream_has_the_events_of_vllms(serve) -> None:
    engine = await serve()
    events = await engine.events("/v1/messages?beta=true", ask(), **{"X-Request-Id": "r1"})
    names = [name for name, _ in events]
    assert names == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 6,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [data["type"] for _, data in events] == names
    prompt = events[0][1]["message"]["usage"]["input_tokens"]
    assert events[0][1]["message"] == {
        "id": "chatcmpl-r1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "gpt-oss-20b",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": prompt, "output_tokens": 0},
    }
    assert events[1][1]["content_block"] == {"type": "text", "text": ""}
    assert all(data["delta"]["text"] and data["index"] == 0 for _, data in events[2:8])
    assert events[-2][1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    created = prompt // 16 * 16
    assert events[-2][1]["usage"] == {
        "input_tokens": prompt - created,
        "output_tokens": 6,
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": 0,
    }
    (again,) = [data["usage"] for name, data in await engine.events("/v1/messages", ask()) if name == "message_delta"]
    assert again["cache_read_input_tokens"] == created
    assert again["input_tokens"] + created == prompt


async def test_a_whole_answer_equals_the_streamed_one(serve) -> None:
    engine = await serve()
    events = await engine.events("/v1/messages", ask(max_tokens=5000))
    text = "".join(data["delta"]["text"] for name, data in events if name == "content_block_delta")
    status, whole = await engine.post("/v1/messages", ask(max_tokens=5000))
    assert (status, whole["type"], whole["role"]) == (200, "message", "assistant")
    assert whole["content"] == [{"type": "text", "text": text}]
    assert whole["stop_reason"] == "end_turn" == events[-2][1]["delta"]["stop_reason"]
    assert "stop_sequence" not in whole, "vLLM leaves out what is null"
    assert sum(whole["usage"][k] for k in ("input_tokens", "cache_read_input_tokens")) > 100


async def test_a_conversation_counts_as_the_chat_that_vllm_makes_of_it(serve) -> None:
    engine = await serve(*PARSER)
    function = {"name": "Read", "description": "Reads a file", "parameters": TOOL["input_schema"] | {"type": "object"}}
    chat = {"messages": AS_CHAT, "tools": [{"type": "function", "function": function}]}
    _, tokens = await engine.post("/tokenize", chat)
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cch=1"},
        {"type": "text", "text": "be "},
        {"type": "text", "text": "kind"},
    ]
    body = {"model": "gpt-oss-20b", "system": system, "messages": HISTORY, "tools": [TOOL]}
    _, count = await engine.post("/v1/messages/count_tokens", body)
    assert count == {
        "input_tokens": tokens["count"],
        "context_management": {"original_input_tokens": tokens["count"]},
    }
    events = await engine.events("/v1/messages", body | {"max_tokens": 3})
    assert events[0][1]["message"]["usage"]["input_tokens"] == tokens["count"]


async def test_system_messages_stand_where_they_were_sent(serve) -> None:
    engine = await serve()
    said = [{"role": "user", "content": "a"}, {"role": "system", "content": "note"}, {"role": "user", "content": "b"}]
    _, count = await engine.post("/v1/messages/count_tokens", {"model": "gpt-oss-20b", "messages": said})
    _, tokens = await engine.post("/tokenize", {"messages": said})
    assert count["input_tokens"] == tokens["count"]


async def test_without_details_nothing_is_said_of_the_cache(serve) -> None:
    engine = await serve("--no-enable-prompt-tokens-details")
    _, whole = await engine.post("/v1/messages", ask())
    assert sorted(whole["usage"]) == ["input_tokens", "output_tokens"]


OPENAI, ANTHROPIC = "Bad Request", "BadRequestError"
REFUSED = [
    ({"messages": USER, "model": "gpt-oss-20b"}, 400, OPENAI, "body.max_tokens: Field required"),
    (ask(max_tokens=0), 400, OPENAI, "max_tokens must be positive"),
    (ask(messages=[{"role": "robot", "content": "x"}]), 400, OPENAI, "robot"),
    (ask(messages=[{"role": "user", "content": [{"type": "odd"}]}]), 400, OPENAI, "'odd'"),
    (ask(thinking={"type": "enabled", "budget_tokens": 1024}), 400, OPENAI, "budget_tokens must be less than"),
    (ask(model="nope"), 404, "NotFoundError", "The model `nope` does not exist."),
    (ask(max_tokens=100_000), 400, ANTHROPIC, "max_completion_tokens=100000 cannot be greater than max_model_len=512"),
    (ask(tools=[TOOL]), 400, ANTHROPIC, '"auto" tool choice requires --enable-auto-tool-choice'),
    (ask(messages=[{"role": "user", "content": "w\n" * 9000}]), 400, ANTHROPIC, "maximum context length is 512 tokens"),
]


@pytest.mark.parametrize(("body", "status", "kind", "message"), REFUSED)
async def test_refusals_have_the_shape_of_their_sender(serve, body, status, kind, message) -> None:
    engine = await serve("--max-model-len", "512")
    got, answer = await engine.post("/v1/messages", body)
    assert got == status
    assert answer["error"]["type"] == kind
    assert message in answer["error"]["message"]
    if kind == OPENAI:
        assert answer["error"]["code"] == 400
    else:
        assert answer["type"] == "error"
        assert sorted(answer["error"]) == ["message", "type"]
