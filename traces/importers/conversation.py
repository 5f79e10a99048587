"""Logs that hold a conversation's messages, usage on the model's ones, become threads of exchanges.

What opencode, Cline and pi share: a request's prompt is what came before the model's message, in order, and its figures
stand on that message. Tool calls are answered by later messages, which name the call.
"""

from collections.abc import Iterable, Sequence

from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft, Tool
from windtunnel.traces.importers.records import object_in, text
from windtunnel.traces.importers.waiting import Waiting

LEAST_PROMPT_CHARS = 8
"""A shorter argument of a tool call is not taken for a sub-agent's prompt."""
STOPS = {
    "toolUse": "tool_use",
    "tool-calls": "tool_use",
    "tool_calls": "tool_use",
    "stop": "end_turn",
    "length": "max_tokens",
}
"""Stop reasons by the names that most sources use; others stay as the source says them."""


class Conversation(Waiting):
    """One thread being read. `taken` holds the tool-call ids of the whole session: a trace needs them to differ."""

    def __init__(self, thread: ThreadDraft, taken: set[str]) -> None:
        super().__init__(thread)
        self.first: float | None = None
        """The earliest time in the log."""
        self._taken = taken
        self._joins: list[str] = []

    def saw(self, when: float | None) -> None:
        if when is not None:
            self.first = when if self.first is None else min(self.first, when)

    def add(self, draft: Draft, when: float | None, *, human: bool = False) -> None:
        """Something came into the prompt: a person's words, or text that the client put there."""
        self.saw(when)
        self._pending.append(draft)
        if human:
            self.typed_by_person(draft, when)
        self._came(when)

    def result(
        self,
        tool_id: str,
        pieces: Iterable[Piece],
        end: float | None,
        *,
        name: str = "",
        start: float | None = None,
        error: bool = False,
    ) -> Tool | None:
        """A tool's answer; the run it belongs to where the log has the call."""
        self.saw(end)
        tool = self.tools.get(tool_id)
        shown = tool.name if tool else name or None
        self._pending.append(
            Draft("tool", tuple(pieces), tool_call_id=tool.id if tool else tool_id or None, name=shown)
        )
        self._came(end)
        if tool is None:
            return None
        if start is not None:
            tool.start, tool.mark = start, "recorded"
        if tool.end is None and end is not None:
            tool.end = max(end, tool.start or end)
        tool.error = tool.error or error
        return tool

    def compacted(self, drafts: Sequence[Draft]) -> None:
        """The next prompt begins anew, with `drafts` after the system prompt."""
        self._pending = list(drafts)
        self._reset = True

    def join(self, thread: str) -> None:
        self._joins.append(thread)

    def again(self, drafts: Sequence[Draft]) -> None:
        """The request that carried these did not become a part of the conversation: the next one carries them too."""
        self._pending = [*drafts, *self._pending]

    def unanswered(self) -> list[Draft]:
        """What came since the last request."""
        return self._pending

    def answer(
        self, exchange: Exchange, output: Draft, tools_start: float | None = None, *, calls_dropped: bool = False
    ) -> Exchange:
        """The model's message. An unknown start is the time when the last of the prompt came.

        `calls_dropped`: later prompts hold the message without its tool calls, which never ran.
        """
        self.saw(exchange.start)
        self.saw(exchange.end)
        exchange.joins, self._joins = self._joins, []
        self._carry(exchange)
        if exchange.start is None and exchange.arrived is not None:
            exchange.start = exchange.arrived
            exchange.marks["start"] = "derived"
        if exchange.start is not None and exchange.end is not None and exchange.end < exchange.start:
            exchange.end = exchange.start
            exchange.marks["end"] = "derived"
        output = self._asked(exchange, output, tools_start)
        if calls_dropped:
            output = Draft(output.role, output.pieces, output.reasoning)
        exchange.wrote(output)
        if calls_dropped and exchange.output is not None and exchange.output.is_empty():
            exchange.output = None
        self.thread.exchanges.append(exchange)
        return exchange

    def _asked(self, exchange: Exchange, output: Draft, start: float | None) -> Draft:
        """The message with tool-call ids that no other call of the session has, and the runs they start."""
        calls: list[Asked] = []
        for asked in output.calls:
            own = asked.id or f"{self.thread.key}-{exchange.key}-{len(calls)}"
            unique, copies = own, 1
            while unique in self._taken:
                copies += 1
                unique = f"{own}#{copies}"
            self._taken.add(unique)
            tool = Tool(unique, asked.name, start=start, mark="derived" if start is not None else "recorded")
            self.tools[own] = tool
            exchange.tools.append(tool)
            calls.append(Asked(unique, asked.name, asked.arguments))
        return Draft(output.role, output.pieces, output.reasoning, tuple(calls))


def link_by_prompt(threads: Sequence[ThreadDraft]) -> None:
    """Give each sub-agent without a known start the tool call whose arguments hold its first prompt."""
    for child in threads[1:]:
        if child.tool_call_id is None and child.exchanges:
            opening = "\n".join(p.text or "" for d in child.exchanges[0].fresh for p in d.pieces)
            _link(child, opening, threads)


def _link(child: ThreadDraft, opening: str, threads: Sequence[ThreadDraft]) -> None:
    begun = child.exchanges[0].start
    for parent in threads:
        if parent is child:
            continue
        for exchange in parent.exchanges:
            asked = exchange.output.calls if exchange.output else ()
            for call, tool in zip(asked, exchange.tools, strict=False):
                late = begun is not None and tool.start is not None and tool.start > begun
                if tool.thread is None and not late and _mentions(opening, call.arguments.text or ""):
                    child.tool_call_id, child.parent = tool.id, parent.key
                    tool.thread, tool.blocking = child.key, True
                    _join_after(parent, exchange, child.key)
                    return


def _mentions(opening: str, arguments: str) -> bool:
    said = [text(v).strip() for v in object_in(arguments).values()]
    return any(len(s) >= LEAST_PROMPT_CHARS and s in opening for s in said)


def _join_after(parent: ThreadDraft, exchange: Exchange, child: str) -> None:
    """The request that carries the sub-agent's result waited for it."""
    at = parent.exchanges.index(exchange)
    if at + 1 < len(parent.exchanges):
        parent.exchanges[at + 1].joins.append(child)
