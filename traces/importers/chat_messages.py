"""Chat Completions messages and usage, as agents keep them in their logs."""

from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, media_piece, text_piece
from windtunnel.traces.importers.records import Notes, count, items, table, tables, text
from windtunnel.traces.importers.thread_writer import arguments_piece
from windtunnel.traces.model import Role

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "assistant": "assistant", "tool": "tool"}


def pieces_of(content: object) -> list[Piece]:
    """A text, or a list of text and image parts."""
    if isinstance(content, str):
        return [text_piece(content)] if content else []
    return [piece for part in tables(content) for piece in _part(part)]


def _part(part: dict[str, object]) -> list[Piece]:
    said = text(part.get("text"))
    if said:
        return [text_piece(said)]
    addresses = [text(u) for u in (part.get("image_url"), table(part.get("image_url")).get("url"))]
    addresses += [u for u in items(part.get("image_urls")) if isinstance(u, str)]
    return [_image(a) for a in addresses if a]


def _image(address: str) -> Piece:
    head, _, data = address.partition(",")
    media = head.removeprefix("data:").partition(";")[0] if head.startswith("data:") else "image/unknown"
    return media_piece(media, data or address)


def plain(content: object) -> str:
    """The text of a message's content."""
    return content if isinstance(content, str) else "\n".join(text(p.get("text")) for p in tables(content))


def draft_of(message: dict[str, object]) -> Draft:
    said = pieces_of(message.get("content"))
    thought = text(message.get("reasoning_content"))
    blocks = [text(b.get("thinking")) for b in tables(message.get("thinking_blocks"))]
    return Draft(
        role=_ROLES.get(text(message.get("role")), "user"),
        pieces=tuple(said),
        reasoning=tuple(text_piece(t) for t in ([thought] if thought else blocks) if t),
        calls=tuple(asked(message)),
        tool_call_id=text(message.get("tool_call_id")) or None,
        name=text(message.get("name")) or None,
    )


def asked(message: dict[str, object]) -> list[Asked]:
    calls = [(call, table(call.get("function"))) for call in tables(message.get("tool_calls"))]
    return [
        Asked(text(call.get("id")), text(f.get("name")) or "tool", arguments_piece(f.get("arguments")))
        for call, f in calls
    ]


def take_usage(exchange: Exchange, usage: dict[str, object], notes: Notes, line: int | None) -> None:
    """Usage as LiteLLM passes it on: the prompt includes what was cached, the completion its reasoning."""
    exchange.prompt = count(usage.get("prompt_tokens"), notes, line, "prompt_tokens") or None
    completion = count(usage.get("completion_tokens"), notes, line, "completion_tokens")
    exchange.completion = completion if completion or exchange.prompt else None
    cached = table(usage.get("prompt_tokens_details")).get("cached_tokens")
    cached = usage.get("cache_read_input_tokens") if cached is None else cached
    exchange.cached = count(cached, notes, line, "cached_tokens")
    thought = table(usage.get("completion_tokens_details")).get("reasoning_tokens")
    exchange.reasoning = count(thought, notes, line, "reasoning_tokens")
    if exchange.reasoning is not None and exchange.completion is not None:
        exchange.reasoning = min(exchange.reasoning, exchange.completion)
