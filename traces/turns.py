"""A session call by call: what went in, what came out, what it led to, and what the next call waited for."""

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.model import Call, CallKind, Cause, Trace, Wait
from windtunnel.traces.profile import first_s, prompt_sizes
from windtunnel.traces.reuse import SeenPrefixes


class ToolUse(Struct, frozen=True):
    """A tool run that a call asked for."""

    name: str
    seconds: float | None
    error: bool = False
    thread: int | None = None
    """The sub-agent that it started."""


class Pause(Struct, frozen=True):
    """What the thread's next call waited for."""

    cause: Cause
    seconds: float | None
    estimated: bool = False


class TurnRow(Struct, frozen=True):
    """One call. Tokens; times in seconds; null where not recorded."""

    call: int
    thread: int
    kind: CallKind
    start_s: float | None
    first_token_s: float | None
    """From the start to the first token."""
    took_s: float | None
    """From the start to the end."""
    prompt: int
    cached: int | None
    new: int
    """Prompt tokens that are not the front of an earlier prompt of the session."""
    missed: int | None
    """Prompt tokens seen before and yet not answered from the cache."""
    output: int | None
    reasoning: int | None
    stop: str | None
    aborted: bool
    estimated: tuple[str, ...]
    """Names of the figures that are guesses."""
    tools: tuple[ToolUse, ...]
    waits: tuple[Pause, ...]
    """Before the thread's next call."""
    joins: tuple[int, ...]
    starts: tuple[int, ...] = ()
    """Sub-agents that started here by no recorded tool run."""


def turn_rows(trace: Trace) -> list[TurnRow]:
    """A row for every call, in the trace's order."""
    prompts = prompt_sizes(trace)
    seen = SeenPrefixes().add(trace)
    following = _following(trace)
    waits: dict[int, list[Wait]] = {}
    for wait in trace.waits:
        waits.setdefault(wait.before, []).append(wait)
    tools: dict[int, list[ToolUse]] = {}
    for run in trace.tool_runs:
        seconds = _between(run.start_s, run.end_s)
        tools.setdefault(run.call, []).append(ToolUse(run.name, seconds, run.error, run.thread))
    linked = {run.thread for run in trace.tool_runs}
    starts: dict[int, tuple[int, ...]] = {}
    for thread in trace.threads:
        if thread.spawn_call is not None and thread.id not in linked:
            starts[thread.spawn_call] = (*starts.get(thread.spawn_call, ()), thread.id)
    out = []
    for call in trace.calls:
        after = following.get(call.id)
        pauses = () if after is None else tuple(_pause(w) for w in waits.get(after, ()))
        uses = tuple(tools.get(call.id, ())) or _asked(trace, call)
        row = _row(call, prompts[call.id], seen[call.id], uses, pauses)
        out.append(replace(row, starts=starts.get(call.id, ())))
    return out


def _row(call: Call, prompt: int, seen: int, tools: tuple[ToolUse, ...], waits: tuple[Pause, ...]) -> TurnRow:
    new = max(0, prompt - seen)
    cached = call.usage.cached
    guesses = tuple(name for name, mark in call.marks.items() if mark == "estimated")
    return TurnRow(
        call=call.id,
        thread=call.thread,
        kind=call.kind,
        start_s=call.start_s,
        first_token_s=_between(call.start_s, first_s(call)),
        took_s=_between(call.start_s, call.end_s),
        prompt=prompt,
        cached=cached,
        new=new,
        missed=None if cached is None else max(0, prompt - new - cached),
        output=call.usage.completion,
        reasoning=call.usage.reasoning,
        stop=call.stop,
        aborted=call.aborted,
        estimated=guesses,
        tools=tools,
        waits=waits,
        joins=call.joins,
    )


def _following(trace: Trace) -> dict[int, int]:
    """The next call of the same thread."""
    out: dict[int, int] = {}
    last: dict[int, int] = {}
    for call in trace.calls:
        if call.thread in last:
            out[last[call.thread]] = call.id
        last[call.thread] = call.id
    return out


def _asked(trace: Trace, call: Call) -> tuple[ToolUse, ...]:
    """Tools that the output asks for, of which no run was recorded."""
    if call.output is None:
        return ()
    return tuple(ToolUse(c.name, None) for c in trace.messages[call.output].tool_calls)


def _pause(wait: Wait) -> Pause:
    return Pause(wait.cause, wait.seconds, wait.mark == "estimated")


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 3)
