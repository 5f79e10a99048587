"""Records of a Qwen Code chat become a thread of exchanges.

An answer's telemetry (`qwen-code.api_response`) comes just before its assistant record and carries the same counts. One
without an assistant record is a request on the side: of a sub-agent where it names one, of a compaction where the
compressed history follows, of a turn whose record is lost where tools ran for it, else an auxiliary one.
"""

from msgspec import Struct

from windtunnel.traces.importers import genai_parts as genai
from windtunnel.traces.importers.pieces import Draft, Exchange, ThreadDraft, Tool, text_piece
from windtunnel.traces.importers.records import Notes, Record, count, dumps, instant, seconds, table, tables, text
from windtunnel.traces.importers.thread_writer import ThreadWriter

_RESPONSE, _TOOL = "qwen-code.api_response", "qwen-code.tool_call"
_NOT_TYPED = frozenset({"notification", "cron", "goal_runtime", "background_task_completed", "mid_turn_user_message"})
"""Kinds of user records that nobody waited for."""
_SUB_AGENT_PROMPT = 3
"""Parts of a sub-agent's prompt id: session, sub-agent, round."""


class Event(Struct):
    """A telemetry record. Times are Unix seconds."""

    line: int
    value: dict[str, object]
    end: float | None
    start: float | None


class Chat:
    def __init__(self, key: str, notes: Notes) -> None:
        self.notes = notes
        self.writer = ThreadWriter(key)
        self.session = self.version = self.folder = self.agent = ""
        self.first: float | None = None
        self._responses: list[Event] = []
        """Answers whose assistant record has not come."""
        self._runs: list[Event] = []
        """Tool runs whose result has not come."""
        self._agents: dict[str, list[Event]] = {}
        self._history: list[Draft] = []
        self._lengths: dict[str, int] = {}
        """Length of the history after each record: where a rewound conversation goes on."""

    def read(self, record: Record) -> None:
        value = record.value
        when = instant(value.get("timestamp"))
        if when is None:
            self.notes.add(record.line, "the line has no usable timestamp: waits around it are not known")
        else:
            self.first = when if self.first is None else min(self.first, when)
        self.session = self.session or text(value.get("sessionId"))
        self.version = self.version or text(value.get("version"))
        self.folder = self.folder or text(value.get("cwd"))
        self.agent = self.agent or text(value.get("agentName"))
        kind = value.get("type")
        if kind == "user":
            self._user(value, when)
        elif kind == "tool_result":
            self._results(value, when)
        elif kind == "assistant":
            self._assistant(value, when, record.line)
        elif kind == "system":
            self._system(value, when, record.line)
        else:
            self.notes.add(record.line, "the line is of no known type and was left out")
        self._lengths[text(value.get("uuid"))] = len(self._history)

    def finish(self) -> None:
        last = self._responses[-1] if self._responses else None
        arrived = self.writer.arrived
        if last is not None and self.writer.pending and arrived is not None and (last.start or 0.0) >= arrived - 1:
            self._lost_turn(last)
        for event in self._responses:
            self._told(self.writer.aside(event.line, "auxiliary", event.start), event)
        self.writer.finish()

    def name_uncounted(self) -> None:
        """Note the answers that neither their record nor the telemetry counts."""
        for exchange in self.writer.thread.exchanges:
            if exchange.prompt is None or "prompt" in exchange.marks:
                self.notes.add(exchange.line, "the response has no usage: its prompt size is estimated")

    def sub_agents(self) -> list[ThreadDraft]:
        """Threads of the sub-agents as the telemetry counts them; their text is not in it but for the answers."""
        return [self._counted(key, events) for key, events in self._agents.items()]

    def _user(self, value: dict[str, object], when: float | None) -> None:
        length = self._lengths.get(text(value.get("parentUuid")))
        if length is not None and length < len(self._history):
            del self._history[length:]
            self.writer.rewound(self._history)
        drafts = genai.drafts_of({"role": "user", "parts": table(value.get("message")).get("parts")})
        typed = text(value.get("subtype")) not in _NOT_TYPED
        for draft in drafts:
            if typed and draft.role == "user":
                self.writer.typed(draft, when)
            else:
                self.writer.came(draft, when)
        self._history.extend(drafts)

    def _results(self, value: dict[str, object], when: float | None) -> None:
        status = table(value.get("toolCallResult"))
        for tool_id, pieces in genai.responses(genai.parts_of(table(value.get("message")).get("parts"))):
            tool = self.writer.result(tool_id, pieces, when)
            self._history.append(self.writer.pending[-1])
            if tool is None:
                continue
            tool.error = status.get("status") == "error"
            took = seconds(status.get("durationMs"))
            event = self._run_of(tool)
            if event is not None and event.end is not None:
                tool.end = event.end
                if event.start is not None:
                    tool.start, tool.mark = event.start, "recorded"
            elif took is not None and tool.end is not None:
                tool.start = tool.end - took / 1000

    def _run_of(self, tool: Tool) -> Event | None:
        """The telemetry of a tool run: of that name and those arguments, else the first of that name."""
        named = [e for e in self._runs if e.value.get("function_name") == tool.name]
        asked = [c for e in self.writer.thread.exchanges[-1:] if e.output for c in e.output.calls if c.id == tool.id]
        same = [e for e in named if asked and dumps(e.value.get("function_args")) == asked[0].arguments.text]
        event = next(iter(same or named), None)
        if event is not None:
            self._runs.remove(event)
        return event

    def _assistant(self, value: dict[str, object], when: float | None, line: int) -> None:
        parts = genai.parts_of(table(value.get("message")).get("parts"))
        output = Draft("assistant", tuple(genai.shown(parts)), tuple(genai.thoughts(parts)), tuple(genai.asked(parts)))
        usage = table(value.get("usageMetadata"))
        last = next((e for e in reversed(self.writer.thread.exchanges) if not e.aside), None)
        if not usage and not self.writer.pending and last is not None and last.output is not None:
            # a sub-agent's transcript writes each tool call of an answer as a record of its own
            old = last.output
            last.output = Draft("assistant", old.pieces + output.pieces, old.reasoning, old.calls + output.calls)
            if self._history and self._history[-1] is old:
                self._history[-1] = last.output
        else:
            last = self._exchange(output, usage, when, line)
            last.model = text(value.get("model")) or last.model
        for call in output.calls:
            self.writer.asked(last, Tool(call.id, call.name, start=last.end, mark="derived"))

    def _exchange(self, output: Draft, usage: dict[str, object], when: float | None, line: int) -> Exchange:
        exchange = self.writer.request(line)
        exchange.output = output
        exchange.end, exchange.marks["end"] = when, "derived"
        self._history.append(output)
        event = self._response_of(usage)
        if event is not None:
            _timed(exchange, event)
        if usage:
            self._usage(exchange, usage, line)
        elif event is not None:
            self._counts(exchange, event)
        return exchange

    def _response_of(self, usage: dict[str, object]) -> Event | None:
        counts = (usage.get("promptTokenCount"), usage.get("candidatesTokenCount"))
        same = [
            e
            for e in self._responses
            if not usage or (e.value.get("input_token_count"), e.value.get("output_token_count")) == counts
        ]
        if same:
            self._responses.remove(same[-1])
            return same[-1]
        return None

    def _usage(self, exchange: Exchange, usage: dict[str, object], line: int) -> None:
        prompt = count(usage.get("promptTokenCount"), self.notes, line, "promptTokenCount")
        exchange.cached = count(usage.get("cachedContentTokenCount"), self.notes, line, "cachedContentTokenCount")
        said = count(usage.get("candidatesTokenCount"), self.notes, line, "candidatesTokenCount")
        thought = count(usage.get("thoughtsTokenCount"), self.notes, line, "thoughtsTokenCount")
        exchange.prompt, exchange.completion, exchange.reasoning = prompt or None, said, thought
        if prompt is not None and said is not None and thought:
            # Google's own API counts thoughts apart, the others' within the candidates; the total tells
            if usage.get("totalTokenCount") == prompt + said + thought:
                exchange.completion, exchange.marks["completion"] = said + thought, "derived"
            exchange.reasoning = min(thought, exchange.completion or 0)

    def _counts(self, exchange: Exchange, event: Event) -> None:
        names = ("input_token_count", "cached_content_token_count", "output_token_count", "thoughts_token_count")
        prompt, cached, said, thought = (count(event.value.get(n), self.notes, event.line, n) for n in names)
        exchange.prompt, exchange.cached = prompt or None, cached
        exchange.completion = said if said or prompt else None
        exchange.reasoning = None if thought is None or said is None else min(thought, said)

    def _system(self, value: dict[str, object], when: float | None, line: int) -> None:
        payload = table(value.get("systemPayload"))
        if value.get("subtype") == "chat_compression":
            self._compacted(payload, when)
        if value.get("subtype") != "ui_telemetry":
            return
        event = table(payload.get("uiEvent"))
        end = instant(event.get("event.timestamp"))
        took = seconds(event.get("duration_ms"))
        told = Event(line, event, end, None if end is None or took is None else end - took / 1000)
        if event.get("event.name") == _TOOL:
            self._run(told)
        elif event.get("event.name") == _RESPONSE:
            ids = text(event.get("prompt_id")).split("#")
            if event.get("subagent_name") and len(ids) == _SUB_AGENT_PROMPT:
                self._agents.setdefault(ids[1], []).append(told)
            else:
                self._responses.append(told)

    def _run(self, event: Event) -> None:
        if len(text(event.value.get("prompt_id")).split("#")) == _SUB_AGENT_PROMPT:
            return
        self._runs.append(event)
        response = event.value.get("response_id")
        lost = next((e for e in self._responses if response and e.value.get("response_id") == response), None)
        if lost is not None:
            self._lost_turn(lost)

    def _lost_turn(self, event: Event) -> None:
        """An answer whose assistant record is missing: what the telemetry holds of it."""
        self._responses.remove(event)
        self.notes.add(event.line, "the answer's own record is missing: its text is what the telemetry repeats")
        exchange = self.writer.request(event.line)
        self._told(exchange, event)
        if exchange.output is not None:
            self._history.append(exchange.output)

    def _told(self, exchange: Exchange, event: Event) -> None:
        """Everything that telemetry says of a request."""
        _timed(exchange, event)
        self._counts(exchange, event)
        said = text(event.value.get("response_text"))
        exchange.output = Draft("assistant", (text_piece(said),) if said else ())

    def _compacted(self, payload: dict[str, object], when: float | None) -> None:
        """The conversation goes on from a summary; the request that wrote it is the last one without a record."""
        if self._responses:
            event = self._responses.pop()
            self._told(self.writer.aside(event.line, "compaction", event.start), event)
        history = [d for content in tables(payload.get("compressedHistory")) for d in genai.drafts_of(content)]
        known = {d.tool_call_id for d in history if d.tool_call_id}
        waiting = [d for d in self.writer.pending if not d.tool_call_id or d.tool_call_id not in known]
        if history:
            self.writer.compacted([*history, *waiting], when)
            self._history = [*history, *waiting]
            self._lengths.clear()

    def _counted(self, key: str, events: list[Event]) -> ThreadDraft:
        writer = ThreadWriter(key)
        writer.thread.name = writer.thread.role = text(events[0].value.get("subagent_name"))
        for event in events:
            self._told(writer.request(event.line), event)
        return writer.finish()


def _timed(exchange: Exchange, event: Event) -> None:
    exchange.model = text(event.value.get("model")) or exchange.model
    if event.end is not None:
        exchange.end = event.end
        exchange.marks.pop("end", None)
    if event.start is not None:
        # its end less its length
        exchange.start, exchange.marks["start"] = event.start, "derived"
