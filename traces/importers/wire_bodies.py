"""Request bodies as agents send them: Chat Completions, Anthropic Messages, Responses.

A body repeats the whole history; only what is new in it is turned into drafts (`Body.drafts`), the rest is told by its
digests.
"""

from collections.abc import Sequence

from msgspec import Struct

from windtunnel.traces.importers.chat_messages import draft_of
from windtunnel.traces.importers.claude_parts import pieces_of
from windtunnel.traces.importers.pieces import Asked, Draft, Piece, ToolSchemas, media_piece, text_piece
from windtunnel.traces.importers.records import dumps, items, table, tables, text
from windtunnel.traces.importers.thread_writer import arguments_piece
from windtunnel.traces.model import digest_of

Json = dict[str, object]


class Body(Struct, frozen=True):
    """What a request says. `entries` are its messages or items in order, the system prompt first."""

    entries: tuple[Json, ...]
    digests: tuple[str, ...]
    front: int
    """How many of the entries are the system prompt."""
    schemas: ToolSchemas | None
    model: str | None
    max_tokens: object = None
    effort: str | None = None

    def drafts(self, begin: int) -> list[Draft]:
        """The messages from entry `begin` on; entries of one answer of the model become one."""
        out: list[Draft] = []
        for entry in self.entries[begin:]:
            for draft in _drafts(entry):
                if draft.role == "assistant" and out and out[-1].role == "assistant":
                    out[-1] = _joined(out[-1], draft)
                else:
                    out.append(draft)
        return out

    def answered(self, begin: int) -> int:
        """The first entry from `begin` on that the model did not write."""
        while begin < len(self.entries) and _by_model(self.entries[begin]):
            begin += 1
        return begin


def body_of(value: Json) -> Body | None:
    """None for a body that asks no model to continue a conversation."""
    listed = items(value.get("messages")) or items(value.get("input"))
    said = text(value.get("input")) or text(value.get("prompt"))
    entries = [table(m) for m in listed] or ([{"role": "user", "content": said}] if said else [])
    if not entries:
        return None
    system = value.get("system") if value.get("system") is not None else value.get("instructions")
    if system:
        entries.insert(0, {"role": "system", "content": system})
    front = next((i for i, e in enumerate(entries) if e.get("role") not in ("system", "developer")), len(entries))
    listed_tools = [t for t in tables(value.get("tools")) if t]
    names = tuple(text(t.get("name")) or text(table(t.get("function")).get("name")) for t in listed_tools)
    return Body(
        entries=tuple(entries),
        digests=tuple(digest_of(dumps(_bare(e))) for e in entries),
        front=front,
        schemas=ToolSchemas(names, text_piece(dumps(listed_tools), "json")) if listed_tools else None,
        model=text(value.get("model")) or None,
        max_tokens=value.get("max_completion_tokens") or value.get("max_tokens") or value.get("max_output_tokens"),
        effort=text(value.get("reasoning_effort")) or text(table(value.get("reasoning")).get("effort")) or None,
    )


def _bare(value: object) -> object:
    """Without cache marks, which move from request to request and are no text."""
    if isinstance(value, dict):
        return {k: _bare(v) for k, v in value.items() if k != "cache_control"}
    return [_bare(v) for v in value] if isinstance(value, list) else value


def _by_model(entry: Json) -> bool:
    return entry.get("role") == "assistant" or entry.get("type") in ("function_call", "reasoning", "custom_tool_call")


def _drafts(entry: Json) -> list[Draft]:
    kind = text(entry.get("type"))
    if kind in ("function_call", "custom_tool_call"):
        written = entry.get("arguments") if entry.get("arguments") is not None else entry.get("input")
        asked = Asked(text(entry.get("call_id")), text(entry.get("name")) or "tool", arguments_piece(written or ""))
        return [Draft("assistant", calls=(asked,))]
    if kind.endswith("_call_output"):
        output = entry.get("output")
        shown = output if isinstance(output, str) else "\n".join(text(p.get("text")) for p in tables(output))
        own = text(entry.get("call_id")) or None
        return [Draft("tool", (text_piece(shown),) if shown else (), tool_call_id=own)]
    if kind == "reasoning":
        thought = [text(p.get("text")) for p in (*tables(entry.get("content")), *tables(entry.get("summary")))]
        return [Draft("assistant", reasoning=tuple(text_piece(t) for t in thought if t))]
    parts = list(tables(entry.get("content")))
    if any(p.get("type") in ("tool_result", "tool_use", "thinking", "document") or "source" in p for p in parts):
        return anthropic_drafts(entry, parts)
    return [draft_of(entry)]


def anthropic_drafts(entry: Json, parts: Sequence[Json]) -> list[Draft]:
    """A message of Anthropic's API; each tool result becomes a message of its own, before what a person said."""
    out: list[Draft] = []
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    for part in parts:
        kind = part.get("type")
        if kind == "tool_result":
            content = part.get("content")
            inner = [text_piece(content)] if isinstance(content, str) and content else []
            inner += [p for c in tables(content) for p in pieces_of(c)]
            out.append(Draft("tool", tuple(inner), tool_call_id=text(part.get("tool_use_id")) or None))
        elif kind == "tool_use":
            calls.append(
                Asked(text(part.get("id")), text(part.get("name")) or "tool", arguments_piece(part.get("input") or {}))
            )
        elif kind == "thinking" and text(part.get("thinking")):
            reasoning.append(text_piece(text(part.get("thinking"))))
        elif "image_url" in part:
            pieces.append(media_piece("image/unknown", dumps(part.get("image_url"))))
        else:
            pieces += pieces_of(part)
    role = text(entry.get("role"))
    if pieces or reasoning or calls:
        told = "assistant" if role == "assistant" else "system" if role in ("system", "developer") else "user"
        out.append(Draft(told, tuple(pieces), tuple(reasoning), tuple(calls)))  # type: ignore[arg-type]
    return out


def _joined(a: Draft, b: Draft) -> Draft:
    return Draft("assistant", a.pieces + b.pieces, a.reasoning + b.reasoning, a.calls + b.calls)
