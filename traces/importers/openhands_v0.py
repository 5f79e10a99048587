"""OpenHands V0 events: a trajectory's list, an event folder, or the sessions of an evaluation's output.

An action of the agent names the response that it came in (`tool_call_metadata.model_response`, with its usage); without
function calling each action is a response of its own, counted by what the running totals grew. Times are local and
without a zone. A delegate's events stand between the action that starts it and the observation that ends it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.chat_messages import draft_of, pieces_of, take_usage
from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.openhands_parts import History, schemas_of, strings
from windtunnel.traces.importers.pieces import (
    Asked,
    Draft,
    Exchange,
    Piece,
    ThreadDraft,
    Tool,
    ToolSchemas,
    title_of,
)
from windtunnel.traces.importers.records import Notes, count, instant, read_records, seconds, table, tables, text
from windtunnel.traces.importers.thread_writer import ThreadWriter, adopt, arguments_piece, tell_apart
from windtunnel.traces.model import Header

AGENT = "openhands"
_NO_ANSWER = frozenset(
    {"null", "recall", "change_agent_state", "system", "condensation", "condensation_request", "start"}
)
_NO_RESULT = frozenset({"null", "recall", "agent_state_changed", "recall_failure"})
_NO_TIME = "the log's times have no zone: taken as UTC"

Json = dict[str, object]


def read_file(path: Path) -> Iterator[Imported]:
    """The sessions of a trajectory file or of an evaluation's output."""
    notes = Notes(str(path))
    if path.suffix == ".jsonl":
        results = [_session(r.value, r.line, path, notes) for r in read_records(path, notes)]
    else:
        value = read_document(path, notes, "history", _is_event)
        results = [_session({"history": value} if isinstance(value, list) else table(value), None, path, notes)]
    traces = tuple(t for r in results for t in r.traces)
    if not traces:
        notes.add(None, "holds no request to a model: nothing to replay")
    yield Imported(traces, notes.all())


def _is_event(value: Json) -> bool:
    return "source" in value and ("action" in value or "observation" in value)


def read_events(folder: Path) -> Imported:
    """A session stored as one file an event."""
    problems: list[Notes] = []
    events: list[Json] = []
    for path in sorted(folder.glob("*.json"), key=lambda p: (len(p.stem), p.stem)):
        notes = Notes(str(path))
        problems.append(notes)
        event = table(read_document(path, notes))
        if event:
            events.append(event)
    whole = Notes(str(folder))
    problems.append(whole)
    found = _trace(events, {}, folder, folder.parent.name, whole)
    if not found.traces:
        whole.add(None, "holds no request to a model: nothing to replay")
    return Imported(found.traces, tuple(p for n in problems for p in n.all()))


def _session(value: Json, line: int | None, path: Path, notes: Notes) -> Imported:
    events = list(tables(value.get("history") if "history" in value else value.get("trajectory")))
    name = text(value.get("instance_id")) or (path.stem if line is None else f"{path.stem}-{line}")
    found = _trace(events, table(value.get("metrics")), path, name, notes)
    if not found.traces and line is not None:
        notes.add(line, "the session holds no request to a model")
    return found


def _trace(events: Sequence[Json], metrics: Json, path: Path, name: str, notes: Notes) -> Imported:
    session = Session(notes, metrics)
    for event in events:
        session.read(event)
    threads = session.finish()
    if not any(t.exchanges for t in threads):
        return Imported((), ())
    header = Header(
        id=name,
        agent=AGENT,
        models=tuple(dict.fromkeys(e.model for t in threads for e in t.exchanges if e.model)),
        source=f"{AGENT} {path}",
        started_at=session.first,
        title=title_of(session.prompt),
        notes=(_NO_TIME,) if session.first is not None else (),
    )
    return Imported((assemble(header, threads, Rules()),), ())


class Speaker(Struct):
    """The main agent or a delegate, while it is read."""

    writer: ThreadWriter
    history: History
    schemas: ToolSchemas | None = None
    last: tuple[str, Exchange] | None = None


class Session:
    def __init__(self, notes: Notes, metrics: Json) -> None:
        self.first: float | None = None
        self.prompt = ""
        self._notes = notes
        self._speakers = [Speaker(ThreadWriter("main"), History())]
        self._ended: list[Speaker] = []
        self._total: tuple[int, int, int] = (0, 0, 0)
        """Prompt, cached and completion tokens of the totals so far."""
        self._usages: dict[str, Json] = {}
        self._latencies: dict[str, float | None] = {}
        self._metrics(metrics)

    def read(self, event: Json) -> None:
        when = instant(event.get("timestamp"))
        if when is None:
            self._notes.add(
                None, f"event {event.get('id')!s:.40} has no usable timestamp: waits around it are not known"
            )
        else:
            self.first = when if self.first is None else min(self.first, when)
        metrics = table(event.get("llm_metrics"))
        self._metrics(metrics)
        action, observation = text(event.get("action")), text(event.get("observation"))
        if action:
            self._acted(action, event, when, metrics)
        elif observation:
            self._observed(observation, event, when)
        else:
            self._notes.add(None, f"event {event.get('id')!s:.40} is of no known kind and was left out")

    def finish(self) -> list[ThreadDraft]:
        main, *below = [*self._speakers[:1], *self._ended, *self._speakers[1:]]
        threads = [s.writer.finish() for s in (main, *below)]
        children = [t for t in threads[1:] if t.exchanges]
        by_key = {t.key: t for t in threads}
        for parent in threads:
            adopt(parent, [c for c in children if by_key.get(c.parent or "") is parent], frozenset({"delegate"}))
        self.prompt = main.writer.prompt
        found = [threads[0], *children]
        tell_apart(found)
        return found

    def _metrics(self, metrics: Json) -> None:
        for usage in tables(metrics.get("token_usages")):
            self._usages[text(usage.get("response_id"))] = usage
        for latency in tables(metrics.get("response_latencies")):
            self._latencies[text(latency.get("response_id"))] = seconds(latency.get("latency"))

    def _acted(self, action: str, event: Json, when: float | None, metrics: Json) -> None:
        speaker, key, args = self._speakers[-1], _key(event), table(event.get("args"))
        if action == "system":
            draft = Draft("system", tuple(pieces_of(args.get("content"))))
            speaker.writer.set_out(draft)
            speaker.history.add(key, draft)
            speaker.schemas = schemas_of(args.get("tools"))
        elif action == "condensation":
            self._condensed(args, when)
        elif action == "message" and event.get("source") == "user":
            draft = Draft("user", tuple(_said(args)))
            if len(self._speakers) == 1:
                speaker.writer.typed(draft, when)
            else:
                speaker.writer.came(draft, when)
            speaker.history.add(key, draft)
        elif event.get("source") == "agent" and action not in _NO_ANSWER:
            self._answered(action, event, when, metrics)

    def _answered(self, action: str, event: Json, when: float | None, metrics: Json) -> None:
        speaker, key, args = self._speakers[-1], _key(event), table(event.get("args"))
        metadata = table(event.get("tool_call_metadata"))
        response = table(metadata.get("model_response"))
        response_id = text(response.get("id"))
        if speaker.last is not None and response_id and speaker.last[0] == response_id:
            exchange = speaker.last[1]
        else:
            exchange = speaker.writer.request(0)
            exchange.schemas, exchange.end = speaker.schemas, when
            speaker.last = (response_id, exchange)
            self._counted(exchange, response, metrics)
            choice = next(tables(response.get("choices")), {})
            exchange.stop = text(choice.get("finish_reason")) or None
            message = table(choice.get("message"))
            exchange.output = draft_of({**message, "role": "assistant"})
            if not exchange.output.pieces:
                told = text(args.get("content")) if action == "message" else text(args.get("thought"))
                exchange.output = Draft(
                    "assistant", tuple(pieces_of(told)), exchange.output.reasoning, exchange.output.calls
                )
        old = exchange.output or Draft("assistant")
        tool_id = text(metadata.get("tool_call_id"))
        name = text(metadata.get("function_name")) or action
        written = {c.id for c in old.calls}
        if tool_id and tool_id not in written:
            call = Asked(tool_id, name, arguments_piece({k: v for k, v in args.items() if k != "thought"}))
            exchange.output = Draft("assistant", old.pieces, old.reasoning, (*old.calls, call))
        if tool_id or action not in ("message", "finish"):
            tool = Tool(tool_id or f"event-{key}", name, start=when)
            speaker.writer.asked(exchange, tool)
            if action == "delegate":
                self._delegated(tool, args)
        speaker.history.answered(key, exchange)

    def _delegated(self, tool: Tool, args: Json) -> None:
        parent = self._speakers[-1].writer.thread
        writer = ThreadWriter(f"{parent.key}/{tool.id}")
        writer.thread.parent, writer.thread.tool_call_id = parent.key, tool.id
        writer.thread.name = writer.thread.role = text(args.get("agent")) or "delegate"
        self._speakers.append(Speaker(writer, History()))

    def _counted(self, exchange: Exchange, response: Json, metrics: Json) -> None:
        """Usage of the response, else of the statistics under its id, else what the totals grew by."""
        usage = table(response.get("usage"))
        response_id = text(response.get("id"))
        exchange.model = text(response.get("model")) or None
        totals = table(metrics.get("accumulated_token_usage"))
        names = ("prompt_tokens", "cache_read_tokens", "completion_tokens")
        prompt, cached, completion = (count(totals.get(n), self._notes, None, n) or 0 for n in names)
        grown = (prompt - self._total[0], cached - self._total[1], completion - self._total[2])
        if prompt:
            self._total = (prompt, cached, completion)
        if usage:
            take_usage(exchange, usage, self._notes, None)
        elif response_id in self._usages:
            self._statistics(exchange, self._usages[response_id])
        elif prompt and grown[0] > 0 and min(grown) >= 0:
            exchange.prompt, exchange.cached, exchange.completion = grown[0], grown[1], grown[2] or None
            exchange.marks |= {"prompt": "derived", "cached": "derived", "completion": "derived"}
            exchange.model = exchange.model or text(totals.get("model")) or None
        if exchange.prompt is None:
            self._notes.add(None, "a response has no usage: its prompt size is estimated")
        latency = self._latencies.get(response_id)
        if exchange.end is not None and latency is not None:
            exchange.start = exchange.end - latency
            exchange.marks.pop("start", None)

    def _statistics(self, exchange: Exchange, usage: Json) -> None:
        exchange.prompt = count(usage.get("prompt_tokens"), self._notes, None, "prompt_tokens") or None
        exchange.cached = count(usage.get("cache_read_tokens"), self._notes, None, "cache_read_tokens")
        exchange.completion = count(usage.get("completion_tokens"), self._notes, None, "completion_tokens")
        exchange.model = exchange.model or text(usage.get("model")) or None

    def _observed(self, observation: str, event: Json, when: float | None) -> None:
        if observation in _NO_RESULT:
            return
        if observation == "delegate" and len(self._speakers) > 1:
            self._ended.append(self._speakers.pop())
        speaker = self._speakers[-1]
        said = pieces_of(event.get("content"))
        tool_id = (
            text(table(event.get("tool_call_metadata")).get("tool_call_id")) or f"event-{event.get('cause')!s:.40}"
        )
        tool = speaker.writer.result(tool_id, said, when)
        speaker.history.add(_key(event), speaker.writer.pending[-1])
        if tool is not None:
            tool.error = observation == "error"

    def _condensed(self, args: Json, when: float | None) -> None:
        first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        forgotten = strings(args.get("forgotten_event_ids"))
        if isinstance(first, int) and isinstance(last, int) and 0 <= last - first < 1_000_000:
            forgotten += [str(i) for i in range(first, last + 1)]
        offset = args.get("summary_offset")
        speaker = self._speakers[-1]
        context = speaker.history.condense(
            forgotten, text(args.get("summary")), offset if isinstance(offset, int) else None
        )
        speaker.writer.compacted(context, when)


def _said(args: Json) -> list[Piece]:
    images = {"image_urls": args.get("image_urls")}
    return [*pieces_of(args.get("content")), *pieces_of([images])]


def _key(event: Json) -> str:
    return f"{event.get('id')!s:.40}"
