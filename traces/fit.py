"""Making sessions fit an engine's context: leave out, shrink, or compact as real clients do."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.compact import compact
from windtunnel.traces.model import Call, Mark, Trace

Mode = Literal["filter", "scale", "compact"]


class FitCounts(Struct, frozen=True):
    """Sessions by what was done to them."""

    kept: int = 0
    """Unchanged."""
    filtered: int = 0
    """Left out."""
    scaled: int = 0
    compacted: int = 0


def fit(
    traces: Sequence[Trace], limit: int, mode: Mode, max_output: int | None = None
) -> tuple[list[Trace], FitCounts]:
    """The sessions in which every call's prompt + output is at most `limit` tokens.

    `max_output` caps the output of every call first. `filter` leaves larger sessions out; `scale` shrinks every block
    and output of a larger session by one factor; `compact` lets a larger session sum itself up when it meets the limit.
    Sessions that cannot be made to fit are left out in every mode.
    """
    out: list[Trace] = []
    kept = scaled = compacted = 0
    for original in traces:
        trace = original if max_output is None else _capped(original, max_output)
        if largest(trace) <= limit:
            out.append(trace)
            kept += 1
        elif mode == "scale" and (small := scale_to(trace, limit)) is not None:
            out.append(small)
            scaled += 1
        elif mode == "compact" and (short := compact(trace, limit)) is not None:
            out.append(short)
            compacted += 1
    return out, FitCounts(kept, len(traces) - len(out), scaled, compacted)


def output_tokens(call: Call) -> int:
    """Tokens a replay pins the call's output to: as recorded, at least one."""
    return max(1, call.usage.completion or 0)


def largest(trace: Trace) -> int:
    """Most tokens of prompt + output in any call."""
    prompts = trace.prompt_tokens()
    return max((prompts[c.id] + output_tokens(c) for c in trace.calls), default=0)


def scale_to(trace: Trace, limit: int) -> Trace | None:
    """The session with every block and output scaled by the largest factor that fits; None when none does."""
    size = largest(trace)
    factor = limit / size
    for _ in range(40):
        small = scaled_by(trace, factor)
        size = largest(small)
        if size <= limit:
            return small
        factor *= min(0.999, (limit / size) ** 1.5)
    return None


def scaled_by(trace: Trace, factor: float) -> Trace:
    """Every block has `factor` of its tokens, but at least one; usage follows."""
    blocks = tuple(replace(b, tokens=_part(b.tokens, factor)) for b in trace.blocks)
    shrunk = replace(trace, blocks=blocks)
    prompts = shrunk.prompt_tokens()
    calls = []
    for call in trace.calls:
        usage = call.usage
        marks: dict[str, Mark] = {**call.marks, "prompt": "derived", "completion": "derived", "cached": "derived"}
        usage = replace(
            usage,
            prompt=None if usage.prompt is None else prompts[call.id],
            cached=None if usage.cached is None else min(prompts[call.id], int(usage.cached * factor)),
            completion=None if usage.completion is None else _part(usage.completion, factor),
            reasoning=None if usage.reasoning is None else int(usage.reasoning * factor),
        )
        calls.append(replace(call, usage=usage, marks=marks))
    note = f"scaled by {factor:.4g} to fit the context"
    header = replace(trace.header, notes=(*trace.header.notes, note))
    return replace(shrunk, header=header, calls=tuple(calls))


def _part(tokens: int, factor: float) -> int:
    return max(1, int(tokens * factor)) if tokens else 0


def _capped(trace: Trace, most: int) -> Trace:
    """Outputs of at most `most` tokens; the same trace when none is longer."""
    if all((c.usage.completion or 0) <= most for c in trace.calls):
        return trace
    return replace(trace, calls=tuple(_capped_call(c, most) for c in trace.calls))


def _capped_call(call: Call, most: int) -> Call:
    if (call.usage.completion or 0) <= most:
        return call
    reasoning = call.usage.reasoning
    usage = replace(call.usage, completion=most, reasoning=None if reasoning is None else min(reasoning, most))
    return replace(call, usage=usage, marks={**call.marks, "completion": "derived"})
