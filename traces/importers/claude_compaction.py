"""Compactions of a Claude Code transcript: the request for the summary leaves no line of its own there.

What is left of it is the boundary line, with the client's own count of the history, and the summary itself. Where the
request has no file either (`agent-acompact-*`), it is rebuilt from these.
"""

from windtunnel.traces.importers.claude_parts import State
from windtunnel.traces.importers.pieces import Draft, Exchange, Piece, filler_piece
from windtunnel.traces.importers.records import Notes, count, table, text

INSTRUCTION_TOKENS = 2_100
"""What the request for a summary adds to the history, as one that was recorded (2.1.39) did."""
LATE_S = 5.0
"""The boundary may be written a little before or after the request's own file is complete."""


def boundary(state: State, line: int, value: dict[str, object], when: float | None, notes: Notes) -> None:
    """The context ends here: a request that asked for its summary takes all that waited for the next one."""
    state.reset = True
    last = state.thread.exchanges[-1] if state.thread.exchanges else None
    if last is None or last.kind == "compaction":
        return
    told = table(value.get("compactMetadata"))
    manual = text(told.get("trigger")) == "manual"
    history = count(told.get("preTokens"), notes, line, "preTokens")
    asked = state.compact_at if manual else state.arrived
    exchange = Exchange(
        key=f"compaction-{line}",
        line=line,
        fresh=state.pending,
        prompt=history,
        start=asked,
        end=when,
        arrived=state.arrived,
        asked_at=asked if manual else state.asked_at,
        human=manual or state.human,
        joins=state.joins,
        model=last.model,
        kind="compaction",
        marks={"prompt": "estimated"},
    )
    if asked is not None:
        exchange.marks["start"] = "derived"
    if when is not None:
        exchange.marks["end"] = "derived"
    state.pending, state.joins = [], []
    state.arrived = state.asked_at = state.compact_at = None
    state.human = False
    state.thread.exchanges.append(exchange)
    state.rebuilt.append(exchange)


def asked_to_compact(state: State, when: float | None) -> None:
    """A person typed `/compact`. Its line may stand before the boundary or after it."""
    last = state.rebuilt[-1] if state.rebuilt else None
    waiting = last is not None and last.human and last.start is None and last is state.thread.exchanges[-1]
    if last is not None and waiting and when is not None and (last.end is None or when <= last.end):
        last.start = last.asked_at = when
        last.marks["start"] = "derived"
    else:
        state.compact_at = when


def summarised(state: State, said: list[Piece]) -> None:
    """The summary of the compaction that came last."""
    if state.rebuilt and state.rebuilt[-1].output is None:
        state.rebuilt[-1].wrote(Draft("assistant", tuple(said)))


def settle(state: State, written: list[float | None], notes: Notes) -> None:
    """Size the rebuilt requests; leave out those that have a file (`written`: when these ended) and say what was made.

    The client counts the history as of the last answer: what came in since is in the request as well.
    """
    for exchange in state.rebuilt:
        at = state.thread.exchanges.index(exchange)
        before = state.thread.exchanges[at - 1]
        after = state.thread.exchanges[at + 1] if at + 1 < len(state.thread.exchanges) else None
        if any(_is_of(exchange, before, end) for end in written) or exchange.output is None:
            del state.thread.exchanges[at]
            if after is not None:
                _give_back(exchange, after)
            continue
        known = [] if before.prompt is None or before.output is None else [before.prompt, before.output]
        sizes = [exchange.prompt or 0]
        if known:
            new = [before.output, *exchange.fresh]
            sizes.append((before.prompt or 0) + sum(d.visible() + d.hidden() for d in new if d is not None))
        counted = exchange.prompt
        exchange.prompt = max(sizes) + INSTRUCTION_TOKENS if max(sizes) else None
        if exchange.prompt is None:
            del exchange.marks["prompt"]
        instruction = filler_piece(INSTRUCTION_TOKENS, "claude-code", "request for a summary")
        exchange.fresh = [*exchange.fresh, Draft("user", (instruction,))]
        history = "" if counted is None else f" after {counted} tokens of history, as the client counted"
        notes.add(
            exchange.line,
            f"the request that wrote the summary was not recorded: rebuilt{history}, with a prompt of "
            f"{exchange.prompt or 'unknown'} and an answer of {exchange.completion} tokens (estimated)",
        )


def _is_of(exchange: Exchange, before: Exchange, end: float | None) -> bool:
    if end is None or exchange.end is None:
        return True
    return (before.end or 0.0) <= end <= exchange.end + LATE_S


def _give_back(exchange: Exchange, after: Exchange) -> None:
    """What waited goes to the request that begins the new context, as if nothing had come between."""
    after.fresh = [*exchange.fresh, *after.fresh]
    after.joins = [*exchange.joins, *after.joins]
    after.human = after.human or exchange.human
    after.asked_at = after.asked_at or exchange.asked_at
    if exchange.arrived is not None:
        after.arrived = max(after.arrived or 0.0, exchange.arrived)
        if "start" in after.marks:
            after.start = max(after.start or 0.0, exchange.arrived)
