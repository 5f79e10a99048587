"""Response bodies as servers send them, JSON or server-sent events: Chat Completions, Anthropic Messages, Responses."""

from collections.abc import Iterator

from windtunnel.traces.importers import claude_parts
from windtunnel.traces.importers.chat_messages import draft_of, take_usage
from windtunnel.traces.importers.conversation import STOPS
from windtunnel.traces.importers.pieces import Draft, Exchange
from windtunnel.traces.importers.records import Notes, count, items, parse_json, table, tables, text
from windtunnel.traces.importers.wire_bodies import Json, anthropic_drafts, body_of

_MOST_PARTS = 10_000
"""Parallel parts of an answer by index; a larger index is nonsense."""


def take_answer(exchange: Exchange, raw: str, notes: Notes, line: int | None) -> Draft | None:
    """Usage and stop reason into the exchange; the model's message, or None where there is none to read."""
    stripped = raw.lstrip()
    value = _parsed(stripped) if stripped[:1] == "{" else _assembled(list(_events(raw)))
    return take_value(exchange, value, notes, line) if value else None


def take_value(exchange: Exchange, value: Json, notes: Notes, line: int | None) -> Draft | None:
    usage = table(value.get("usage"))
    exchange.model = text(value.get("model")) or exchange.model
    if isinstance(value.get("choices"), list):
        take_usage(exchange, usage, notes, line)
        choice = next(tables(value.get("choices")), {})
        exchange.stop = _stop(choice.get("finish_reason"))
        return _as_model(draft_of(table(choice.get("message"))))
    if isinstance(value.get("output"), list):
        _take_responses_usage(exchange, usage, notes, line)
        exchange.stop = _stop(value.get("status"))
        body = body_of({"input": value.get("output")})
        drafts = body.drafts(0) if body else []
        return _as_model(drafts[0]) if drafts else None
    if isinstance(value.get("content"), list):
        claude_parts.take_usage(exchange, usage, notes, line)
        exchange.stop = _stop(value.get("stop_reason"))
        drafts = anthropic_drafts({"role": "assistant"}, list(tables(value.get("content"))))
        return _as_model(drafts[-1]) if drafts else None
    return None


def _as_model(draft: Draft) -> Draft:
    return Draft("assistant", draft.pieces, draft.reasoning, draft.calls)


def _stop(value: object) -> str | None:
    said = text(value)
    return STOPS.get(said, said) or None


def _take_responses_usage(exchange: Exchange, usage: Json, notes: Notes, line: int | None) -> None:
    exchange.prompt = count(usage.get("input_tokens"), notes, line, "input_tokens") or None
    cached = table(usage.get("input_tokens_details")).get("cached_tokens")
    exchange.cached = count(cached, notes, line, "cached_tokens")
    exchange.completion = count(usage.get("output_tokens"), notes, line, "output_tokens")
    thought = table(usage.get("output_tokens_details")).get("reasoning_tokens")
    exchange.reasoning = count(thought, notes, line, "reasoning_tokens")


def _parsed(raw: str) -> Json:
    try:
        return table(parse_json(raw.encode("utf-8", "replace")))
    except ValueError:
        return {}


def _events(raw: str) -> Iterator[Json]:
    """The JSON objects of a stream's `data:` lines; events end at a blank line."""
    for event in raw.replace("\r\n", "\n").split("\n\n"):
        data = "\n".join(row[5:].lstrip(" ") for row in event.split("\n") if row.startswith("data:"))
        if data.startswith("{"):
            value = _parsed(data)
            if value:
                yield value


def _assembled(events: list[Json]) -> Json:
    """The answer that a stream's events add up to, in the form in which it comes without streaming."""
    for event in reversed(events):
        whole = table(event.get("response"))
        if text(event.get("type")).startswith("response.") and isinstance(whole.get("output"), list):
            return whole
    if any(text(e.get("type")) == "message_start" for e in events):
        return _anthropic(events)
    return _chat(events) if any("choices" in e for e in events) else {}


def _chat(events: list[Json]) -> Json:
    said: list[str] = []
    thought: list[str] = []
    calls: dict[int, tuple[dict[str, str], list[str]]] = {}
    out: Json = {}
    stop: object = None
    for event in events:
        out["model"] = event.get("model") or out.get("model")
        if table(event.get("usage")):
            out["usage"] = event.get("usage")
        choice = next(tables(event.get("choices")), {})
        delta = table(choice.get("delta"))
        stop = choice.get("finish_reason") or stop
        said.append(text(delta.get("content")))
        thought.append(text(delta.get("reasoning_content")) or text(delta.get("reasoning")))
        for part in tables(delta.get("tool_calls")):
            index = part.get("index")
            at = index if isinstance(index, int) and 0 <= index < _MOST_PARTS else len(calls)
            named, written = calls.setdefault(at, ({}, []))
            function = table(part.get("function"))
            for key, value in (("id", text(part.get("id"))), ("name", text(function.get("name")))):
                if value:
                    named[key] = value
            written.append(text(function.get("arguments")))
    message: Json = {
        "content": "".join(said),
        "reasoning_content": "".join(thought),
        "tool_calls": [
            {"id": named.get("id"), "function": {"name": named.get("name"), "arguments": "".join(written)}}
            for _, (named, written) in sorted(calls.items())
        ],
    }
    return out | {"choices": [{"message": message, "finish_reason": stop}]}


def _anthropic(events: list[Json]) -> Json:
    out: Json = {"content": []}
    usage: Json = {}
    parts: dict[int, Json] = {}
    texts: dict[int, list[str]] = {}
    for event in events:
        kind, index = event.get("type"), event.get("index")
        at = index if isinstance(index, int) and 0 <= index < _MOST_PARTS else 0
        delta = table(event.get("delta"))
        if kind == "message_start":
            message = table(event.get("message"))
            out["model"] = message.get("model")
            usage |= table(message.get("usage"))
        elif kind == "content_block_start":
            parts[at] = table(event.get("content_block"))
        elif kind == "content_block_delta":
            written = next((text(delta.get(k)) for k in ("text", "thinking", "partial_json") if text(delta.get(k))), "")
            texts.setdefault(at, []).append(written)
        elif kind == "message_delta":
            out["stop_reason"] = delta.get("stop_reason")
            usage |= {k: v for k, v in table(event.get("usage")).items() if v is not None}
    content: list[object] = []
    for at, part in sorted(parts.items()):
        whole = "".join(texts.get(at, []))
        if part.get("type") == "tool_use":
            content.append(part | {"input": _parsed(whole) or part.get("input")})
        elif part.get("type") in ("text", "thinking"):
            content.append(part | {text(part.get("type")): text(part.get(text(part.get("type")))) + whole})
    return out | {"content": items(content), "usage": usage}
