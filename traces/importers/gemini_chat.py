"""A Gemini CLI chat becomes a thread of exchanges.

The file is a log of messages that are written again as they grow (the last version counts), of changes to the chat's
own fields, and of rewinds. Requests happened even where a rewind or a compression took their messages back: those keep
their place, and the next request starts from the context that was left.
"""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from windtunnel.traces.importers import genai_parts as genai
from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Tool, text_piece
from windtunnel.traces.importers.records import Notes, Record, count, instant, read_records, table, tables, text
from windtunnel.traces.importers.thread_writer import ThreadWriter, arguments_piece

BATCH_S = 0.1
"""Tools of one batch are noted as finished at the same moment, within this."""
_CONTEXT = ("<session_context>", "This is the Gemini CLI. We are setting up the context")


class Message(NamedTuple):
    line: int
    value: dict[str, object]
    listed: bool
    """Known only from a list that replaced the messages: part of a context, no answer by itself."""


def _is_message(value: dict[str, object]) -> bool:
    return "type" in value and "timestamp" in value and "id" in value and "args" not in value


class Chat:
    def __init__(self, path: Path, notes: Notes) -> None:
        self.path = path
        self.notes = notes
        self.session = self.summary = ""
        self.sub_agent = False
        self.first: float | None = None
        self.writer = ThreadWriter("")
        self.agents: dict[str, str] = {}
        """Tool calls by the session of the sub-agent that they started."""
        self._messages: dict[str, Message] = {}
        self._current: dict[str, None] = {}
        """Ids of the messages that stand now, in order."""
        self._steps: list[str | list[str]] = []
        """Message ids in the order they came, and contexts (lists of ids) that replaced what was there."""
        self._drafts: dict[str, list[Draft]] = {}
        self._answered: set[str] = set()

    def load(self) -> None:
        """Read the file; the thread is written by `read`."""
        if self.path.suffix == ".json":
            value = table(read_document(self.path, self.notes, "messages", _is_message))
            self._fields(value)
            for number, message in enumerate(tables(value.get("messages"))):
                self._message(Message(0, message, listed=False), number)
        else:
            for record in read_records(self.path, self.notes):
                self._record(record)
        self.writer.thread.key = self.session or self.path.stem

    def read(self, *, own: bool) -> None:
        """Write the thread; `own` when a person speaks in it, not a parent."""
        self.sub_agent = self.sub_agent or not own
        for step in self._steps:
            if isinstance(step, str):
                self._spoken(step, self._messages[step])
            else:
                self._replaced(step)
        if self.sub_agent:
            self.writer.thread.name = self.writer.thread.role = "agent"
        self.writer.finish()

    def _fields(self, value: dict[str, object]) -> None:
        self.session = text(value.get("sessionId")) or self.session
        self.summary = text(value.get("summary")) or self.summary
        self.sub_agent = self.sub_agent or value.get("kind") == "subagent"
        self._saw(instant(value.get("startTime")))

    def _saw(self, when: float | None) -> None:
        if when is not None:
            self.first = when if self.first is None else min(self.first, when)

    def _record(self, record: Record) -> None:
        value = record.value
        changes = table(value.get("$set"))
        if isinstance(value.get("$rewindTo"), str):
            self._rewind(text(value.get("$rewindTo")))
        elif isinstance(value.get("id"), str):
            self._message(Message(record.line, value, listed=False), record.line)
        elif changes:
            self._fields(changes)
            if isinstance(changes.get("messages"), list):
                self._list(list(tables(changes["messages"])), record.line)
        elif "sessionId" in value:
            self._fields(value)
        else:
            self.notes.add(record.line, "the line is neither a message nor a change and was left out")

    def _message(self, message: Message, number: int) -> None:
        key = text(message.value.get("id")) or f"message {number}"
        self._saw(instant(message.value.get("timestamp")))
        if key not in self._messages or self._messages[key].listed:
            self._steps.append(key)
        self._messages[key] = message
        self._current.setdefault(key)

    def _rewind(self, key: str) -> None:
        ids = list(self._current)
        kept = ids[: ids.index(key)] if key in self._current else []
        self._current = dict.fromkeys(kept)
        self._steps.append(kept)

    def _list(self, messages: list[dict[str, object]], line: int) -> None:
        """The chat's messages are these: a few more, or another context after a compression."""
        keys = [text(m.get("id")) or f"message {line}.{i}" for i, m in enumerate(messages)]
        for key, value in zip(keys, messages, strict=True):
            known = self._messages.get(key)
            if known is None:
                self._messages[key] = Message(line, value, listed=True)
            elif not known.value.get("tokens"):
                self._messages[key] = known._replace(value=value)
        gone = not self._current.keys() <= set(keys)
        if gone:
            self._steps.append(keys)
        else:
            self._steps.extend(k for k in keys if k not in self._current)
        self._current = dict.fromkeys(keys)

    def _spoken(self, key: str, message: Message) -> None:
        """A message that came into the conversation."""
        kind = message.value.get("type")
        if kind == "user":
            self._user(key, message)
        elif kind == "gemini" and message.listed and not message.value.get("tokens"):
            self._drafts[key] = [self._output(message.value)]
            self.writer.came(self._drafts[key][0], instant(message.value.get("timestamp")))
        elif kind == "gemini":
            self._answer(key, message)

    def _replaced(self, keys: list[str]) -> None:
        context: list[Draft] = []
        for key in keys:
            if key not in self._drafts:
                value = self._messages[key].value
                role = "model" if value.get("type") == "gemini" else "user"
                self._drafts[key] = genai.drafts_of({"role": role, "parts": genai.parts_of(value.get("content"))})
            context.extend(self._drafts[key])
        self.writer.rewound(context)

    def _user(self, key: str, message: Message) -> None:
        parts = genai.parts_of(message.value.get("content"))
        when = instant(message.value.get("timestamp"))
        if when is None:
            self._timeless(message)
        kept = self._drafts.setdefault(key, [])
        results = list(genai.responses(parts))
        for tool_id, pieces in results:
            if tool_id not in self._answered:
                self._answered.add(tool_id)
                self.writer.result(tool_id, pieces, when)
                kept.append(self.writer.pending[-1])
        said = genai.shown(parts)
        if not said:
            return
        draft = Draft("user", tuple(said))
        kept.append(draft)
        if results or self.sub_agent or (said[0].text or "").startswith(_CONTEXT):
            self.writer.came(draft, when)
        else:
            self.writer.typed(draft, when)

    def _timeless(self, message: Message) -> None:
        self.notes.add(message.line or None, "the message has no usable timestamp: waits around it are not known")

    def _output(self, value: dict[str, object]) -> Draft:
        parts = genai.parts_of(value.get("content"))
        thought = [f"{text(t.get('subject'))}\n{text(t.get('description'))}" for t in tables(value.get("thoughts"))]
        calls = [
            Asked(text(c.get("id")), text(c.get("name")) or "tool", arguments_piece(c.get("args")))
            for c in tables(value.get("toolCalls"))
        ]
        reasoning = [*genai.thoughts(parts), *(text_piece(t) for t in thought if t.strip())]
        return Draft("assistant", tuple(genai.shown(parts)), tuple(reasoning), tuple(calls or genai.asked(parts)))

    def _answer(self, key: str, message: Message) -> None:
        value = message.value
        exchange = self.writer.request(message.line)
        exchange.output = self._output(value)
        exchange.end = instant(value.get("timestamp"))
        exchange.model = text(value.get("model")) or None
        if exchange.end is None:
            self._timeless(message)
        self._usage(exchange, table(value.get("tokens")))
        self._drafts[key] = [exchange.output]
        self._tools(key, exchange, list(tables(value.get("toolCalls"))))

    def _usage(self, exchange: Exchange, tokens: dict[str, object]) -> None:
        line = exchange.line or None
        exchange.prompt = count(tokens.get("input"), self.notes, line, "input") or None
        exchange.cached = count(tokens.get("cached"), self.notes, line, "cached")
        said = count(tokens.get("output"), self.notes, line, "output")
        thought = count(tokens.get("thoughts"), self.notes, line, "thoughts")
        exchange.reasoning = thought
        if said is not None and (said or thought or exchange.prompt):
            exchange.completion = said + (thought or 0)
            if thought:
                exchange.marks["completion"] = "derived"
        if exchange.prompt is None:
            self.notes.add(line, "the response has no usage: its prompt size is estimated")

    def _tools(self, key: str, exchange: Exchange, calls: list[dict[str, object]]) -> None:
        """Runs of an answer's tools and their results. Their time is the whole batch's end."""
        ends = [instant(c.get("timestamp")) for c in calls]
        known = sorted(e for e in ends if e is not None)
        batches = sum(b - a > BATCH_S for a, b in pairwise(known))
        if batches:
            reason = f"{batches} further answers that only ran tools are merged into this one: their usage is lost"
            self.notes.add(exchange.line or None, reason)
        for call, end in zip(calls, ends, strict=True):
            tool = Tool(text(call.get("id")), text(call.get("name")) or "tool", start=exchange.end, mark="derived")
            if end is not None:
                tool.end = max(end, exchange.end or end)
                if end - known[0] > BATCH_S:
                    tool.start = None
            tool.error = call.get("status") == "error"
            if not self.writer.asked(exchange, tool):
                continue
            if text(call.get("agentId")):
                self.agents[text(call.get("agentId"))] = tool.id
            for tool_id, pieces in genai.responses(genai.parts_of(call.get("result"))):
                if tool_id not in self._answered and tool_id == tool.id:
                    self._answered.add(tool_id)
                    self.writer.result(tool_id, pieces, tool.end)
                    self._drafts[key].append(self.writer.pending[-1])
