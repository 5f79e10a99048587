"""The Anthropic Messages API: a request's prompt and tools, and an answer, streamed or whole.

https://docs.anthropic.com/en/api/messages and its streaming events. `cache_control` marks move from call to call and
are no part of the prompt; content may be a string or a list of blocks, which say the same.
"""

from collections.abc import Iterator
from typing import Any

from windtunnel.agents.recorder.asked import (
    Clean,
    Request,
    as_text,
    asked,
    decimal,
    number,
    said,
    tool_schemas,
)
from windtunnel.agents.recorder.stream import Part, StreamReader
from windtunnel.traces.importers.pieces import Asked, Draft, Piece, media_piece, text_piece
from windtunnel.traces.importers.records import dumps, table, tables
from windtunnel.traces.model import Params, Role


def read_request(body: dict[str, Any], clean: Clean) -> Request:
    drafts = list(_system(body.get("system"), clean))
    for message in tables(body.get("messages")):
        drafts.extend(_message(message, clean))
    tools = list(tables(body.get("tools")))
    names = [as_text(t.get("name")) or as_text(t.get("type")) for t in tools]
    return Request(
        said=[said(d) for d in drafts],
        schemas=tool_schemas(tools, names, clean),
        model=as_text(body.get("model")) or None,
        params=Params(
            temperature=decimal(body.get("temperature")),
            top_p=decimal(body.get("top_p")),
            top_k=number(body.get("top_k")),
            max_tokens=number(body.get("max_tokens")),
            reasoning_effort=as_text(table(body.get("output_config")).get("effort")) or None,
        ),
        structured=bool(body.get("output_format") or table(body.get("output_config")).get("format")),
        metadata=table(body.get("metadata")),
    )


def _system(value: object, clean: Clean) -> Iterator[Draft]:
    pieces = tuple(_pieces(value, clean))
    if pieces:
        yield Draft("system", pieces)


def _pieces(content: object, clean: Clean) -> Iterator[Piece]:
    """Texts and pictures of a content that is a string or a list of blocks."""
    if isinstance(content, str):
        if content:
            yield text_piece(clean(content))
        return
    for block in tables(content):
        kind = block.get("type")
        if kind == "text":
            if as_text(block.get("text")):
                yield text_piece(clean(as_text(block.get("text"))))
        elif kind in ("image", "document"):
            source = table(block.get("source"))
            media = as_text(source.get("media_type")) or f"{kind}/unknown"
            yield media_piece(media, as_text(source.get("data")) or as_text(source.get("url")))
        else:
            yield text_piece(clean(dumps({k: v for k, v in block.items() if k != "cache_control"})), "json")


def _message(message: dict[str, object], clean: Clean) -> Iterator[Draft]:
    role = message.get("role")
    content = message.get("content")
    if role == "assistant":
        yield _assistant(content, clean)
        return
    spoken: Role = "system" if role == "system" else "user"
    if isinstance(content, str):
        yield Draft(spoken, tuple(_pieces(content, clean)))
        return
    held: list[Piece] = []
    for block in tables(content):
        if block.get("type") == "tool_result":
            if held:
                yield Draft(spoken, tuple(held))
                held = []
            result = tuple(_pieces(block.get("content"), clean))
            yield Draft("tool", result, tool_call_id=as_text(block.get("tool_use_id")) or None)
        else:
            held.extend(_pieces([block], clean))
    if held:
        yield Draft(spoken, tuple(held))


def _assistant(content: object, clean: Clean) -> Draft:
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    if isinstance(content, str):
        return Draft("assistant", tuple(_pieces(content, clean)))
    for block in tables(content):
        kind = block.get("type")
        if kind == "thinking":
            reasoning.append(text_piece(clean(as_text(block.get("thinking"))), "prose"))
        elif kind == "redacted_thinking":
            reasoning.append(text_piece(as_text(block.get("data")), "prose"))
        elif kind == "tool_use":
            calls.append(asked(block.get("id"), block.get("name"), block.get("input"), clean))
        else:
            pieces.extend(_pieces([block], clean))
    return Draft("assistant", tuple(pieces), tuple(p for p in reasoning if p.text), tuple(calls))


class MessagesReader(StreamReader):
    def _event(self, t_ns: int, event: dict[str, Any]) -> None:
        kind = event.get("type")
        index = number(event.get("index")) or 0
        if kind == "content_block_delta":
            self._delta(t_ns, index, table(event.get("delta")))
        elif kind == "content_block_start":
            self._open(index, table(event.get("content_block")))
        elif kind == "message_start":
            self._usage(table(table(event.get("message")).get("usage")))
        elif kind == "message_delta":
            self._usage(table(event.get("usage")))
            self.answer.stop = as_text(table(event.get("delta")).get("stop_reason")) or self.answer.stop
        elif kind == "message_stop":
            self.ended = True
        elif kind == "error":
            self.answer.failure = "error_event"
            self.answer.detail = as_text(table(event.get("error")).get("message"))

    def _open(self, index: int, block: dict[str, object]) -> None:
        kind = block.get("type")
        if kind == "tool_use":
            self.parts[index] = Part("call", as_text(block.get("id")), as_text(block.get("name")))
        elif kind in ("thinking", "redacted_thinking"):
            self.parts[index] = Part("reasoning")
            self.parts[index].texts.append(as_text(block.get("data")))
        else:
            self.parts[index] = Part("text")
            self.parts[index].texts.append(as_text(block.get("text")))

    def _delta(self, t_ns: int, index: int, delta: dict[str, object]) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            self.grew(t_ns, index, "text", as_text(delta.get("text")))
        elif kind == "input_json_delta":
            self.grew(t_ns, index, "call", as_text(delta.get("partial_json")))
        elif kind == "thinking_delta":
            self.grew(t_ns, index, "reasoning", as_text(delta.get("thinking")))

    def _usage(self, usage: dict[str, object]) -> None:
        """The last report of each figure counts; the prompt is what was cached, what was written and the rest."""
        answer = self.answer
        fresh = number(usage.get("input_tokens"))
        cached, created = (number(usage.get(f"cache_{what}_input_tokens")) for what in ("read", "creation"))
        if fresh is not None:
            answer.prompt = fresh + (cached or 0) + (created or 0)
            answer.cached = cached if cached is not None else answer.cached
        completion = number(usage.get("output_tokens"))
        answer.completion = completion if completion is not None else answer.completion
        thought = number(table(usage.get("output_tokens_details")).get("thinking_tokens"))
        answer.reasoning = thought if thought is not None else answer.reasoning

    def _whole(self, value: dict[str, Any]) -> None:
        if value.get("type") == "error":
            self.answer.failure = "error_event"
            self.answer.detail = as_text(table(value.get("error")).get("message"))
            return
        self._usage(table(value.get("usage")))
        self.answer.stop = as_text(value.get("stop_reason")) or None
        for index, block in enumerate(tables(value.get("content"))):
            self._open(index, block)
            part = self.parts[index]
            if part.kind == "call":
                part.texts.append(dumps(block.get("input") or {}))
            elif part.kind == "reasoning":
                part.texts.append(as_text(block.get("thinking")))
