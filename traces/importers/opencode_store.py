"""Where opencode keeps its sessions, read into one form.

`opencode.db` (SQLite, tables `session`, `message` and `part`, the last two as JSON text), the JSON tree it replaced
(`storage/session/PROJECT/SES.json`, `storage/message/SES/MSG.json`, `storage/part/MSG/PRT.json`), and the output of
`opencode export SES` (`{"info", "messages": [{"info", "parts"}]}`).
"""

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.records import Notes, parse_json, read_bytes, table, tables, text
from windtunnel.traces.importers.salvage import read_document

SQLITE = b"SQLite format 3\0"
_TABLES = frozenset({"session", "message", "part"})
_DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""Python decodes SQLite's messages, which quote what is damaged."""
_MADE = re.compile(rb"CREATE TABLE\W+(\w+)\W")
_LOG_HEAD_BYTES = 4 << 20
_MOST_GROWTH = 64
"""A header that names a size so many times larger is itself damaged."""
_PLAIN = re.compile(r"\w+")


class Message(Struct, frozen=True):
    id: str
    info: dict[str, object]
    parts: list[dict[str, object]]


class Stored(Struct):
    """One session as it is stored; a sub-agent names its parent."""

    id: str
    file: Path
    parent: str = ""
    title: str = ""
    version: str = ""
    folder: str = ""
    messages: list[Message] = []
    """In the order of their ids, which begin with the time."""


def is_database(path: Path, head: bytes) -> bool:
    """By its tables. Those of a live one may stand in its write-ahead log only."""
    if not head.startswith(SQLITE):
        return False
    try:
        with closing(_open(path)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = {_said(name) for (name,) in rows}
    except _DAMAGED:
        # the first pages may name the tables, else the file's name has to do
        return _made(head) >= _TABLES or path.name.startswith("opencode")
    return names | _made(_log_head(path)) >= _TABLES


def _made(data: bytes) -> set[str]:
    return {name.decode() for name in _MADE.findall(data)}


def _log_head(path: Path) -> bytes:
    try:
        with _log(path).open("rb") as file:
            return file.read(_LOG_HEAD_BYTES)
    except OSError:
        return b""


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def is_session_file(head: bytes) -> bool:
    """A session's own file in the JSON tree, small enough to be whole in the head."""
    if b'"projectID"' not in head or b'"ses_' not in head:
        return False
    try:
        value = table(parse_json(head))
    except ValueError:
        return b'"messages"' not in head
    return text(value.get("id")).startswith("ses_") and "messages" not in value


def is_export(head: bytes) -> bool:
    opening = head[:600]
    named = b'"info"' in opening and b'"ses_' in opening
    return opening.lstrip()[:1] == b"{" and named and b'"directory"' in head[:4_000]


def read_database(path: Path, notes: Notes) -> list[Stored]:
    """Every session of a database. A live one is copied first, with its write-ahead log: nothing is locked."""
    wal = _log(path)
    with tempfile.TemporaryDirectory() as folder:
        place = path
        try:
            live = wal.is_file() and wal.stat().st_size > 0
            whole, size = _whole_size(path), path.stat().st_size
            if live or size < whole <= size * _MOST_GROWTH:
                place = Path(folder, path.name)
                shutil.copyfile(path, place)
            if live:
                shutil.copyfile(wal, place.with_name(wal.name))
            elif place is not path:
                notes.add(None, f"the database is cut off: {size:,} of {whole:,} bytes are there")
                os.truncate(place, whole)
            with closing(_open(place, copied=place is not path)) as connection:
                return _sessions(connection, path, notes)
        except OSError as e:
            notes.add(None, f"cannot be read: {e.strerror or e}")
        except _DAMAGED as e:
            notes.add(None, f"the database cannot be opened: {e}")
    return []


def _whole_size(path: Path) -> int:
    """Bytes that a database should have by its header: page size and count (https://sqlite.org/fileformat.html)."""
    with path.open("rb") as file:
        head = file.read(32)
    pages = int.from_bytes(head[28:32], "big")
    size = int.from_bytes(head[16:18], "big")
    return pages * (65_536 if size == 1 else size)


def _open(path: Path, *, copied: bool = False) -> sqlite3.Connection:
    mode = "mode=rw" if copied else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)
    connection.text_factory = bytes
    return connection


def _sessions(connection: sqlite3.Connection, path: Path, notes: Notes) -> list[Stored]:
    found: dict[str, Stored] = {}
    for row in _rows(connection, "session", ("id", "parent_id", "title", "version", "directory"), notes):
        own, parent, title, version, folder = (_said(v) for v in row)
        if own:
            found[own] = Stored(own, path, parent, title, version, folder)
    parts: dict[str, list[tuple[str, dict[str, object]]]] = {}
    for row in _rows(connection, "part", ("id", "message_id", "data"), notes):
        part = _json(row[2], f"part {_said(row[0])}", notes)
        if part:
            parts.setdefault(_said(row[1]), []).append((_said(row[0]), part))
    for row in _rows(connection, "message", ("id", "session_id", "data"), notes):
        own, session = _said(row[0]), _said(row[1])
        info = _json(row[2], f"message {own}", notes)
        if not info:
            continue
        if session not in found:
            notes.add(None, f"message {own} is of a session that is not in the database: a session was made for it")
            found[session] = Stored(session, path)
        held = [p for _, p in sorted(parts.get(own, []), key=lambda p: p[0])]
        found[session].messages.append(Message(own, info, held))
    for stored in found.values():
        stored.messages.sort(key=lambda m: m.id)
    return list(found.values())


def _rows(
    connection: sqlite3.Connection, name: str, columns: tuple[str, ...], notes: Notes
) -> Iterator[tuple[object, ...]]:
    """Rows as far as they can be read."""
    wanted = ", ".join(f'"{c}"' for c in columns)
    try:
        yield from connection.execute(f'SELECT {wanted} FROM "{name}"')  # noqa: S608
    except _DAMAGED as e:
        notes.add(None, f"the database is damaged in table {name}, what comes after is lost: {e}")


def _said(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _json(raw: object, what: str, notes: Notes) -> dict[str, object]:
    try:
        value = parse_json(raw if isinstance(raw, bytes) else b"")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        notes.add(None, f"{what} is not a JSON object and was left out")
        return {}
    return value


def read_tree(path: Path, notes: list[Notes]) -> Stored | None:
    """A session of the JSON tree, by its own file `storage/session/PROJECT/SES.json`."""
    info = _file(path, notes)
    if not info:
        return None
    stored = _stored(info, path)
    root = path.parent.parent.parent
    folder = root / "message" / stored.id
    files = sorted(folder.glob("*.json")) if _plain(stored.id) else []
    if not files:
        notes.append(Notes(str(path)))
        notes[-1].add(None, f"the session has no messages in {folder}")
    for file in files:
        message = _file(file, notes)
        own = text(message.get("id")) or file.stem
        if message:
            pieces = sorted((root / "part" / own).glob("*.json")) if _plain(own) else []
            stored.messages.append(Message(own, message, [p for f in pieces if (p := _file(f, notes))]))
    stored.messages.sort(key=lambda m: m.id)
    return stored


def _plain(name: str) -> bool:
    """An id that can be the name of a file, and nothing else."""
    return _PLAIN.fullmatch(name) is not None and len(name) < 200


def _file(path: Path, notes: list[Notes]) -> dict[str, object]:
    """The JSON object in a file; empty, with a problem under the file's own name, when it holds none."""
    own = Notes(str(path))
    data = read_bytes(path, own)
    value: object = None
    try:
        value = parse_json(data)
    except ValueError as e:
        reason = "the file is empty" if not data.strip() else f"is not valid JSON and was left out ({e})"
        own.add(None, reason)
    else:
        if not isinstance(value, dict):
            own.add(None, "is not a JSON object and was left out")
    notes.append(own)
    return table(value)


def read_export(path: Path, notes: list[Notes]) -> Stored | None:
    """An exported session; of a damaged file, the messages that can be read."""
    notes.append(Notes(str(path)))
    document = read_document(path, notes[-1], "messages", lambda v: bool(table(v.get("info"))))
    if not document.items and not document.envelope:
        return None
    stored = _stored(table(document.envelope.get("info")), path)
    for number, message in enumerate(document.items):
        info = table(message.get("info"))
        if info:
            own = text(info.get("id")) or f"msg_{number:06}"
            stored.messages.append(Message(own, info, list(tables(message.get("parts")))))
        else:
            notes[-1].add(document.line(number), "the message has no info and was left out")
    return stored


def _stored(info: dict[str, object], path: Path) -> Stored:
    return Stored(
        text(info.get("id")) or path.stem,
        path,
        text(info.get("parentID")),
        text(info.get("title")),
        text(info.get("version")),
        text(info.get("directory")),
    )
