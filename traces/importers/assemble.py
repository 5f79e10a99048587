"""Threads of exchanges become a trace: prompts, calls in order, tool runs, and the waits between calls by cause."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.importers.clocks import Steps, steps_back
from windtunnel.traces.importers.context import Context, Step, Turn
from windtunnel.traces.importers.fitting import calibrate_output
from windtunnel.traces.importers.gaps import settle_queues, waits
from windtunnel.traces.importers.ledger import Ledger
from windtunnel.traces.importers.pieces import Exchange, ThreadDraft, Tool, filler_piece
from windtunnel.traces.model import Call, Header, Params, Thread, ToolRun, Trace, Usage, Wait, without_times

CACHE_SLACK_TOKENS = 64
"""A cached count lower by so little is a matter of where the provider's cache ends, not of the text."""
END_SLACK_S = 0.5
"""A sub-agent's last line may be written a little after its parent has the result."""


class Rules(Struct, frozen=True):
    """What a client's figures can be trusted for."""

    exact_cache: bool = False
    """The provider caches up to marked positions and keeps them for a stated time: a lower cached count within that
    time and for the same model means that the text differs. Elsewhere caching depends on routing and load, and a low
    count says nothing about the text."""
    exact_starts: bool = False
    """A tool's start is when it began to run. Elsewhere it is when the tool was asked for, and may be earlier."""


class Placed(NamedTuple):
    """An exchange with its prompt settled; `output` is the message id of its answer."""

    thread: int
    exchange: Exchange
    step: Step
    output: int | None


def assemble(header: Header, threads: Sequence[ThreadDraft], rules: Rules) -> Trace:
    """The trace of the threads, the first of which is the main agent; `header.started_at` is its time zero."""
    ledger = Ledger(header.id)
    steps = steps_back(threads)
    if not rules.exact_starts:
        settle_queues(threads)
    placed = [p for i, thread in enumerate(threads) for p in _own(_place(i, thread, ledger, header, rules))]
    order = _in_time(placed)
    ids = {(placed[at].thread, placed[at].exchange.key): new for new, at in enumerate(order)}
    thread_ids = {t.key: i for i, t in enumerate(threads)}
    zero = header.started_at or 0.0
    previous: dict[int, int] = {}
    joins = _joins([placed[at] for at in order], thread_ids)
    calls: list[Call] = []
    for new, at in enumerate(order):
        calls.append(_call(new, placed[at], previous.get(placed[at].thread), joins.get(new, ()), zero, steps))
        previous[placed[at].thread] = new
    tools = {tool.id: tool for p in placed for tool in p.exchange.tools}
    owner = {tool.id: ids[p.thread, p.exchange.key] for p in placed for tool in p.exchange.tools}
    runs = [
        _run(tool, owner[tool.id], thread_ids, zero, adrift=_key(placed[at]) in steps.adrift)
        for at in order
        for tool in placed[at].exchange.tools
    ]
    between: list[Wait] = []
    last: dict[int, Exchange] = {}
    for new, at in enumerate(order):
        here = placed[at]
        if here.thread in last:
            stepped = _key(here) in steps.across
            between.extend(waits(calls[new], last[here.thread], here.exchange, tools, stepped=stepped))
        last[here.thread] = here.exchange
    return Trace(
        header=_with_edits(header, placed, steps),
        blocks=tuple(ledger.blocks),
        messages=tuple(ledger.messages),
        toolsets=tuple(ledger.toolsets),
        threads=tuple(_thread(i, t, thread_ids, owner, calls) for i, t in enumerate(threads)),
        calls=tuple(calls),
        tool_runs=tuple(runs),
        waits=tuple(between),
    )


def _own(placed: Iterator[Placed]) -> Iterator[Placed]:
    """A thread's own requests; the first has all that stands in its prompt, copied history included."""
    held: tuple[int, ...] = ()
    for p in placed:
        held = held[: p.step.keep] + p.step.append
        if p.exchange.copied is None:
            yield p._replace(step=replace(p.step, keep=0, append=held))
            break
    yield from placed


def _place(number: int, thread: ThreadDraft, ledger: Ledger, header: Header, rules: Rules) -> Iterator[Placed]:
    before: Exchange | None = None
    spoken: Exchange | None = None
    """The exchange before that belongs to the conversation."""
    step: Step | None = None
    context: Context | None = None
    for exchange in thread.exchanges:
        session, key = exchange.copied or (header.id, thread.key)
        if exchange.output is not None:
            hidden = filler_piece(0, session, key, exchange.key, "reasoning")
            trusted = None if exchange.marks.get("completion") == "estimated" else exchange.completion
            exchange.output = calibrate_output(exchange.output, trusted, exchange.reasoning, hidden)
        if context is None:
            names = exchange.schemas.names if exchange.schemas else ()
            front = (header.agent, header.agent_version or "", exchange.model or "", thread.role, *names)
            context = Context(ledger, front, key)
        context.belongs_to(session, key)
        if before is not None and before.end is not None and "start" in exchange.marks:
            # tools that ran while the answer still streamed may have ended before it did
            latest = max(exchange.start or before.end, before.end)
            exchange.start = latest if exchange.end is None or latest <= exchange.end else exchange.start
        now = context.step(_turn(spoken, exchange, rules, first=step is None))
        if before is not None and step is not None:
            alone = exchange.reset or exchange.aside or before.aside
            carried = before.output is not None and not alone
            yield Placed(number, before, step, now.first_draft if carried else _answer(before, ledger))
        before, step = exchange, now
        spoken = spoken if exchange.aside else exchange
    if before is not None and step is not None:
        yield Placed(number, before, step, _answer(before, ledger))


def _answer(exchange: Exchange, ledger: Ledger) -> int | None:
    return None if exchange.output is None else ledger.message(exchange.output)


def _turn(before: Exchange | None, exchange: Exchange, rules: Rules, *, first: bool) -> Turn:
    alone = exchange.reset or exchange.aside
    carried = [before.output] if before is not None and before.output is not None and not alone else []
    exact = rules.exact_cache and exchange.cached is not None
    return Turn(
        drafts=[*carried, *exchange.fresh],
        want=exchange.prompt,
        human=exchange.human,
        reset=exchange.reset,
        aside=exchange.aside,
        diverged=_diverged(before, exchange) if exact and before is not None and not exchange.whole else None,
        proven=(exchange.prompt or 0) if exchange.whole else (exchange.cached or 0) if exact else 0,
        schemas=exchange.schemas,
        shared=exchange.cached or None if exact and first else None,
    )


def _diverged(before: Exchange, exchange: Exchange) -> int | None:
    """The token from which the prompt's text differs from the previous one's, as the cached count tells it.

    The previous call left `cached + created` tokens in the cache. Fewer were found although that was recent enough to
    be still there and the model is the same: the text after them differs. None found at all says nothing (another
    machine, an early eviction), and neither does an expired entry.
    """
    if not exchange.cached or before.cached is None or before.created is None or before.model != exchange.model:
        return None
    if before.end is None or exchange.end is None or exchange.end - before.end >= before.ttl_s:
        return None
    left = before.cached + before.created
    return exchange.cached if exchange.cached + CACHE_SLACK_TOKENS < left else None


def _in_time(placed: list[Placed]) -> list[int]:
    """Indices of the exchanges in order of their start, each thread's own order kept."""
    latest: dict[int, float] = {}
    keys: list[tuple[float, int]] = []
    for at, p in enumerate(placed):
        # an answer's end places a request whose start is not known
        start = p.exchange.end if p.exchange.start is None else p.exchange.start
        begun = latest.get(p.thread, 0.0)
        latest[p.thread] = begun if start is None else max(begun, start)
        keys.append((latest[p.thread], at))
    return [at for _, at in sorted(keys)]


def _key(p: Placed) -> tuple[int, str]:
    return p.thread, p.exchange.key


def _since(moment: float | None, zero: float) -> float | None:
    return None if moment is None else round(max(0.0, moment - zero), 6)


def _joins(in_order: list[Placed], thread_ids: dict[str, int]) -> dict[int, tuple[int, ...]]:
    """Each thread is joined once: by the first call that names it and starts after it ended, else by the last one."""
    ends: dict[int, float] = {}
    for p in in_order:
        ends[p.thread] = max(ends.get(p.thread, 0.0), p.exchange.end or 0.0)
    chosen: dict[int, tuple[int, bool]] = {}
    for new, p in enumerate(in_order):
        for thread in (thread_ids[k] for k in p.exchange.joins if k in thread_ids):
            after = (p.exchange.start or 0.0) + END_SLACK_S >= ends.get(thread, 0.0)
            if thread != p.thread and thread in ends and not chosen.get(thread, (0, False))[1]:
                chosen[thread] = (new, after)
    out: dict[int, tuple[int, ...]] = {}
    for thread, (new, _) in sorted(chosen.items()):
        out[new] = (*out.get(new, ()), thread)
    return out


def _call(new: int, p: Placed, base: int | None, joins: tuple[int, ...], zero: float, steps: Steps) -> Call:
    e = p.exchange
    adrift = _key(p) in steps.adrift
    start, first, end = (None, None, None) if adrift else (e.start, e.first, e.end)
    return Call(
        id=new,
        thread=p.thread,
        append=p.step.append,
        base=base,
        keep=p.step.keep if base is not None else 0,
        tools=p.step.tools,
        output=p.output,
        usage=Usage(e.prompt, e.cached, e.completion, e.reasoning),
        start_s=_since(start, zero),
        first_s=_since(first, zero),
        end_s=_since(end, zero),
        stop=e.stop,
        model=e.model,
        params=Params(max_tokens=e.max_tokens, reasoning_effort=e.effort),
        kind=e.kind,
        aborted=e.aborted,
        joins=joins,
        marks=without_times(e.marks) if adrift else dict(e.marks),
    )


def _run(tool: Tool, call: int, thread_ids: dict[str, int], zero: float, *, adrift: bool) -> ToolRun:
    backwards = tool.start is not None and tool.end is not None and tool.start > tool.end
    return ToolRun(
        call=call,
        tool_call_id=tool.id,
        name=tool.name,
        start_s=None if adrift else _since(tool.end if backwards else tool.start, zero),
        end_s=None if adrift else _since(tool.end, zero),
        thread=None if tool.thread is None else thread_ids.get(tool.thread),
        error=tool.error,
        mark="derived" if backwards else tool.mark,
    )


def _thread(i: int, draft: ThreadDraft, ids: dict[str, int], owner: dict[str, int], calls: list[Call]) -> Thread:
    if i == 0:
        return Thread(id=0, name=draft.name)
    spawn = owner.get(draft.tool_call_id or "")
    own = next((c for c in calls if c.thread == i), None)
    if spawn is not None and calls[spawn].thread == i:
        spawn = None
    if spawn is not None and own is not None and own.id < spawn:
        spawn = None
    first = None if own is None else own.start_s
    begun = None if spawn is None else calls[spawn].end_s
    delay = 0.0 if first is None else first - begun if begun is not None else first if spawn is None else 0.0
    parent = calls[spawn].thread if spawn is not None else ids.get(draft.parent or "", 0)
    return Thread(
        id=i,
        parent=0 if parent == i else parent,
        spawn_call=spawn,
        spawn_delay_s=round(max(0.0, delay), 6),
        tool_call_id=draft.tool_call_id,
        name=draft.name,
        background=draft.background or spawn is None,
    )


def _with_edits(header: Header, placed: list[Placed], steps: Steps) -> Header:
    """Notes that say how often the text was rebuilt and by which evidence."""
    said = {
        "reset": "calls start from a context that was compacted or went back to an earlier point",
        "shrunk": "prompts are shorter than the text before them: cut at the end",
        "diverged": "prompts differ from the one before at the token that the cached count names",
        "dropped_reasoning": "prompts dropped the reasoning of the turn before",
    }
    counts = {edit: sum(edit in p.step.edits for p in placed) for edit in said}
    notes = tuple(f"{n} {said[edit]}" for edit, n in counts.items() if n)
    return replace(header, notes=(*header.notes, *notes, *steps.note()))
