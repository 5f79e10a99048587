"""Google GenAI `Content` parts, as Gemini CLI and Qwen Code keep them in their logs."""

from collections.abc import Iterator

from windtunnel.traces.importers.pieces import Asked, Draft, Piece, media_piece, text_piece
from windtunnel.traces.importers.records import dumps, table, tables, text
from windtunnel.traces.importers.thread_writer import arguments_piece


def parts_of(content: object) -> list[dict[str, object]]:
    """The parts of a text, a part or a list of either."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    if isinstance(content, dict):
        return [content]
    items = content if isinstance(content, list) else []
    return [{"text": i} if isinstance(i, str) else i for i in items if isinstance(i, dict | str)]


def shown(parts: list[dict[str, object]]) -> list[Piece]:
    """Text and media that the other side sees."""
    return [piece for part in parts if part.get("thought") is not True for piece in _shown(part)]


def _shown(part: dict[str, object]) -> Iterator[Piece]:
    if text(part.get("text")):
        yield text_piece(text(part.get("text")))
    for key in ("inlineData", "fileData"):
        data = table(part.get(key))
        if data:
            media = text(data.get("mimeType")) or "application/unknown"
            yield media_piece(media, text(data.get("data")) or text(data.get("fileUri")))


def thoughts(parts: list[dict[str, object]]) -> list[Piece]:
    said = [text(p.get("text")) for p in parts if p.get("thought") is True]
    return [text_piece(t) for t in said if t]


def asked(parts: list[dict[str, object]]) -> list[Asked]:
    """The tool calls among the parts; one without an id has an empty one."""
    calls = [table(p.get("functionCall")) for p in parts]
    return [Asked(text(c.get("id")), text(c.get("name")) or "tool", arguments_piece(c.get("args"))) for c in calls if c]


def responses(parts: list[dict[str, object]]) -> Iterator[tuple[str, list[Piece]]]:
    """Tool results among the parts: id and text."""
    for part in parts:
        response = table(part.get("functionResponse"))
        if response:
            yield text(response.get("id")), _result(response)


def _result(response: dict[str, object]) -> list[Piece]:
    body = response.get("response")
    said = text(body) or text(table(body).get("output")) or text(table(body).get("error"))
    if not said and body and table(body).get("output") != "":
        said = dumps(body)
    media = [p for part in tables(response.get("parts")) for p in _shown(part)]
    return [*([text_piece(said)] if said else []), *media]


def drafts_of(content: dict[str, object]) -> list[Draft]:
    """A `Content` of an earlier conversation as messages: the model's, tool results, a person's."""
    parts = parts_of(content.get("parts"))
    if content.get("role") == "model":
        return [Draft("assistant", tuple(shown(parts)), tuple(thoughts(parts)), tuple(asked(parts)))]
    results = [Draft("tool", tuple(pieces), tool_call_id=i or None) for i, pieces in responses(parts)]
    said = shown(parts)
    return [*results, *([Draft("user", tuple(said))] if said else [])]
