"""Cline sessions: the CLI's `sessions/ID/ID.messages.json` (3.x), and VS Code's task folders.

A CLI sub-agent's messages lie in its parent's folder and name it in their session id (`PARENT__AGENT`); `sessions.db`
is an index of the sessions. In a task folder `ui_messages.json` has usage and times, `api_conversation_history.json`
the texts. Attempts that failed and were retried are not stored.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.cline_messages import is_message, read_messages
from windtunnel.traces.importers.cline_ui import is_shown, read_shown
from windtunnel.traces.importers.conversation import Conversation, link_by_prompt
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import ThreadDraft, title_of
from windtunnel.traces.importers.records import Notes, parse_json, read_bytes, table, text
from windtunnel.traces.importers.salvage import Document, read_document
from windtunnel.traces.model import Header

NAME = "cline"
SUFFIXES = (".json", ".db")
_MESSAGES, _COMPACTION = ".messages.json", ".compaction.json"
_SHOWN, _HISTORY = "ui_messages.json", "api_conversation_history.json"
_SAY = re.compile(rb'"type"\s*:\s*"(?:say|ask)"')
_INDEX = b"CREATE TABLE sessions"


def detect(path: Path, head: bytes) -> bool:
    if path.suffix == ".db":
        return head.startswith(b"SQLite format 3\0") and _INDEX in head and b"messages_path" in head
    if path.suffix != ".json":
        return False
    opening = head.lstrip()[:1]
    if opening == b"[":
        spoken = b'"role"' in head and b'"content"' in head
        return bool(_SAY.search(head[:4_000])) or (path.name.startswith("api_conversation_history") and spoken)
    named = b'"sessionId"' in head and b'"agent"' in head
    return opening == b"{" and b'"messages"' in head and (named or b'"source_message_count"' in head)


def read(path: Path) -> Imported:
    """One session with its sub-agents, a task's files, or every session that an index's folder holds."""
    if path.suffix == ".db":
        found = sorted((path.parent.parent / "sessions").glob(f"*/*{_MESSAGES}"))
        results = list(read_group(found))
        if not found:
            notes = Notes(str(path))
            notes.add(None, f"is an index: there are no sessions in {path.parent.parent / 'sessions'}")
            return Imported((), notes.all())
        return Imported(tuple(t for r in results for t in r.traces), tuple(p for r in results for p in r.problems))
    if path.name.endswith(_MESSAGES):
        return _session(path, _children(path))
    if path.name == _HISTORY and path.with_name(_SHOWN).is_file():
        return _session(path.with_name(_SHOWN), ())
    return _session(path, ())


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Sessions among many files, each with what belongs to it."""
    known = set(paths)
    children = {c: p for p in paths if p.name.endswith(_MESSAGES) for c in _children(p)}
    for path in paths:
        beside = path.name == _HISTORY and path.with_name(_SHOWN) in known
        stands_for = path.name.endswith(_COMPACTION) and _of_compaction(path) in known
        if path in children or beside or stands_for or (path.suffix == ".db" and len(known) > 1):
            continue
        yield read(path)


def _children(path: Path) -> list[Path]:
    """The sub-agents' files in a session's own folder."""
    if path.name != path.parent.name + _MESSAGES:
        return []
    return sorted(p for p in path.parent.glob(f"*{_MESSAGES}") if p != path)


def _of_compaction(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_COMPACTION) + _MESSAGES)


def _session(main: Path, children: Sequence[Path]) -> Imported:
    taken: set[str] = set()
    notes: list[Notes] = []
    providers: set[str] = set()
    talks: list[Conversation] = []
    envelope: dict[str, object] = {}
    for path in (main, *children):
        document = _document(path, notes)
        own = notes[-1]
        talk = Conversation(ThreadDraft(path.name.removesuffix(_MESSAGES)), taken)
        if _is_shown(document):
            history = path.with_name(_HISTORY)
            texts = _document(history, notes) if history.is_file() and history != path else None
            providers |= read_shown(document, texts, talk, own)
        else:
            beside = path.with_name(path.name.removesuffix(_MESSAGES) + _COMPACTION)
            compaction = _document(beside, notes) if beside.is_file() and beside != path else None
            providers |= read_messages(document, talk, own, main=path == main, compaction=compaction)
        if path == main:
            envelope = document.envelope
        else:
            talk.thread.parent = talks[0].thread.key
            talk.thread.name = talk.thread.key.partition("__")[0]
            talk.thread.role = text(document.envelope.get("agent")) or "agent"
        talks.append(talk)
    threads = [t.thread for i, t in enumerate(talks) if t.thread.exchanges or i == 0]
    if not any(t.exchanges for t in threads):
        notes[0].add(None, "holds no request to a model: nothing to replay")
        return Imported((), tuple(p for n in notes for p in n.all()))
    link_by_prompt(threads)
    header = _header(main, envelope, talks)
    trace = assemble(header, threads, Rules(exact_cache=providers == {"anthropic"}))
    return Imported((trace,), tuple(p for n in notes for p in n.all()))


def _document(path: Path, notes: list[Notes]) -> Document:
    notes.append(Notes(str(path)))
    return read_document(path, notes[-1], "messages", lambda v: is_message(v) or is_shown(v))


def _is_shown(document: Document) -> bool:
    return any(is_shown(m) for m in document.items[:20]) and not any(is_message(m) for m in document.items[:20])


def _header(main: Path, envelope: dict[str, object], talks: list[Conversation]) -> Header:
    manifest = _manifest(main)
    metadata = table(manifest.get("metadata"))
    version = text(table(envelope.get("origin")).get("version"))
    version = version or text(table(metadata.get("sessionHistoryOrigin")).get("version"))
    forked = text(table(metadata.get("fork")).get("forkedFromSessionId"))
    folder = text(manifest.get("cwd")).replace("\\", "/").rstrip("/").rpartition("/")[2]
    name = main.parent.name if main.name in (_SHOWN, _HISTORY) else main.name.partition(".")[0]
    return Header(
        id=text(envelope.get("sessionId")) or text(manifest.get("session_id")) or name or main.stem,
        agent=NAME,
        agent_version=version or None,
        models=tuple(dict.fromkeys(e.model for t in talks for e in t.thread.exchanges if e.model)),
        source=f"{NAME} {main}",
        started_at=min((t.first for t in talks if t.first is not None), default=None),
        title=title_of(talks[0].prompt) or title_of(text(metadata.get("title"))) or folder or None,
        notes=(f"begins as a copy of session {forked}",) if forked else (),
    )


def _manifest(main: Path) -> dict[str, object]:
    path = main.with_name(main.name.removesuffix(_MESSAGES) + ".json")
    if not main.name.endswith(_MESSAGES) or not path.is_file():
        return {}
    try:
        return table(parse_json(read_bytes(path, Notes(str(path)))))
    except ValueError:
        return {}
