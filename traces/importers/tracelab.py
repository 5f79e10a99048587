"""TraceLab round traces (`round_trace.jsonl`): a row is a request ("round"), with sizes and times but without text.

`input_tokens_total` includes `prefix_tokens`, what was cached; output includes reasoning. A request starts when the
last of its input came (`timing_events` of a user message or a tool result) and ends with its last output or usage
event; tools carry their own times. Text is told by its length in characters only: the traces are shape-only.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft
from windtunnel.traces.importers.records import (
    Notes,
    Record,
    count,
    first_rows,
    instant,
    read_records,
    seconds,
    table,
    tables,
    text,
)
from windtunnel.traces.model import Header, TextKind, Trace, digest_of

__all__ = ["NAME", "detect", "read", "read_group"]

NAME = "tracelab"
_CLIENTS = {"claude": "claude-code"}
_INPUT = ("user_message", "tool_result")
_KINDS: dict[str, TextKind] = {"user_message": "prose", "tool_result": "log", "text": "prose", "reasoning": "prose"}
CHARS_PER_TOKEN = 4.0


def detect(path: Path, head: bytes) -> bool:
    if path.suffix != ".jsonl":
        return False
    for value in first_rows(head, 5):
        if "round_id" in value and "timing_events" in value and "input_tokens_total" in value:
            return True
    # a row may be longer than what is looked at
    return b'"round_id"' in head[:4_000] and b'"timing_events"' in head and b'"input_tokens_total"' in head


def read(path: Path) -> Imported:
    return next(read_group([path]))


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Each file's sessions: rows of one `session_id`, by `round_index`."""
    for path in paths:
        notes = Notes(str(path))
        sessions: dict[str, list[Record]] = {}
        for record in read_records(path, notes):
            own = text(record.value.get("session_id"))
            if own:
                sessions.setdefault(own, []).append(record)
            else:
                notes.add(record.line, "the row names no session and was left out")
        if not sessions and not notes.all():
            notes.add(None, "holds no request to a model: nothing to replay")
        traces = tuple(Session(own, notes, path).trace(rows) for own, rows in sessions.items())
        yield Imported(traces, notes.all())


class Session:
    """The rows of one session become one thread."""

    def __init__(self, own: str, notes: Notes, path: Path) -> None:
        self.id = own
        self.notes = notes
        self.path = path
        self.thread = ThreadDraft("main")
        self.chat = Conversation(self.thread, set())
        self._previous: dict[str, object] = {}

    def trace(self, rows: list[Record]) -> Trace:
        for at, record in enumerate(sorted(rows, key=_index)):
            self._round(record, at)
        first = rows[0].value
        provider = text(first.get("provider"))
        models = tuple(dict.fromkeys(e.model for e in self.thread.exchanges if e.model))
        header = Header(
            id=self.id,
            agent=_CLIENTS.get(provider, provider or "unknown"),
            models=models,
            source=f"{NAME} {self.path}",
            started_at=self.chat.first,
            shape_only=True,
            title=text(first.get("project")) or None,
        )
        return assemble(header, [self.thread], Rules(exact_cache=provider == "claude"))

    def _round(self, record: Record, at: int) -> None:
        row, line = record.value, record.line
        events = list(tables(row.get("timing_events")))
        if not events:
            self.notes.add(line, "the row has no timing events: waits around it are not known")
        self._input([e for e in events if e.get("event_type") in _INPUT], at, line)
        exchange = Exchange(
            key=f"round {at}",
            line=line,
            prompt=count(row.get("input_tokens_total"), self.notes, line, "input_tokens_total") or None,
            cached=count(row.get("prefix_tokens"), self.notes, line, "prefix_tokens"),
            created=count(row.get("claude_cache_creation_input_tokens"), self.notes, line, "cache creation"),
            completion=count(row.get("output_tokens"), self.notes, line, "output_tokens"),
            reasoning=count(row.get("reasoning_output_tokens"), self.notes, line, "reasoning_output_tokens"),
            end=max((t for t in (_when(e) for e in events if e.get("event_type") not in _INPUT) if t), default=None),
            model=text(row.get("model")) or None,
        )
        if exchange.prompt is None:
            self.notes.add(line, "the row has no input_tokens_total: its prompt size is estimated")
        if exchange.reasoning is not None and exchange.completion is not None:
            exchange.reasoning = min(exchange.reasoning, exchange.completion)
        self.chat.answer(exchange, self._output(row, events, at))
        for tool in tables(row.get("tools")):
            run = self.chat.tools.get(_tool_id(tool, at))
            if run is not None:
                run.start, run.end, run.mark = (
                    instant(tool.get("emitted_at")),
                    instant(tool.get("result_at")),
                    "recorded",
                )
                run.took = _milliseconds(tool.get("tool_wall_latency_ms"))
                run.error = tool.get("is_error") is True
                if run.start is not None and run.end is not None:
                    run.end = max(run.start, run.end)
        self._previous = {_tool_id(t, at): t for t in tables(row.get("tools"))}

    def _input(self, events: list[dict[str, object]], at: int, line: int) -> None:
        """What came before the request: a person's words, and the results of the round before."""
        typed = [e for e in events if e.get("event_type") == "user_message"]
        results = [e for e in events if e.get("event_type") == "tool_result"]
        if not events and not at:
            self.chat.add(Draft("user"), None, human=True)
        waiting = dict(self._previous)
        for number, event in enumerate(results):
            own = text(event.get("tool_call_id")) or next(iter(waiting), "")
            tool = table(waiting.pop(own, None))
            chars = event.get("result_chars") if tool.get("result_chars") is None else tool.get("result_chars")
            pieces = self._piece(chars, "tool_result", at, number, line)
            self.chat.result(own, pieces, _when(event) or instant(tool.get("result_at")))
        for number, event in enumerate(typed):
            self.chat.add(
                Draft("user", self._piece(event.get("content_chars"), "user_message", at, number, line)),
                _when(event),
                human=True,
            )

    def _output(self, row: dict[str, object], events: list[dict[str, object]], at: int) -> Draft:
        pieces: list[Piece] = []
        thought: list[Piece] = []
        for number, event in enumerate(events):
            kind = event.get("event_type")
            if kind == "text":
                pieces += self._piece(event.get("content_chars"), "text", at, number, None)
            elif kind == "reasoning":
                thought += self._piece(event.get("content_chars"), "reasoning", at, number, None)
        calls = []
        for number, tool in enumerate(tables(row.get("tools"))):
            told = self._piece(tool.get("input_chars"), "input", at, number, None)
            arguments = told[0] if told else Piece(digest_of(NAME, self.id, "none", str(at), str(number)), "json", 1)
            calls.append(Asked(_tool_id(tool, at), text(tool.get("tool_name")) or "tool", arguments))
        return Draft("assistant", tuple(pieces), tuple(thought), tuple(calls))

    def _piece(self, chars: object, what: str, at: int, number: int, line: int | None) -> tuple[Piece, ...]:
        """Text of a known length; nothing where the length is none or not credible."""
        length = count(chars, self.notes, line, f"{what} characters") if chars else None
        if not length:
            return ()
        kind = _KINDS.get(what, "json")
        digest = digest_of(NAME, self.id, what, str(at), str(number))
        return (Piece(digest, kind, max(1, round(length / CHARS_PER_TOKEN))),)


def _index(record: Record) -> float:
    value = record.value.get("round_index")
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
    return float(value) if known and isinstance(value, int | float) else 1e9


def _when(event: dict[str, object]) -> float | None:
    return instant(event.get("timestamp"))


def _tool_id(tool: dict[str, object], at: int) -> str:
    return text(tool.get("tool_call_id")) or f"round {at} tool {tool.get('tool_index')}"[:80]


def _milliseconds(value: object) -> float | None:
    known = seconds(value, 1e12)
    return None if known is None else known / 1000
