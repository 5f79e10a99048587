"""Lines of a Claude Code transcript become threads of exchanges.

One request is one `message.id`; its content comes in several lines (one a content block), between which results of
tools that started early may stand. A request's start is its `api-request` record's time where there is one (2.1.332),
else the time of the last line that came into its prompt; its end is its last line's time.
"""

import re

from windtunnel.traces.importers.claude_compaction import asked_to_compact, boundary, settle, summarised
from windtunnel.traces.importers.claude_parts import (
    Final,
    Line,
    Request,
    State,
    Written,
    as_sent,
    blob_of,
    judge_completion,
    pieces_of,
    take_usage,
)
from windtunnel.traces.importers.pieces import (
    Asked,
    Draft,
    Exchange,
    Piece,
    ThreadDraft,
    Tool,
    ToolSchemas,
    text_piece,
    title_of,
)
from windtunnel.traces.importers.records import (
    Notes,
    Record,
    count,
    dumps,
    instant,
    items,
    table,
    tables,
    text,
)
from windtunnel.traces.model import Role

MAIN = ""
SPAWNERS = frozenset({"Task", "Agent"})
_NOTICE = re.compile(r"<task-id>\s*([\w-]{1,64})\s*</task-id>")
_COMPACT = "<command-name>/compact</command-name>"
_NOT_TYPED = ("<task-notification>", "<local-command-", "<bash-stdout>", "<system-reminder>", "[Request interrupted")


class Transcript:
    """All threads of a session, filled line by line; reports to `notes` of the file being read."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {MAIN: State(ThreadDraft(MAIN))}
        self.tools: dict[str, Tool] = {}
        self.finals: dict[str, Final] = {}
        self.first: float | None = None
        self.session = self.version = self.cwd = self.prompt = self.command = ""
        self.failed_requests = 0
        self.summaries: list[float | None] = []
        """When the main thread's requests for a summary ended that have a file of their own."""
        self._requests: dict[str, Request] = {}
        self._sizes: dict[str, int] = {}
        self._answered: set[str] = set()
        self._shapes: dict[str, tuple[ToolSchemas | None, Draft | None]] = {}
        self._blobs: dict[str, Draft] = {}
        self._asked: dict[str, str] = {}
        self._spawns: dict[str, dict[str, object]] = {}
        self._roots: dict[str, str] = {}
        self._latest_sidechain = ""
        self._in_file: set[str] = set()

    def read(self, record: Record, notes: Notes, *, thread: str | None = None) -> None:
        """Take in one line; `thread` names the sub-agent whose own file it is from."""
        value = record.value
        when = instant(value.get("timestamp"))
        kind = text(value.get("type"))
        if kind == "progress":
            self._progress(record, when, notes)
            return
        key = thread if thread is not None else self._thread_key(value)
        if kind in ("user", "assistant"):
            self._identify(value, when)
            if when is None:
                notes.add(record.line, "the line has no usable timestamp: waits around it are not known")
            if thread is not None:
                self._in_file.add(thread)
            self._message(key, record.line, value, when, notes)
        elif kind == "attachment":
            self._attachment(self._state(key), value, when)
        elif kind == "system" and value.get("subtype") == "compact_boundary":
            boundary(self._state(key), record.line, value, when, notes)
        elif kind == "api-request":
            self._api_request(value, when, notes, record.line)
        elif kind == "api-request-shape":
            self._shape(value)
        elif kind == "api-request-blob":
            self._blobs[text(value.get("hash"))] = blob_of(table(value.get("message")))
        elif not kind:
            notes.add(record.line, "the line has no type and was left out")

    def finish(self, notes: Notes) -> list[ThreadDraft]:
        """The threads, main first, each exchange with what the model wrote; says which prompts have no known size."""
        for key, final in self.finals.items():
            if key in self.states and key not in self._in_file:
                self._append_final(key, final)
        for state in self.states.values():
            asked = self._spawns.get(state.thread.tool_call_id or "", {})
            state.thread.role = text(asked.get("subagent_type")) or state.thread.role
            state.thread.name = title_of(text(asked.get("description"))) or title_of(text(asked.get("subagent_type")))
            for key, exchange in state.by_id.items():
                written = state.written[key]
                exchange.output = Draft(
                    "assistant", tuple(written.pieces), tuple(written.reasoning), tuple(written.calls)
                )
                judge_completion(exchange)
                if exchange.prompt is None and not exchange.aborted:
                    whose = f" of sub-agent {state.thread.key}" if state.thread.key in self._in_file else ""
                    line = None if whose else exchange.line
                    notes.add(line, f"request {key}{whose} has no recorded prompt size: it is estimated")
            settle(state, self.summaries if state.thread.key == MAIN else [], notes)
        self.failed_requests = len(self._requests.keys() - self._answered)
        return [s.thread for s in self.states.values() if s.thread.exchanges or s.thread.key == MAIN]

    def link(self, tool_id: str, thread: str, *, role: str = "") -> None:
        """Note that a tool call started a sub-agent."""
        state = self._state(thread)
        state.thread.tool_call_id = state.thread.tool_call_id or tool_id
        if role:
            state.thread.role = role
        if tool_id in self.tools:
            self.tools[tool_id].thread = thread

    def _state(self, key: str) -> State:
        if key not in self.states:
            self.states[key] = State(ThreadDraft(key, parent=MAIN, role="agent"))
        return self.states[key]

    def _identify(self, value: dict[str, object], when: float | None) -> None:
        if when is not None:
            self.first = when if self.first is None else min(self.first, when)
        self.session = self.session or text(value.get("sessionId"))
        self.version = self.version or text(value.get("version"))
        self.cwd = self.cwd or text(value.get("cwd"))

    def _thread_key(self, value: dict[str, object]) -> str:
        """Main, or for a sidechain line its agent's id or the uuid of its chain's first line."""
        if value.get("isSidechain") is not True:
            return MAIN
        agent = text(value.get("agentId"))
        if agent:
            return agent
        uuid, parent = text(value.get("uuid")), text(value.get("parentUuid"))
        root = self._roots.get(parent) or ("" if not parent else self._latest_sidechain) or f"sidechain-{uuid}"
        self._roots[uuid] = self._latest_sidechain = root
        return root

    def _message(self, key: str, number: int, value: dict[str, object], when: float | None, notes: Notes) -> None:
        line = Line(number, value, table(value.get("message")), when)
        if not line.message:
            notes.add(number, f"the {text(value.get('type'))} line holds no message and was left out")
        elif value.get("type") == "assistant":
            self._assistant(self._state(key), line, notes)
        else:
            self._user(self._state(key), line)

    def _assistant(self, state: State, line: Line, notes: Notes) -> None:
        message = line.message
        if message.get("model") == "<synthetic>" or line.value.get("isApiErrorMessage") is True:
            return
        key = text(message.get("id"))
        if not key:
            notes.add(line.number, "the assistant line has no message id and was left out")
            return
        exchange = state.by_id.get(key) or self._open(state, key, line)
        written = state.written[key]
        for part in tables(message.get("content")):
            self._write(exchange, written, part, line.when)
        if line.when is not None:
            exchange.end = max(exchange.end or 0.0, line.when)
        exchange.stop = text(message.get("stop_reason")) or exchange.stop
        take_usage(exchange, table(message.get("usage")), notes, line.number)

    def _open(self, state: State, key: str, line: Line) -> Exchange:
        exchange = Exchange(
            key=key,
            line=line.number,
            fresh=state.pending,
            start=state.arrived,
            arrived=state.arrived,
            asked_at=state.asked_at,
            human=state.human,
            reset=state.reset,
            joins=state.joins,
            model=text(line.message.get("model")) or None,
            marks={"start": "derived"},
        )
        self._ask(exchange, state, text(line.value.get("requestRef")))
        state.pending, state.joins = [], []
        state.arrived = state.asked_at = None
        state.human = state.reset = False
        state.by_id[key] = exchange
        state.written[key] = Written()
        state.thread.exchanges.append(exchange)
        return exchange

    def _ask(self, exchange: Exchange, state: State, reference: str) -> None:
        """Take over what the request's own record says."""
        request = self._requests.get(reference)
        if request is None:
            return
        self._answered.add(reference)
        if request.start is not None:
            exchange.start = request.start
            exchange.marks.pop("start", None)
        exchange.max_tokens, exchange.effort, exchange.whole = request.max_tokens, request.effort, request.whole
        schemas, system = self._shapes.get(request.shape, (None, None))
        exchange.schemas = schemas
        exchange.fresh = as_sent(exchange.fresh, request.tail, self._blobs, spoken=bool(state.thread.exchanges))
        if system is not None and not state.thread.exchanges:
            exchange.fresh = [system, *exchange.fresh]

    def _write(self, exchange: Exchange, written: Written, part: dict[str, object], when: float | None) -> None:
        kind = part.get("type")
        if kind == "text" and text(part.get("text")):
            written.pieces.append(text_piece(text(part.get("text"))))
        elif kind == "thinking" and text(part.get("thinking")):
            written.reasoning.append(text_piece(text(part.get("thinking"))))
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            tool_id, name = text(part.get("id")), text(part.get("name")) or "unknown"
            if not tool_id or any(c.id == tool_id for c in written.calls):
                return
            arguments = dumps(part.get("input"))
            written.calls.append(Asked(tool_id, name, text_piece(arguments, "json")))
            if name in SPAWNERS:
                self._asked[tool_id] = arguments
                self._spawns[tool_id] = table(part.get("input"))
            if kind == "tool_use":
                tool = Tool(tool_id, name, start=when)
                self.tools[tool_id] = tool
                exchange.tools.append(tool)

    def _user(self, state: State, line: Line) -> None:
        content = line.message.get("content")
        parts = list(tables([{"type": "text", "text": content}] if isinstance(content, str) else content))
        said: list[Piece] = []
        results = 0
        for part in parts:
            if part.get("type") == "tool_result":
                results += 1
                self._result(state, line, part)
            else:
                said.extend(pieces_of(part))
        opening = next((text(p.get("text")) for p in parts if p.get("type") == "text"), "")
        if said:
            state.pending.append(Draft("user", tuple(said)))
        if line.value.get("isCompactSummary") is True:
            state.reset = True
            summarised(state, said)
        elif said and not results and line.value.get("isMeta") is not True:
            self._typed(state, line, opening)
        if line.when is not None:
            state.arrived = max(state.arrived or 0.0, line.when)

    def _typed(self, state: State, line: Line, opening: str) -> None:
        """A user line that is no tool result: a person's prompt, a sub-agent's notice, an interruption."""
        notice = _NOTICE.search(opening) if opening.startswith("<task-notification>") else None
        if notice:
            state.joins.append(notice.group(1))
        if opening.startswith("[Request interrupted by user]") and state.thread.exchanges:
            last = state.thread.exchanges[-1]
            last.aborted = last.aborted or (last.stop is None and not last.tools)
        if _COMPACT in opening and state.thread.key == MAIN:
            asked_to_compact(state, line.when)
            return
        if opening.startswith(_NOT_TYPED) or table(line.value.get("origin")).get("kind") == "task-notification":
            return
        if state.thread.key == MAIN:
            state.human = True
            state.asked_at = line.when
            command = "<command-name>" in opening
            self.command = self.command or (opening if command else "")
            self.prompt = self.prompt or ("" if command else opening)
        elif not state.thread.tool_call_id and not state.thread.exchanges:
            self._match_sidechain(state, opening)

    def _match_sidechain(self, state: State, prompt: str) -> None:
        """Find the tool call of the main agent whose prompt an inline sidechain begins with."""
        quoted = dumps(prompt)
        for tool in self.tools.values():
            open_spawner = tool.name in SPAWNERS and tool.thread is None and tool.end is None
            if open_spawner and quoted in self._asked.get(tool.id, ""):
                self.link(tool.id, state.thread.key)
                return

    def _result(self, state: State, line: Line, part: dict[str, object]) -> None:
        tool_id = text(part.get("tool_use_id"))
        content = part.get("content")
        if isinstance(content, str):
            pieces = [text_piece(content)] if content else []
        else:
            pieces = [p for item in tables(content) for p in pieces_of(item)]
        tool = self.tools.get(tool_id)
        name = tool.name if tool else None
        state.pending.append(Draft("tool", tuple(pieces), tool_call_id=tool_id or None, name=name))
        if tool is None:
            return
        tool.end = line.when
        tool.error = part.get("is_error") is True
        outcome = table(line.value.get("toolUseResult"))
        agent = text(outcome.get("agentId"))
        if agent and tool.thread is None:
            self.link(tool_id, agent)
        if tool.thread is None:
            return
        if outcome.get("isAsync") is True or outcome.get("status") == "async_launched":
            self._state(tool.thread).thread.background = True
            return
        tool.blocking = True
        state.joins.append(tool.thread)
        answer = "\n".join(text(p.get("text")) for p in tables(outcome.get("content")))
        self.finals[tool.thread] = Final(table(outcome.get("usage")), answer, line.when, line.number)

    def _attachment(self, state: State, value: dict[str, object], when: float | None) -> None:
        """Reminders that the client put into the prompt, as it rendered them."""
        role: Role = "system" if value.get("renderedRole") == "system" else "user"
        pieces = [text_piece(text(r.get("content"))) for r in tables(value.get("rendered")) if text(r.get("content"))]
        if not pieces:
            pieces = [text_piece(c) for c in (text(table(value.get("attachment")).get("content")),) if c]
        if pieces:
            state.pending.append(Draft(role, tuple(pieces)))
            if when is not None:
                state.arrived = max(state.arrived or 0.0, when)

    def _progress(self, record: Record, when: float | None, notes: Notes) -> None:
        """Older 2.1 versions show a sub-agent's messages only as progress of the tool call that started it."""
        data = table(record.value.get("data"))
        inner = table(data.get("message"))
        agent = text(data.get("agentId"))
        if data.get("type") != "agent_progress" or not inner or not agent or agent in self._in_file:
            return
        tool_id = text(record.value.get("parentToolUseID"))
        if tool_id:
            self.link(tool_id, agent)
        self._message(agent, record.line, inner, instant(inner.get("timestamp")) or when, notes)

    def _api_request(self, value: dict[str, object], when: float | None, notes: Notes, line: int) -> None:
        key, params = text(value.get("id")), table(value.get("params"))
        keep = count(value.get("keep"), notes, line, "the kept message count") or 0
        tail = tuple(text(h) for h in items(value.get("tail")))
        self._sizes[key] = keep + len(tail)
        base = self._sizes.get(text(value.get("base")))
        self._requests[key] = Request(
            start=when,
            max_tokens=count(params.get("max_tokens"), notes, line, "max_tokens"),
            effort=text(table(params.get("output_config")).get("effort")) or None,
            shape=text(value.get("shapeHash")),
            whole=base is not None and keep >= base,
            tail=tail,
        )

    def _shape(self, value: dict[str, object]) -> None:
        shape = table(value.get("shape"))
        tools = list(tables(shape.get("tools")))
        names = tuple(text(t.get("name")) for t in tools)
        schemas = ToolSchemas(names, text_piece(dumps(tools), "json")) if tools else None
        system = tuple(text_piece(s) for s in (text(p.get("text")) for p in tables(shape.get("system"))) if s)
        self._shapes[text(value.get("shapeHash"))] = (schemas, Draft("system", system) if system else None)

    def _append_final(self, key: str, final: Final) -> None:
        """The last exchange of a sub-agent seen only as progress: its log ends before the answer, its parent has it."""
        state = self.states[key]
        last = state.thread.exchanges[-1] if state.thread.exchanges else None
        exchange = Exchange(f"{key}-final", final.line, state.pending, marks={"start": "derived", "prompt": "derived"})
        take_usage(exchange, final.usage, Notes(""), None)
        if not final.answer or last is None or not exchange.prompt or exchange.prompt <= (last.prompt or 0):
            return
        exchange.start, exchange.end = state.arrived or last.end, final.end
        exchange.model = last.model
        exchange.marks = {"start": "derived", "end": "derived", "prompt": "derived", "cached": "derived"}
        state.thread.exchanges.append(exchange)
        state.by_id[exchange.key] = exchange
        state.written[exchange.key] = Written(pieces=[text_piece(final.answer)])
