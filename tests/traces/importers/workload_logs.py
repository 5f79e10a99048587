"""Small workload files and recordings, made up: what their importers' tests and the mutations start from."""

import json
from typing import Any

Json = dict[str, Any]

UNIX = 1_770_091_500.0
"""Unix time of 2026-02-03T04:05:00Z."""


def stamp(second: float) -> str:
    return f"2026-02-03T04:05:{second:06.3f}Z"


def lines(records: list[Json]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


# Mooncake


def row(at: float | None, size: int, out: int, hashes: list[int] | None, **more: Any) -> Json:
    base = {"timestamp": at, "input_length": size, "output_length": out, "hash_ids": hashes}
    return {k: v for k, v in {**base, **more}.items() if v is not None}


def mooncake() -> list[Json]:
    """Three arrivals; the second shares one whole block with the first, the third both blocks of the second."""
    return [row(0, 1_000, 5, [0, 1]), row(250, 900, 7, [0, 2]), row(900, 1_100, 9, [0, 2, 3])]


def sessions() -> list[Json]:
    """Two sessions of rows in turn; whether the second row of `a` is a whole prompt, its fields do not say."""
    return [
        row(0, 1_024, 100, [0, 1], session_id="a"),
        row(40, 600, 10, [0, 9], session_id="b"),
        row(None, 1_536, 20, [0, 1, 5], session_id="a", delay=2_500),
    ]


def conversations() -> list[Json]:
    """AIPerf's multi-turn files: one of two turns behind a system prompt, one of a single turn."""
    asked = {"text": "What is a prefix cache?", "output_length": 100}
    more = {"texts": ["Can you give", "an example?"], "delay": 1_500}
    return [
        {"session_id": "chat-1", "turns": [{"role": "system", "text": "Be brief."}, asked, more]},
        {"turns": [{"text": "Name one."}]},
    ]


# TraceLab


def event(second: float, kind: str, **more: Any) -> Json:
    return {"event_type": kind, "timestamp": stamp(second), **more}


def tracelab_row(index: int, sizes: tuple[int, int, int], events: list[Json], **more: Any) -> Json:
    """Sizes: all input, cached input, output."""
    return {
        "provider": "claude",
        "project": "shop",
        "session_id": "claude:t-1",
        "round_index": index,
        "round_id": f"m{index}",
        "model": "claude-x",
        "input_tokens_total": sizes[0],
        "prefix_tokens": sizes[1],
        "newly_append_tokens": sizes[0] - sizes[1],
        "output_tokens": sizes[2],
        "reasoning_output_tokens": None,
        "timing_events": events,
        "tools": [],
        **more,
    }


def tracelab() -> list[Json]:
    """A prompt, a tool of three seconds, a second prompt."""
    tool = {
        "tool_index": 0,
        "tool_name": "Bash",
        "tool_call_id": "t1",
        "emitted_at": stamp(4),
        "input_chars": 40,
        "result_chars": 400,
        "tool_wall_latency_ms": 3_000,
        "is_error": False,
        "result_at": stamp(7),
    }
    return [
        tracelab_row(
            0,
            (9_000, 1_000, 80),
            [
                event(1, "user_message", content_chars=200),
                event(3, "text", content_chars=120),
                event(4, "tool_call", tool_call_id="t1", tool_name="Bash"),
            ],
            tools=[tool],
        ),
        tracelab_row(1, (9_300, 9_000, 50), [event(7, "tool_result"), event(10, "text", content_chars=200)]),
        tracelab_row(
            2, (9_500, 9_300, 40), [event(30, "user_message", content_chars=90), event(33, "text", content_chars=150)]
        ),
    ]


# ATIF


def atif_step(number: int, second: float, source: str, message: Any, **more: Any) -> Json:
    return {"step_id": number, "timestamp": stamp(second), "source": source, "message": message, **more}


def metrics(prompt: int, cached: int, out: int) -> Json:
    return {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": out}


def atif() -> Json:
    """A prompt, a shell tool and a sub-agent of one request, an answer."""
    asked = [
        {"tool_call_id": "k1", "function_name": "shell", "arguments": {"cmd": "ls"}},
        {"tool_call_id": "k2", "function_name": "Task", "arguments": {"prompt": "Count the files in the shop"}},
    ]
    answers = [
        {"source_call_id": "k1", "content": "adder.py\n"},
        {"source_call_id": "k2", "content": "one", "subagent_trajectory_ref": [{"session_id": "child"}]},
    ]
    child = {
        "schema_version": "ATIF-v1.7",
        "session_id": "child",
        "agent": {"name": "counter", "version": "1", "model_name": "small"},
        "steps": [
            atif_step(1, 6, "user", "Count the files in the shop"),
            atif_step(2, 8, "agent", "There is one file.", metrics=metrics(500, 0, 6)),
        ],
    }
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "a-1",
        "agent": {"name": "shopper", "version": "2.1", "model_name": "big"},
        "steps": [
            atif_step(1, 1, "system", "Be brief. " * 20),
            atif_step(2, 2, "user", "Fix the adder, then count the files"),
            atif_step(
                3,
                5,
                "agent",
                "Looking.",
                reasoning_content="I should look first.",
                tool_calls=asked,
                observation={"results": answers},
                metrics=metrics(2_000, 1_000, 60),
            ),
            atif_step(4, 20, "agent", "It is fixed, and there is one file.", metrics=metrics(2_100, 2_000, 12)),
        ],
        "subagent_trajectories": [child],
    }


# OpenTelemetry


def attribute(key: str, value: Any) -> Json:
    kind = "intValue" if isinstance(value, int) else "stringValue"
    return {"key": key, "value": {kind: str(value) if isinstance(value, int) else value}}


def span(own: str, parent: str, begin: float, end: float, op: str, **attributes: Any) -> Json:
    named = {f"gen_ai.{k.replace('__', '.')}": v for k, v in attributes.items()}
    return {
        "traceId": "t" * 32,
        "spanId": own,
        "parentSpanId": parent,
        "name": op,
        "startTimeUnixNano": str(int((UNIX + begin) * 1e9)),
        "endTimeUnixNano": str(int((UNIX + end) * 1e9)),
        "attributes": [attribute(k, v) for k, v in ({"gen_ai.operation.name": op} | named).items()],
    }


def batch(spans: list[Json]) -> Json:
    resource = {"attributes": [attribute("service.name", "shopper"), attribute("service.version", "3")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}


def messages(*said: tuple[str, Json]) -> str:
    return json.dumps([{"role": role, "parts": [part]} for role, part in said])


def otel() -> list[Json]:
    """A turn with a tool and a sub-agent inside a tool, each span in a line of its own, the outermost last."""
    first = ("user", {"type": "text", "content": "Fix the adder in the shop"})
    asked = ("assistant", {"type": "tool_call", "id": "c1", "name": "shell", "arguments": {"cmd": "ls"}})
    told = ("tool", {"type": "tool_call_response", "id": "c1", "response": "adder.py"})
    done = ("assistant", {"type": "text", "content": "Let another one look."})
    return [
        batch([s])
        for s in (
            span(
                "c1", "root", 1, 3, "chat", usage__input_tokens=900, usage__output_tokens=30, request__model="big",
                input__messages=messages(first), output__messages=messages(asked),
                usage__cache_read__input_tokens=100,
            ),
            span("x1", "root", 3, 5, "execute_tool", tool__name="shell", tool__call__id="c1"),
            span(
                "c2", "root", 5.5, 7, "chat", usage__input_tokens=960, usage__output_tokens=20, request__model="big",
                input__messages=messages(first, asked, told), output__messages=messages(done),
            ),
            span("x2", "root", 7, 20, "execute_tool", tool__name="agent", tool__call__id="c9"),
            span("sub", "x2", 8, 19, "invoke_agent", agent__name="looker"),
            span("c3", "sub", 9, 18, "chat", usage__input_tokens=400, usage__output_tokens=10, request__model="small"),
            span("root", "", 0.5, 30, "invoke_agent", agent__name="shopper"),
        )
    ]  # fmt: skip


def otel_events() -> list[Json]:
    """Claude Code's events, flat; the tool's event comes out of order."""

    def log(second: float, name: str, **attributes: Any) -> Json:
        attrs = {"event.name": name, "session.id": "e-1", **attributes}
        base = {"_type": "log", "ts": stamp(second), "scope": "com.anthropic.claude_code", "name": name}
        return base | {"attrs": attrs, "resource": {"service.name": "cc"}}

    figures = {"cache_read_tokens": 500, "cache_creation_tokens": 100, "model": "claude-x"}
    return [
        log(1, "user_prompt", prompt="Fix the adder", prompt_length=13),
        log(4, "api_request", input_tokens=10, output_tokens=60, duration_ms=2_500, query_source="sdk", **figures),
        log(
            12,
            "api_request",
            input_tokens=90,
            output_tokens=20,
            duration_ms=3_000,
            query_source="sdk",
            **figures | {"cache_read_tokens": 600, "cache_creation_tokens": 0},
        ),
        log(8, "tool_result", tool_name="Bash", success="true", duration_ms=1_500),
        log(5, "api_request", input_tokens=5, output_tokens=9, query_source="generate_title", model="tiny"),
        log(13, "api_error", error="overloaded"),
    ]


# Bodies on the wire


def chat_stream(pieces: list[str], usage: Json, *, calls: list[Json] | None = None, stop: str = "stop") -> str:
    events: list[Json] = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
    events += [{"model": "big", "choices": [{"index": 0, "delta": {"content": p}}]} for p in pieces]
    events += [{"choices": [{"index": 0, "delta": {"tool_calls": [c]}}]} for c in calls or []]
    events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}, {"choices": [], "usage": usage}]
    return "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"


def anthropic_stream(text: str, usage: Json) -> str:
    events = [
        {"type": "message_start", "message": {"model": "claude-x", "usage": usage | {"output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {e['type']}\r\ndata: {json.dumps(e)}\r\n\r\n" for e in events)


def entry(second: float, ms: float, body: Json, answer: str, status: int = 200, path: str = "chat/completions") -> Json:
    return {
        "startedDateTime": f"2026-02-03T04:05:{second:09.6f}+00:00",
        "time": ms,
        "timings": {"send": 1.0, "wait": ms - 101.0, "receive": 100.0},
        "request": {
            "method": "POST",
            "url": f"http://127.0.0.1:1/v1/{path}",
            "headers": [{"name": "User-Agent", "value": "shopper/1.0"}],
            "postData": {"mimeType": "application/json", "text": json.dumps(body)},
        },
        "response": {"status": status, "content": {"mimeType": "text/event-stream", "text": answer}},
    }


FIRST = [{"role": "system", "content": "Be brief. " * 10}, {"role": "user", "content": "Fix the adder in the shop"}]
CALLED = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"cmd":"ls"}'}}
SECOND = [
    *FIRST,
    {"role": "assistant", "content": "Looking.", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c1", "content": "adder.py\n" * 20},
]
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]


def chat_body(said: list[Json]) -> Json:
    return {"model": "big", "messages": said, "tools": TOOLS, "max_completion_tokens": 4_096}


def chat_usage(prompt: int, cached: int, out: int) -> Json:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": out, **details}


def har() -> Json:
    """Two turns with a tool between them, the second refused once; a request that is none to a model."""
    parts = [
        {"index": 0, "id": "c1", "function": {"name": "shell", "arguments": '{"cmd'}},
        {"index": 0, "function": {"arguments": '":"ls"}'}},
    ]
    entries = [
        entry(
            1, 2_000, chat_body(FIRST),
            chat_stream(["Look", "ing."], chat_usage(700, 0, 30), calls=parts, stop="tool_calls"),
        ),
        entry(6, 150, chat_body(SECOND), "no", status=503),
        entry(7, 1_000, chat_body(SECOND), chat_stream(["Fixed."], chat_usage(800, 700, 12))),
        entry(8, 110, {}, "ok", path="models"),
    ]  # fmt: skip
    return {"log": {"version": "1.2", "creator": {"name": "test", "version": "1"}, "entries": entries}}


def litellm() -> Json:
    """The second call of that session, as the OpenHands SDK logs it."""
    message = {"role": "assistant", "content": "Fixed.", "tool_calls": None}
    return {
        "messages": SECOND,
        "tools": TOOLS,
        "kwargs": {"temperature": 0.0, "max_completion_tokens": 4_096},
        "context_window": 200_000,
        "response": {
            "model": "big",
            "choices": [{"finish_reason": "stop", "message": message}],
            "usage": chat_usage(800, 700, 12),
        },
        "cost": 0.1,
        "timestamp": UNIX + 8.0,
        "latency_sec": 1.0,
    }


def payloads() -> list[Json]:
    """Both calls as LiteLLM's own logging payloads."""
    first = {"role": "assistant", "content": "Looking.", "tool_calls": [CALLED]}
    last = {"role": "assistant", "content": "Fixed."}
    return [
        {
            "id": f"p{n}",
            "call_type": "acompletion",
            "status": "success",
            "model": "big",
            "startTime": UNIX + start,
            "endTime": UNIX + end,
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "messages": said,
            "model_parameters": {"tools": TOOLS},
            "response": {"model": "big", "choices": [{"finish_reason": "stop", "message": answer}], "usage": usage},
        }
        for n, (start, end, said, answer, usage) in enumerate(
            ((1, 3, FIRST, first, chat_usage(700, 0, 30)), (7, 8, SECOND, last, chat_usage(800, 700, 12)))
        )
    ]


# Aider

AIDER = """
# aider chat started at 2026-02-03 04:05:00

> Aider v0.86.1
> Main model: big/model with diff edit format

#### /add adder.py

> Added adder.py to the chat

#### Fix the adder
#### in the shop

I will change one sign.

```python
return a + b
```

> Tokens: 4.6k sent, 1.5k cache hit, 210 received. Cost: $0.10 message, $0.10 session.
> Applied edit to adder.py

#### Thanks

You are welcome.

# aider chat started at 2026-02-03 05:00:00

> Aider v0.86.1
#### /exit
"""
