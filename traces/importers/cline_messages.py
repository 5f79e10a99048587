"""Cline's messages as it sends them: `sessions/ID/*.messages.json` (CLI 3) and `api_conversation_history.json`.

Usage stands on the model's messages: `inputTokens` (VS Code: `tokens.prompt`) includes what came from the cache. The
time of a message is when it was complete; a request's start is not stored. A compacted session keeps its whole history,
and a file beside it holds the messages that stand for the first ones from then on.
"""

import re
from collections.abc import Iterator

from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, media_piece, text_piece
from windtunnel.traces.importers.records import (
    MOST_TOKENS,
    Notes,
    count,
    dumps,
    instant_ms,
    items,
    table,
    tables,
    text,
)
from windtunnel.traces.importers.salvage import Document

_PERSON = re.compile(r"<(?:task|feedback|user_message|answer|user_input)\b")
_TOOL_TEXT = re.compile(r"\[\w+(?: for .*)?\] Result:")
"""How a tool's result begins where results are plain text."""

Value = dict[str, object]


def is_message(value: Value) -> bool:
    return value.get("role") in ("user", "assistant") and "content" in value


def read_messages(
    document: Document, talk: Conversation, notes: Notes, *, main: bool, compaction: Document | None = None
) -> set[str]:
    """Fills `talk`; the providers that answered."""
    replaced = _replaced(compaction)
    providers: set[str] = set()
    uncounted: list[int] = []
    system = text(document.envelope.get("system_prompt"))
    if system:
        talk.add(Draft("system", (text_piece(system),)), None)
    for number, message in enumerate(document.items):
        if compaction is not None and number == replaced:
            talk.compacted([d for m in compaction.items for d in drafts_of(m)])
        when = instant_ms(message.get("ts"))
        if message.get("role") == "assistant":
            if table(message.get("metadata")).get("compaction") == "preserved":
                talk.add(output_of(message), when)
                continue
            exchange = _exchange(message, number, document, notes)
            if not exchange.prompt:
                uncounted.append(number)
            exchange.end = when
            providers.add(text(table(message.get("modelInfo")).get("provider")))
            talk.answer(exchange, output_of(message), tools_start=when)
        elif message.get("role") == "user":
            _heard(message, talk, when, main=main)
        else:
            notes.add(document.line(number), "a message of no known role was left out")
    if uncounted:
        notes.add(document.line(uncounted[0]), f"{len(uncounted)} responses, the first here, have no usage")
    return providers


def _replaced(compaction: Document | None) -> int | None:
    """How many messages a compaction's messages stand for."""
    said = None if compaction is None else compaction.envelope.get("source_message_count")
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def _exchange(message: Value, number: int, document: Document, notes: Notes) -> Exchange:
    metrics = table(message.get("metrics"))
    tokens = table(metrics.get("tokens")) or metrics
    names = ("inputTokens", "prompt"), ("outputTokens", "completion"), ("cacheReadTokens", "cached")
    values = [next((tokens[n] for n in pair if n in tokens), None) for pair in (*names, ("cacheWriteTokens",))]
    # finding a line means reading the file again: only where there is something to say
    sound = all(v is None or (isinstance(v, int) and 0 <= v <= MOST_TOKENS) for v in values)
    line = None if sound else document.line(number)
    what = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
    prompt, completion, cached, created = (count(v, notes, line, w) for v, w in zip(values, what, strict=True))
    info = table(message.get("modelInfo"))
    return Exchange(
        key=str(number),
        line=number,
        prompt=prompt or None,
        cached=min(cached, prompt) if cached is not None and prompt else None,
        created=created if prompt else None,
        completion=completion if prompt else None,
        model=text(info.get("id")) or text(info.get("modelId")) or None,
    )


def _heard(message: Value, talk: Conversation, when: float | None, *, main: bool) -> None:
    """A user message: tools' results, and what a person or the client said."""
    parts = _parts(message)
    answered = False
    for part in parts:
        if part.get("type") == "tool_result":
            answered = True
            error = part.get("is_error") is True or any(r.get("success") is False for r in tables(part.get("content")))
            tool_id = text(part.get("tool_use_id"))
            talk.result(tool_id, _result(part.get("content")), when, name=text(part.get("name")), error=error)
    pieces = [p for part in parts for p in pieces_of(part)]
    talk.saw(when)
    if pieces:
        said = pieces[0].text or ""
        human = bool(_PERSON.search(said)) or not (answered or _TOOL_TEXT.match(said) or message.get("metadata"))
        talk.add(Draft("user", tuple(pieces)), when, human=main and human)


def drafts_of(message: Value) -> Iterator[Draft]:
    """A message as a part of a later prompt."""
    if message.get("role") == "assistant":
        yield output_of(message)
        return
    parts = _parts(message)
    for part in parts:
        if part.get("type") == "tool_result":
            yield Draft("tool", tuple(_result(part.get("content"))), tool_call_id=text(part.get("tool_use_id")) or None)
    pieces = [p for part in parts for p in pieces_of(part)]
    if pieces:
        yield Draft("user", tuple(pieces))


def output_of(message: Value) -> Draft:
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    for part in _parts(message):
        kind = part.get("type")
        if kind in ("thinking", "reasoning"):
            said = text(part.get("thinking")) or text(part.get("text"))
            reasoning += [text_piece(said)] if said else []
        elif kind == "tool_use":
            arguments = text_piece(dumps(part.get("input") or {}), "json")
            calls.append(Asked(text(part.get("id")), text(part.get("name")) or "tool", arguments))
        else:
            pieces += pieces_of(part)
    return Draft("assistant", tuple(pieces), tuple(reasoning), tuple(calls))


def pieces_of(part: Value) -> list[Piece]:
    kind = part.get("type")
    if kind == "text" and text(part.get("text")):
        return [text_piece(text(part.get("text")))]
    if kind == "file" and text(part.get("content")):
        return [text_piece(text(part.get("content")))]
    if kind == "image":
        source = table(part.get("source")) or part
        media = text(source.get("media_type")) or text(source.get("mediaType")) or "image/unknown"
        return [media_piece(media, text(source.get("data")) or text(source.get("url")))]
    return []


def _parts(message: Value) -> list[Value]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [p if isinstance(p, dict) else {"type": "text", "text": p} for p in items(content)]


def _result(content: object) -> list[Piece]:
    """A tool's result: text, parts, or a list of queries with their results."""
    if isinstance(content, str):
        return [text_piece(content)] if content else []
    parts = list(tables(content))
    if parts and not any("type" in p for p in parts):
        return [text_piece(dumps(parts), "json")]
    return [p for part in parts for p in pieces_of(part)]
