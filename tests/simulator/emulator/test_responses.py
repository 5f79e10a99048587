"""OpenAI's Responses: shapes, counts and refusals as vLLM 0.32 was seen to give them for the same requests."""

import pytest

TOOL = {"type": "function", "name": "shell", "description": "Runs", "parameters": {"type": "object"}, "strict": False}
ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let"}]},
    {"type": "function_call", "name": "shell", "arguments": '{"cmd":"ls"}', "call_id": "c1"},
    {"type": "function_call", "name": "shell", "arguments": '{"cmd":"pwd"}', "call_id": "c2"},
    {"type": "function_call_output", "call_id": "c1", "output": "x\ny"},
    {"type": "function_call_output", "call_id": "c2", "output": "/"},
]
AS_CHAT = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "reasoning": "hm",
        "content": "let",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"cmd":"ls"}'}},
            {"id": "c2", "type": "function", "function": {"name": "shell", "arguments": '{"cmd":"pwd"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "x\ny"},
    {"role": "tool", "tool_call_id": "c2", "content": "/"},
]


async def test_a_stream_has_the_events_of_vllms(serve) -> None:
    engine = await serve()
    body = {"input": "Say hello.\n" * 20, "max_output_tokens": 4, "store": True, "instructions": "be", "tools": [TOOL]}
    events = await engine.events("/v1/responses", body | {"reasoning": {"effort": "low"}})
    names = [name for name, _ in events]
    assert names == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 4,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [data["type"] for _, data in events] == names
    assert [data["sequence_number"] for _, data in events] == list(range(12))
    blank, done = events[0][1]["response"], events[-1][1]["response"]
    assert events[1][1]["response"] == blank
    assert (blank["status"], blank["output"], blank["usage"]) == ("in_progress", [], None)
    text = "".join(data["delta"] for name, data in events if name == "response.output_text.delta")
    (item,) = done["output"]
    assert item == events[-2][1]["item"]
    assert item["content"] == [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}]
    assert {data["item_id"] for _, data in events if "item_id" in data} == {item["id"]}
    assert done == blank | {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": done["output"],
        "usage": done["usage"],
    }
    assert blank["id"].startswith("resp_")
    assert (blank["max_output_tokens"], blank["tool_choice"], blank["temperature"]) == (4, "auto", 1.0)
    assert blank["tools"][0]["output_schema"] is None
    assert blank["reasoning"]["effort"] == "low"
    usage = done["usage"]
    assert usage["output_tokens"] == 4
    assert usage["total_tokens"] == usage["input_tokens"] + 4
    assert usage["input_tokens_details"]["cached_tokens"] == 0
    assert usage["input_tokens_details"]["cache_write_tokens"] == usage["input_tokens"] // 16 * 16
    again = (await engine.events("/v1/responses", body))[-1][1]["response"]["usage"]
    assert again["input_tokens_details"]["cached_tokens"] == (usage["input_tokens"] - 1) // 16 * 16


async def test_a_whole_answer_equals_the_streamed_one(serve) -> None:
    engine = await serve()
    streamed = (await engine.events("/v1/responses", {"input": "Say hello."}))[-1][1]["response"]
    status, whole = await engine.post("/v1/responses", {"input": "Say hello."})
    assert (status, whole["status"], whole["object"]) == (200, "completed", "response")
    assert whole["incomplete_details"] is None
    assert whole["output"][0]["content"] == streamed["output"][0]["content"]
    assert whole["usage"]["output_tokens"] == streamed["usage"]["output_tokens"]
    assert whole["max_output_tokens"] == 131_072 - whole["usage"]["input_tokens"]


async def test_items_count_as_the_chat_that_vllm_makes_of_them(serve) -> None:
    engine = await serve()
    function = {"name": "shell", "description": "Runs", "parameters": {"type": "object"}, "strict": False}
    _, tokens = await engine.post(
        "/tokenize", {"messages": AS_CHAT, "tools": [{"type": "function", "function": function}]}
    )
    tools = [TOOL, {"type": "web_search"}]
    body = {"input": ITEMS, "instructions": "be kind", "tools": tools, "max_output_tokens": 1, "store": False}
    _, answer = await engine.post("/v1/responses", body)
    assert answer["usage"]["input_tokens"] == tokens["count"]


async def test_functions_of_namespaces_and_free_form_tools_are_shown_flat(serve) -> None:
    engine = await serve()
    parts = [
        {"type": "namespace", "name": "mcp", "tools": [TOOL]},
        {"type": "custom", "name": "patch", "description": "d"},
    ]
    _, answer = await engine.post("/v1/responses", {"input": "x", "tools": parts, "max_output_tokens": 1})
    text = {"type": "string", "description": "The freeform text payload for this tool."}
    schema = {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
    shell = {"name": "mcp__shell", "description": "Runs", "parameters": {"type": "object"}, "strict": False}
    shown = [shell, {"name": "patch", "description": "d", "parameters": schema}]
    chat = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": f} for f in shown],
    }
    _, tokens = await engine.post("/tokenize", chat)
    assert answer["usage"]["input_tokens"] == tokens["count"]


async def test_an_unfinished_message_is_gone_on_with(serve) -> None:
    engine = await serve()
    part = {
        "type": "message",
        "role": "assistant",
        "status": "incomplete",
        "content": [{"type": "output_text", "text": "I"}],
    }
    asked = [{"role": "user", "content": "go"}, part]
    _, answer = await engine.post("/v1/responses", {"input": asked, "max_output_tokens": 1})
    chat = {"messages": [asked[0], {"role": "assistant", "content": "I"}]}
    _, tokens = await engine.post("/tokenize", chat | {"add_generation_prompt": False, "continue_final_message": True})
    _, closed = await engine.post("/tokenize", chat | {"add_generation_prompt": False})
    assert answer["usage"]["input_tokens"] == tokens["count"] == closed["count"] - 2


async def test_responses_are_kept_only_where_vllm_was_told_to(serve, monkeypatch) -> None:
    engine = await serve()
    _, first = await engine.post("/v1/responses", {"input": "one", "store": True})
    assert (await engine.get(f"/v1/responses/{first['id']}"))[0] == 404
    status, refused = await engine.post("/v1/responses", {"input": "two", "previous_response_id": first["id"]})
    assert (status, refused["error"]["type"]) == (404, "invalid_request_error")

    monkeypatch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
    engine = await serve()
    _, first = await engine.post("/v1/responses", {"input": "one", "instructions": "be"})
    assert await engine.get(f"/v1/responses/{first['id']}") == (200, first)
    body = {"input": "two", "previous_response_id": first["id"], "max_output_tokens": 1}
    done = (await engine.events("/v1/responses", body))[-1][1]["response"]
    said = [("user", "one"), ("assistant", first["output"][0]["content"][0]["text"]), ("user", "two")]
    _, tokens = await engine.post("/tokenize", {"messages": [{"role": r, "content": c} for r, c in said]})
    assert done["usage"]["input_tokens"] == tokens["count"], "instructions do not carry over"
    status, refused = await engine.post(f"/v1/responses/{done['id']}/cancel", {})
    assert (status, refused["error"]["message"]) == (400, "Cannot cancel a synchronous response.")


GRAMMAR = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}
REFUSED = [
    ({"max_output_tokens": 3}, 400, "Bad Request", "body.input: Field required"),
    ({"input": "x", "model": "nope"}, 404, "NotFoundError", "The model `nope` does not exist."),
    ({"input": "x", "background": True}, 400, "invalid_request_error", "does not support the background mode"),
    ({"input": "x", "previous_response_id": "resp_1"}, 404, "invalid_request_error", "'resp_1' not found"),
    ({"input": "x", "tools": [GRAMMAR]}, 400, "BadRequestError", "Custom tools with a grammar format"),
    ({"input": "x", "tool_choice": "required"}, 400, "BadRequestError", "must be specified with 'tools'"),
    ({"input": "x", "prompt": {"id": "p"}}, 400, "BadRequestError", "prompt template is not supported"),
    ({"input": [{"type": "odd"}]}, 400, "BadRequestError", "Unsupported input item type: odd"),
    ({"input": "x", "max_output_tokens": 600}, 400, "BadRequestError", "max_output_tokens=600 cannot be greater"),
    ({"input": "x", "max_output_tokens": 0}, 400, "BadRequestError", "max_tokens must be at least 1, got 0."),
    ({"input": "w\n" * 900}, 400, "BadRequestError", "maximum context length is 512 tokens"),
]


@pytest.mark.parametrize(("body", "status", "kind", "message"), REFUSED)
async def test_refusals_are_those_of_vllm(serve, body, status, kind, message) -> None:
    engine = await serve("--max-model-len", "512")
    got, answer = await engine.post("/v1/responses", body)
    assert (got, answer["error"]["code"], answer["error"]["type"]) == (status, status, kind)
    assert message in answer["error"]["message"]
