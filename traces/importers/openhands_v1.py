"""An OpenHands V1 conversation: events become a thread, `base_state.json` has the counts of its responses.

Event times are local and without a zone; the costs in the state carry Unix times, which tell the zone.
"""

from collections.abc import Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.chat_messages import draft_of, pieces_of
from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.openhands_parts import History, schemas_of, strings
from windtunnel.traces.importers.openhands_usage import SUB_AGENT, Figures, read_figures
from windtunnel.traces.importers.pieces import (
    Asked,
    Draft,
    Exchange,
    ThreadDraft,
    Tool,
    ToolSchemas,
    text_piece,
    title_of,
)
from windtunnel.traces.importers.records import Notes, count, instant, table, tables, text
from windtunnel.traces.importers.thread_writer import ThreadWriter, adopt, arguments_piece, tell_apart
from windtunnel.traces.model import CallKind, Header, Problem

AGENT = "openhands"
AGENT_TOOLS = frozenset({"task", "delegate"})
_QUARTER_S = 900

Json = dict[str, object]


def read_conversation(state: Path, folder: Path | None) -> Imported:
    """A conversation with its sub-agents; `folder` None for a state without events beside it."""
    main = Conversation(state, folder)
    children = [Conversation(f / "base_state.json", f, main) for f in _below(folder)]
    threads = [c.writer.thread for c in children if c.writer.thread.exchanges]
    counted = {f.response for c in children for f in c.figures}
    own = main.sub_agents(counted)
    adopt(main.writer.thread, [*threads, *own], AGENT_TOOLS)
    found = [main.writer.thread, *threads, *own]
    tell_apart(found)
    if not any(t.exchanges for t in found):
        main.notes.add(None, "holds no request to a model: nothing to replay")
        return Imported((), tuple(p for c in (main, *children) for p in c.problems()))
    header = Header(
        id=main.id or (folder or state).stem,
        agent=AGENT,
        models=tuple(dict.fromkeys(e.model for t in found for e in t.exchanges if e.model)),
        source=f"{AGENT} {folder or state}",
        started_at=min((c.first for c in (main, *children) if c.first is not None), default=_began(found)),
        title=title_of(main.writer.prompt) or None,
        notes=() if main.zoned else ("the log's times have no zone: taken as UTC",),
    )
    return Imported((assemble(header, found, Rules()),), tuple(p for c in (main, *children) for p in c.problems()))


def _below(folder: Path | None) -> list[Path]:
    places = sorted((folder / "subagents").glob("*")) if folder is not None else []
    return [p for p in places if (p / "events").is_dir() or (p / "base_state.json").is_file()]


def _began(threads: Sequence[ThreadDraft]) -> float | None:
    return min((e.start for t in threads for e in t.exchanges if e.start is not None), default=None)


class Conversation:
    def __init__(self, state: Path, folder: Path | None, parent: "Conversation | None" = None) -> None:
        self.notes = Notes(str(state))
        self._events: list[tuple[Notes, Json]] = []
        self._files: list[Notes] = []
        paths = sorted((folder / "events").glob("event-*.json")) if folder is not None else []
        value: Json = {}
        if state.is_file():
            value = table(read_document(state, self.notes))
        else:
            self.notes.add(None, "there is no such file beside the events: the counts of the responses are not known")
        self.id = text(value.get("id"))
        self.figures = read_figures(value, self.notes)
        self._agent = text(table(table(value.get("agent")).get("llm")).get("usage_id")) or "agent"
        llm = table(table(value.get("agent")).get("llm"))
        self._model = text(llm.get("model")) or None
        self._effort = text(llm.get("reasoning_effort")) or None
        self._most = count(llm.get("max_output_tokens"), self.notes, None, "max_output_tokens")
        for path in paths:
            notes = Notes(str(path))
            self._files.append(notes)
            event = table(read_document(path, notes))
            if event:
                self._events.append((notes, event))
        self._mentioned = {text(e.get("llm_response_id")) for _, e in self._events} - {""}
        self.zoned = any(f.end is not None for f in self.figures)
        inherited = 0.0 if parent is None else parent.offset
        self.offset: float = self._zone() if self.zoned else inherited
        self.writer = ThreadWriter("main" if parent is None else (folder or state).name)
        self.first: float | None = None
        self._own = parent is None
        self._history = History()
        self._schemas: ToolSchemas | None = None
        self._last: tuple[str, Exchange] | None = None
        self._read()

    def problems(self) -> list[Problem]:
        return [p for n in (self.notes, *self._files) for p in n.all()]

    def _zone(self) -> float:
        """Seconds by which the events' times, taken as UTC, are ahead of Unix time: a whole number of quarters."""
        ends = {f.response: f.end for f in self.figures if f.end is not None and f.response}
        for _, event in self._events:
            when, end = instant(event.get("timestamp")), ends.get(text(event.get("llm_response_id")))
            if when is not None and end is not None:
                return round((when - end) / _QUARTER_S) * _QUARTER_S
        return 0.0

    def _read(self) -> None:
        for notes, event in self._events:
            when = instant(event.get("timestamp"))
            if when is None:
                notes.add(None, "the event has no usable timestamp: waits around it are not known")
            else:
                when -= self.offset
                self.first = when if self.first is None else min(self.first, when)
            self._event(event, when, notes)
        self._lost(None)
        for figures in self.figures:
            if not figures.used and not figures.usage_id.startswith(SUB_AGENT):
                self._beside(figures, "compaction" if figures.usage_id == "condenser" else "auxiliary")
        if not self._own:
            self.writer.thread.name = self.writer.thread.role = "agent"
        self.writer.finish()
        for exchange in self.writer.thread.exchanges:
            exchange.model = exchange.model or self._model

    def _event(self, event: Json, when: float | None, notes: Notes) -> None:
        kind, key = text(event.get("kind")), text(event.get("id"))
        if kind == "SystemPromptEvent":
            said = [text(table(event.get(k)).get("text")) for k in ("system_prompt", "dynamic_context")]
            self._came(key, Draft("system", tuple(text_piece(t) for t in said if t)), None)
            self._schemas = schemas_of(event.get("tools"))
        elif kind == "MessageEvent":
            self._message(event, key, when, notes)
        elif kind == "ActionEvent":
            self._action(event, key, when, notes)
        elif kind == "ObservationEvent":
            observation = table(event.get("observation"))
            shown = (*pieces_of(observation.get("content")), *pieces_of(event.get("extended_content")))
            self._result(event, Draft("tool", shown), when, error=observation.get("is_error") is True)
        elif kind in ("AgentErrorEvent", "UserRejectObservation"):
            reason = text(event.get("error")) or text(event.get("rejection_reason"))
            self._result(event, Draft("tool", tuple(pieces_of(reason))), when, error=True)
        elif kind == "Condensation":
            self._condensed(event, when)
        elif not kind:
            notes.add(None, "is no event of a known kind and was left out")

    def _came(self, key: str, draft: Draft, when: float | None) -> None:
        if draft.role == "system":
            self.writer.set_out(draft)
        else:
            self.writer.came(draft, when)
        self._history.add(key, draft)

    def _message(self, event: Json, key: str, when: float | None, notes: Notes) -> None:
        draft = draft_of(table(event.get("llm_message")))
        if event.get("source") == "agent":
            response = text(event.get("llm_response_id"))
            exchange = self._answer(response, when, notes)
            exchange.output = Draft("assistant", draft.pieces, draft.reasoning, draft.calls)
            self._history.answered(key, exchange)
            return
        said = Draft("user", (*draft.pieces, *pieces_of(event.get("extended_content"))))
        if self._own and event.get("source") == "user":
            self.writer.typed(said, when)
        else:
            self.writer.came(said, when)
        self._history.add(key, said)

    def _answer(self, response: str, when: float | None, notes: Notes) -> Exchange:
        """The exchange of a response: the last one where its id is the same."""
        if self._last is not None and response and self._last[0] == response:
            return self._last[1]
        figures = next((f for f in self.figures if response and f.response == response and not f.used), None)
        if figures is not None:
            self._lost(figures)
        exchange = self._begin()
        exchange.end = when
        if figures is not None:
            figures.fill(exchange)
        else:
            notes.add(None, "the response has no usage: its prompt size is estimated")
        self._last = (response, exchange)
        return exchange

    def _begin(self) -> Exchange:
        exchange = self.writer.request(0)
        exchange.schemas, exchange.effort, exchange.max_tokens = self._schemas, self._effort, self._most
        return exchange

    def _lost(self, upto: Figures | None) -> None:
        """Responses of the agent that are counted before `upto` and that no event tells of."""
        if upto is not None and upto.usage_id != self._agent:
            return
        for figures in self.figures:
            if figures is upto:
                return
            if figures.usage_id == self._agent and not figures.used and figures.response not in self._mentioned:
                self.notes.add(
                    None, f"no event tells of response {figures.response or 'without an id'}: its text is lost"
                )
                exchange = self._begin()
                figures.fill(exchange)

    def _action(self, event: Json, key: str, when: float | None, notes: Notes) -> None:
        exchange = self._answer(text(event.get("llm_response_id")), when, notes)
        call = table(event.get("tool_call"))
        tool_id = text(event.get("tool_call_id")) or text(call.get("id"))
        name = text(event.get("tool_name")) or text(call.get("name")) or "tool"
        written = call.get("arguments") if "arguments" in call else table(call.get("function")).get("arguments")
        asked = Asked(tool_id, name, arguments_piece(written if written is not None else event.get("action")))
        thought = [text(b.get("thinking")) for b in tables(event.get("thinking_blocks"))]
        thought = [text(event.get("reasoning_content"))] if text(event.get("reasoning_content")) else thought
        old = exchange.output or Draft("assistant")
        exchange.output = Draft(
            "assistant",
            (*old.pieces, *pieces_of(event.get("thought"))),
            (*old.reasoning, *(text_piece(t) for t in thought if t)),
            (*old.calls, asked),
        )
        self.writer.asked(exchange, Tool(tool_id, name, start=when))
        self._history.answered(key, exchange)

    def _result(self, event: Json, draft: Draft, when: float | None, *, error: bool) -> None:
        tool = self.writer.result(text(event.get("tool_call_id")), draft.pieces, when)
        self._history.add(text(event.get("id")), self.writer.pending[-1])
        if tool is not None:
            tool.error = error

    def _condensed(self, event: Json, when: float | None) -> None:
        """Events are forgotten, a summary takes their place; the request that wrote it has a prompt of its own."""
        response = text(event.get("llm_response_id"))
        figures = next((f for f in self.figures if response and f.response == response and not f.used), None)
        if figures is not None:
            self._beside(figures, "compaction")
        offset = event.get("summary_offset")
        forgotten = strings(event.get("forgotten_event_ids")) or strings(event.get("forgotten_events"))
        context = self._history.condense(
            forgotten, text(event.get("summary")), offset if isinstance(offset, int) else None
        )
        self.writer.compacted(context, when)

    def _beside(self, figures: Figures, kind: CallKind) -> None:
        start = None if figures.end is None or figures.latency is None else figures.end - figures.latency
        figures.fill(self.writer.aside(0, kind, start))

    def sub_agents(self, known: set[str]) -> list[ThreadDraft]:
        """Sub-agents of which only the counts are here; `known` are the responses of those whose events are."""
        writers: dict[str, ThreadWriter] = {}
        for figures in self.figures:
            if figures.usage_id.startswith(SUB_AGENT) and not figures.used and figures.response not in known:
                writer = writers.setdefault(figures.usage_id, ThreadWriter(figures.usage_id))
                writer.thread.name = figures.usage_id.partition(":")[2] or "agent"
                writer.thread.role = "agent"
                exchange = writer.request(0)
                figures.fill(exchange)
        return [writer.finish() for writer in writers.values()]
