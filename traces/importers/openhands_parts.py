"""What both generations of OpenHands logs share: a history of events that a condensation forgets parts of."""

from collections.abc import Collection

from msgspec import Struct

from windtunnel.traces.importers.pieces import Draft, Exchange, ToolSchemas, text_piece
from windtunnel.traces.importers.records import dumps, items, table, tables, text


class Entry(Struct):
    """A message of the context and the events it was made of."""

    ids: set[str]
    draft: Draft | None = None
    answer: Exchange | None = None
    """For the model's messages, which grow by further events."""

    def message(self) -> Draft | None:
        return self.draft if self.answer is None else self.answer.output


class History:
    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def add(self, event: str, draft: Draft) -> None:
        self._entries.append(Entry({event}, draft))

    def answered(self, event: str, exchange: Exchange) -> None:
        """An event of an answer: of the last one, or of a new one."""
        for entry in reversed(self._entries):
            if entry.answer is exchange:
                entry.ids.add(event)
                return
        self._entries.append(Entry({event}, answer=exchange))

    def condense(self, forgotten: Collection[str], summary: str, offset: int | None) -> list[Draft]:
        """The context without the forgotten events, the summary after `offset` events; system prompts left out."""
        kept = [e for e in self._entries if not e.ids <= set(forgotten)]
        if summary:
            at = count = 0
            while at < len(kept) and count < (len(kept) if offset is None else offset):
                count += len(kept[at].ids)
                at += 1
            kept.insert(at, Entry(set(), Draft("user", (text_piece(summary),))))
        self._entries = kept
        messages = [e.message() for e in kept]
        return [m for m in messages if m is not None and m.role != "system"]


def schemas_of(tools: object) -> ToolSchemas | None:
    """Tool schemas: in the API's form, or as the tools describe themselves."""
    listed = list(tables(tools))
    if not listed:
        return None
    names = [_name(t) for t in listed]
    plain = [
        t if "function" in t else {"name": n, "description": text(t.get("description"))}
        for t, n in zip(listed, names, strict=True)
    ]
    return ToolSchemas(tuple(names), text_piece(dumps(plain), "json"))


def _name(tool: dict[str, object]) -> str:
    return text(table(tool.get("function")).get("name")) or text(tool.get("title")) or text(tool.get("name")) or "tool"


def strings(value: object) -> list[str]:
    """Ids in a list, as text."""
    return [str(i) for i in items(value) if isinstance(i, str | int) and not isinstance(i, bool)]
