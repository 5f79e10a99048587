"""Claude Code transcripts made up for the purpose, in the layouts that its versions wrote."""

import json
from typing import Any

Json = dict[str, Any]


def claude_line(second: float, kind: str, message: Json, **more: Any) -> Json:
    stamp = f"2026-02-03T04:05:{second:06.3f}Z"
    base = {
        "sessionId": "s-1",
        "uuid": f"u-{second}",
        "version": "2.1.29",
        "cwd": "/home/me/shop",
        "isSidechain": False,
    }
    return {**base, "type": kind, "timestamp": stamp, "message": message, **more}


def claude_user(second: float, content: Any, **more: Any) -> Json:
    return claude_line(second, "user", {"role": "user", "content": content}, **more)


def claude_result(second: float, tool: str, content: Any, **more: Any) -> Json:
    return claude_user(second, [{"type": "tool_result", "tool_use_id": tool, "content": content}], **more)


def claude_answer(
    second: float,
    key: str,
    parts: list[Json],
    usage: tuple[int, int, int, int],
    stop: str | None = "end_turn",
    **more: Any,
) -> Json:
    """Usage: input, cache creation, cache read, output."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    message = {
        "id": key,
        "model": "claude-x",
        "role": "assistant",
        "content": parts,
        "stop_reason": stop,
        "usage": dict(zip(names, usage, strict=True)),
    }
    return claude_line(second, "assistant", message, **more)


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def used(tool: str, name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": tool, "name": name, "input": arguments}


def shop() -> list[Json]:
    """A prompt, two tools (the first starts while the answer still streams), a second prompt, a damaged-free end."""
    return [
        claude_user(1, "Please fix the adder in the shop, it subtracts"),
        claude_answer(4, "m1", [said("I will look at the adder first.")], (3, 9_000, 1_000, 2), None),
        claude_answer(5, "m1", [used("t1", "Read", file="adder.py")], (3, 9_000, 1_000, 2), None),
        claude_result(5.2, "t1", "def add(a, b):\n    return a - b\n"),
        claude_answer(6, "m1", [used("t2", "Bash", command="ls -l")], (3, 9_000, 1_000, 90), "tool_use"),
        claude_result(8, "t2", "total 4\n-rw-r--r-- 1 me me 34 adder.py\n", isError=False),
        claude_answer(10, "m2", [said("The adder subtracts; I would change one sign.")], (1, 180, 10_000, 20)),
        claude_user(40, "Do it"),
        claude_answer(43, "m3", [said("Done.")], (1, 40, 10_180, 4)),
    ]


def sub_agent(log: list[Json], agent: str) -> list[Json]:
    """A log's first turn as a sub-agent's own file."""
    out: list[Json] = json.loads(json.dumps(log[:7]))
    for record in out:
        record.update(isSidechain=True, agentId=agent)
        if record["type"] == "assistant":
            record["message"]["id"] += agent
            for part in record["message"]["content"]:
                if part["type"] == "tool_use":
                    part["id"] += agent
        elif isinstance(record["message"]["content"], list):
            record["message"]["content"][0]["tool_use_id"] += agent
    return out


def with_task(log: list[Json]) -> list[Json]:
    """The Bash call becomes a Task that a sub-agent answers."""
    out: list[Json] = json.loads(json.dumps(log))
    out[4]["message"]["content"] = [
        {"type": "tool_use", "id": "t2", "name": "Task", "input": {"prompt": log[0]["message"]["content"]}}
    ]
    out[5]["toolUseResult"] = {"agentId": "a7", "status": "completed", "content": [said("ok")]}
    return out


def with_sidechain(log: list[Json]) -> list[Json]:
    """The sub-agent's lines stand in the session's own file, chained by their uuids."""
    side = sub_agent(log, "a7")
    parent = None
    for at, record in enumerate(side):
        del record["agentId"]
        record.update(uuid=f"side-{at}", parentUuid=parent)
        parent = record["uuid"]
    main = with_task(log)
    return [*main[:5], *side, *main[5:]]


def with_progress(log: list[Json]) -> list[Json]:
    """The sub-agent is seen as progress of the Task, whose result has its last usage."""
    progress = [
        {
            "type": "progress",
            "timestamp": r["timestamp"],
            "sessionId": "s-1",
            "uuid": "p",
            "parentToolUseID": "t2",
            "data": {"type": "agent_progress", "agentId": "a7", "message": r},
        }
        for r in sub_agent(log, "a7")[:6]
    ]
    main = with_task(log)
    main[5]["toolUseResult"]["usage"] = {"input_tokens": 5, "cache_read_input_tokens": 10_100, "output_tokens": 1}
    return [*main[:5], *progress, *main[5:]]


def with_requests(log: list[Json]) -> list[Json]:
    """The first request has records of its own: its shape, its start, its parameters, its messages as they were sent."""
    shape = {"system": [said("Be kind.")], "tools": [{"name": "Read"}, {"name": "Bash"}]}
    stamp = "2026-02-03T04:05:01.500Z"
    asked = {"id": "r1", "shapeHash": "h", "keep": 0, "tail": ["x", "y"], "params": {"max_tokens": 99}}
    joined = {"role": "user", "content": [said("Today is Tuesday."), said(log[0]["message"]["content"])]}
    records: list[Json] = [
        {"type": "api-request-shape", "shapeHash": "h", "timestamp": stamp, "shape": shape},
        {"type": "api-request-blob", "hash": "x", "message": joined},
        {"type": "api-request-blob", "hash": "y", "message": {"role": "system", "content": "Skills: none."}},
        {"type": "api-request", "timestamp": stamp, **asked},
    ]
    for record in (log[1], log[2], log[4]):
        record["requestRef"] = "r1"
    return [log[0], *records, *log[1:]]


def with_compaction(log: list[Json]) -> list[Json]:
    """Between the second answer and the second prompt the context is summarised."""
    boundary = {**log[7], "type": "system", "subtype": "compact_boundary"}
    summary: Json = json.loads(json.dumps(log[7]))
    summary["message"]["content"] = "Summary: the adder subtracts. " * 30
    summary["isCompactSummary"] = True
    log[8]["message"]["usage"].update(cache_creation_input_tokens=1_000, cache_read_input_tokens=1_000)
    return [*log[:7], boundary, summary, *log[7:]]


def _boundary(second: float, trigger: str, tokens: int) -> list[Json]:
    told = {"compactMetadata": {"trigger": trigger, "preTokens": tokens}}
    line = {**claude_user(second, ""), "type": "system", "subtype": "compact_boundary", **told}
    return [line, claude_user(second, "Summary: the adder subtracts. " * 30, isCompactSummary=True)]


def with_auto_compaction(log: list[Json]) -> list[Json]:
    """Half a minute after the tools' results the summary stands there."""
    log[6]["timestamp"], log[6]["message"]["usage"] = (
        "2026-02-03T04:05:40.000Z",
        {
            "input_tokens": 1,
            "cache_creation_input_tokens": 1_000,
            "cache_read_input_tokens": 1_000,
            "output_tokens": 20,
        },
    )
    return [*log[:6], *_boundary(32, "auto", 11_000), *log[6:7]]


def with_manual_compaction(log: list[Json], typed: str) -> list[Json]:
    """A person asks for a compaction 10 s after the last answer; the line that says so is before or after it."""
    command = claude_user(20, "<command-name>/compact</command-name>")
    lines = _boundary(33, "manual", 10_300)
    lines = [command, *lines] if typed == "before" else [*lines, command] if typed == "after" else lines
    log[8]["message"]["usage"].update(cache_creation_input_tokens=1_000, cache_read_input_tokens=1_000)
    return [*log[:7], *lines, *log[7:]]
