"""Requests with their whole histories become sessions: what extends an earlier prompt is that conversation's next turn.

A prompt that begins like another (same system prompt, same first message) but does not extend it goes on from a
rewritten context. A conversation whose first message stands in another one's tool call is that one's sub-agent. What
lies between an answer and the next request is the tools' time as a proxy sees it, or a person's.
"""

from collections.abc import Sequence

from msgspec import Struct

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.conversation import LEAST_PROMPT_CHARS, Conversation
from windtunnel.traces.importers.pieces import Draft, Exchange, ThreadDraft, Tool, title_of
from windtunnel.traces.importers.records import object_in, text
from windtunnel.traces.importers.wire_bodies import Body
from windtunnel.traces.model import Header, Trace


class Seen(Struct, frozen=True):
    """A request and its answer as they crossed the wire; the exchange holds the figures."""

    body: Body
    exchange: Exchange
    output: Draft | None


class _Asked(Struct, frozen=True):
    """A tool call that a conversation's opening may have come from."""

    thread: ThreadDraft
    exchange: int
    tool: Tool


class _Chain(Struct):
    chat: Conversation
    last: Body


class Wire(Struct, frozen=True):
    """What is said of all sessions of one input."""

    format: str
    source: str
    id: str
    agent: str = "unknown"


def sessions_of(seen: Sequence[Seen], wire: Wire) -> list[Trace]:
    taken: set[str] = set()
    chains: list[_Chain] = []
    for one in sorted(seen, key=_order):
        _place(one, chains, taken)
    threads = [chain.chat.thread for chain in chains]
    _link(threads)
    roots = {thread.key: _root(thread, threads) for thread in threads}
    traces: list[Trace] = []
    for chain in chains:
        thread = chain.chat.thread
        if roots[thread.key] == thread.key:
            thread.parent = None
            own = [thread, *(t for t in threads if t is not thread and roots[t.key] == thread.key)]
            for child in own[1:]:
                child.role = "agent"
            traces.append(_trace(wire, len(traces), chain.chat, own))
    return traces


def _order(one: Seen) -> tuple[float, int]:
    e = one.exchange
    return (e.start if e.start is not None else e.end or 0.0, len(one.body.entries))


def _place(one: Seen, chains: list[_Chain], taken: set[str]) -> None:
    body = one.body
    extended = [c for c in chains if _extends(body.digests, c.last.digests)]
    best = max(extended, key=lambda c: len(c.last.digests), default=None)
    grows = best is not None and body.answered(len(best.last.entries)) > len(best.last.entries)
    if best is None or not grows:
        opening = body.digests[: body.front + 1]
        best = next((c for c in reversed(chains) if c.last.digests[: c.last.front + 1] == opening), None)
        grows = False
    if best is None:
        best = _Chain(Conversation(ThreadDraft(f"thread {len(chains)}"), taken), body)
        chains.append(best)
        _came(best.chat, body.drafts(0), one.exchange)
    elif grows:
        _came(best.chat, body.drafts(body.answered(len(best.last.entries))), one.exchange)
    else:
        best.chat.compacted(body.drafts(body.front))
    best.last = body
    best.chat.answer(one.exchange, one.output or Draft("assistant"), one.exchange.end)


def _extends(new: tuple[str, ...], old: tuple[str, ...]) -> bool:
    size = len(old)
    # the last message tells most of them apart without a comparison of the whole
    return size <= len(new) and new[size - 1] == old[-1] and new[:size] == old


def _came(chat: Conversation, drafts: Sequence[Draft], exchange: Exchange) -> None:
    """The new messages; the tools took what lies between the answer that asked for them and this request."""
    human = not any(d.role == "tool" for d in drafts)
    for draft in drafts:
        if draft.role == "tool":
            tool = chat.result(draft.tool_call_id or "", draft.pieces, exchange.start)
            if tool is not None:
                tool.mark = "derived"
        else:
            chat.add(draft, None, human=human and draft.role == "user")


def _link(threads: Sequence[ThreadDraft]) -> None:
    """Tie a conversation whose first message is an argument of another one's tool call to that call."""
    arguments: dict[str, list[_Asked]] = {}
    for thread in threads:
        for number, exchange in enumerate(thread.exchanges):
            calls = exchange.output.calls if exchange.output else ()
            for call, tool in zip(calls, exchange.tools, strict=False):
                for said in _strings(call.arguments.text or ""):
                    arguments.setdefault(said, []).append(_Asked(thread, number, tool))
    for child in threads:
        opening = child.exchanges[0]
        words = [(p.text or "").strip() for d in opening.fresh if d.role == "user" for p in d.pieces]
        found = next((a for w in words for a in arguments.get(w, []) if _may_start(a, child, opening)), None)
        if found is not None:
            child.parent, child.tool_call_id = found.thread.key, found.tool.id
            found.tool.thread, found.tool.blocking = child.key, True
            if found.exchange + 1 < len(found.thread.exchanges):
                found.thread.exchanges[found.exchange + 1].joins.append(child.key)


def _strings(arguments: str) -> list[str]:
    values = object_in(arguments).values()
    return [said for v in values if len(said := text(v).strip()) >= LEAST_PROMPT_CHARS]


def _may_start(asked: _Asked, child: ThreadDraft, opening: Exchange) -> bool:
    begun = asked.thread.exchanges[asked.exchange].start
    late = begun is not None and opening.start is not None and begun >= opening.start
    return asked.thread is not child and asked.tool.thread is None and not late


def _root(thread: ThreadDraft, threads: Sequence[ThreadDraft]) -> str:
    by_key = {t.key: t for t in threads}
    seen: set[str] = set()
    while thread.parent is not None and thread.parent in by_key and thread.key not in seen:
        seen.add(thread.key)
        thread = by_key[thread.parent]
    return thread.key


def _trace(wire: Wire, number: int, chat: Conversation, threads: list[ThreadDraft]) -> Trace:
    exchanges = [e for t in threads for e in t.exchanges]
    starts = [t for e in exchanges for t in (e.start, e.end) if t is not None]
    header = Header(
        id=wire.id if not number else f"{wire.id}-{number + 1}",
        agent=wire.agent,
        models=tuple(dict.fromkeys(e.model for e in exchanges if e.model)),
        source=wire.source,
        started_at=min(starts, default=None),
        title=title_of(chat.prompt),
    )
    return assemble(header, threads, Rules(exact_cache=False))
