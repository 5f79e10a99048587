"""Messages in GenAI span attributes: lists of `{"role", "parts": [{"type", "content"}]}`, often as JSON text."""

from msgspec import Struct

from windtunnel.traces.importers.pieces import Asked, Draft, Piece, ToolSchemas, media_piece, text_piece
from windtunnel.traces.importers.records import dumps, parse_json, table, tables, text
from windtunnel.traces.model import Role, digest_of

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "assistant": "assistant", "tool": "tool"}


class Said(Struct, frozen=True):
    """A message and what tells it from others."""

    draft: Draft
    digest: str


def messages_of(value: object) -> list[Said]:
    return [said for message in tables(_parsed(value)) for said in _message(message)]


def schemas_of(value: object) -> ToolSchemas | None:
    listed = [t for t in tables(_parsed(value)) if t]
    if not listed:
        return None
    names = tuple(text(t.get("name")) or text(table(t.get("function")).get("name")) for t in listed)
    return ToolSchemas(names, text_piece(dumps(listed), "json"))


def _parsed(value: object) -> object:
    written = text(value)
    if not written:
        return value
    try:
        return parse_json(written.encode("utf-8", "replace"))
    except ValueError:
        return None


def _message(message: dict[str, object]) -> list[Said]:
    """A message; the answers of several tools in one become a message each."""
    role = _ROLES.get(text(message.get("role")), "user")
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    answers: list[Said] = []
    listed = list(tables(message.get("parts")))
    if not listed and text(message.get("content")):
        listed = [{"type": "text", "content": message.get("content")}]
    for part in listed:
        kind = text(part.get("type"))
        said = text(part.get("content")) or text(part.get("text"))
        if kind == "tool_call":
            written = part.get("arguments")
            arguments = written if isinstance(written, str) else dumps(written if written is not None else {})
            calls.append(Asked(text(part.get("id")), text(part.get("name")) or "tool", text_piece(arguments, "json")))
        elif kind == "tool_call_response":
            told = part.get("response") if part.get("response") is not None else part.get("result")
            shown = told if isinstance(told, str) else dumps(told)
            own = text(part.get("id"))
            draft = Draft("tool", (text_piece(shown),) if shown else (), tool_call_id=own or None)
            answers.append(Said(draft, digest_of("tool", own, shown)))
        elif kind in ("reasoning", "thinking") and said:
            reasoning.append(text_piece(said))
        elif said:
            pieces.append(text_piece(said))
        elif kind in ("blob", "uri", "file"):
            media = text(part.get("mime_type")) or "image/unknown"
            pieces.append(media_piece(media, said or text(part.get("uri")) or dumps(part)))
    if not (pieces or reasoning or calls):
        return answers
    whole = Said(Draft(role, tuple(pieces), tuple(reasoning), tuple(calls)), digest_of(role, dumps(listed)))
    return [whole, *answers]
