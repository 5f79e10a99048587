"""One thread being written down while its log is read: what came into the prompt gathers until an answer takes it.

For formats that tell a session as one line of messages. Such a log rarely says when a request started; it started when
the last thing came into its prompt, and where that is not known neither is the wait before it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft, Tool, text_piece
from windtunnel.traces.importers.records import dumps
from windtunnel.traces.importers.waiting import Waiting
from windtunnel.traces.model import CallKind


class ThreadWriter(Waiting):
    def __init__(self, key: str) -> None:
        super().__init__(ThreadDraft(key))
        self._timeless = False

    @property
    def pending(self) -> Sequence[Draft]:
        """What waits for an answer."""
        return self._pending

    @property
    def arrived(self) -> float | None:
        """When the last of it came."""
        return self._arrived

    def came(self, draft: Draft, when: float | None) -> None:
        """Something came into the prompt: a system prompt, a reminder, a result."""
        self._pending.append(draft)
        if when is None:
            self._timeless = True
        self._came(when)

    def set_out(self, draft: Draft) -> None:
        """Something stands in the prompt from the start: its moment says nothing about when a request started."""
        self._pending.append(draft)

    def typed(self, draft: Draft, when: float | None) -> None:
        """A person's prompt came."""
        self.came(draft, when)
        self.typed_by_person(draft, when)

    def result(self, tool_id: str, pieces: Sequence[Piece], when: float | None) -> Tool | None:
        """A tool's result came; its run, with its end set when it had none."""
        tool = self.tools.get(tool_id)
        draft = Draft("tool", tuple(pieces), tool_call_id=tool_id or None, name=tool.name if tool else None)
        self.came(draft, when)
        if tool is not None and tool.end is None:
            tool.end = when
        return tool

    def compacted(self, context: Sequence[Draft], when: float | None) -> None:
        """The context becomes another one; what waited for an answer still does, where `context` holds it."""
        self._pending = list(context)
        self._reset = any(not e.aside for e in self.thread.exchanges)
        self._came(when)

    def rewound(self, context: Sequence[Draft]) -> None:
        """The context is an earlier one again and nothing waits for an answer."""
        self._pending = list(context)
        self._reset = any(not e.aside for e in self.thread.exchanges)
        self._arrived = self._asked_at = None
        self._timeless = self._human = False

    def request(self, line: int) -> Exchange:
        """The exchange that takes what waits."""
        exchange = Exchange(key=self._key(), line=line)
        self._carry(exchange)
        known = exchange.arrived is not None and not self._timeless
        self._timeless = False
        if known:
            exchange.start = exchange.arrived
        if known or (not exchange.fresh and self.thread.exchanges):
            exchange.marks = {"start": "derived"}
        self.thread.exchanges.append(exchange)
        return exchange

    def aside(self, line: int, kind: CallKind, start: float | None) -> Exchange:
        """A request with a prompt of its own, in its place by its start: a title, a compaction."""
        exchange = Exchange(key=self._key(), line=line, kind=kind, aside=True, start=start)
        later = (i for i, e in enumerate(self.thread.exchanges) if (e.start or 0.0) > (start or 0.0))
        at = len(self.thread.exchanges) if start is None else next(later, len(self.thread.exchanges))
        self.thread.exchanges.insert(at, exchange)
        return exchange

    def _key(self) -> str:
        return f"{self.thread.key}-{len(self.thread.exchanges)}"

    def asked(self, exchange: Exchange, tool: Tool) -> bool:
        """Whether a tool run that the answer asks for is new; it is noted then."""
        if not tool.id or tool.id in self.tools:
            return False
        self.tools[tool.id] = tool
        exchange.tools.append(tool)
        return True

    def finish(self) -> ThreadDraft:
        """The thread; what the source did not count is estimated from the text."""
        for exchange in self.thread.exchanges:
            if exchange.output is not None or exchange.completion is None:
                exchange.wrote(exchange.output or Draft("assistant"))
            for tool in exchange.tools:
                if tool.start is not None and tool.end is not None:
                    tool.start = min(tool.start, tool.end)
        _estimate_prompts(self.thread)
        return self.thread


def _estimate_prompts(thread: ThreadDraft) -> None:
    """Prompt sizes where the source counts none at all: the estimates of the text that stands in them."""
    if any(e.prompt is not None for e in thread.exchanges):
        return
    held = front = 0
    carried: Draft | None = None
    for number, exchange in enumerate(e for e in thread.exchanges if not e.aside):
        if exchange.reset:
            held = front
        elif carried is not None:
            held += _tokens(carried)
        held += sum(_tokens(d) for d in exchange.fresh)
        if not number and exchange.fresh and exchange.fresh[0].role == "system":
            front = _tokens(exchange.fresh[0])
        exchange.prompt = max(1, held + (exchange.schemas.piece.tokens if exchange.schemas else 0))
        exchange.marks["prompt"] = "estimated"
        carried = exchange.output


def _tokens(draft: Draft) -> int:
    return draft.visible() + draft.hidden()


def arguments_piece(arguments: object) -> Piece:
    """A tool call's arguments, given as JSON text or as the parsed value."""
    return text_piece(arguments if isinstance(arguments, str) else dumps(arguments), "json")


def adopt(parent: ThreadDraft, children: Sequence[ThreadDraft], names: frozenset[str]) -> None:
    """Tie sub-agents' threads to the tool runs of their parent that started them, and let the parent join them.

    By the tool call that the source names, else by time: the first run of a tool in `names`, not yet taken, during
    which the thread began. One that began before the call which is said to start it stays untied.
    """
    taken = {child.tool_call_id for child in children if child.tool_call_id}
    for child in sorted(children, key=lambda c: _began(c) or 0.0):
        child.parent = parent.key
        reached = 0.0
        for before, exchange in zip([None, *parent.exchanges], parent.exchanges, strict=False):
            held = before.end if before is not None and "start" in exchange.marks else None
            reached = max(reached, exchange.start or 0.0, held or 0.0)
            tool = next((t for t in exchange.tools if _started(child, t, names, taken)), None)
            if tool is not None and _tied(child, exchange, tool, reached):
                taken.add(tool.id)
                _join(parent, child, tool)
                break
        else:
            child.tool_call_id = None


def _began(thread: ThreadDraft) -> float | None:
    return next((e.start for e in thread.exchanges if e.start is not None), None)


def _started(child: ThreadDraft, tool: Tool, names: frozenset[str], taken: set[str]) -> bool:
    if child.tool_call_id is not None:
        return child.tool_call_id == tool.id
    began = _began(child)
    during = began is not None and tool.start is not None and tool.start - 1 <= began <= (tool.end or began)
    return tool.id not in taken and tool.name in names and during


def _tied(child: ThreadDraft, exchange: Exchange, tool: Tool, reached: float) -> bool:
    """Whether a thread can have been started by a tool of an exchange that starts at `reached` at the earliest."""
    first = child.exchanges[0]
    if first.start is None:
        first.start = tool.start if tool.start is not None else exchange.end
        first.marks["start"] = "derived"
    if (first.start or 0.0) < reached:
        return False
    child.tool_call_id, tool.thread = tool.id, child.key
    return True


def _join(parent: ThreadDraft, child: ThreadDraft, tool: Tool) -> None:
    ends = [e.end for e in child.exchanges if e.end is not None]
    if child.background or not child.exchanges or tool.end is None or (ends and max(ends) > tool.end + 1):
        child.background = True
        return
    for exchange in parent.exchanges:
        if any(d.tool_call_id == tool.id for d in exchange.fresh):
            tool.blocking = True
            exchange.joins = [*exchange.joins, child.key]
            return


def tell_apart(threads: Sequence[ThreadDraft]) -> None:
    """Give tool calls ids that differ in the whole session: some servers number them anew for every sub-agent."""
    taken: set[str] = set()
    for thread in threads:
        own = {tool.id for exchange in thread.exchanges for tool in exchange.tools}
        names = {old: f"{old}@{thread.key}" for old in own & taken}
        taken |= own | set(names.values())
        if not names:
            continue
        for exchange in thread.exchanges:
            exchange.fresh = [_renamed(d, names) for d in exchange.fresh]
            exchange.output = None if exchange.output is None else _renamed(exchange.output, names)
            for tool in exchange.tools:
                tool.id = names.get(tool.id, tool.id)
        for child in threads:
            if child.parent == thread.key and child.tool_call_id in names:
                child.tool_call_id = names[child.tool_call_id]


def _renamed(draft: Draft, names: dict[str, str]) -> Draft:
    calls = tuple(Asked(names.get(c.id, c.id), c.name, c.arguments) for c in draft.calls)
    return replace(
        draft, calls=calls, tool_call_id=names.get(draft.tool_call_id or "", draft.tool_call_id or "") or None
    )
