"""The Chat Completions API: a request's prompt and tools, and an answer, streamed or whole."""

from collections.abc import Iterator
from typing import Any

from windtunnel.agents.recorder.asked import (
    Answer,
    Clean,
    Request,
    as_text,
    asked,
    decimal,
    decode_object,
    number,
    said,
    tool_schemas,
)
from windtunnel.agents.recorder.responses import ROLES, media_from_url
from windtunnel.agents.sse import Parser
from windtunnel.traces.importers.pieces import Draft, Piece, text_piece
from windtunnel.traces.importers.records import dumps, table, tables
from windtunnel.traces.model import Params


def read_request(body: dict[str, Any], clean: Clean) -> Request:
    drafts = [_message(m, clean) for m in tables(body.get("messages"))]
    tools = list(tables(body.get("tools")))
    names = [as_text(table(t.get("function")).get("name")) or as_text(t.get("type")) for t in tools]
    limit = number(body.get("max_completion_tokens"))
    return Request(
        said=[said(d) for d in drafts],
        schemas=tool_schemas(tools, names, clean),
        model=as_text(body.get("model")) or None,
        params=Params(
            temperature=decimal(body.get("temperature")),
            top_p=decimal(body.get("top_p")),
            top_k=number(body.get("top_k")),
            max_tokens=limit if limit is not None else number(body.get("max_tokens")),
            reasoning_effort=as_text(body.get("reasoning_effort")) or None,
        ),
        structured=table(body.get("response_format")).get("type") == "json_schema",
        metadata={**table(body.get("metadata")), "user": body.get("user")},
    )


def _message(message: dict[str, object], clean: Clean) -> Draft:
    role = as_text(message.get("role"))
    pieces = tuple(_pieces(message.get("content"), clean))
    if role == "assistant":
        thought = as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))
        calls = [
            asked(c.get("id"), table(c.get("function")).get("name"), table(c.get("function")).get("arguments"), clean)
            for c in tables(message.get("tool_calls"))
        ]
        return Draft("assistant", pieces, (text_piece(clean(thought)),) if thought else (), tuple(calls))
    if role in ("tool", "function"):
        return Draft("tool", pieces, tool_call_id=as_text(message.get("tool_call_id")) or None)
    return Draft(ROLES.get(role, "user"), pieces, name=as_text(message.get("name")) or None)


def _pieces(content: object, clean: Clean) -> Iterator[Piece]:
    if isinstance(content, str):
        if content:
            yield text_piece(clean(content))
        return
    for part in tables(content):
        if isinstance(part.get("text"), str):
            if part["text"]:
                yield text_piece(clean(as_text(part["text"])))
        elif part.get("type") == "image_url":
            yield media_from_url(as_text(table(part.get("image_url")).get("url")), "image")
        else:
            yield text_piece(clean(dumps({k: v for k, v in part.items() if k != "cache_control"})), "json")


class ChatReader:
    """The parser of replayed streams, and a whole answer beside it."""

    def __init__(self, content_type: str) -> None:
        self._parser = Parser()
        self._streams = "event-stream" in content_type
        self._plain = bytearray()
        self._t: int | None = None

    @property
    def tokens_so_far(self) -> int:
        return self._parser.tokens_so_far

    @property
    def ended(self) -> bool:
        return self._parser.ended

    @property
    def tail(self) -> str:
        return self._parser.tail

    def calls(self) -> list[tuple[str, str, str]]:
        return []  # clients of this API wait for the end

    def feed(self, t_ns: int, data: bytes) -> None:
        if self._streams:
            self._parser.feed(t_ns, data)
        else:
            self._plain += data
            self._t = self._t or t_ns

    def finish(self, clean: Clean) -> Answer:
        if not self._streams:
            return self._whole(decode_object(bytes(self._plain)), clean)
        parsed = self._parser.finish()
        calls = tuple(asked(i, name, arguments or "{}", clean) for i, name, arguments in parsed.tool_calls)
        text = (text_piece(clean(parsed.whole_text)),) if parsed.text else ()
        thought = (text_piece(clean(parsed.whole_reasoning)),) if parsed.reasoning else ()
        failed = parsed.failure == "error_event"
        return Answer(
            output=Draft("assistant", text, thought, calls) if text or thought or calls else None,
            prompt=parsed.prompt_tokens,
            cached=parsed.cached_tokens,
            completion=parsed.completion_tokens,
            reasoning=parsed.reasoning_tokens,
            stop=parsed.finish,
            t_first=parsed.t_first,
            t_first_visible=parsed.t_first_visible,
            t_first_tool=parsed.t_first_tool,
            t_last=parsed.t_last,
            chunk_t=list(parsed.chunk_t),
            chunk_n=list(parsed.chunk_n),
            ended=parsed.ended or (parsed.finish is not None and not failed),
            failure=parsed.failure if failed else None,
            detail=parsed.detail if failed else None,
        )

    def _whole(self, value: dict[str, Any], clean: Clean) -> Answer:
        choice = next(tables(value.get("choices")), {})
        message = table(choice.get("message"))
        usage = table(value.get("usage"))
        if not choice:
            said_error = as_text(table(value.get("error")).get("message")) or None
            return Answer(failure="error_event" if value else None, detail=said_error)
        draft = _message({**message, "role": "assistant"}, clean)
        return Answer(
            output=draft if draft.pieces or draft.calls or draft.reasoning else None,
            prompt=number(usage.get("prompt_tokens")),
            cached=number(table(usage.get("prompt_tokens_details")).get("cached_tokens")),
            completion=number(usage.get("completion_tokens")),
            reasoning=number(table(usage.get("completion_tokens_details")).get("reasoning_tokens")),
            stop=as_text(choice.get("finish_reason")) or None,
            t_first=self._t,
            t_first_visible=self._t,
            t_last=self._t,
            ended=True,
        )
