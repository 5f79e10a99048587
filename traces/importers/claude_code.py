"""Claude Code transcripts (`~/.claude/projects/*/*.jsonl`), from 1.0 to 2.1.332, with their sub-agents.

Sub-agents stand inline as sidechains (2025), in `agent-*.jsonl` beside the session (2.0), as progress records of the
tool that started them (2.1), or under `<session>/subagents/`. An `agent-acompact-*` file is the request that wrote a
compaction's summary and becomes a call of the main thread.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.claude_lines import MAIN, Transcript
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import Exchange, ThreadDraft, title_of
from windtunnel.traces.importers.records import (
    Notes,
    Record,
    first_rows,
    parse_json,
    read_bytes,
    read_records,
    table,
    text,
)
from windtunnel.traces.model import Header

NAME = "claude-code"
_FIRST_LINES, _LINE_BYTES = 40, 8 << 20
_AGENT, _COMPACT = "agent-", "agent-acompact-"
_TYPES = frozenset({"user", "assistant", "progress", "attachment", "file-history-snapshot", "api-request"})


def detect(path: Path, head: bytes) -> bool:
    """A JSON line of one of the transcript's record types that carries what only Claude Code writes."""
    if path.suffix != ".jsonl":
        return False
    for value in first_rows(head, _FIRST_LINES):
        kind = text(value.get("type"))
        marks = ("sessionId" in value and "uuid" in value) or "isSnapshotUpdate" in value
        spoken = kind not in ("user", "assistant") or "content" in table(value.get("message"))
        if marks and spoken and kind in _TYPES:
            return True
    # a first line longer than the head (a pasted file) parses nowhere
    return b'"parentUuid"' in head and b'"sessionId"' in head


def read(path: Path) -> Imported:
    """One session: a transcript and its sub-agents' files, or a sub-agent's file alone."""
    return read_session(path, () if path.name.startswith(_AGENT) else companions(path))


def companions(path: Path) -> list[Path]:
    """The sub-agent files of a session: its own folder's, and those beside it that name the same session."""
    own = sorted((path.parent / path.stem / "subagents").glob(f"{_AGENT}*.jsonl"))
    beside = sorted(p for p in path.parent.glob(f"{_AGENT}*.jsonl") if p != path)
    session = session_of(path) if beside else ""
    return own + [p for p in beside if session and session_of(p) == session]


def session_of(path: Path) -> str:
    """The session id that a file's first lines name."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            for _ in range(_FIRST_LINES):
                # whole lines: the first may hold a prompt of any length
                rows = first_rows(file.readline(_LINE_BYTES), 1)
                session = next((text(value.get("sessionId")) for value in rows), "")
                if session:
                    return session
    except OSError:
        return ""
    return ""


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Sessions among many files, each with its sub-agents' files."""
    mains = [p for p in paths if not p.name.startswith(_AGENT)]
    taken: set[Path] = set()
    for main in mains:
        agents = companions(main)
        taken.update(agents)
        yield read_session(main, agents)
    for path in paths:
        if path.name.startswith(_AGENT) and path not in taken:
            yield read_session(path, ())


def read_session(main: Path, agents: Sequence[Path]) -> Imported:
    transcript = Transcript()
    notes = [Notes(str(main))]
    alone = main.name.startswith(_AGENT)
    # sub-agents first: their inline copies in the main file are then known to be copies
    compactions = [p for p in agents if p.name.startswith(_COMPACT)]
    for path in agents:
        if path in compactions:
            continue
        notes.append(Notes(str(path)))
        key = path.stem.removeprefix(_AGENT)
        for record in read_records(path, notes[-1]):
            transcript.read(record, notes[-1], thread=key)
        _meta(path, key, transcript)
    summaries: list[Exchange] = []
    for path in compactions:
        notes.append(Notes(str(path)))
        summaries += _compaction(path, notes[-1])
    transcript.summaries = [exchange.end for exchange in summaries]
    for record in read_records(main, notes[0]):
        transcript.read(_own(record) if alone else record, notes[0])
    first, *others = transcript.finish(notes[0])
    threads = [first, *sorted(others, key=lambda t: (t.exchanges[0].start or 0.0, t.key))]
    for exchange in summaries:
        # before the call that starts from the summary
        threads[0].exchanges.insert(_place_of(threads[0].exchanges, exchange), exchange)
    if alone and main.name.startswith(_COMPACT):
        for exchange in threads[0].exchanges:
            exchange.kind = "compaction"
    if not any(t.exchanges for t in threads):
        notes[0].add(None, "holds no request to a model: nothing to replay")
        return Imported((), tuple(p for n in notes for p in n.all()))
    trace = assemble(_header(transcript, threads, main), threads, Rules(exact_cache=True))
    return Imported((trace,), tuple(p for n in notes for p in n.all()))


def _own(record: Record) -> Record:
    """A line of a sub-agent's file read by itself: the sub-agent is the main thread."""
    return Record(record.line, {k: v for k, v in record.value.items() if k != "isSidechain"})


def _meta(path: Path, key: str, transcript: Transcript) -> None:
    meta = path.with_suffix("").with_suffix(".meta.json")
    if not meta.is_file():
        return
    try:
        value = table(parse_json(read_bytes(meta, Notes(str(meta)))))
    except ValueError:
        return
    tool_id = text(value.get("toolUseId"))
    if tool_id:
        transcript.link(tool_id, key, role=text(value.get("agentType")))


def _compaction(path: Path, notes: Notes) -> list[Exchange]:
    """The request that wrote a summary, from a file of its own."""
    side = Transcript()
    for record in read_records(path, notes):
        side.read(_own(record), notes)
    exchanges = side.finish(notes)[0].exchanges
    for exchange in exchanges:
        exchange.kind = "compaction"
        exchange.fresh = exchange.fresh[-1:]
        exchange.human = False
        exchange.asked_at = None
    return exchanges


def _place_of(exchanges: list[Exchange], compaction: Exchange) -> int:
    end = compaction.end or 0.0
    for at, exchange in enumerate(exchanges):
        if exchange.reset and (exchange.end or 0.0) >= end:
            return at
    return len(exchanges)


def _header(transcript: Transcript, threads: list[ThreadDraft], path: Path) -> Header:
    models = tuple(dict.fromkeys(e.model for t in threads for e in t.exchanges if e.model))
    folder = transcript.cwd.replace("\\", "/").rstrip("/").rpartition("/")[2]
    notes = () if not transcript.failed_requests else (f"{transcript.failed_requests} failed requests left out",)
    whole = path.stem.removeprefix(_AGENT) if path.name.startswith(_AGENT) else transcript.session or path.stem
    return Header(
        id=whole,
        agent=NAME,
        agent_version=transcript.version or None,
        models=models,
        source=f"{NAME} {path}",
        started_at=transcript.first,
        title=title_of(transcript.prompt) or title_of(transcript.command) or folder or None,
        notes=notes,
    )


__all__ = ["MAIN", "NAME", "companions", "detect", "read", "read_group", "read_session", "session_of"]
