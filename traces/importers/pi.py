"""pi sessions (`~/.pi/agent/sessions/**/*.jsonl`): a header, then one entry a line.

Until late 2025 entries follow one another; since then each names its parent, and a session may go back to an earlier
entry and take another way. All requests of a file are read, in file order; one that does not follow the request before
it starts from its own way's text. Usage: `input` excludes the cache. The requests that write a compaction's or a
branch's summary are not in the log.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.conversation import STOPS, Conversation
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import (
    Asked,
    Draft,
    Exchange,
    Piece,
    ThreadDraft,
    media_piece,
    text_piece,
    title_of,
)
from windtunnel.traces.importers.records import (
    Notes,
    Record,
    count,
    dumps,
    first_rows,
    instant,
    instant_ms,
    read_records,
    table,
    tables,
    text,
)
from windtunnel.traces.model import Header

NAME = "pi"
_CACHED_BY_POSITION = "anthropic-messages"
"""The API that caches up to marked positions for a stated time."""


class Entry(Struct, frozen=True):
    """What an entry puts into later prompts."""

    draft: Draft
    when: float | None = None
    human: bool = False
    tool: str | None = None
    """On a tool's result: the call it answers."""
    error: bool = False


def detect(path: Path, head: bytes) -> bool:
    """A session header with a folder and a time, or a message entry as pi writes it."""
    if path.suffix != ".jsonl":
        return False
    for value in first_rows(head, 10):
        if value.get("type") == "session" and "timestamp" in value and "cwd" in value and "id" in value:
            return True
        message = table(value.get("message"))
        if value.get("type") == "message" and "timestamp" in message and "role" in message and "timestamp" in value:
            return True
    return False


def read(path: Path) -> Imported:
    notes = Notes(str(path))
    session = Session()
    for record in read_records(path, notes):
        session.read(record, notes)
    thread = session.talk.thread
    if not thread.exchanges:
        notes.add(None, "holds no request to a model: nothing to replay")
        return Imported((), notes.all())
    if session.talk.unanswered():
        notes.add(None, f"the log ends with {len(session.talk.unanswered())} messages that no request carried")
    rules = Rules(exact_cache=session.apis == {_CACHED_BY_POSITION})
    return Imported((assemble(session.header(path), [thread], rules),), notes.all())


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    return map(read, paths)


class Session:
    def __init__(self) -> None:
        self.talk = Conversation(ThreadDraft("main"), set())
        self.apis: set[str] = set()
        self.id = self.version = self.cwd = self.name = ""
        self._origin = ""
        """File of the session that this one was forked from."""
        self._effort: str | None = None
        self._parents: dict[str, str | None] = {}
        self._entries: dict[str, Entry] = {}
        self._order: list[Entry] = []
        """Entries of the present way."""
        self._rebuilt: dict[str, list[Entry]] = {}
        """What a compaction, by its id, left of the prompt."""
        self._tip: str | None = None
        self._branches = self._summaries = self._numbered = 0

    def read(self, record: Record, notes: Notes) -> None:
        value, line = record.value, record.line
        kind = text(value.get("type"))
        when = instant(value.get("timestamp"))
        if when is None and kind in ("message", "compaction", "branch_summary", "custom_message"):
            notes.add(line, "the entry has no usable timestamp: waits around it are not known")
        if kind != "session":
            self._follow(value, notes, line)
        if kind == "session":
            self._head(value)
        elif kind == "message":
            self._message(value, table(value.get("message")), when, notes, line)
        elif kind == "thinking_level_change":
            self._effort = _effort(value.get("thinkingLevel"))
        elif kind == "compaction":
            self._compacted(value)
        elif kind in ("branch_summary", "custom_message"):
            said = value.get("summary") if kind == "branch_summary" else value.get("content")
            self._summaries += kind == "branch_summary"
            self._put(value, Entry(Draft("user", tuple(_pieces(said))), when))
        elif kind == "session_info":
            self.name = text(value.get("name")) or self.name

    def header(self, path: Path) -> Header:
        exchanges = self.talk.thread.exchanges
        folder = self.cwd.replace("\\", "/").rstrip("/").rpartition("/")[2]
        notes = []
        if self._origin:
            notes.append(f"begins as a copy of {self._origin}")
        if self._summaries:
            notes.append(f"{self._summaries} requests that wrote a summary are not in the log")
        if self._branches:
            notes.append(f"{self._branches} calls go on from an earlier point of the session (another branch)")
        return Header(
            id=self.id or path.stem,
            agent=NAME,
            agent_version=None,
            models=tuple(dict.fromkeys(e.model for e in exchanges if e.model)),
            source=f"{NAME} {path}",
            started_at=self.talk.first,
            title=title_of(self.name) or title_of(self.talk.prompt) or folder or None,
            notes=tuple(notes),
        )

    def _head(self, value: dict[str, object]) -> None:
        self.id = self.id or text(value.get("id"))
        self.cwd = self.cwd or text(value.get("cwd"))
        self._effort = _effort(value.get("thinkingLevel"))
        origin = text(value.get("parentSession")) or text(value.get("branchedFrom"))
        self._origin = origin.replace("\\", "/").rpartition("/")[2]

    def _follow(self, value: dict[str, object], notes: Notes, line: int) -> None:
        """Where an entry does not follow the one before it, the prompt goes back to its own way."""
        own, parent = text(value.get("id")), value.get("parentId")
        if not own or "parentId" not in value:
            return
        if isinstance(parent, str) and parent not in self._parents:
            notes.add(line, "the entry's parent is not in the log: it was read as following the line before")
            parent = self._tip
        parent = parent if isinstance(parent, str) and parent != own else None
        if own in self._parents:
            notes.add(line, "the entry has the id of an earlier one: it was read as following the line before")
            return
        if parent != self._tip and self._parents:
            self._branches += 1
            self._start_over(self._way(parent))
        self._parents[own] = parent
        self._tip = own

    def _way(self, upto: str | None) -> list[Entry]:
        """What the entries from the root, or from the last compaction, to `upto` put into a prompt, in order."""
        way: list[Entry] = []
        while upto is not None:
            if upto in self._rebuilt:
                return [*self._rebuilt[upto], *way[::-1]]
            if upto in self._entries:
                way.append(self._entries[upto])
            upto = self._parents.get(upto)
        return way[::-1]

    def _start_over(self, way: list[Entry]) -> None:
        self._order = list(way)
        self.talk.compacted([e.draft for e in way])

    def _put(self, value: dict[str, object], entry: Entry) -> None:
        self._keep(value, entry)
        if entry.tool is not None:
            self.talk.result(entry.tool, entry.draft.pieces, entry.when, name=entry.draft.name or "", error=entry.error)
        else:
            self.talk.add(entry.draft, entry.when, human=entry.human)

    def _keep(self, value: dict[str, object], entry: Entry) -> None:
        self._order.append(entry)
        own = text(value.get("id"))
        if own and "parentId" in value:
            self._entries[own] = entry

    def _message(
        self, value: dict[str, object], message: dict[str, object], when: float | None, notes: Notes, line: int
    ) -> None:
        role = text(message.get("role"))
        sent = instant_ms(message.get("timestamp"))
        if role == "assistant":
            self._answer(value, message, sent, when, notes, line)
        elif role == "toolResult":
            tool = text(message.get("toolCallId"))
            name = text(message.get("toolName")) or None
            draft = Draft("tool", tuple(_pieces(message.get("content"))), tool_call_id=tool or None, name=name)
            self._put(value, Entry(draft, sent or when, tool=tool, error=message.get("isError") is True))
        elif role == "bashExecution":
            if message.get("excludeFromContext") is not True:
                ran = f"{text(message.get('command'))}\n{text(message.get('output'))}"
                self._put(value, Entry(Draft("user", (text_piece(ran),)), sent or when))
        elif role in ("branchSummary", "compactionSummary"):
            self._put(value, Entry(Draft("user", tuple(_pieces(message.get("summary")))), sent or when))
        elif role in ("user", "custom", "hookMessage"):
            draft = Draft("user", tuple(_pieces(message.get("content"))))
            self._put(value, Entry(draft, sent or when, human=role == "user"))
        else:
            notes.add(line, f"a message of the unknown role {role[:40]!r} was left out")

    def _answer(
        self,
        value: dict[str, object],
        message: dict[str, object],
        start: float | None,
        end: float | None,
        notes: Notes,
        line: int,
    ) -> None:
        stop = text(message.get("stopReason"))
        usage = table(message.get("usage"))
        fresh, cached, created, completion = (
            count(usage.get(key), notes, line, key) for key in ("input", "cacheRead", "cacheWrite", "output")
        )
        prompt = None if fresh is None else fresh + (cached or 0) + (created or 0)
        ended = stop in ("aborted", "error")
        if not prompt and not ended:
            notes.add(line, "the response has no usage: its prompt size is estimated")
        counted = bool(prompt)
        api = text(message.get("api"))
        if counted:
            self.apis.add(api)
        self._numbered += 1
        exchange = Exchange(
            key=str(self._numbered),
            line=line,
            prompt=prompt or None,
            cached=cached if counted else None,
            created=created if counted and api == _CACHED_BY_POSITION else None,
            completion=completion if counted else None,
            start=start,
            end=end,
            model=text(message.get("model")) or None,
            stop=STOPS.get(stop, stop) or None,
            effort=self._effort,
            aborted=ended,
        )
        output = _output(message)
        # a message that was stopped is sent again without its tool calls
        self.talk.answer(exchange, output, None if ended else end, calls_dropped=ended)
        if exchange.output is not None:
            self._keep(value, Entry(exchange.output, end))

    def _compacted(self, value: dict[str, object]) -> None:
        """A summary stands for everything before the first entry that was kept."""
        summary = Entry(Draft("user", tuple(_pieces(value.get("summary")))))
        kept_from = self._entries.get(text(value.get("firstKeptEntryId")))
        kept: list[Entry] = []
        if kept_from is not None:
            at = next((i for i, e in enumerate(self._order) if e is kept_from), len(self._order))
            kept = self._order[at:]
        self._summaries += 1
        self._start_over([summary, *kept])
        self._rebuilt[text(value.get("id"))] = [summary, *kept]


def _effort(level: object) -> str | None:
    said = text(level)
    return said if said and said != "off" else None


def _output(message: dict[str, object]) -> Draft:
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    for part in tables(message.get("content")):
        kind = part.get("type")
        if kind == "text" and text(part.get("text")):
            pieces.append(text_piece(text(part.get("text"))))
        elif kind == "thinking" and text(part.get("thinking")):
            reasoning.append(text_piece(text(part.get("thinking"))))
        elif kind == "toolCall":
            arguments = text_piece(dumps(part.get("arguments") or {}), "json")
            calls.append(Asked(text(part.get("id")), text(part.get("name")) or "tool", arguments))
    return Draft("assistant", tuple(pieces), tuple(reasoning), tuple(calls))


def _pieces(content: object) -> list[Piece]:
    if isinstance(content, str):
        return [text_piece(content)] if content else []
    out: list[Piece] = []
    for part in tables(content):
        if part.get("type") == "text" and text(part.get("text")):
            out.append(text_piece(text(part.get("text"))))
        elif part.get("type") == "image":
            out.append(media_piece(text(part.get("mimeType")) or "image/unknown", text(part.get("data"))))
    return out
