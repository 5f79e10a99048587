"""A request and its answer in one form, whichever API they came by."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from windtunnel.agents.events import Chunks
from windtunnel.traces.importers.pieces import Asked, Draft, Piece, ToolSchemas, text_piece
from windtunnel.traces.importers.records import dumps, parse_json
from windtunnel.traces.model import Params, digest_of

Clean = Callable[[str], str]
"""Redacts a text."""


class Said(Struct, frozen=True):
    """A message with what tells it from every other one."""

    draft: Draft
    print: str
    """Digest of all of it but its reasoning; arguments count as JSON, whatever blanks they were written with."""
    thought: str
    """Digest of its reasoning; empty without any."""


class Request(Struct):
    """A request to a model. Texts are redacted."""

    said: list[Said]
    schemas: ToolSchemas | None = None
    model: str | None = None
    params: Params = Params()
    structured: bool = False
    """The answer has to be JSON of a given shape."""
    metadata: dict[str, Any] = {}
    """What the client says about itself in the body."""


class Answer(Struct):
    """What came back. Times are ns of CLOCK_MONOTONIC; counts None where not reported."""

    output: Draft | None = None
    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    stop: str | None = None
    t_first: int | None = None
    t_first_visible: int | None = None
    t_first_tool: int | None = None
    t_last: int | None = None
    chunk_t: list[int] = []
    chunk_n: list[int] = []
    ended: bool = False
    """The stream's own end came."""
    failure: str | None = None
    detail: str | None = None

    def chunks(self, t_sent: int) -> Chunks:
        before, us = t_sent, []
        for t in self.chunk_t:
            us.append(max(0, (t - before) // 1000))
            before = t
        return Chunks(tuple(us), tuple(self.chunk_n))


class Reader(Protocol):
    """Reads an answer as it comes."""

    @property
    def tokens_so_far(self) -> int: ...

    @property
    def ended(self) -> bool: ...

    @property
    def tail(self) -> str: ...

    def calls(self) -> list[tuple[str, str, str]]:
        """(id, name, arguments) of tool calls that are complete, as far as can be told."""
        ...

    def feed(self, t_ns: int, data: bytes) -> None: ...

    def finish(self, clean: Clean) -> Answer: ...


def said(draft: Draft) -> Said:
    parts = [draft.role, draft.tool_call_id or "", *(p.digest for p in draft.pieces)]
    for call in draft.calls:
        parts += [call.id, call.name, canonical(call.arguments)]
    thought = digest_of(*(p.digest for p in draft.reasoning)) if draft.reasoning else ""
    return Said(draft, digest_of(*parts), thought)


def canonical(arguments: Piece) -> str:
    """Digest of arguments that does not depend on blanks; that of the text where it is no JSON."""
    text = arguments.text or ""
    try:
        return digest_of(dumps(parse_json(text.encode())))
    except ValueError:
        return arguments.digest


def tool_schemas(tools: list[Any], names: list[str], clean: Clean) -> ToolSchemas | None:
    """The tools a request carried, without marks of where a provider should cache."""
    if not tools:
        return None
    bare = [{k: v for k, v in t.items() if k != "cache_control"} if isinstance(t, dict) else t for t in tools]
    return ToolSchemas(tuple(names), text_piece(clean(dumps(bare)), "json"))


def asked(call_id: object, name: object, arguments: object, clean: Clean) -> Asked:
    """A tool call; arguments as text, or as JSON that is written out."""
    text = arguments if isinstance(arguments, str) else dumps(arguments)
    return Asked(as_text(call_id), as_text(name) or "tool", text_piece(clean(text), "json"))


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def decimal(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def decode_object(body: bytes) -> dict[str, Any]:
    """A JSON object; empty for anything that is none."""
    try:
        value = parse_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def decode_event(payload: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_object(payload)
    return value if isinstance(value, dict) else {}
