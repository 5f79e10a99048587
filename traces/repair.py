"""From the lines of a trace file to a whole trace, whatever was lost.

A call stands on its base call, its messages and their blocks. When one of these is missing and cannot be inferred from
the rest (`rescue`), the call cannot be replayed truthfully and is dropped, with everything that builds on it. What is
left is numbered anew so that ids are positions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from windtunnel.traces.check import run_fault, times_fault
from windtunnel.traces.model import (
    Block,
    Call,
    Header,
    Message,
    Problem,
    Thread,
    ToolRun,
    ToolSet,
    Trace,
    Wait,
    without_times,
)
from windtunnel.traces.rescue import lost_blocks, lost_calls, lost_messages, used_blocks

Item = Block | Message | ToolSet | Thread | Call | ToolRun | Wait | Header
_T = TypeVar("_T", Block, Message, ToolSet, Thread, Call)


class _Lines:
    """What a file held of one trace, with line numbers, before references are followed."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self.name = name
        self.problems = problems
        self.blocks: dict[int, Block] = {}
        self.messages: dict[int, Message] = {}
        self.toolsets: dict[int, ToolSet] = {}
        self.threads: dict[int, Thread] = {}
        self.calls: dict[int, Call] = {}
        self.runs: list[ToolRun] = []
        self.waits: list[Wait] = []
        self.run_lines: list[int] = []
        self.wait_lines: list[int] = []
        self.line_of: dict[tuple[str, int], int] = {}

    def put(self, number: int, obj: Item) -> None:
        if isinstance(obj, Block):  # the most, as a rule
            self._keep(self.blocks, obj, "block", number)
        elif isinstance(obj, Message):
            self._keep(self.messages, obj, "message", number)
        elif isinstance(obj, Wait):
            self.waits.append(obj)
            self.wait_lines.append(number)
        elif isinstance(obj, Call):
            self._keep(self.calls, obj, "call", number)
        elif isinstance(obj, ToolRun):
            self.runs.append(obj)
            self.run_lines.append(number)
        elif isinstance(obj, ToolSet):
            self._keep(self.toolsets, obj, "tool set", number)
        elif isinstance(obj, Thread):
            self._keep(self.threads, obj, "thread", number)

    def _keep(self, held: dict[int, _T], obj: _T, what: str, number: int) -> None:
        place = obj.id
        if place < 0:
            self.problem(number, f"{what} {place} is dropped: ids start at 0")
        elif place in held:
            self.problem(number, f"{what} {place} is defined twice, the first one is kept")
        else:
            held[place] = obj
            self.line_of[what, place] = number

    def problem(self, line: int | None, reason: str) -> None:
        self.problems.append(Problem(self.name, line, reason))

    def drop(self, held: dict[int, _T], what: str, lost: Mapping[int, str]) -> None:
        for i, reason in lost.items():
            del held[i]
            self.problem(self.line_of[what, i], f"{what} {i} is dropped: {reason}")


def assemble(
    header: Header,
    lines: Sequence[tuple[int, Item]],
    name: str,
    problems: list[Problem],
    places: dict[tuple[str, int], int] | None = None,
) -> Trace:
    """The trace made of what is whole; everything left out is told in `problems`.

    `places` is filled with the line of each object, by its kind and its id, or its position, in the trace.
    """
    held = _Lines(name, problems)
    for number, obj in lines:
        held.put(number, obj)
    _drop_times(held)
    _rescue(header, held)
    held.drop(held.messages, "message", _missing_blocks(held))
    held.drop(
        held.toolsets,
        "tool set",
        {t.id: f"block {b} is lost" for t in held.toolsets.values() for b in t.blocks if b not in held.blocks},
    )
    calls_before = len(held.calls)
    if 0 not in held.threads and any(c.thread == 0 for c in held.calls.values()):
        held.threads[0] = Thread(id=0)
        held.problem(None, "thread 0 is lost, taken as the main thread")
    _drop_calls(held)
    if len(held.calls) != calls_before or any(_dangling(held, t) for t in held.threads.values()):
        _drop_threads(held)
    _drop_loose_ends(held)
    if places is not None:
        places.update(_places(held))
    return _renumber(header, held)


def _drop_times(held: _Lines) -> None:
    """Times that cannot be, as of a clock that was set back, become unknown; what they are about is used."""
    for i, call in held.calls.items():
        if said := times_fault(call):
            held.calls[i] = replace(call, start_s=None, first_s=None, end_s=None, marks=without_times(call.marks))
            held.problem(held.line_of["call", i], f"{said}: its times are taken as unknown")
    for at, run in enumerate(held.runs):
        if said := run_fault(run):
            held.runs[at] = replace(run, start_s=None, end_s=None)
            held.problem(held.run_lines[at], f"{said}: its times are taken as unknown")
    for at, wait in enumerate(held.waits):
        if wait.seconds is not None and wait.seconds < 0:
            held.waits[at] = replace(wait, seconds=None, mark="estimated")
            said = f"the wait before call {wait.before} is negative: its length is taken as unknown"
            held.problem(held.wait_lines[at], said)


def _places(held: _Lines) -> dict[tuple[str, int], int]:
    """The line of everything that is left, by kind and the number it is about to get; stand-ins have none."""
    kinds: dict[str, Mapping[int, object]] = {
        "block": held.blocks,
        "message": held.messages,
        "tool set": held.toolsets,
        "thread": held.threads,
        "call": held.calls,
    }
    out = {
        (kind, new): held.line_of[kind, old]
        for kind, items in kinds.items()
        for new, old in enumerate(sorted(items))
        if (kind, old) in held.line_of
    }
    out |= {("tool run", i): line for i, line in enumerate(held.run_lines)}
    return out | {("wait", i): line for i, line in enumerate(held.wait_lines)}


def _rescue(header: Header, held: _Lines) -> None:
    """Put in what can be inferred from the rest, so that one bad line does not cost the calls after it."""
    stand_ins = lost_messages(held.messages, held.blocks, held.calls)
    messages = held.messages | {m.id: m for m in stand_ins}
    blocks = lost_blocks(header.id, held.blocks, messages, held.toolsets, held.calls)
    made = {b for m in stand_ins for b in m.blocks}
    held.blocks |= blocks
    for b in blocks.values():
        if b.id not in made:
            held.problem(None, f"block {b.id} is lost, a stand-in of {b.tokens} tokens takes its place")
    for m in stand_ins:
        if m.blocks[0] in blocks:
            held.messages[m.id] = m
            tokens = blocks[m.blocks[0]].tokens
            held.problem(None, f"message {m.id} is lost, a stand-in of {tokens} tokens takes its place")
    mended = lost_calls(held.blocks, held.messages, held.toolsets, held.calls)
    held.calls |= mended
    for i in mended:
        held.problem(held.line_of["call", i], f"call {i} goes on from the last call before a lost one")


def _missing_blocks(held: _Lines) -> dict[int, str]:
    lost: dict[int, str] = {}
    for m in held.messages.values():
        for b in used_blocks(m):
            if b not in held.blocks:
                lost[m.id] = f"block {b} is lost"
                break
    return lost


def _drop_calls(held: _Lines) -> None:
    """Drop calls that cannot stand; those that only build on a dropped one are told together with it."""
    lengths: dict[int, int] = {}
    roots: dict[int, int] = {}
    reasons: dict[int, str] = {}
    for i in sorted(held.calls):
        call = held.calls[i]
        base_dropped = call.base is not None and call.base in roots
        reason = None if base_dropped else _call_fault(call, held, lengths)
        if base_dropped:
            assert call.base is not None
            roots[i] = roots[call.base]
        elif reason is not None:
            roots[i] = i
            reasons[i] = reason
        else:
            lengths[i] = (0 if call.base is None else call.keep) + len(call.append)
            if call.output is not None and call.output not in held.messages:
                held.calls[i] = replace(call, output=None)
                held.problem(held.line_of["call", i], f"output of call {i} is lost, its length is kept")
    followers: dict[int, int] = {}
    for i, root in roots.items():
        del held.calls[i]
        followers[root] = followers.get(root, -1) + 1
    for i, reason in reasons.items():
        also = f" (with {followers[i]} calls that build on it)" if followers[i] else ""
        held.problem(held.line_of["call", i], f"call {i} is dropped: {reason}{also}")


def _call_fault(call: Call, held: _Lines, lengths: Mapping[int, int]) -> str | None:
    if call.thread not in held.threads:
        return f"thread {call.thread} is lost"
    if call.base is not None:
        if call.base not in lengths:
            return f"call {call.base}, whose prompt it extends, is lost"
        if not 0 <= call.keep <= lengths[call.base]:
            return f"it keeps {call.keep} messages of call {call.base}, which has {lengths[call.base]}"
    for m in call.append:
        if m not in held.messages:
            return f"message {m} is lost"
    if call.tools is not None and call.tools not in held.toolsets:
        return f"tool set {call.tools} is lost"
    return None


def _dangling(held: _Lines, thread: Thread) -> bool:
    return (thread.parent is not None and thread.parent not in held.threads) or (
        thread.spawn_call is not None and thread.spawn_call not in held.calls
    )


def _drop_threads(held: _Lines) -> None:
    """Threads without calls left go; those whose spawning call is gone hang on an earlier call of the parent."""
    gone: dict[int, str] = {}
    alive = {c.thread for c in held.calls.values()}
    for t in sorted(held.threads.values(), key=lambda t: t.id):
        if t.id == 0:
            continue
        if t.id not in alive:
            gone[t.id] = "none of its calls is left"
        elif t.parent is not None and (t.parent in gone or t.parent not in held.threads):
            gone[t.id] = f"its parent, thread {t.parent}, is lost"
        elif t.spawn_call is not None and t.spawn_call not in held.calls:
            earlier = [c.id for c in held.calls.values() if c.thread == t.parent and c.id < t.spawn_call]
            if earlier:
                held.threads[t.id] = replace(t, spawn_call=max(earlier))
                held.problem(
                    held.line_of["thread", t.id], f"call {t.spawn_call} is lost, it now starts after an earlier"
                )
            else:
                gone[t.id] = f"call {t.spawn_call}, which started it, is lost"
    for i in [c.id for c in held.calls.values() if c.thread in gone]:
        del held.calls[i]
    for i, reason in gone.items():
        del held.threads[i]
        held.problem(held.line_of["thread", i], f"thread {i} is dropped: {reason}")


def _drop_loose_ends(held: _Lines) -> None:
    """Joins, tool runs and waits that point at what is gone."""
    for call in list(held.calls.values()):
        joins = tuple(t for t in call.joins if t in held.threads)
        if joins != call.joins:
            held.calls[call.id] = replace(call, joins=joins)
    held.run_lines = [n for n, r in zip(held.run_lines, held.runs, strict=True) if r.call in held.calls]
    held.wait_lines = [n for n, w in zip(held.wait_lines, held.waits, strict=True) if w.before in held.calls]
    runs = [r for r in held.runs if r.call in held.calls]
    waits = [w for w in held.waits if w.before in held.calls]
    lost = len(held.runs) - len(runs), len(held.waits) - len(waits)
    if any(lost):
        held.problem(None, f"{lost[0]} tool runs and {lost[1]} waits are dropped with their calls")
    held.runs = [r if r.thread is None or r.thread in held.threads else replace(r, thread=None) for r in runs]
    held.waits = waits


def _renumber(header: Header, held: _Lines) -> Trace:
    b, m, s, t, c = (
        {old: new for new, old in enumerate(sorted(ids))}
        for ids in (held.blocks, held.messages, held.toolsets, held.threads, held.calls)
    )
    if all(old == new for mapping in (b, m, s, t, c) for old, new in mapping.items()):
        return _pack(header, held)
    held.blocks = {b[x.id]: replace(x, id=b[x.id]) for x in held.blocks.values()}
    held.messages = {
        m[x.id]: replace(
            x,
            id=m[x.id],
            blocks=tuple(b[i] for i in x.blocks),
            reasoning=tuple(b[i] for i in x.reasoning),
            tool_calls=tuple(replace(call, arguments=b[call.arguments]) for call in x.tool_calls),
        )
        for x in held.messages.values()
    }
    held.toolsets = {
        s[x.id]: replace(x, id=s[x.id], block=b[x.block], more=tuple(b[i] for i in x.more))
        for x in held.toolsets.values()
    }
    held.threads = {
        t[x.id]: replace(
            x,
            id=t[x.id],
            parent=_mapped(t, x.parent),
            spawn_call=_mapped(c, x.spawn_call),
        )
        for x in held.threads.values()
    }
    held.calls = {c[x.id]: _renumber_call(x, m, s, t, c) for x in held.calls.values()}
    held.runs = [replace(r, call=c[r.call], thread=_mapped(t, r.thread)) for r in held.runs]
    held.waits = [replace(w, before=c[w.before]) for w in held.waits]
    return _pack(header, held)


def _renumber_call(
    call: Call, m: Mapping[int, int], s: Mapping[int, int], t: Mapping[int, int], c: Mapping[int, int]
) -> Call:
    return replace(
        call,
        id=c[call.id],
        thread=t[call.thread],
        append=tuple(m[i] for i in call.append),
        base=_mapped(c, call.base),
        tools=_mapped(s, call.tools),
        output=_mapped(m, call.output),
        joins=tuple(t[i] for i in call.joins),
    )


def _mapped(mapping: Mapping[int, int], old: int | None) -> int | None:
    return None if old is None else mapping[old]


def _pack(header: Header, held: _Lines) -> Trace:
    by_id: Callable[[Block | Message | ToolSet | Thread | Call], int] = lambda x: x.id  # noqa: E731
    return Trace(
        header=header,
        blocks=tuple(sorted(held.blocks.values(), key=by_id)),
        messages=tuple(sorted(held.messages.values(), key=by_id)),
        toolsets=tuple(sorted(held.toolsets.values(), key=by_id)),
        threads=tuple(sorted(held.threads.values(), key=by_id)),
        calls=tuple(sorted(held.calls.values(), key=by_id)),
        tool_runs=tuple(held.runs),
        waits=tuple(held.waits),
    )
