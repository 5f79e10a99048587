"""Qwen Code chats: `~/.qwen/projects/*/chats/*.jsonl`, sub-agents in `subagents/<session>/agent-*.jsonl` beside them.

Usage stands on the assistant records, times in the telemetry records of the same file. A sub-agent is told by the
telemetry of its requests and, where the version writes one, by a transcript of its own.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import ThreadDraft, title_of
from windtunnel.traces.importers.qwen_chat import Chat
from windtunnel.traces.importers.records import Notes, first_rows, parse_json, read_bytes, read_records, table, text
from windtunnel.traces.importers.thread_writer import adopt, tell_apart
from windtunnel.traces.model import Header

NAME = "qwen-code"
AGENT_TOOLS = frozenset({"agent", "task"})
_TYPES = frozenset({"user", "assistant", "tool_result", "system"})
_AGENT = "agent-"


def detect(path: Path, head: bytes) -> bool:
    """JSON lines with a session, a parent record and either GenAI parts or a system payload."""
    if path.suffix != ".jsonl":
        return False
    for value in first_rows(head, 40):
        if "sessionId" not in value or "parentUuid" not in value or text(value.get("type")) not in _TYPES:
            continue
        if isinstance(table(value.get("message")).get("parts"), list) or "systemPayload" in value:
            return True
    return b'"parentUuid"' in head and b'"message":{"role":"user","parts":[' in head


def read(path: Path) -> Imported:
    """One chat and its sub-agents' transcripts, or a sub-agent's transcript alone."""
    return read_session(path, () if path.name.startswith(_AGENT) else companions(path))


def companions(path: Path) -> list[Path]:
    return sorted((path.parent.parent / "subagents" / path.stem).glob(f"{_AGENT}*.jsonl"))


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Sessions among many files, each with its sub-agents' transcripts."""
    taken: set[Path] = set()
    for main in (p for p in paths if not p.name.startswith(_AGENT)):
        own = companions(main)
        taken.update(own)
        yield read_session(main, own)
    for alone in (p for p in paths if p.name.startswith(_AGENT) and p not in taken):
        yield read_session(alone, ())


def read_session(main: Path, transcripts: Sequence[Path]) -> Imported:
    chats: list[Chat] = []
    for path in (main, *transcripts):
        chat = Chat(path.stem if chats else "main", Notes(str(path)))
        for record in read_records(path, chat.notes):
            chat.read(record)
        chat.finish()
        chats.append(chat)
    root = chats[0]
    children = _sub_agents(root, chats[1:], transcripts)
    threads = [root.writer.thread, *(t for t in children if t.exchanges)]
    adopt(root.writer.thread, [t for t in children if t.exchanges], AGENT_TOOLS)
    tell_apart(threads)
    for chat in chats:
        chat.name_uncounted()
    problems = tuple(p for c in chats for p in c.notes.all())
    if not any(t.exchanges for t in threads):
        root.notes.add(None, "holds no request to a model: nothing to replay")
        return Imported((), tuple(p for c in chats for p in c.notes.all()))
    return Imported((assemble(_header(chats, threads, main), threads, Rules()),), problems)


def _sub_agents(root: Chat, chats: list[Chat], paths: Sequence[Path]) -> list[ThreadDraft]:
    """Sub-agents' threads: transcripts with the figures of the telemetry, and those that only telemetry tells of."""
    counted = root.sub_agents()
    out: list[ThreadDraft] = []
    for chat, path in zip(chats, paths, strict=True):
        thread = chat.writer.thread
        thread.name = thread.role = chat.agent or "agent"
        same = [t for t in counted if t.name == thread.name]
        figures = next((t for t in same if len(t.exchanges) == len(thread.exchanges)), same[0] if same else None)
        if figures is not None:
            counted.remove(figures)
            if len(figures.exchanges) != len(thread.exchanges):
                reason = "tells of another number of requests than the session's telemetry: its text is lost"
                chat.notes.add(None, reason)
                thread.exchanges.clear()
                thread = figures
            for written, measured in zip(thread.exchanges, figures.exchanges, strict=True):
                for field in ("prompt", "cached", "completion", "reasoning", "start", "end", "model"):
                    setattr(written, field, getattr(measured, field))
                written.marks = dict(measured.marks)
        meta = _meta(path)
        thread.tool_call_id = text(meta.get("toolUseId")) or None
        thread.background = meta.get("isBackgrounded") is True
        out.append(thread)
    return out + counted


def _meta(path: Path) -> dict[str, object]:
    meta = path.with_suffix(".meta.json")
    try:
        return table(parse_json(read_bytes(meta, Notes(str(meta)))))
    except ValueError:
        return {}


def _header(chats: list[Chat], threads: list[ThreadDraft], path: Path) -> Header:
    main = chats[0]
    folder = main.folder.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return Header(
        id=main.session or path.stem,
        agent=NAME,
        agent_version=main.version or None,
        models=tuple(dict.fromkeys(e.model for t in threads for e in t.exchanges if e.model)),
        source=f"{NAME} {path}",
        started_at=min((c.first for c in chats if c.first is not None), default=None),
        title=title_of(main.writer.prompt) or folder or None,
    )
