"""Mooncake rows: plain (requests and their times), Dynamo's dialect (sessions of whole prompts), AIPerf's (new tokens).

A thread is a session of its own in both dialects: they know no sub-agents. Blocks hold 512 tokens; the last one of a
prompt has an id too.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from windtunnel.traces.exporters.blocks import BlockIds, Prompt, after, keeps_all, parts, prompts
from windtunnel.traces.exporters.exported import Exported
from windtunnel.traces.model import Call, Problem, Trace

BLOCK_TOKENS = 512
BEGINS_ANEW = "the prompt does not extend the one before it: a new session begins"


def write(traces: Sequence[Trace]) -> Exported:
    """Requests in order of time, without sessions."""
    blocks, zero = BlockIds(BLOCK_TOKENS), _zero(traces)
    rows: list[tuple[float, dict[str, Any]]] = []
    for trace in traces:
        latest = 0.0
        for call, prompt in zip(trace.calls, prompts(trace, blocks), strict=True):
            at = _at(trace, call, zero)
            latest = latest if at is None else at
            rows.append((latest, _row(call, prompt.tokens, prompt.ids, timestamp=at)))
    rows.sort(key=lambda row: row[0])
    return _file((row for _, row in rows), [])


def write_dynamo(traces: Sequence[Trace]) -> Exported:
    """Sessions whose every row is a whole prompt."""
    blocks, zero = BlockIds(BLOCK_TOKENS), _zero(traces)
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for trace in traces:
        pauses = pauses_of(trace)
        for thread, calls in _threads(trace, blocks, problems):
            for at, (call, prompt) in enumerate(calls):
                when = _at(trace, call, zero) if not at else None
                delay = pauses.get(call.id) if at else None
                rows.append(
                    _row(call, prompt.tokens, prompt.ids, session=_name(trace, thread, 0), timestamp=when, delay=delay)
                )
    return _file(rows, problems)


def write_aiperf(traces: Sequence[Trace]) -> Exported:
    """Sessions whose later rows hold the new tokens only: the prompt less the one before it and that one's output.

    A prompt that keeps less than all of the one before it cannot be said so: it begins a session anew. Where a client
    sent less of an output back than the model wrote (dropped reasoning), the new tokens are fewer by as many, one at
    the least; what the prompt is longer by then is said.
    """
    blocks, zero = BlockIds(BLOCK_TOKENS), _zero(traces)
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for trace in traces:
        pauses = pauses_of(trace)
        streams = {c.id: tuple(messages) for c, messages in trace.prompts()}
        for thread, calls in _threads(trace, blocks, problems):
            begun, carried = 0, 0
            before: Call | None = None
            for call, prompt in calls:
                size, ids = prompt.tokens, prompt.ids
                if before is not None and keeps_all(call, before, streams):
                    size = max(1, prompt.tokens - carried)
                    if carried + size > prompt.tokens:
                        problems.append(Problem(trace.header.id, call.id, _longer(carried + size - prompt.tokens)))
                    ids = blocks.of(after(parts(trace, call.tools, streams[call.id]), prompt.tokens - size))
                    rows.append(_row(call, size, ids, session=_name(trace, thread, begun), delay=pauses.get(call.id)))
                    size += carried
                else:
                    if before is not None:
                        begun += 1
                        problems.append(Problem(trace.header.id, call.id, BEGINS_ANEW))
                    name, when = _name(trace, thread, begun), _at(trace, call, zero)
                    rows.append(_row(call, size, ids, session=name, timestamp=when or 0.0))
                carried = size + (call.usage.completion or 0)
                before = call
    return _file(rows, problems)


def _longer(tokens: int) -> str:
    return f"the prompt is {tokens} tokens longer here: the format keeps every output whole in the history"


def _threads(
    trace: Trace, blocks: BlockIds, problems: list[Problem]
) -> Iterator[tuple[int, list[tuple[Call, Prompt]]]]:
    grouped: dict[int, list[tuple[Call, Prompt]]] = {}
    for call, prompt in zip(trace.calls, prompts(trace, blocks), strict=True):
        grouped.setdefault(call.thread, []).append((call, prompt))
    if len(grouped) > 1:
        problems.append(Problem(trace.header.id, None, "sub-agents become sessions of their own"))
    yield from sorted(grouped.items())


def _name(trace: Trace, thread: int, part: int) -> str:
    return trace.header.id + (f"/{thread}" if thread else "") + (f"#{part}" if part else "")


def _zero(traces: Sequence[Trace]) -> float:
    return min((t.header.started_at for t in traces if t.header.started_at and not t.header.synthetic), default=0.0)


def _at(trace: Trace, call: Call, zero: float) -> float | None:
    """Milliseconds since the first trace's start. The dates of synthetic traces say nothing: all begin at 0."""
    if call.start_s is None:
        return None
    begun = None if trace.header.synthetic else trace.header.started_at
    return round(((0.0 if begun is None else begun - zero) + call.start_s) * 1000, 3)


def pauses_of(trace: Trace) -> dict[int, float]:
    """Milliseconds between the previous answer and each call, where every part of the pause is known."""
    found: dict[int, float | None] = {}
    for wait in trace.waits:
        before = found.get(wait.before, 0.0)
        found[wait.before] = None if wait.seconds is None or before is None else before + wait.seconds
    return {call: round(s * 1000, 3) for call, s in found.items() if s is not None}


def _row(
    call: Call,
    tokens: int,
    ids: list[int],
    *,
    session: str | None = None,
    timestamp: float | None = None,
    delay: float | None = None,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "session_id": session,
        "timestamp": timestamp,
        "delay": delay,
        "input_length": tokens,
        "output_length": call.usage.completion or 0,
        "hash_ids": ids,
    }
    return {key: value for key, value in row.items() if value is not None}


def _file(rows: Iterator[dict[str, Any]] | Sequence[dict[str, Any]], problems: list[Problem]) -> Exported:
    data = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
    return Exported((data,), tuple(problems))
