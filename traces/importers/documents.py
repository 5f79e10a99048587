"""One JSON document that may be cut off or damaged: its beginning is kept, what comes after the damage is lost.

Where the document is known to be a list of messages, or to hold one, reading goes on behind damage inside of it.
"""

import json
import re
from pathlib import Path

from windtunnel.traces.importers.records import Notes, parse_json, read_bytes
from windtunnel.traces.importers.salvage import Wanted, around_damage

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}
MOST_DEPTH = 400


def read_document(path: Path, notes: Notes, key: str = "", wanted: Wanted | None = None) -> object:
    """The file's JSON value, as far as it can be read; None with a problem when nothing can.

    `key` and `wanted` tell of a list, which is the document or stands under that key, and what its items look like.
    """
    raw = read_bytes(path, notes)
    if not raw.strip():
        if path.is_file():
            notes.add(None, "the file is empty")
        return None
    try:
        return parse_json(raw)
    except ValueError:
        said = raw.decode("utf-8", "replace")
        around = None if wanted is None or _is_cut_off(said) else around_damage(said, key, notes, wanted)
        return _beginning(said, notes) if around is None else around


def _is_cut_off(said: str) -> bool:
    """Whether nothing is wrong but that the end is missing."""
    try:
        json.loads(said, strict=False)
    except json.JSONDecodeError as e:
        return e.pos >= len(said.rstrip()) or e.msg.startswith("Unterminated string")
    except (RecursionError, ValueError):
        return True
    return True


def _beginning(said: str, notes: Notes) -> object:
    try:
        json.loads(said, strict=False)
        damage = len(said)
    except json.JSONDecodeError as e:
        damage = e.pos
    except (RecursionError, ValueError):
        notes.add(None, "the file is not valid JSON and was left out")
        return None
    line = said.count("\n", 0, damage) + 1
    closed = _closed(said[:damage])
    try:
        value: object = json.loads(closed, strict=False) if closed else None
    except (RecursionError, ValueError):
        value = None
    lost = "the file is not valid JSON and was left out"
    kept = "the JSON is damaged or cut off here: what comes after is lost"
    notes.add(line, lost if value is None else kept)
    return None if value is None else parse_json(json.dumps(value).encode())


def _closed(said: str) -> str:
    """The text up to its last whole value, with the brackets closed that are open there."""
    stack: list[str] = []
    cut, open_there = 0, ""
    for match in _TOKEN.finditer(said):
        sign = match.group()
        if sign in _CLOSING:
            stack.append(_CLOSING[sign])
            if len(stack) > MOST_DEPTH:
                return ""
            cut, open_there = match.end(), "".join(reversed(stack))
        elif sign in ("]", "}"):
            if not stack or stack.pop() != sign:
                break
            cut, open_there = match.end(), "".join(reversed(stack))
        elif sign == ",":
            cut, open_there = match.start(), "".join(reversed(stack))
    return said[:cut] + open_there
