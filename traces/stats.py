"""What a session amounts to, as `import --json` and `traces stats --json` print it."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.model import Call, Trace


class SessionStats(Struct, frozen=True):
    """Tokens are sums over calls; None where no call of the session reports the figure."""

    id: str
    source: str | None
    calls: int
    tool_runs: int
    threads: int
    prompt_tokens: int
    """As recorded, else the sum of the prompt's blocks."""
    cached_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    max_prompt_tokens: int
    first_prompt_tokens: int
    """Prompt of the main thread's first ordinary call."""
    span_s: float | None
    """From the session's start to its last known time, see `span`."""
    estimated_calls: int
    """Calls whose prompt or output length is a guess or unknown."""
    filler_tokens: int
    """Tokens that stand for what the recording's log does not hold, each block once."""
    filler_share: float = 0.0
    """Filler among all prompt tokens that were sent: what a replay sends in place of text that nobody recorded."""


KEYS = (
    "calls",
    "tool_runs",
    "threads",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "max_prompt_tokens",
    "first_prompt_tokens",
    "span_s",
    "estimated_calls",
    "filler_tokens",
)
"""What a total sums up; `filler_share` is weighted by prompt tokens."""


def session_stats(trace: Trace) -> SessionStats:
    sums = trace.prompt_tokens()
    whole = sum(sums.values())
    prompts = {c.id: sums[c.id] if c.usage.prompt is None else c.usage.prompt for c in trace.calls}
    main = [c for c in trace.calls if c.thread == 0 and c.kind != "auxiliary"] or list(trace.calls)
    return SessionStats(
        id=trace.header.id,
        source=trace.header.source,
        calls=len(trace.calls),
        tool_runs=len(trace.tool_runs),
        threads=len(trace.threads),
        prompt_tokens=sum(prompts.values()),
        cached_tokens=_sum(c.usage.cached for c in trace.calls),
        completion_tokens=_sum(c.usage.completion for c in trace.calls),
        reasoning_tokens=_sum(c.usage.reasoning for c in trace.calls),
        max_prompt_tokens=max(prompts.values(), default=0),
        first_prompt_tokens=prompts[main[0].id] if main else 0,
        span_s=span(trace),
        estimated_calls=sum(1 for c in trace.calls if estimated(c)),
        filler_tokens=sum(b.tokens for b in trace.blocks if b.filler),
        filler_share=round(_filler_sent(trace) / whole, 4) if whole else 0.0,
    )


def _filler_sent(trace: Trace) -> int:
    """Filler tokens of all prompts, tool sets included."""
    if not any(b.filler for b in trace.blocks):
        return 0
    blank = tuple(b if b.filler else replace(b, tokens=0) for b in trace.blocks)
    return sum(replace(trace, blocks=blank).prompt_tokens().values())


def total(sessions: Sequence[SessionStats]) -> dict[str, int | float | None]:
    """The same keys over several sessions: sums, but the largest of `max_prompt_tokens`."""
    out: dict[str, int | float | None] = {key: _sum(getattr(s, key) for s in sessions) for key in KEYS}
    for key in KEYS:
        if out[key] is None and key not in {"cached_tokens", "completion_tokens", "reasoning_tokens", "span_s"}:
            out[key] = 0
    out["max_prompt_tokens"] = max((s.max_prompt_tokens for s in sessions), default=0)
    if out["span_s"] is not None:
        out["span_s"] = round(out["span_s"], 3)
    sent = sum(s.prompt_tokens for s in sessions)
    out["filler_share"] = round(sum(s.filler_share * s.prompt_tokens for s in sessions) / sent, 4) if sent else 0.0
    return out


def _sum(values: Iterable[int | None]) -> int | None:
    """Sum of what is known; None when nothing is."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def estimated(call: Call) -> bool:
    return (
        call.usage.prompt is None
        or call.usage.completion is None
        or call.marks.get("prompt") == "estimated"
        or call.marks.get("completion") == "estimated"
    )


def span(trace: Trace) -> float | None:
    """Seconds from the session's start to the last time known of a call or a tool run; None when none is known.

    A recorded session starts with its first event (`started_at`), time 0 of its trace, and not with the first call
    that answered: what comes before (a prompt that was typed, a call whose answer was lost) is a part of it, and so
    counts whoever reads the log itself from the first line's time to the last one's. A workload's rows stand on a
    clock that all its sessions share; without `started_at` a session starts with its first call.
    """
    times = [t for c in trace.calls for t in (c.start_s, c.first_s, c.end_s) if t is not None]
    times += [t for r in trace.tool_runs for t in (r.start_s, r.end_s) if t is not None]
    if not times:
        return None
    begin = min(times) if trace.header.started_at is None else min(0.0, *times)
    return round(max(times) - begin, 3)
