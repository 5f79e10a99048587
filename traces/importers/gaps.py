"""The time between two exchanges of a thread, by cause."""

from collections.abc import Iterator, Sequence

from windtunnel.traces.asking import asks_person
from windtunnel.traces.importers.pieces import Exchange, ThreadDraft, Tool
from windtunnel.traces.model import Call, Mark, Wait

SHORTEST_WAIT_S = 0.001
QUEUED_WITHIN_S = 1.0
"""A tool that ends so soon after a sub-agent that was asked for in the same answer is taken to have stood behind it."""


def settle_queues(threads: Sequence[ThreadDraft]) -> None:
    """Let tools that stood in a queue behind a sub-agent begin when that ended.

    A log has when a tool was asked for and when its result came. One whose result comes right after a sub-agent's may
    also have run beside it for just as long, which is rare; the other way round the sub-agent's inference would be a
    fixed time that a faster engine could not shorten.
    """
    for thread in threads:
        for exchange in thread.exchanges:
            ends = sorted(t.end for t in exchange.tools if t.blocking and t.end is not None)
            if not ends:
                continue
            others = [t for t in exchange.tools if not t.blocking and t.thread is None and t.end is not None]
            for tool in sorted(others, key=lambda t: t.end or 0.0):
                before = max((e for e in ends if e <= (tool.end or 0.0)), default=None)
                if before is None or (tool.end or 0.0) - before > QUEUED_WITHIN_S:
                    continue
                if tool.start is not None and tool.start < before:
                    tool.start, tool.mark = before, "derived"
                ends = sorted([*ends, tool.end or 0.0])


def waits(
    call: Call, previous: Exchange, exchange: Exchange, tools: dict[str, Tool], *, stepped: bool = False
) -> Iterator[Wait]:
    """The time from the previous answer to this request: tools, sub-agents, tools behind these, person, client.

    `stepped`: the clock was set back in between.
    """
    answered = [tools[d.tool_call_id] for d in exchange.fresh if d.tool_call_id and d.tool_call_id in tools]
    if exchange.reset:
        # results that a new context repeats are older
        answered = [t for t in answered if any(t is asked for asked in previous.tools)]
    joined = bool(call.joins)
    own = [t for t in answered if not (t.blocking and joined)]
    if previous.end is None or exchange.start is None or stepped:
        yield from _unknown(call.id, exchange, own, joined=joined)
        return
    begin, end = previous.end, max(exchange.start, previous.end)
    mark: Mark = "derived" if "start" in exchange.marks or "end" in previous.marks else "recorded"
    ran = mark if all(t.mark == "recorded" for t in own) else "derived"
    until = begin
    if joined:
        results = [t.end for t in answered if t.blocking and t.end is not None]
        until = min(end, max(results) if results else exchange.asked_at or end)
    asking = [t for t in own if _asks(t)]
    working = [t for t in own if not _asks(t)]
    behind = [t for t in working if begin < until and t.start is not None and t.start >= until]
    beside = [t for t in working if not any(t is b for b in behind)]
    in_own, in_tools, first = (_covered(some, begin, end) for some in (own, working, beside))
    asked, rest = in_own - in_tools, end - begin - in_own
    if beside:
        yield Wait(call.id, "tool", round(first, 6), _names(beside), ran)
    if joined:
        waited = min(max(0.0, until - begin - _covered(own, begin, until)), rest)
        yield Wait(call.id, "subagent", round(waited, 6), (), mark)
        rest -= waited
    if behind:
        yield Wait(call.id, "tool", round(in_tools - first, 6), _names(behind), ran)
    if asking or exchange.human:
        typed = 0.0
        if exchange.human:
            typed = rest if exchange.asked_at is None else min(rest, max(0.0, rest - (end - exchange.asked_at)))
        yield Wait(call.id, "human", round(asked + typed, 6), (), ran if asking else mark)
        rest -= typed
    if rest >= SHORTEST_WAIT_S:
        yield Wait(call.id, "client", round(rest, 6), (), mark)


def _unknown(before_call: int, exchange: Exchange, own: list[Tool], *, joined: bool) -> Iterator[Wait]:
    working = [t for t in own if not _asks(t)]
    lengths = [t.took for t in working if t.took is not None]
    if lengths and len(lengths) == len(working):
        yield Wait(before_call, "tool", round(sum(lengths), 6), _names(working))
    elif working:
        yield Wait(before_call, "tool", None, _names(working), "estimated")
    if joined:
        yield Wait(before_call, "subagent", None, (), "estimated")
    answers = [t.took for t in own if _asks(t)]
    known = [s for s in answers if s is not None]
    if known and len(known) == len(answers) and not exchange.human:
        yield Wait(before_call, "human", round(sum(known), 6))
    elif answers or exchange.human:
        yield Wait(before_call, "human", None, (), "estimated")


def _asks(tool: Tool) -> bool:
    known = tool.start is not None and tool.end is not None
    return asks_person(tool.name, (tool.end or 0.0) - (tool.start or 0.0) if known else tool.took)


def _names(tools: Sequence[Tool]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.name for t in tools))


def _covered(tools: Sequence[Tool], begin: float, end: float) -> float:
    """Length of the union of the tools' times inside [begin, end]."""
    spans = [(t.start, t.end) for t in tools]
    known = sorted((max(a, begin), min(b, end)) for a, b in spans if a is not None and b is not None)
    total, reached = 0.0, begin
    for a, b in known:
        if b > max(a, reached):
            total += b - max(a, reached)
            reached = b
    return total
