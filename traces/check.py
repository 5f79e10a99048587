"""Whether a trace keeps the promises of the model, and whether what it says can be true.

`faults` are promises that every reader of traces relies on. `contradictions` can be replayed, but no server and no
agent did what they say.
"""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from windtunnel.traces.model import Call, ToolRun, Trace

SLACK_S = 0.0015
"""Times are rounded to milliseconds; two of them may differ by this without a contradiction."""


class Fault(Struct, frozen=True):
    """One thing that is wrong."""

    kind: str
    """block, message, tool set, thread, call, tool run, wait."""
    id: int
    """Which one; of tool runs and waits, their position."""
    reason: str


def faults(trace: Trace) -> list[str]:
    """Everything that breaks the model, one sentence each; empty for a sound trace."""
    return [fault.reason for fault in broken_promises(trace)]


def broken_promises(trace: Trace) -> list[Fault]:
    """What `faults` tells, with the object each of them is about."""
    return [*_positions(trace), *_references(trace), *_calls(trace), *_threads(trace)]


def contradictions(trace: Trace) -> list[Fault]:
    """What cannot have happened: more cached than sent, an end before its start, an answer to what nobody asked."""
    return [*_usage(trace), *_times(trace), *_answers(trace), *_joins(trace)]


def _positions(trace: Trace) -> Iterator[Fault]:
    ids = {
        "block": [b.id for b in trace.blocks],
        "message": [m.id for m in trace.messages],
        "tool set": [t.id for t in trace.toolsets],
        "thread": [t.id for t in trace.threads],
        "call": [c.id for c in trace.calls],
    }
    for name, found in ids.items():
        for i, item in enumerate(found):
            if item != i:
                yield Fault(name, i, f"{name} at position {i} has id {item}")
    for block in trace.blocks:
        if block.tokens < 0:
            yield Fault("block", block.id, f"block {block.id} has {block.tokens} tokens")
        if trace.header.shape_only and block.text is not None:
            yield Fault("block", block.id, f"block {block.id} of a shape-only trace has text")


def _references(trace: Trace) -> Iterator[Fault]:
    blocks = range(len(trace.blocks))
    for m in trace.messages:
        if any(b not in blocks for b in trace.message_blocks(m)):
            yield Fault("message", m.id, f"message {m.id} refers to a block that is not there")
    for tools in trace.toolsets:
        if any(b not in blocks for b in tools.blocks):
            yield Fault("tool set", tools.id, f"tool set {tools.id} refers to a block that is not there")
        if tools.more and len(tools.names) < len(tools.blocks):
            said = f"tool set {tools.id} has {len(tools.blocks)} schemas and {len(tools.names)} names"
            yield Fault("tool set", tools.id, said)
    calls = range(len(trace.calls))
    for i, run in enumerate(trace.tool_runs):
        if run.call not in calls or (run.thread is not None and run.thread not in range(len(trace.threads))):
            yield Fault("tool run", i, f"tool run {run.tool_call_id} refers to a call or thread that is not there")
    for i, wait in enumerate(trace.waits):
        if wait.before not in calls:
            yield Fault("wait", i, f"a wait refers to call {wait.before}, which is not there")
        if wait.seconds is not None and wait.seconds < 0:
            yield Fault("wait", i, f"the wait before call {wait.before} is negative")


def _calls(trace: Trace) -> Iterator[Fault]:
    messages = range(len(trace.messages))
    lengths: list[int] = []
    for call in trace.calls:

        def fault(reason: str, call: Call = call) -> Fault:
            return Fault("call", call.id, f"call {call.id} {reason}")

        length = 0
        if call.base is not None:
            if not 0 <= call.base < call.id:
                yield fault(f"extends call {call.base}, which does not come before it")
                return
            if not 0 <= call.keep <= lengths[call.base]:
                yield fault(f"keeps {call.keep} of {lengths[call.base]} messages")
                return
            if trace.calls[call.base].thread != call.thread:
                yield fault("extends a call of another thread")
            length = call.keep
        lengths.append(length + len(call.append))
        used = (*call.append, *(() if call.output is None else (call.output,)))
        if any(m not in messages for m in used):
            yield fault("refers to a message that is not there")
            return
        if call.tools is not None and call.tools not in range(len(trace.toolsets)):
            yield fault("refers to a tool set that is not there")
            return
        if call.thread not in range(len(trace.threads)):
            yield fault("is of a thread that is not there")
    sums = trace.prompt_tokens()
    for call in trace.calls:
        if call.usage.prompt is not None and call.usage.prompt != sums[call.id]:
            said = f"call {call.id} has a prompt of {call.usage.prompt} tokens, its blocks sum to {sums[call.id]}"
            yield Fault("call", call.id, said)


def _threads(trace: Trace) -> Iterator[Fault]:
    first: dict[int, int] = {}
    for call in trace.calls:
        first.setdefault(call.thread, call.id)
    for thread in trace.threads:
        if thread.id == 0:
            continue
        if thread.parent is None or not 0 <= thread.parent < len(trace.threads):
            yield Fault("thread", thread.id, f"thread {thread.id} has no parent")
        if thread.spawn_call is None or not 0 <= thread.spawn_call < len(trace.calls):
            yield Fault("thread", thread.id, f"thread {thread.id} is started by no call")
        elif thread.id in first and first[thread.id] < thread.spawn_call:
            yield Fault("thread", thread.id, f"thread {thread.id} starts before the call that starts it")
    joined: set[int] = set()
    for call in trace.calls:
        for thread_id in call.joins:
            if thread_id not in first:
                yield Fault("call", call.id, f"call {call.id} joins thread {thread_id}, which has no calls")
            elif thread_id in joined:
                yield Fault("call", call.id, f"call {call.id} joins thread {thread_id} a second time")
            joined.add(thread_id)


def _usage(trace: Trace) -> Iterator[Fault]:
    for call in trace.calls:
        usage = call.usage
        for name, value in (("prompt", usage.prompt), ("cached", usage.cached), ("completion", usage.completion)):
            if value is not None and value < 0:
                yield Fault("call", call.id, f"call {call.id} has {value} {name} tokens")
        if usage.cached is not None and usage.prompt is not None and usage.cached > usage.prompt:
            said = f"call {call.id} has {usage.cached} cached tokens in a prompt of {usage.prompt}"
            yield Fault("call", call.id, said)
        if usage.reasoning is not None and usage.completion is not None and usage.reasoning > usage.completion:
            said = f"call {call.id} has {usage.reasoning} reasoning tokens in an output of {usage.completion}"
            yield Fault("call", call.id, said)


def _times(trace: Trace) -> Iterator[Fault]:
    for call in trace.calls:
        if said := times_fault(call):
            yield Fault("call", call.id, said)
    for i, run in enumerate(trace.tool_runs):
        if said := run_fault(run):
            yield Fault("tool run", i, said)


def times_fault(call: Call) -> str | None:
    """What cannot be about a call's times."""
    times = (("start", call.start_s), ("first token", call.first_s), ("end", call.end_s))
    known = [(name, t) for name, t in times if t is not None]
    for name, t in known:
        if t < -SLACK_S:
            return f"call {call.id} has its {name} at {t:g} s, before the session"
    for (earlier, a), (later, b) in pairwise(known):
        if b < a - SLACK_S:
            return f"call {call.id} has its {later} at {b:g} s, before its {earlier} at {a:g} s"
    return None


def run_fault(run: ToolRun) -> str | None:
    """What cannot be about a tool run's times."""
    if run.start_s is not None and run.end_s is not None and run.end_s < run.start_s - SLACK_S:
        return f"tool run {run.tool_call_id} ends at {run.end_s:g} s, before it starts"
    return None


def _answers(trace: Trace) -> Iterator[Fault]:
    """Results of tools that no output asked for; outputs that were not recorded may have asked for any."""
    outputs = [trace.messages[c.output] for c in trace.calls if c.output is not None and c.output < len(trace.messages)]
    asked = {call.id for m in (*outputs, *trace.messages) for call in m.tool_calls}
    for m in trace.messages:
        if m.role == "tool" and m.tool_call_id is not None and m.tool_call_id not in asked:
            yield Fault("message", m.id, f"message {m.id} answers the tool call {m.tool_call_id}, which nobody made")


def _joins(trace: Trace) -> Iterator[Fault]:
    ends: dict[int, float] = {}
    for call in trace.calls:
        if call.end_s is not None:
            ends[call.thread] = max(call.end_s, ends.get(call.thread, call.end_s))
    for call in trace.calls:
        for thread in call.joins:
            if call.start_s is not None and thread in ends and call.start_s < ends[thread] - SLACK_S:
                said = f"call {call.id} starts at {call.start_s:g} s and joins thread {thread}, "
                yield Fault("call", call.id, said + f"which ends at {ends[thread]:g} s")
