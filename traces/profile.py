"""What sessions are like: how their sizes, times and tools are spread. `stats` adds them up, this describes them."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from windtunnel.traces.asking import asks_person
from windtunnel.traces.duty import Busy, Duty, busy, duty
from windtunnel.traces.model import Call, ToolRun, Trace
from windtunnel.traces.reuse import SeenPrefixes

SHRUNK = 0.7
"""A prompt below this share of the thread's last one is a context that was summed up or cleared."""


class Spread(Struct, frozen=True):
    """How a quantity is spread; percentiles are interpolated between values."""

    n: int
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float


class ToolTime(Struct, frozen=True):
    """One tool's runs. Sub-agents that a tool started are not its time."""

    name: str
    runs: int
    timed: int
    """Runs whose time is known and that started no sub-agent."""
    errors: int
    p50_s: float | None
    p90_s: float | None
    max_s: float | None
    total_s: float


class Profile(Struct, frozen=True):
    """Sessions described. Shares are null where nothing was recorded to take them from."""

    sessions: int
    agents: dict[str, int]
    """Sessions by the client that recorded them."""
    calls: int
    turns: int
    """Ordinary calls, each with the tools it led to."""
    auxiliary: int
    """Calls beside the conversation: titles, summaries, probes."""
    compactions: int
    """Times that a context was summed up or cleared."""
    human_waits: int
    subagents: int
    background: int
    """Sub-agents that ran beside the agent that started them."""
    subagent_calls: int
    subagent_sessions: int
    prompt_tokens: int
    cached_share: float | None
    """Recorded cached tokens over the prompt tokens of the calls that say."""
    cached_said: int
    """Calls that say how much was cached."""
    reused_share: float | None
    """Prompt tokens that equal a prefix of an earlier prompt of the same session."""
    reused_across_share: float | None
    """The same with the prompts of all sessions before."""
    estimated: dict[str, int]
    """Calls by figure that is an estimate or not known."""
    filler_tokens: int
    spreads: dict[str, Spread]
    tools: tuple[ToolTime, ...]
    waits: dict[str, Spread]
    """Waits before calls by cause, s."""
    waits_unknown: dict[str, int]
    """Waits whose length nobody recorded."""
    duty: tuple[Duty, ...]


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    p50, p90, p99 = (round(float(p), 4) for p in np.percentile(values, [50, 90, 99]))
    mean = round(float(np.mean(values)), 4)
    return Spread(len(values), mean, round(min(values), 4), p50, p90, p99, round(max(values), 4))


def prompt_sizes(trace: Trace) -> dict[int, int]:
    """Tokens of each call's prompt: as recorded, else the sum of its blocks."""
    sums = trace.prompt_tokens()
    return {c.id: sums[c.id] if c.usage.prompt is None else c.usage.prompt for c in trace.calls}


def growths(trace: Trace) -> list[int]:
    """Tokens that each ordinary call's prompt has more than its thread's last one; a shrunk context is left out."""
    prompts = prompt_sizes(trace)
    last: dict[int, int] = {}
    out = []
    for call in trace.calls:
        if call.kind == "auxiliary":
            continue
        before = last.get(call.thread)
        last[call.thread] = prompts[call.id]
        if before is not None and prompts[call.id] >= before:
            out.append(prompts[call.id] - before)
    return out


def compactions(trace: Trace) -> int:
    """Calls that sum a context up, and contexts that shrank without one being logged."""
    prompts = prompt_sizes(trace)
    last: dict[int, Call] = {}
    found = 0
    for call in trace.calls:
        if call.kind == "auxiliary":
            continue
        before = last.get(call.thread)
        last[call.thread] = call
        shrank = before is not None and prompts[call.id] < SHRUNK * prompts[before.id]
        unlogged = shrank and before is not None and before.kind != "compaction"
        found += call.kind == "compaction" or unlogged
    return found


def first_s(call: Call) -> float | None:
    """When its first token came. An answer in one piece may have its end there, which says it only of one token."""
    whole = call.first_s is not None and call.first_s == call.end_s and call.usage.completion != 1
    return None if whole else call.first_s


def first_token_s(call: Call) -> float | None:
    """How long its first token took."""
    first = first_s(call)
    return None if call.start_s is None or first is None else first - call.start_s


def samples(traces: Iterable[Trace]) -> dict[str, list[float]]:
    """The values behind a profile's `spreads`, by the same names."""
    out: dict[str, list[float]] = {name: [] for name in NAMES}
    for trace in traces:
        prompts = prompt_sizes(trace)
        main = [c for c in trace.calls if c.thread == 0 and c.kind != "auxiliary"] or list(trace.calls)
        out["turns"].append(sum(1 for c in trace.calls if c.kind == "turn"))
        if main:
            out["first_prompt"].append(prompts[main[0].id])
            out["peak_prompt"].append(max(prompts.values()))
        out["prompt"] += prompts.values()
        out["growth"] += growths(trace)
        for call in trace.calls:
            if call.usage.completion is not None:
                out["output"].append(call.usage.completion)
            if call.usage.reasoning:
                out["reasoning"].append(call.usage.reasoning)
            if (first := first_token_s(call)) is not None:
                out["first_token_s"].append(first)
            if call.start_s is not None and call.end_s is not None:
                out["call_s"].append(call.end_s - call.start_s)
        out["tool_s"] += [s for r in trace.tool_runs if (s := run_seconds(r)) is not None]
        out["human_s"] += [w.seconds for w in trace.waits if w.cause == "human" and w.seconds is not None]
    return out


NAMES = (
    "turns",
    "first_prompt",
    "peak_prompt",
    "prompt",
    "growth",
    "output",
    "reasoning",
    "call_s",
    "first_token_s",
    "tool_s",
    "human_s",
)


def run_seconds(run: ToolRun) -> float | None:
    """How long a tool ran; None where unknown, and where it was a sub-agent that ran or a person who was asked."""
    if run.start_s is None or run.end_s is None or run.thread is not None:
        return None
    seconds = run.end_s - run.start_s
    return None if asks_person(run.name, seconds) else seconds


def tool_times(traces: Iterable[Trace]) -> tuple[ToolTime, ...]:
    """Every tool that ran, the one with most time first."""
    seconds: dict[str, list[float]] = {}
    runs: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for trace in traces:
        for run in trace.tool_runs:
            runs[run.name] += 1
            errors[run.name] += run.error
            known = run_seconds(run)
            seconds.setdefault(run.name, []).extend(() if known is None else (known,))
    out = []
    for name, number in runs.items():
        s = spread(seconds[name])
        total = round(sum(seconds[name]), 3)
        p50, p90, most = (None, None, None) if s is None else (s.p50, s.p90, s.max)
        out.append(ToolTime(name, number, len(seconds[name]), errors[name], p50, p90, most, total))
    return tuple(sorted(out, key=lambda t: (-t.total_s, -t.runs, t.name)))


def profile(traces: Sequence[Trace]) -> Profile:
    """Sessions described, all of them together."""
    calls = [c for t in traces for c in t.calls]
    values = samples(traces)
    prompts = sum(int(v) for v in values["prompt"])
    said = [c for c in calls if c.usage.cached is not None and c.usage.prompt]
    everywhere = SeenPrefixes()
    own = sum(sum(SeenPrefixes().add(t)) for t in traces)
    across = sum(sum(everywhere.add(t)) for t in traces)
    waits: dict[str, list[float]] = {}
    unknown: Counter[str] = Counter()
    for wait in (w for t in traces for w in t.waits):
        if wait.seconds is None:
            unknown[wait.cause] += 1
        else:
            waits.setdefault(wait.cause, []).append(wait.seconds)
    sub = [t for trace in traces for t in trace.threads if t.id != 0]
    blocks = sum(sum(t.prompt_tokens().values()) for t in traces)
    timed: list[Busy] = [b for t in traces if (b := busy(t)) is not None]
    return Profile(
        sessions=len(traces),
        agents=dict(Counter(t.header.agent for t in traces).most_common()),
        calls=len(calls),
        turns=sum(c.kind == "turn" for c in calls),
        auxiliary=sum(c.kind == "auxiliary" for c in calls),
        compactions=sum(compactions(t) for t in traces),
        human_waits=sum(w.cause == "human" for t in traces for w in t.waits),
        subagents=len(sub),
        background=sum(t.background for t in sub),
        subagent_calls=sum(c.thread != 0 for c in calls),
        subagent_sessions=sum(len(t.threads) > 1 for t in traces),
        prompt_tokens=prompts,
        cached_share=_share(sum(c.usage.cached or 0 for c in said), sum(c.usage.prompt or 0 for c in said)),
        cached_said=len(said),
        reused_share=_share(own, blocks),
        reused_across_share=_share(across, blocks),
        estimated=_estimates(calls),
        filler_tokens=sum(b.tokens for t in traces for b in t.blocks if b.filler),
        spreads={name: s for name, found in values.items() if (s := spread(found)) is not None},
        tools=tool_times(traces),
        waits={cause: s for cause, found in waits.items() if (s := spread(found)) is not None},
        waits_unknown=dict(unknown),
        duty=tuple(duty(timed)),
    )


def session_figures(trace: Trace) -> dict[str, object]:
    """What `stats --json` says of one session beside its sums."""
    sums = sum(trace.prompt_tokens().values())
    timed = busy(trace)
    cycles = duty([timed] if timed else [])
    grown = spread(growths(trace))
    said = [c for c in trace.calls if c.usage.cached is not None and c.usage.prompt]
    human = [w for w in trace.waits if w.cause == "human"]
    return {
        "title": trace.header.title,
        "agent": trace.header.agent,
        "turns": sum(c.kind == "turn" for c in trace.calls),
        "growth_tokens": None if grown is None else {"p50": grown.p50, "p90": grown.p90, "max": grown.max},
        "compactions": compactions(trace),
        "subagents": len(trace.threads) - 1,
        "human_waits": len(human),
        "human_wait_s": round(sum(w.seconds or 0.0 for w in human), 3) if human else 0.0,
        "cached_share": _share(sum(c.usage.cached or 0 for c in said), sum(c.usage.prompt or 0 for c in said)),
        "reused_share": _share(sum(SeenPrefixes().add(trace)), sums),
        "duty_cycle": {"none" if d.cap_s is None else f"{d.cap_s:g}": d.duty_cycle for d in cycles},
        "tools": tool_times([trace]),
    }


def _estimates(calls: Sequence[Call]) -> dict[str, int]:
    """Calls whose figure is a guess or not known, by figure; only figures that some call lacks."""
    out: Counter[str] = Counter()
    for call in calls:
        known = {
            "prompt": call.usage.prompt,
            "cached": call.usage.cached,
            "output": call.usage.completion,
            "start": call.start_s,
            "first token": first_s(call),
            "end": call.end_s,
        }
        marks = {"output": "completion", "first token": "first"}
        for name, value in known.items():
            out[name] += value is None or call.marks.get(marks.get(name, name)) == "estimated"
    return {name: number for name, number in out.items() if number}


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None
