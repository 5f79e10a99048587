"""The OpenAI Responses API: items to messages, and an answer, streamed or whole.

https://platform.openai.com/docs/api-reference/responses. Consecutive items that the model wrote (reasoning, a message,
tool calls) make one assistant message, in a request's history as in an answer.
"""

from collections.abc import Iterator
from typing import Any

from windtunnel.agents.recorder.asked import Clean, Request, as_text, asked, decimal, number, said, tool_schemas
from windtunnel.agents.recorder.stream import Part, StreamReader
from windtunnel.traces.importers.pieces import Asked, Draft, Piece, media_piece, text_piece
from windtunnel.traces.importers.records import dumps, table, tables
from windtunnel.traces.model import Params, Role

ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "system"}
_FRAME = frozenset({"id", "status", "object"})


def read_request(body: dict[str, Any], clean: Clean) -> Request:
    drafts: list[Draft] = []
    instructions = as_text(body.get("instructions"))
    if instructions:
        drafts.append(Draft("system", (text_piece(clean(instructions)),)))
    given = body.get("input")
    if isinstance(given, str):
        drafts.append(Draft("user", (text_piece(clean(given)),)))
    else:
        drafts.extend(_messages(tables(given), clean))
    tools = list(tables(body.get("tools")))
    return Request(
        said=[said(d) for d in drafts],
        schemas=tool_schemas(tools, [n for t in tools for n in _names(t)], clean),
        model=as_text(body.get("model")) or None,
        params=Params(
            temperature=decimal(body.get("temperature")),
            top_p=decimal(body.get("top_p")),
            max_tokens=number(body.get("max_output_tokens")),
            reasoning_effort=as_text(table(body.get("reasoning")).get("effort")) or None,
        ),
        structured=table(table(body.get("text")).get("format")).get("type") == "json_schema",
        metadata={**table(body.get("metadata")), **table(body.get("client_metadata"))},
    )


def _names(tool: dict[str, object]) -> list[str]:
    """A namespace holds tools of its own."""
    if tool.get("type") == "namespace":
        return [name for inner in tables(tool.get("tools")) for name in _names(inner)]
    return [as_text(tool.get("name")) or as_text(tool.get("type"))]


class Written:
    """An assistant message being put together from items."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.reasoning: list[Piece] = []
        self.calls: list[Asked] = []

    def take(self, item: dict[str, object], clean: Clean) -> None:
        kind = as_text(item.get("type"))
        if kind in ("message", ""):
            self.pieces.extend(content_pieces(item.get("content"), clean))
        elif kind == "reasoning":
            texts = [*tables(item.get("content")), *tables(item.get("summary"))]
            text = "\n".join(as_text(t.get("text")) for t in texts) or as_text(item.get("encrypted_content"))
            if text:
                self.reasoning.append(text_piece(clean(text), "prose"))
        elif as_text(item.get("call_id")):
            self.calls.append(asked(item.get("call_id"), name_of(item), arguments_of(item), clean))
        else:
            self.pieces.append(text_piece(clean(dumps({k: v for k, v in item.items() if k not in _FRAME})), "json"))

    def draft(self) -> Draft | None:
        if not (self.pieces or self.reasoning or self.calls):
            return None
        return Draft("assistant", tuple(self.pieces), tuple(self.reasoning), tuple(self.calls))


def _messages(items: Iterator[dict[str, object]], clean: Clean) -> Iterator[Draft]:
    written = Written()
    for item in items:
        kind, role = as_text(item.get("type")), as_text(item.get("role"))
        ours = kind.endswith("_output") or (kind in ("message", "") and role in ROLES)
        if not ours:
            written.take(item, clean)
            continue
        draft = written.draft()
        if draft is not None:
            yield draft
            written = Written()
        if kind.endswith("_output"):
            output = tuple(content_pieces(item.get("output"), clean))
            yield Draft("tool", output, tool_call_id=as_text(item.get("call_id")) or None)
        else:
            yield Draft(ROLES[role], tuple(content_pieces(item.get("content"), clean)))
    last = written.draft()
    if last is not None:
        yield last


def content_pieces(content: object, clean: Clean) -> Iterator[Piece]:
    if isinstance(content, str):
        if content:
            yield text_piece(clean(content))
        return
    if isinstance(content, dict):
        yield text_piece(clean(dumps(content)), "json")
        return
    for part in tables(content):
        text = part.get("text") if "text" in part else part.get("refusal")
        if isinstance(text, str):
            if text:
                yield text_piece(clean(text))
        elif part.get("type") in ("input_image", "input_file"):
            url = as_text(part.get("image_url")) or as_text(part.get("file_data")) or as_text(part.get("file_id"))
            yield media_from_url(url, as_text(part.get("type")))
        else:
            yield text_piece(clean(dumps(part)), "json")


def media_from_url(url: str, kind: str) -> Piece:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:"):
        return media_piece(head[5:].partition(";")[0] or f"{kind}/unknown", data)
    return media_piece(f"{kind}/unknown", url)


def name_of(item: dict[str, object]) -> str:
    return as_text(item.get("name")) or as_text(item.get("type")).removesuffix("_call")


def arguments_of(item: dict[str, object]) -> object:
    for key in ("arguments", "input", "action"):
        if key in item:
            return item[key]
    return {}


class ResponsesReader(StreamReader):
    def __init__(self, content_type: str) -> None:
        super().__init__(content_type)
        self._items: dict[int, dict[str, object]] = {}
        """Finished items by their place in the output."""

    def _event(self, t_ns: int, event: dict[str, Any]) -> None:
        kind = as_text(event.get("type"))
        place = number(event.get("output_index")) or 0
        if kind.endswith(".delta"):
            self._delta(t_ns, kind, place, as_text(event.get("delta")))
        elif kind == "response.output_item.added":
            item = table(event.get("item"))
            if as_text(item.get("call_id")):
                self.parts[place] = Part("call", as_text(item.get("call_id")), name_of(item))
        elif kind == "response.output_item.done":
            item = self._items[place] = table(event.get("item"))
            if as_text(item.get("call_id")) and not (place in self.parts and self.parts[place].texts):
                self.grew(t_ns, place, "call", "")  # a call that came in one piece
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._whole(table(event.get("response")))
            self.ended = kind != "response.failed"
        elif kind == "error":
            self.answer.failure = "error_event"
            self.answer.detail = as_text(event.get("message")) or as_text(table(event.get("error")).get("message"))

    def _delta(self, t_ns: int, kind: str, place: int, text: str) -> None:
        if not text:
            return
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self.grew(t_ns, place, "text", text)
        elif "reasoning" in kind:
            self.grew(t_ns, place, "reasoning", text)
        else:
            self.grew(t_ns, place, "call", text)

    def _whole(self, value: dict[str, Any]) -> None:
        answer = self.answer
        usage = table(value.get("usage"))
        answer.prompt = number(usage.get("input_tokens"))
        answer.cached = number(table(usage.get("input_tokens_details")).get("cached_tokens"))
        answer.completion = number(usage.get("output_tokens"))
        answer.reasoning = number(table(usage.get("output_tokens_details")).get("reasoning_tokens"))
        why = as_text(table(value.get("incomplete_details")).get("reason"))
        answer.stop = why or as_text(value.get("status")) or None
        error = table(value.get("error"))
        if error or value.get("status") == "failed":
            answer.failure = "error_event"
            answer.detail = as_text(error.get("message"))
        output = list(tables(value.get("output")))
        if output:
            self._items = dict(enumerate(output))

    def _draft(self, clean: Clean) -> Draft | None:
        """Finished items where they came; what the deltas gave of an answer that broke off."""
        if not self._items:
            return super()._draft(clean)
        written = Written()
        for place in sorted(self._items):
            written.take(self._items[place], clean)
        return written.draft()
