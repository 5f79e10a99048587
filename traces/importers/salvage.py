"""A JSON document that is one list of messages, read as far as it can be.

A file that parses is taken as it is. One that does not (cut off while it was written, damaged inside) still gives the
messages around the damage, and the place of the damage is noted.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.records import Notes, parse_json, read_bytes, table

MOST_TRIES = 300
"""Places at which reading is tried again after one piece of damage."""
_BROKEN = "the file is damaged here: what could not be read was left out"
_CUT_OFF = "the file is cut off or damaged here: what follows is lost"
_BETWEEN = re.compile(r"[\s,]*")
_decoder = json.JSONDecoder()

Wanted = Callable[[dict[str, object]], bool]
"""Whether an object is one of the list's items, not something inside one."""


class Document(Struct, frozen=True):
    envelope: dict[str, object]
    """What stands around the list, where the list is inside an object."""
    items: list[dict[str, object]]
    text: str
    """The file's text; empty when its items stand at no known place."""
    list_at: int
    starts: list[int] = []
    """Lines of the items, found when the first is asked for."""

    def line(self, number: int) -> int | None:
        """The line, from 1, on which an item of a sound document begins."""
        if self.text and not self.starts:
            self.starts.extend(_starts(self.text, self.list_at))
        return self.starts[number] if number < len(self.starts) else None


def _starts(text: str, at: int) -> Iterator[int]:
    """The line of each item of a list."""
    line, counted = 1, 0
    while (at := _skip(text, at)) < len(text) and text[at] != "]":
        line, counted = line + text.count("\n", counted, at), at
        yield line
        end = _value(text, at)[1]
        if end is None:
            return
        at = end


def read_document(path: Path, notes: Notes, key: str, wanted: Wanted) -> Document:
    """The list in a file, which is the whole document or stands under `key`."""
    data = read_bytes(path, notes)
    if not data.strip():
        if not notes.all():
            notes.add(None, "the file is empty")
        return Document({}, [], "", 0)
    text = data.decode("utf-8", "replace")
    list_at = _list_start(text, key)
    try:
        value = parse_json(data)
    except ValueError:
        return _damaged(text, list_at, notes, wanted)
    found = value if isinstance(value, list) else table(value).get(key)
    if not isinstance(found, list):
        notes.add(1, f"holds no list of {key}")
        return Document({}, [], "", 0)
    document = Document(table(value), [i for i in found if isinstance(i, dict)], text, list_at or 0)
    if len(document.items) < len(found):
        notes.add(None, f"{len(found) - len(document.items)} of its {key} are no objects and were left out")
        return Document(document.envelope, document.items, "", 0)
    return document


def around_damage(text: str, key: str, notes: Notes, wanted: Wanted) -> object:
    """A damaged document with the items of its list that can be read; None where that is not one."""
    list_at = _list_start(text, key)
    if list_at is None:
        return None
    found = Notes(notes.file)
    document = _damaged(text, list_at, found, wanted)
    if not document.items:
        return None
    for problem in found.all():
        notes.add(problem.line, problem.reason)
    if text[:list_at].lstrip() == "[":
        return document.items
    return {**document.envelope, key: document.items}


def _damaged(text: str, list_at: int | None, notes: Notes, wanted: Wanted) -> Document:
    if list_at is None:
        notes.add(1, "is not valid JSON and was left out")
        return Document({}, [], "", 0)
    items: list[dict[str, object]] = []
    at = _skip(text, list_at)
    said = False
    while at < len(text) and text[at] != "]":
        value, end = _value(text, at)
        if isinstance(value, dict) and end is not None:
            items.append(value)
        else:
            resumed = _resume(text, at, wanted) if end is None else end
            said = True
            notes.add(_line(text, at), _BROKEN if resumed is not None else _CUT_OFF)
            end = len(text) if resumed is None else resumed
        at = _skip(text, end)
    if not said:
        notes.add(_line(text, min(at, len(text) - 1)), "the file is damaged outside of its messages")
    try:
        envelope = table(parse_json((text[:list_at] + "]}").encode()))
    except ValueError:
        envelope = {}
    return Document(envelope, items, "", 0)


def _value(text: str, at: int) -> tuple[object, int | None]:
    """The value at a place and its end; no end when there is none."""
    try:
        value, end = _decoder.raw_decode(text, at)
        if isinstance(value, dict) and "\\u" in text[at:end]:
            value = parse_json(text[at:end].encode())
    except (ValueError, RecursionError):
        return None, None
    return value, end


def _resume(text: str, at: int, wanted: Wanted) -> int | None:
    """The next place at which one of the list's items begins."""
    for _ in range(MOST_TRIES):
        at = text.find("{", at + 1)
        if at < 0:
            return None
        value, end = _value(text, at)
        if isinstance(value, dict) and end is not None:
            if wanted(value):
                return at
            at = end - 1
    return None


def _list_start(text: str, key: str) -> int | None:
    """The place after the list's opening bracket."""
    opening = re.match(r"\s*\[", text) or re.search(rf'"{key}"\s*:\s*\[', text)
    return opening.end() if opening else None


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
