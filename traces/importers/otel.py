"""OpenTelemetry exports: GenAI spans (OTLP/JSON, whole or a line a batch) and Claude Code's events.

Spans follow the GenAI semantic conventions: `chat`, `text_completion` and `generate_content` are requests to a model,
`execute_tool` are tool runs, an `invoke_agent` inside another one is a sub-agent. Claude Code's events tell requests
and tools by the moment they ended, with their length. Spans and events of one conversation are one session, also from
several files.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.otel_events import Events
from windtunnel.traces.importers.otel_records import Signal, signals
from windtunnel.traces.importers.otel_spans import Spans
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.importers.records import Notes
from windtunnel.traces.model import Header, Trace

__all__ = ["NAME", "detect", "read", "read_group"]

NAME = "otel"
_MARKS = (b'"gen_ai.', b'"claude_code.', b'"com.anthropic.claude_code"')


def detect(path: Path, head: bytes) -> bool:
    if path.suffix not in (".json", ".jsonl"):
        return False
    otlp = b'"resourceSpans"' in head[:2_000] or b'"resourceLogs"' in head[:2_000]
    flat = b'"_type"' in head[:400] and b'"attrs"' in head[:2_000]
    return (otlp or flat) and any(mark in head for mark in _MARKS)


def read(path: Path) -> Imported:
    return next(read_group([path]))


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """All files together: a conversation may go on in the next file."""
    notes = {path: Notes(str(path)) for path in paths}
    sessions: dict[str, list[Signal]] = {}
    for path in paths:
        for signal in signals(path, notes[path]):
            sessions.setdefault(signal.session, []).append(signal)
    traces: list[Trace] = []
    for own, found in sessions.items():
        note = notes[found[0].path]
        trace = _session(own, found, note)
        if trace is not None:
            traces.append(trace)
    for path, note in notes.items():
        if not note.all() and not any(s.path == path for found in sessions.values() for s in found):
            note.add(None, "holds no span or event of a model: nothing to replay")
    yield Imported(tuple(traces), tuple(p for note in notes.values() for p in note.all()))


def _session(own: str, found: list[Signal], notes: Notes) -> Trace | None:
    spans = [s for s in found if s.span]
    events = [s for s in found if not s.span]
    reader = Spans(spans, notes) if spans else Events(events, notes)
    chats = reader.read()
    named = [c for c in chats if c.thread.exchanges]
    if not named:
        tools = sum(1 for s in found if s.is_tool())
        notes.add(found[0].line, f"session {own[:100]} tells of {tools} tool runs and of no request to a model")
        return None
    if not chats[0].thread.exchanges:
        notes.add(found[0].line, f"session {own[:100]}: no request of the main agent is logged, only a sub-agent's")
        named[0].thread.parent = None
    first = found[0]
    begun = [c.first for c in chats if c.first is not None]
    header = Header(
        id=own,
        agent=reader.agent or first.service or "unknown",
        agent_version=first.version,
        models=tuple(dict.fromkeys(e.model for c in named for e in c.thread.exchanges if e.model)),
        source=f"{NAME} {first.path}",
        started_at=min(begun, default=None),
        title=title_of(_prompt(chats)),
    )
    return assemble(header, [c.thread for c in named], Rules(exact_cache=not spans, exact_starts=True))


def _prompt(chats: Sequence[Conversation]) -> str:
    return next((c.prompt for c in chats if c.prompt), "")
