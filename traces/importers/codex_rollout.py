"""Lines of a Codex rollout become one thread of exchanges.

The log has no request records. Output items gather in a response until its usage arrives; in 0.40 the usage comes
before its items, from 0.104 on after them, and in 0.171 there is a `token_usage_record` beside the older
`token_count` events, which repeat and are then ignored. A request starts when the last thing came into its prompt.
"""

import re

from msgspec import Struct

from windtunnel.traces.importers.pieces import (
    Asked,
    Draft,
    Exchange,
    Piece,
    ThreadDraft,
    Tool,
    filler_piece,
    media_piece,
    text_piece,
)
from windtunnel.traces.importers.records import (
    Notes,
    Record,
    count,
    dumps,
    instant,
    instant_ms,
    items,
    object_in,
    seconds,
    table,
    tables,
    text,
)
from windtunnel.traces.importers.waiting import Waiting
from windtunnel.traces.model import Role

IN_FLIGHT_S = 0.05
"""A turn aborted longer than this after the last input had a request in flight."""
_REQUEST = re.compile(r"## My request for Codex:\s*")
_HIDDEN_CHARS_PER_TOKEN = 5.3
"""Base64 characters of encrypted content for a token of text (3 bytes in 4 characters, 4 bytes a token)."""


class Usage(Struct, frozen=True):
    prompt: int | None
    cached: int | None
    completion: int | None
    reasoning: int | None


class Response(Struct):
    """A response being gathered."""

    exchange: Exchange
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    counted: bool = False
    usage_first: bool = False
    """Its usage came before its items."""


class Rollout(Waiting):
    def __init__(self) -> None:
        super().__init__(ThreadDraft(""))
        self.id = self.parent = self.version = self.cwd = ""
        self.first: float | None = None
        self.spawned: dict[str, str] = {}
        """Thread ids by the tool call that started them."""
        self._open: Response | None = None
        self._gathered: list[Response] = []
        self._joins: list[str] = []
        self._joined: set[str] = set()
        self._model: str | None = None
        self._effort: str | None = None
        self._total: object = None
        self._has_records = False

    def read(self, record: Record, notes: Notes) -> None:
        value = record.value
        when = instant(value.get("timestamp"))
        if when is None:
            notes.add(record.line, "the line has no usable timestamp: waits around it are not known")
        else:
            self.first = when if self.first is None else min(self.first, when)
        payload = table(value.get("payload"))
        kind = text(value.get("type"))
        if not payload:
            notes.add(record.line, "the line has no payload and was left out")
        elif kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context":
            self._model = text(payload.get("model")) or self._model
            self._effort = text(payload.get("effort")) or self._effort
            self._came(when)
        elif kind == "response_item":
            self._item(payload, table(value.get("metadata")), when, record.line)
        elif kind == "event_msg":
            self._event(payload, when, notes, record.line)
        elif kind == "token_usage_record":
            self._has_records = True
            self._usage(table(payload.get("usage")), when, notes, record.line)
        elif kind == "compacted":
            self._compacted(payload, when)

    def copied(self, session: str, thread: str) -> int:
        """All so far was made by another thread: it is this one's history, and no request, tool run or join of it.

        How many requests that were. Its system prompt is the other's too.
        """
        number = len(self.thread.exchanges)
        if self._gathered and not self._gathered[-1].counted:
            self._unsettle(self._gathered.pop())
        for exchange in self.thread.exchanges:
            exchange.copied, exchange.tools, exchange.joins = (session, thread), [], []
        self._open, self._joins, self._joined = None, [], set()
        self.tools, self.spawned = {}, {}
        self.thread.role = "main"
        self.first = None
        return number

    def _unsettle(self, response: Response) -> None:
        """A copied answer without usage: what it came from and what it says go into the next prompt."""
        exchange = response.exchange
        self.thread.exchanges.remove(exchange)
        output = Draft("assistant", tuple(response.pieces), tuple(response.reasoning), tuple(response.calls))
        self._pending = [*exchange.fresh, *([] if output.is_empty() else [output]), *self._pending]
        self._reset = self._reset or exchange.reset

    def own(self) -> int:
        """How many requests the thread made itself."""
        return sum(e.copied is None for e in self.thread.exchanges)

    def finish(self, notes: Notes) -> ThreadDraft:
        """The thread, each exchange with what the model wrote."""
        if self._open is not None and not self._open.counted:
            notes.add(None, "the log ends inside a response: its usage is not known")
            self._open.exchange.aborted = True
        for response in self._gathered:
            output = Draft("assistant", tuple(response.pieces), tuple(response.reasoning), tuple(response.calls))
            exchange = response.exchange
            if not response.counted and not exchange.aborted:
                notes.add(exchange.line, "the response has no usage: its prompt size is estimated")
            exchange.wrote(output)
        return self.thread

    def _meta(self, payload: dict[str, object]) -> None:
        if self.id or self.version:
            return
        self.id = text(payload.get("id"))
        self.version = text(payload.get("cli_version"))
        self.cwd = text(payload.get("cwd"))
        spawn = table(table(table(payload.get("source")).get("subagent")).get("thread_spawn"))
        self.parent = text(payload.get("parent_thread_id")) or text(spawn.get("parent_thread_id"))
        self.thread.key = self.id
        if self.parent:
            self.thread.parent = self.parent
            self.thread.name = text(payload.get("agent_nickname")) or None
            self.thread.role = text(spawn.get("agent_role")) or "agent"
        instructions = text(table(payload.get("base_instructions")).get("text")) or text(payload.get("instructions"))
        if instructions:
            self._pending.append(Draft("system", (text_piece(instructions),)))

    def _item(self, item: dict[str, object], metadata: dict[str, object], when: float | None, line: int) -> None:
        kind = text(item.get("type"))
        if kind == "message" and item.get("role") != "assistant":
            self._input(_message(item), when)
        elif kind == "message":
            response = self._response(line, when)
            response.pieces.extend(_message(item).pieces)
            if metadata.get("compaction_output") is True:
                response.exchange.kind = "compaction"
        elif kind == "reasoning":
            thought = [text_piece(t) for t in (text(p.get("text")) for p in tables(item.get("content"))) if t]
            self._response(line, when).reasoning.extend(thought)
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            self._call(item, when, line)
        elif kind.endswith("_call_output"):
            self._result(item, when)
        elif kind == "web_search_call":
            self._response(line, when)

    def _response(self, line: int, when: float | None) -> Response:
        """The response that an output item belongs to; a new one when the last has its usage."""
        last = self._open
        if last is None or (last.counted and not last.usage_first):
            last = self._begin(line)
        if when is not None and not last.counted:
            last.exchange.end = when
        return last

    def _begin(self, line: int) -> Response:
        exchange = Exchange(
            key=f"{len(self._gathered)}",
            line=line,
            joins=self._joins,
            model=self._model,
            effort=self._effort,
            marks={"start": "derived"},
        )
        self._carry(exchange)
        exchange.start, self._joins = exchange.arrived, []
        self._open = Response(exchange)
        self._gathered.append(self._open)
        self.thread.exchanges.append(exchange)
        return self._open

    def _input(self, draft: Draft, when: float | None) -> None:
        if self._open is not None and (self._open.counted or draft.role == "user"):
            self._open = None
        if draft.pieces or draft.role == "tool":
            self._pending.append(draft)
        self._came(when)
        opening = draft.pieces[0].text or "" if draft.pieces and draft.role == "user" else ""
        if opening.startswith("<subagent_notification>"):
            body = opening.removeprefix("<subagent_notification>").partition("</")[0]
            self._join([text(object_in(body).get("agent_path"))])

    def _call(self, item: dict[str, object], when: float | None, line: int) -> None:
        response = self._response(line, when)
        tool_id = text(item.get("call_id")) or text(item.get("id"))
        if not tool_id or tool_id in self.tools:
            return
        name = text(item.get("name")) or text(item.get("type")).removesuffix("_call")
        written = text(item.get("arguments")) or text(item.get("input")) or dumps(item.get("action") or {})
        response.calls.append(Asked(tool_id, name, text_piece(written)))
        tool = Tool(tool_id, name, start=when)
        self.tools[tool_id] = tool
        response.exchange.tools.append(tool)

    def _result(self, item: dict[str, object], when: float | None) -> None:
        tool_id = text(item.get("call_id"))
        output = item.get("output")
        said = text(output) or text(table(output).get("content"))
        pieces = [text_piece(said)] if said else [p for part in tables(output) for p in _parts(part)]
        tool = self.tools.get(tool_id)
        name = tool.name if tool else None
        self._input(Draft("tool", tuple(pieces), tool_call_id=tool_id or None, name=name), when)
        if tool is None:
            return
        if tool.end is None:
            tool.end = when
        self._timed_by_output(tool, said)
        self._came(tool.end)
        if tool.name == "spawn_agent":
            agent = text(object_in(said).get("agent_id"))
            if agent:
                tool.thread, self.spawned[tool_id] = agent, agent
        elif tool.name in ("wait", "wait_agent"):
            done = table(object_in(said).get("status"))
            tool.blocking = self._join([k for k, v in done.items() if "completed" in table(v)])

    def _join(self, threads: list[str]) -> bool:
        new = [t for t in threads if t and t not in self._joined]
        self._joined.update(new)
        self._joins.extend(new)
        return bool(new)

    def _timed_by_output(self, tool: Tool, said: str) -> None:
        """0.40 writes a call and its output at one time; how long it took stands in the output."""
        if tool.start is None or tool.end is None or tool.end - tool.start > 0.001:
            return
        took = seconds(table(object_in(said).get("metadata")).get("duration_seconds"))
        if took:
            tool.end = tool.start + took
            tool.mark = "derived"

    def _event(self, payload: dict[str, object], when: float | None, notes: Notes, line: int) -> None:
        kind = payload.get("type")
        if kind == "token_count":
            info = table(payload.get("info"))
            if info and not self._has_records and info.get("total_token_usage") != self._total:
                self._total = info.get("total_token_usage")
                self._usage(table(info.get("last_token_usage")), when, notes, line)
        elif kind == "user_message":
            self._typed(text(payload.get("message")), when)
        elif kind == "task_started":
            self._came(when)
        elif kind == "turn_aborted":
            self._aborted(when)
        elif kind == "item_completed":
            self._completed(payload, when)

    def _typed(self, message: str, when: float | None) -> None:
        if any(d.role == "user" for d in self._pending):
            self.prompted(when)
        self.prompt = self.prompt or _REQUEST.split(message)[-1]

    def _completed(self, payload: dict[str, object], when: float | None) -> None:
        item = table(payload.get("item"))
        kind = item.get("type")
        if kind == "UserMessage":
            self._typed("\n".join(text(p.get("text")) for p in tables(item.get("content"))), when)
            return
        tool = self.tools.get(text(item.get("id")))
        begun, ended = instant_ms(payload.get("started_at_ms")), instant_ms(payload.get("completed_at_ms"))
        if kind == "CommandExecution" and tool is not None and begun is not None and ended is not None:
            tool.start, tool.end = begun, max(begun, ended)
            tool.error = item.get("exit_code") not in (0, None)

    def _aborted(self, when: float | None) -> None:
        """The user stopped a turn: a response without usage was cut off, or a request without any output."""
        if self._open is not None and not self._open.counted:
            self._open.exchange.aborted = True
            self._open = None
            return
        last = self.thread.exchanges[-1] if self.thread.exchanges else None
        if self._gathered and last is not None and not self._gathered[-1].counted and not last.aborted:
            last.aborted = True
            return
        told = self._pending[-1:] if self._pending and _is_abort_note(self._pending[-1]) else []
        fresh = self._pending[: len(self._pending) - len(told)]
        since = max((t.end for d in fresh if (t := self.tools.get(d.tool_call_id or "")) and t.end), default=None)
        if not fresh or when is None or since is None or when - since < IN_FLIGHT_S:
            return
        self._pending = fresh
        exchange = self._begin(0).exchange
        exchange.start, exchange.end, exchange.aborted = since, when, True
        exchange.marks["end"] = "derived"
        self._open, self._pending = None, told

    def _usage(self, usage: dict[str, object], when: float | None, notes: Notes, line: int) -> None:
        prompt = count(usage.get("input_tokens"), notes, line, "input_tokens")
        response = self._open
        if response is None or response.counted:
            response = self._begin(line)
            response.usage_first = True
        response.counted = True
        exchange = response.exchange
        exchange.end = when or exchange.end
        exchange.prompt = prompt or None
        exchange.cached = count(usage.get("cached_input_tokens"), notes, line, "cached_input_tokens")
        exchange.completion = count(usage.get("output_tokens"), notes, line, "output_tokens")
        exchange.reasoning = count(usage.get("reasoning_output_tokens"), notes, line, "reasoning_output_tokens")
        if not prompt:
            notes.add(line, "a prompt of 0 tokens was not believed")

    def _compacted(self, payload: dict[str, object], when: float | None) -> None:
        """The conversation goes on from a summary: the history that replaces the one so far."""
        history = [table(i) for i in items(payload.get("replacement_history"))]
        drafts = [d for d in (_message(i) for i in history) if d.pieces]
        if not drafts and text(payload.get("message")):
            drafts = [Draft("user", (text_piece(text(payload.get("message"))),))]
        self._open = None
        self._pending, self._reset, self._human = drafts, True, False
        self._came(when)


def _message(item: dict[str, object]) -> Draft:
    """A message item, or a compacted history's encrypted item as filler; an empty draft for anything else."""
    role: Role = {"developer": "system", "system": "system", "assistant": "assistant"}.get(
        text(item.get("role")), "user"
    )  # type: ignore[assignment]
    hidden = text(item.get("encrypted_content"))
    if hidden and item.get("type") != "message":
        return Draft(role, (filler_piece(max(1, round(len(hidden) / _HIDDEN_CHARS_PER_TOKEN)), hidden),))
    return Draft(role, tuple(p for part in tables(item.get("content")) for p in _parts(part)))


def _parts(part: dict[str, object]) -> list[Piece]:
    said = text(part.get("text"))
    if said:
        return [text_piece(said)]
    address = text(part.get("image_url")) or text(table(part.get("image_url")).get("url"))
    if not address:
        return []
    head, _, data = address.partition(",")
    media = head.removeprefix("data:").partition(";")[0] if head.startswith("data:") else "image/unknown"
    return [media_piece(media, data or address)]


def _is_abort_note(draft: Draft) -> bool:
    return bool(draft.pieces) and (draft.pieces[0].text or "").startswith("<turn_aborted>")
