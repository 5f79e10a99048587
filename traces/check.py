"""Whether a trace keeps the promises of the model: what every reader of traces may rely on."""

from collections.abc import Iterator

from windtunnel.traces.model import Trace


def faults(trace: Trace) -> list[str]:
    """Everything that breaks the model, one sentence each; empty for a sound trace."""
    return [*_positions(trace), *_references(trace), *_calls(trace), *_threads(trace)]


def _positions(trace: Trace) -> Iterator[str]:
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
                yield f"{name} at position {i} has id {item}"
    for block in trace.blocks:
        if block.tokens < 0:
            yield f"block {block.id} has {block.tokens} tokens"
        if trace.header.shape_only and block.text is not None:
            yield f"block {block.id} of a shape-only trace has text"


def _references(trace: Trace) -> Iterator[str]:
    blocks = range(len(trace.blocks))
    for m in trace.messages:
        if any(b not in blocks for b in trace.message_blocks(m)):
            yield f"message {m.id} refers to a block that is not there"
    for tools in trace.toolsets:
        if tools.block not in blocks:
            yield f"tool set {tools.id} refers to a block that is not there"
    calls = range(len(trace.calls))
    for run in trace.tool_runs:
        if run.call not in calls or (run.thread is not None and run.thread not in range(len(trace.threads))):
            yield f"tool run {run.tool_call_id} refers to a call or thread that is not there"
    for wait in trace.waits:
        if wait.before not in calls:
            yield f"a wait refers to call {wait.before}, which is not there"
        if wait.seconds is not None and wait.seconds < 0:
            yield f"the wait before call {wait.before} is negative"


def _calls(trace: Trace) -> Iterator[str]:
    messages = range(len(trace.messages))
    lengths: list[int] = []
    for call in trace.calls:
        length = 0
        if call.base is not None:
            if not 0 <= call.base < call.id:
                yield f"call {call.id} extends call {call.base}, which does not come before it"
                return
            if not 0 <= call.keep <= lengths[call.base]:
                yield f"call {call.id} keeps {call.keep} of {lengths[call.base]} messages"
                return
            if trace.calls[call.base].thread != call.thread:
                yield f"call {call.id} extends a call of another thread"
            length = call.keep
        lengths.append(length + len(call.append))
        used = (*call.append, *(() if call.output is None else (call.output,)))
        if any(m not in messages for m in used):
            yield f"call {call.id} refers to a message that is not there"
            return
        if call.tools is not None and call.tools not in range(len(trace.toolsets)):
            yield f"call {call.id} refers to a tool set that is not there"
            return
        if call.thread not in range(len(trace.threads)):
            yield f"call {call.id} is of a thread that is not there"
    sums = trace.prompt_tokens()
    for call in trace.calls:
        if call.usage.prompt is not None and call.usage.prompt != sums[call.id]:
            yield f"call {call.id} has a prompt of {call.usage.prompt} tokens, its blocks sum to {sums[call.id]}"


def _threads(trace: Trace) -> Iterator[str]:
    first: dict[int, int] = {}
    for call in trace.calls:
        first.setdefault(call.thread, call.id)
    for thread in trace.threads:
        if thread.id == 0:
            continue
        if thread.parent is None or not 0 <= thread.parent < len(trace.threads):
            yield f"thread {thread.id} has no parent"
        if thread.spawn_call is None or not 0 <= thread.spawn_call < len(trace.calls):
            yield f"thread {thread.id} is started by no call"
        elif thread.id in first and first[thread.id] < thread.spawn_call:
            yield f"thread {thread.id} starts before the call that starts it"
    joined: set[int] = set()
    for call in trace.calls:
        for thread_id in call.joins:
            if thread_id not in first:
                yield f"call {call.id} joins thread {thread_id}, which has no calls"
            elif thread_id in joined:
                yield f"call {call.id} joins thread {thread_id} a second time"
            joined.add(thread_id)
