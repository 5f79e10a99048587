"""Small logs of other agents, made up: what their importers' tests and the mutations start from."""

from typing import Any

Json = dict[str, Any]


def stamp(second: float) -> str:
    return f"2026-02-03T04:05:{second:06.3f}Z"


def naive(second: float) -> str:
    return f"2026-02-03T06:05:{second:09.6f}"


UNIX = 1_770_091_500.0
"""Unix time of 2026-02-03T04:05:00Z; `naive` is two hours ahead of it."""


# Qwen Code


def chained(records: list[Json]) -> list[Json]:
    """Records with ids, each the child of the one before unless it names its parent."""
    out: list[Json] = []
    for number, record in enumerate(records):
        base = {
            "uuid": f"u-{number}",
            "parentUuid": f"u-{number - 1}" if number else None,
            "sessionId": "q-1",
            "cwd": "/home/me/shop",
            "version": "0.15.10",
        }
        out.append({**base, **record})
    return out


def qwen_user(second: float, text: str, **more: Any) -> Json:
    message = {"role": "user", "parts": [{"text": text}]}
    return {"timestamp": stamp(second), "type": "user", "message": message, **more}


def qwen_event(second: float, name: str, **more: Any) -> Json:
    event = {"event.name": f"qwen-code.{name}", "event.timestamp": stamp(second), **more}
    return {
        "timestamp": stamp(second + 0.01),
        "type": "system",
        "subtype": "ui_telemetry",
        "systemPayload": {"uiEvent": event},
    }


def qwen_response(second: float, took_ms: int, usage: tuple[int, int, int, int], **more: Any) -> Json:
    """Usage: prompt, cached, output with thoughts, thoughts."""
    names = ("input_token_count", "cached_content_token_count", "output_token_count", "thoughts_token_count")
    counts = dict(zip(names, usage, strict=True))
    return qwen_event(
        second,
        "api_response",
        **{"response_id": f"r-{second}", "model": "qwen-x", "duration_ms": took_ms, "prompt_id": "p", **counts, **more},
    )


def qwen_run(second: float, took_ms: int, name: str, response: float, **arguments: Any) -> Json:
    return qwen_event(
        second,
        "tool_call",
        function_name=name,
        function_args=arguments,
        duration_ms=took_ms,
        response_id=f"r-{response}",
        prompt_id="p",
    )


def qwen_answer(second: float, parts: list[Json], usage: tuple[int, int, int, int] | None, **more: Any) -> Json:
    record = {"timestamp": stamp(second), "type": "assistant", "message": {"role": "model", "parts": parts}, **more}
    if usage is not None:
        prompt, cached, output, thoughts = usage
        record["usageMetadata"] = {
            "promptTokenCount": prompt,
            "cachedContentTokenCount": cached,
            "candidatesTokenCount": output,
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": prompt + output,
        }
        record["model"] = "qwen-x"
    return record


def call_part(tool: str, name: str, **arguments: Any) -> Json:
    return {"functionCall": {"id": tool, "name": name, "args": arguments}}


def result_part(tool: str, name: str, output: str) -> Json:
    return {"functionResponse": {"id": tool, "name": name, "response": {"output": output}}}


def qwen_result(second: float, tool: str, name: str, output: str, **more: Any) -> Json:
    message = {"role": "user", "parts": [result_part(tool, name, output)]}
    return {"timestamp": stamp(second), "type": "tool_result", "message": message, **more}


ADDER = "def add(a, b):\n    return a - b\n"


def qwen_log() -> list[Json]:
    """A prompt, two tools one after the other, an answer, a second prompt."""
    first, second, third = (5_000, 0, 90, 30), (5_200, 4_096, 40, 0), (5_260, 5_120, 12, 0)
    return chained(
        [
            qwen_user(1, "Fix the adder in the shop"),
            qwen_response(4, 2_500, first),
            qwen_answer(
                4.1,
                [
                    {"text": "Where is it?", "thought": True},
                    {"text": "Looking."},
                    call_part("t1", "read_file", path="adder.py"),
                    call_part("t2", "run_shell_command", command="ls"),
                ],
                first,
            ),
            qwen_run(4.5, 200, "read_file", 4, path="adder.py"),
            qwen_result(4.6, "t1", "read_file", ADDER),
            qwen_run(7, 2_000, "run_shell_command", 4, command="ls"),
            qwen_result(7.1, "t2", "run_shell_command", "adder.py\n"),
            qwen_response(9, 1_500, second),
            qwen_answer(9.1, [{"text": "It subtracts where it should add."}], second),
            qwen_user(30, "Then change it"),
            qwen_response(33, 2_000, third),
            qwen_answer(33.1, [{"text": "Changed."}], third),
        ]
    )


# Gemini CLI


def gemini_tokens(usage: tuple[int, int, int, int]) -> Json:
    """Usage: input, cached, output without thoughts, thoughts."""
    given, cached, output, thoughts = usage
    return {"input": given, "cached": cached, "output": output, "thoughts": thoughts, "tool": 0, "total": sum(usage)}


def gemini_user(second: float, key: str, content: Any) -> Json:
    return {"id": key, "timestamp": stamp(second), "type": "user", "content": content}


def gemini_tool(second: float, tool: str, name: str, output: str, **arguments: Any) -> Json:
    return {
        "id": tool,
        "name": name,
        "args": arguments,
        "result": [result_part(tool, name, output)],
        "status": "success",
        "timestamp": stamp(second),
    }


def gemini_answer(
    second: float, key: str, text: str, usage: tuple[int, int, int, int] | None, tools: list[Json] | None = None
) -> Json:
    return {
        "id": key,
        "timestamp": stamp(second),
        "type": "gemini",
        "content": text,
        "thoughts": [{"subject": "Where", "description": "I look for it."}],
        "tokens": None if usage is None else gemini_tokens(usage),
        "model": "gemini-x",
        **({} if tools is None else {"toolCalls": tools}),
    }


def gemini_head(session: str = "g-1", **more: Any) -> Json:
    return {"sessionId": session, "projectHash": "abc", "startTime": stamp(0), "lastUpdated": stamp(0), **more}


def gemini_messages() -> list[Json]:
    """A prompt, two tools, an answer, a second prompt: each message as it is in the end."""
    tools = [
        gemini_tool(7, "t1", "read_file", ADDER, path="adder.py"),
        gemini_tool(7, "t2", "run_shell_command", "adder.py\n", command="ls"),
    ]
    return [
        gemini_user(1, "m0", [{"text": "<session_context>\nToday is Tuesday."}]),
        gemini_user(1.5, "m1", [{"text": "Fix the adder in the shop"}]),
        gemini_answer(4, "m2", "Looking.", (5_000, 0, 60, 30), tools),
        gemini_user(7.1, "m3", [t["result"][0] for t in tools]),
        gemini_answer(9, "m4", "It subtracts where it should add.", (5_200, 4_096, 40, 0)),
        gemini_user(30, "m5", "Then change it"),
        gemini_answer(33, "m6", "Changed.", (5_260, 5_120, 12, 0)),
    ]


def gemini_log() -> list[Json]:
    """The later layout: the answer with tools is written twice, fields of the chat in between."""
    m0, m1, m2, *rest = gemini_messages()
    early = {k: v for k, v in m2.items() if k != "toolCalls"}
    changed = {"$set": {"lastUpdated": stamp(4)}}
    return [gemini_head(kind="main"), {"$set": {"messages": [m0]}}, m1, early, changed, m2, *rest]


def gemini_document() -> Json:
    """The earlier layout: one document; results stand with their calls only."""
    messages = [m for m in gemini_messages() if m["id"] not in ("m0", "m3")]
    return {**gemini_head(), "messages": messages}


# SWE-agent and mini-swe-agent


def chat_call(tool: str, name: str, arguments: str) -> Json:
    return {"id": tool, "type": "function", "function": {"name": name, "arguments": arguments}}


def swe_log() -> Json:
    """Two actions as tool calls, each with its time, and the answer that ends the run."""

    def said(role: str, text: str, **more: Any) -> Json:
        return {"role": role, "content": text, "agent": "main", **more}

    history = [
        said("system", "You are in a shell. " * 20, message_type="system_prompt"),
        said("user", "Solve this.\nISSUE:\nThe adder subtracts\nINSTRUCTIONS:\nBe quick.", message_type="observation"),
        said(
            "assistant", "Looking.", action="open adder.py", tool_calls=[chat_call("t1", "open", '{"path":"adder.py"}')]
        ),
        said("tool", ADDER * 5, tool_call_ids=["t1"]),
        said("assistant", "Changing.", action="edit 1", tool_calls=[chat_call("t1", "edit", '{"line":1}')]),
        said("tool", "Edited.", tool_call_ids=["t1"]),
        said("assistant", "Done.", action="submit", tool_calls=[chat_call("t3", "submit", "{}")]),
    ]
    steps = [
        {"action": a, "execution_time": t} for a, t in (("open adder.py", 0.25), ("edit 1", 1.5), ("submit", 0.125))
    ]
    stats = {"tokens_sent": 0, "tokens_received": 0, "api_calls": 3}
    return {"trajectory": steps, "history": history, "info": {"model_stats": stats}, "environment": "main"}


def mini_answer(second: float, text: str, usage: tuple[int, int, int, int] | None, calls: list[Json]) -> Json:
    """Usage: prompt, cached, completion, reasoning in it."""
    response: Json = {"id": f"r-{second}", "created": int(UNIX + second) - 2, "model": "gpt-x", "choices": []}
    if usage is not None:
        prompt, cached, completion, reasoning = usage
        response["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
    message: Json = {"role": "assistant", "content": text, "extra": {"response": response, "timestamp": UNIX + second}}
    return {**message, "tool_calls": calls} if calls else message


def mini_result(second: float, tool: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": tool, "content": text, "extra": {"timestamp": UNIX + second}}


def mini_log() -> Json:
    """Two parallel commands and the end of the run."""
    calls = [chat_call("t1", "bash", '{"command":"cat adder.py"}'), chat_call("t2", "bash", '{"command":"ls"}')]
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Please solve this issue: The adder subtracts\n\nYou can run commands."},
        mini_answer(4, "Looking.", (2_000, 0, 80, 20), calls),
        mini_result(6, "t1", ADDER),
        mini_result(6.01, "t2", "adder.py\n"),
        mini_answer(9, "Done.", (2_150, 1_024, 30, 0), [chat_call("t3", "bash", '{"command":"submit"}')]),
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]
    info = {"mini_version": "2.4.6", "config": {"model": {"model_name": "openai/gpt-x"}}}
    return {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}
