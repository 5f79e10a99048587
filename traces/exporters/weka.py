"""Weka's KV-cache traces: one JSON file a session, requests as lists of 64-token block hashes, sub-agents nested once.

Only full blocks have a hash. Times of a sub-agent's requests count from its start, its own `t` is its end.
"""

import json
from collections.abc import Sequence
from typing import Any

from windtunnel.traces.exporters.blocks import BlockIds, Prompt, prompts
from windtunnel.traces.exporters.exported import Exported
from windtunnel.traces.model import Call, Problem, Thread, Trace, Wait

BLOCK_TOKENS = 64


def write(traces: Sequence[Trace]) -> Exported:
    """One file for each trace. A single one has hashes of its own (scope `local`), several share theirs (`global`)."""
    problems: list[Problem] = []
    shared = len(traces) > 1
    blocks = BlockIds(BLOCK_TOKENS, lasting=shared)
    sessions = (_session(t, blocks, problems) | {"hash_id_scope": "global" if shared else "local"} for t in traces)
    files = tuple(json.dumps(s, separators=(",", ":")).encode() + b"\n" for s in sessions)
    return Exported(files, tuple(problems))


def _session(trace: Trace, blocks: BlockIds, problems: list[Problem]) -> dict[str, Any]:
    sized = dict(zip((c.id for c in trace.calls), prompts(trace, blocks), strict=True))
    waits: dict[int, list[Wait]] = {}
    for wait in trace.waits:
        waits.setdefault(wait.before, []).append(wait)
    entries = {(c.id, 0): _request(trace, c, sized[c.id], waits, 0.0) for c in trace.calls_of(0)}
    for thread in trace.threads[1:]:
        calls = trace.calls_of(thread.id)
        if calls:
            inner = [_request(trace, c, sized[c.id], waits, calls[0].start_s or 0.0) for c in calls]
            after = max((c.id for c in trace.calls_of(0) if c.id < calls[0].id), default=-1)
            entries[after, thread.id] = _subagent(trace, thread, calls, inner, problems)
    return {
        "id": trace.header.id,
        "models": list(dict.fromkeys(c.model for c in trace.calls if c.model)),
        "block_size": BLOCK_TOKENS,
        "hash_id_scope": "local",
        **_front(trace, trace.calls_of(0)),
        "requests": [entries[place] for place in sorted(entries)],
    }


def _front(trace: Trace, calls: Sequence[Call]) -> dict[str, int]:
    """Tokens of the tool schemas and of the system message in a thread's first prompt."""
    if not calls:
        return {"tool_tokens": 0, "system_tokens": 0}
    first = calls[0]
    system = first.append[0] if first.append and trace.messages[first.append[0]].role == "system" else None
    return {
        "tool_tokens": trace.toolset_tokens(first.tools),
        "system_tokens": 0 if system is None else trace.message_tokens(system),
    }


def _subagent(
    trace: Trace, thread: Thread, calls: Sequence[Call], inner: list[dict[str, Any]], problems: list[Problem]
) -> dict[str, Any]:
    ends = [t for c in calls for t in (c.start_s, c.end_s) if t is not None]
    begin = calls[0].start_s
    if begin is None:
        problems.append(Problem(trace.header.id, calls[0].id, "the sub-agent's start is not known: it is put at 0"))
    if thread.parent:
        problems.append(Problem(trace.header.id, calls[0].id, "a sub-agent of a sub-agent becomes the main agent's"))
    end = max(ends, default=0.0)
    return {
        "t": round(end, 6),
        "type": "subagent",
        "agent_id": f"agent_{thread.id:03d}",
        "subagent_type": thread.name or "agent",
        "duration_ms": round((end - (begin or 0.0)) * 1000, 3),
        "total_tokens": sum(r["in"] + r["out"] for r in inner),
        "tool_use_count": sum(1 for r in trace.tool_runs if trace.calls[r.call].thread == thread.id),
        "status": "completed",
        "requests": inner,
        "models": list(dict.fromkeys(c.model for c in calls if c.model)),
        **_front(trace, calls),
    }


def _request(trace: Trace, call: Call, prompt: Prompt, waits: dict[int, list[Wait]], zero: float) -> dict[str, Any]:
    before = waits.get(call.id, [])
    known = [w.seconds for w in before if w.seconds is not None]
    wrote = trace.messages[call.output] if call.output is not None else None
    kinds = [
        name
        for name, there in (
            ("text", wrote is not None and bool(wrote.blocks)),
            ("thinking", wrote is not None and bool(wrote.reasoning)),
            ("tool_use", wrote is not None and bool(wrote.tool_calls)),
        )
        if there
    ]
    typed = any(w.cause == "human" for w in before) or call.base is None
    entry: dict[str, Any] = {
        "t": None if call.start_s is None else round(call.start_s - zero, 6),
        "type": "n" if call.first_s is None else "s",
        "model": call.model,
        "in": prompt.tokens,
        "out": call.usage.completion or 0,
        "hash_ids": [i + 1 for i in prompt.ids[: prompt.tokens // BLOCK_TOKENS]],
        "input_types": ["text"] if typed else ["tool_result"],
        "output_types": kinds,
        "stop": call.stop,
        "api_time": _length(call.start_s, call.end_s),
        "ttft": _length(call.start_s, call.first_s),
        "think_time": round(sum(known), 6) if len(known) == len(before) else None,
    }
    return {key: value for key, value in entry.items() if value is not None}


def _length(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else round(end - begin, 6)
