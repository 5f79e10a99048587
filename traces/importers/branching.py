"""A session without the requests that it began with: they were another session's, and it carries them as history.

The text that the logs lack has stand-ins of each session's own; in the shared part they become the other session's, so
that the prompts are the same there, as they were.
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from windtunnel.traces.model import Block, Call, Thread, ToolRun, Trace


def with_same_fillers(trace: Trace, shared: Sequence[Call], other: Trace, theirs: Sequence[Call]) -> Trace:
    """The trace with the stand-ins of its shared calls named as in the other's calls, one for one."""
    names: dict[int, str] = {}
    for mine, its in zip(shared, theirs, strict=True):
        for message, same in _pairs(mine, its):
            blocks = [trace.blocks[b] for b in trace.message_blocks(trace.messages[message])]
            others = [other.blocks[b] for b in other.message_blocks(other.messages[same])]
            if len(blocks) != len(others) or any(_differ(b, o) for b, o in zip(blocks, others, strict=True)):
                break
            names.update((b.id, o.digest) for b, o in zip(blocks, others, strict=True))
    blocks_now = (b if names.get(b.id, b.digest) == b.digest else replace(b, digest=names[b.id]) for b in trace.blocks)
    return replace(trace, blocks=tuple(blocks_now)) if names else trace


def _pairs(mine: Call, its: Call) -> Iterator[tuple[int, int]]:
    if mine.keep == its.keep:
        yield from zip(mine.append, its.append, strict=False)
    if mine.output is not None and its.output is not None:
        yield mine.output, its.output


def _differ(block: Block, other: Block) -> bool:
    alike = block.filler and other.filler and block.tokens == other.tokens
    return not alike and block.digest != other.digest


def without_calls(trace: Trace, gone: Collection[int]) -> Trace:
    """The trace without some calls; who built on one of them carries its whole prompt. It starts with what is left."""
    held: dict[int, tuple[int, ...]] = {}
    for call in trace.calls:
        if call.id in gone:
            base = () if call.base is None else held[call.base][: call.keep]
            held[call.id] = base + call.append
    left = [c for c in trace.calls if c.id not in gone]
    ids = {call.id: new for new, call in enumerate(left)}
    staying = [t for t in trace.threads if t.id == 0 or any(c.thread == t.id for c in left)]
    threads = {thread.id: new for new, thread in enumerate(staying)}
    times = [t for c in left if (t := c.end_s if c.start_s is None else c.start_s) is not None]
    zero = min(times, default=0.0)
    header = trace.header
    if header.started_at is not None:
        header = replace(header, started_at=header.started_at + zero)
    return replace(
        trace,
        header=header,
        threads=tuple(_thread(t, threads, ids, zero) for t in staying),
        calls=tuple(_call(c, held, threads, ids, zero) for c in left),
        tool_runs=tuple(_run(r, threads, ids, zero) for r in trace.tool_runs if r.call in ids),
        waits=tuple(
            replace(w, before=ids[w.before])
            for w in trace.waits
            if w.before in ids and trace.calls[w.before].base not in gone
        ),
    )


def _thread(thread: Thread, threads: dict[int, int], ids: dict[int, int], zero: float) -> Thread:
    spawn = ids.get(-1 if thread.spawn_call is None else thread.spawn_call)
    own = thread.id == 0 or thread.spawn_call is not None
    return replace(
        thread,
        id=threads[thread.id],
        parent=None if thread.parent is None else threads.get(thread.parent, 0),
        spawn_call=spawn,
        # without a call that starts it, a thread starts that long after the session
        spawn_delay_s=thread.spawn_delay_s if own else round(max(0.0, thread.spawn_delay_s - zero), 6),
    )


def _call(
    call: Call, held: dict[int, tuple[int, ...]], threads: dict[int, int], ids: dict[int, int], zero: float
) -> Call:
    alone = call.base in held
    before = held[call.base][: call.keep] if call.base is not None and alone else ()
    return replace(
        call,
        id=ids[call.id],
        thread=threads[call.thread],
        append=before + call.append,
        base=None if call.base is None or alone else ids[call.base],
        keep=0 if alone else call.keep,
        start_s=_later(call.start_s, zero),
        first_s=_later(call.first_s, zero),
        end_s=_later(call.end_s, zero),
        joins=tuple(threads[t] for t in call.joins if t in threads),
    )


def _run(run: ToolRun, threads: dict[int, int], ids: dict[int, int], zero: float) -> ToolRun:
    return replace(
        run,
        call=ids[run.call],
        start_s=_later(run.start_s, zero),
        end_s=_later(run.end_s, zero),
        thread=None if run.thread is None else threads.get(run.thread),
    )


def _later(moment: float | None, zero: float) -> float | None:
    return None if moment is None else round(max(0.0, moment - zero), 6)


def below(trace: Trace, calls: Collection[int]) -> set[int]:
    """The threads that these calls started, and theirs."""
    found: set[int] = set()
    for thread in trace.threads[1:]:
        spawn = thread.spawn_call
        if spawn is not None and (spawn in calls or trace.calls[spawn].thread in found):
            found.add(thread.id)
    return found
