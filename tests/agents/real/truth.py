"""What a scripted model's own log says was asked of it, and how a recording differs from that.

The log has one JSON object for each request with its headers, body, answer and times. Sessions and sub-agents are told
by the ids that clients send; a client that sends none (pi on chat) has one session for each working folder.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Call, Trace

NEAR_S = 0.005
ROUTES = ("/chat/completions", "/responses", "/messages")
SESSION = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id")
THREAD = ("x-claude-code-agent-id", "thread-id")


@dataclass
class Asked:
    """A request that the model answered."""

    start: float
    end: float
    session: str
    thread: str
    parent: str | None
    prompt: int | None
    completion: int | None
    task: str
    """The scripted sub-task that it is for; empty for the main one."""
    tools: int
    tool_ids: tuple[str, ...]
    results: tuple[str, ...]


@dataclass
class Seen:
    """A recorded call in the same terms."""

    start: float
    end: float
    trace: str
    thread: int
    call: Call
    tool_ids: tuple[str, ...]


@dataclass
class Comparison:
    asked: list[Asked]
    seen: list[Seen]
    differences: list[str] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    """By how much each start is off, s."""
    ends: list[float] = field(default_factory=list)


def read_log(path: Path) -> list[Asked]:
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        route = row["path"].partition("?")[0]
        if row["method"] != "POST" or row["status"] not in (200, 499) or not route.endswith(ROUTES):
            continue
        out.append(_asked(row))
    return sorted(out, key=lambda a: a.start)


def _asked(row: dict[str, Any]) -> Asked:
    headers = {k.lower(): v for k, v in row["headers"]}
    body = row["body"]
    session = next((headers[h] for h in SESSION if h in headers), "")
    parent = headers.get("x-parent-session-id") or headers.get("x-codex-parent-thread-id")
    thread = next((headers[h] for h in THREAD if h in headers), "")
    if headers.get("x-parent-session-id"):
        session, thread = headers["x-parent-session-id"], session
    if thread == session:
        thread = ""
    if not session:  # no ids on the wire: the folder it works in
        found = re.search(r"/work/((?:claude|codex|opencode|pi)-[\w-]+)", json.dumps(body))
        session = found.group(1) if found else "one"
    text = "".join(c if isinstance(c, str) else "data: " + json.dumps(c) + "\n\n" for _, c in row["chunks"])
    prompt, completion, ids = _answer(text)
    sub = None if "MAINTASK" in json.dumps(body) else re.search(r"SUBTASK ?\w?: count the \w+", json.dumps(body))
    return Asked(
        start=row["t_start"],
        end=row["t_end"],
        session=session,
        thread=thread,
        parent=parent,
        prompt=prompt,
        completion=completion,
        task="" if sub is None else sub.group(),
        tools=len(body.get("tools") or []),
        tool_ids=ids,
        results=tuple(_results(body)),
    )


def _answer(text: str) -> tuple[int | None, int | None, tuple[str, ...]]:
    prompt = completion = None
    ids: dict[str, None] = {}
    for line in text.split("\n"):
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[6:])
        for usage in (
            event.get("usage"),
            (event.get("response") or {}).get("usage"),
            (event.get("message") or {}).get("usage"),
        ):
            if usage:
                prompt = usage.get("prompt_tokens", usage.get("input_tokens", prompt))
                completion = usage.get("completion_tokens", usage.get("output_tokens", completion))
        for choice in event.get("choices") or []:
            for call in (choice.get("delta") or choice.get("message") or {}).get("tool_calls") or []:
                if call.get("id"):
                    ids[call["id"]] = None
        block = event.get("content_block") or {}
        if block.get("type") == "tool_use":
            ids[block["id"]] = None
        if (event.get("item") or {}).get("call_id"):
            ids[event["item"]["call_id"]] = None
    return prompt, completion, tuple(ids)


def _results(body: dict[str, Any]) -> list[str]:
    found = []
    for message in body.get("messages") or []:
        if message.get("tool_call_id"):
            found.append(message["tool_call_id"])
        if isinstance(message.get("content"), list):
            found += [b["tool_use_id"] for b in message["content"] if b.get("type") == "tool_result"]
    given = body.get("input")
    found += [i["call_id"] for i in given if i.get("type", "").endswith("_output")] if isinstance(given, list) else []
    return found


def read_recording(folder: Path) -> tuple[list[Seen], list[Trace], list[str]]:
    seen: list[Seen] = []
    traces: list[Trace] = []
    problems: list[str] = []
    for path in sorted((folder / "traces").glob("*.jsonl")):
        result = read_trace(path)
        problems += [str(p) for p in result.problems]
        for trace in result.traces:
            traces.append(trace)
            zero = trace.header.started_at or 0.0
            for call in trace.calls:
                output = () if call.output is None else trace.messages[call.output].tool_calls
                ids = tuple(c.id for c in output)
                start, end = zero + (call.start_s or 0.0), zero + (call.end_s or 0.0)
                seen.append(Seen(start, end, trace.header.id, call.thread, call, ids))
    return sorted(seen, key=lambda s: s.start), traces, problems


def compare(log: Path, folder: Path, *, nameless: bool = False) -> Comparison:
    """Every way in which the recording is not what the log says.

    `nameless`: no request names its thread, and which are the main agent's is told by the scripted prompts.
    """
    asked = read_log(log)
    if nameless:
        for a in asked:
            a.thread = a.task
    seen, traces, problems = read_recording(folder)
    result = Comparison(asked, seen, list(problems))
    say = result.differences.append
    if len(asked) != len(seen):
        say(f"{len(asked)} requests were answered, {len(seen)} calls recorded")
        return result
    parts: dict[tuple[str, str], tuple[str, int]] = {}
    for n, (a, s) in enumerate(_pairs(asked, seen)):
        result.starts.append(abs(a.start - s.start))
        result.ends.append(abs(a.end - s.end))
        if abs(a.start - s.start) > NEAR_S or abs(a.end - s.end) > NEAR_S:
            say(f"request {n}: start off by {s.start - a.start:.4f} s, end by {s.end - a.end:.4f} s")
        usage = s.call.usage
        if (a.prompt, a.completion) != (usage.prompt, usage.completion):
            say(f"request {n}: tokens {a.prompt}/{a.completion} recorded as {usage.prompt}/{usage.completion}")
        if a.tool_ids != s.tool_ids:
            say(f"request {n}: tool calls {a.tool_ids} recorded as {s.tool_ids}")
        if (a.tools == 0) != (s.call.kind == "auxiliary"):
            say(f"request {n}: {a.tools} tools, recorded as {s.call.kind}")
        if parts.setdefault((a.session, a.thread), (s.trace, s.thread)) != (s.trace, s.thread):
            say(f"request {n}: of {a.session}/{a.thread}, recorded in {s.trace}/{s.thread}")
        if a.thread == "" and s.thread != 0:
            say(f"request {n}: of the main agent, recorded in thread {s.thread}")
    if len(set(parts.values())) != len(parts):
        say(f"threads were mixed up: {parts}")
    _parents(result, traces, say)
    _sums(traces, say)
    return result


def _pairs(asked: list[Asked], seen: list[Seen]) -> list[tuple[Asked, Seen]]:
    """Each request with the call that has its tool calls; those without any by their order.

    Order alone would not do: two sub-agents may ask within the same millisecond.
    """
    by_tools = {s.tool_ids: s for s in seen if s.tool_ids}
    pairs = [(a, by_tools[a.tool_ids]) for a in asked if a.tool_ids in by_tools]
    taken = {id(x) for pair in pairs for x in pair}
    threads = {(a.session, a.thread): (s.trace, s.thread) for a, s in pairs}
    for a in asked:
        if id(a) in taken:
            continue
        rest = [s for s in seen if id(s) not in taken]
        own = [s for s in rest if threads.get((a.session, a.thread)) == (s.trace, s.thread)]
        s = (own or rest)[0]
        taken.add(id(s))
        pairs.append((a, s))
    return sorted(pairs, key=lambda pair: pair[0].start)


def _parents(result: Comparison, traces: list[Trace], say: Any) -> None:
    by_id = {t.header.id: t for t in traces}
    for name, thread in dict.fromkeys((s.trace, s.thread) for s in result.seen):
        if not thread:
            continue
        line = by_id[name].threads[thread]
        if line.parent != 0 or line.spawn_call is None:
            say(f"{name}: thread {thread} has parent {line.parent}, spawning call {line.spawn_call}")
            continue
        ids = [c.id for c in by_id[name].messages[by_id[name].calls[line.spawn_call].output or 0].tool_calls]
        if line.tool_call_id not in ids:
            say(f"{name}: thread {thread} was started by {line.tool_call_id}, which is none of {ids}")


def _sums(traces: list[Trace], say: Any) -> None:
    for trace in traces:
        sums = trace.prompt_tokens()
        for call in trace.calls:
            if sums[call.id] != call.usage.prompt:
                say(f"{trace.header.id}: blocks of call {call.id} sum to {sums[call.id]}, not {call.usage.prompt}")
