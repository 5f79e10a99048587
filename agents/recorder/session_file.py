"""One session's trace file: appended to as each call ends, so that a kill costs only what was under way."""

import re
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from windtunnel.agents.recorder.asked import Answer, Request
from windtunnel.agents.recorder.book import Entry
from windtunnel.agents.recorder.model import Session, Thread, Turn
from windtunnel.agents.recorder.waits import NS, tool_runs, waits
from windtunnel.traces.format import TraceWriter, read_trace, write_trace
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.model import Call, Header, Mark, Usage
from windtunnel.traces.model import Thread as ThreadLine

TAG_NOTE = "tag "
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class SessionFile:
    """The file is open only while a call is added."""

    def __init__(self, session: Session, path: Path) -> None:
        self.session = session
        self._path = path
        self._note = ""

    @classmethod
    def begin(cls, folder: Path, session: Session, source: str, started_at: float, note: str = "") -> Self:
        """Write the header; `started_at` is the Unix time of the session's first request, s. `note`: one for it."""
        file = cls(session, _free(folder, file_stem(session.id)))
        file._note = note
        header = Header(
            id=session.id,
            agent=session.client or "unknown",
            agent_version=session.version,
            models=(session.model,) if session.model else (),
            source=source,
            started_at=round(started_at, 6),
            title=title_of(session.title or (session.texts[-1] if session.texts else "")),
            notes=(*((f"{TAG_NOTE}{session.tag}",) if session.tag else ()), *((note,) if note else ())),
        )
        with TraceWriter(file._path) as writer:
            writer.write(header)
        return file

    def note(self, text: str) -> None:
        """Add to the header of a file that was begun before it was known, or by an earlier recording."""
        if text == self._note:
            return
        self._note = text
        traces = read_trace(self._path).traces
        if len(traces) == 1 and text not in traces[0].header.notes:
            header = replace(traces[0].header, notes=(*traces[0].header.notes, text))
            write_trace(replace(traces[0], header=header), self._path)

    def add(self, turn: Turn, request: Request, answer: Answer, *, aborted: bool) -> Call:
        """Write a call that ended with all that it needs; also notes in `turn` where its prompt stands."""
        session = self.session
        entry = session.book.prompt(turn.thread.id, request.said, request.schemas, answer.prompt)
        output = session.book.output(answer, str(turn.id))
        turn.messages, turn.toolset = entry.messages, entry.tools
        base, keep = _base(turn)
        call = replace(
            self._call(turn, entry, output, request, answer, aborted=aborted),
            base=None if base is None else base.id,
            keep=keep,
            append=entry.messages[keep:],
        )
        with TraceWriter(self._path) as writer:
            self._threads(turn.thread, writer)
            for line in session.book.fresh_lines():
                writer.write(line)
            writer.write(call)
            for wait in waits(turn):
                writer.write(wait)
            for run in tool_runs(turn, session, session.started):
                writer.write(run)
        return call

    def _threads(self, thread: Thread, writer: TraceWriter) -> None:
        """A thread's line stands before its first call, its parent's before its own."""
        if thread.written:
            return
        if thread.parent is not None:
            self._threads(thread.parent, writer)
        thread.written = True
        spawn, parent = thread.spawn, thread.parent
        if parent is None:
            writer.write(ThreadLine(thread.id))
            return
        begun = self.session.started if spawn is None else spawn.end
        first = thread.turns[0] if thread.turns else next(iter(thread.running.values()), None)
        delay = 0.0 if first is None or begun is None else max(0.0, (first.asked_at - begun) / NS)
        went_on = spawn is None or spawn.end is None or parent.last_begun > spawn.end
        writer.write(
            ThreadLine(
                id=thread.id,
                parent=parent.id,
                spawn_call=None if spawn is None else spawn.id,
                spawn_delay_s=round(delay, 6),
                tool_call_id=thread.tool_call_id,
                name=thread.name,
                background=went_on,
            )
        )

    def _call(
        self, turn: Turn, entry: Entry, output: int | None, request: Request, answer: Answer, *, aborted: bool
    ) -> Call:
        since = self.session.started
        marks: dict[str, Mark] = {}
        prompt, completion = answer.prompt, answer.completion
        if prompt is None:
            prompt, marks["prompt"] = entry.tokens, "estimated"
        if completion is None:
            completion = 0 if output is None else self.session.book.ledger.tokens(output)
            marks["completion"] = "estimated"
        return Call(
            id=turn.id,
            thread=turn.thread.id,
            tools=entry.tools,
            output=output,
            usage=Usage(prompt, answer.cached, completion, answer.reasoning),
            start_s=round((turn.start - since) / NS, 6),
            first_s=_first_s(answer, since),
            end_s=None if turn.end is None else round((turn.end - since) / NS, 6),
            stop=answer.stop,
            model=request.model,
            params=request.params,
            kind=turn.kind,
            aborted=aborted,
            joins=tuple(c.id for c in turn.joins),
            marks=marks,
        )


def _first_s(answer: Answer, since: int) -> float | None:
    """When the first token came; an answer in one piece does not tell, unless it is one token."""
    known = bool(answer.chunk_t) or answer.completion == 1
    return round((answer.t_first - since) / NS, 6) if known and answer.t_first is not None else None


def file_stem(session: str) -> str:
    """How the file of a session is called; one more of the same name gets `-2` behind it."""
    return _UNSAFE.sub("_", session)[:100].strip(".") or "session"


def _free(folder: Path, name: str) -> Path:
    """A file of this name that is not there yet: different ids may be written alike."""
    path, number = folder / f"{name}.jsonl", 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}.jsonl"
    return path


def _base(turn: Turn) -> tuple[Turn | None, int]:
    """The earlier call of the thread whose prompt has the longest beginning in common with this one's."""
    best, kept = None, 0
    for other in reversed(turn.thread.turns):
        keep = 0
        for a, b in zip(other.messages, turn.messages, strict=False):
            if a != b:
                break
            keep += 1
        if keep > kept and other.id < turn.id:
            best, kept = other, keep
    return best, kept
