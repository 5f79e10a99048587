"""How long a run will take, said before it starts. A guess by plain rules; the assumptions stand in the sentence."""

import statistics
from collections.abc import Sequence

from windtunnel.agents.plan import make_plan
from windtunnel.agents.policy import usual_times
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.deck import seeded
from windtunnel.traces.model import Trace

TOKENS_PER_S = 40.0
"""Assumed speed of one agent's generation."""
FIRST_TOKEN_S = 1.0
"""Assumed time to the first token."""


def seconds_per_call(traces: Sequence[Trace], config: RunConfig) -> float:
    """Mean time of a turn of one agent: replayed waits + assumed first token + output at the assumed speed."""
    policy, usual = config.policy(), usual_times(traces)
    times = []
    for trace in traces:
        waits = make_plan(trace, policy, seeded(0), spread=False, usual=usual).wait_seconds
        output = sum(call.usage.completion or 1 for call in trace.calls)
        times.append((waits + output / TOKENS_PER_S) / max(1, len(trace.calls)) + FIRST_TOKEN_S)
    return statistics.fmean(times) if times else FIRST_TOKEN_S


def estimate(traces: Sequence[Trace], config: RunConfig) -> str:
    """One sentence with the expected length, warm-up included."""
    turn = seconds_per_call(traces, config)
    warmup = config.ramp_s + (
        config.warmup.seconds if config.warmup.seconds is not None else (config.warmup.calls or 0) * turn
    )
    if config.duration_s is not None:
        total = warmup + config.duration_s
        parts = f"warm-up about {_span(warmup)}, then {_span(config.duration_s)} measured"
    elif config.calls is not None:
        total = config.ramp_s + turn * max(1.0, config.calls / config.agents)
        parts = f"{config.calls} calls, warm-up about {_span(warmup)} of it"
    else:
        calls = statistics.fmean([len(t.calls) for t in traces]) * (0.5 if config.start == "spread" else 1.0)
        rounds = max(1.0, (config.sessions or 1) / config.agents)
        total = config.ramp_s + rounds * calls * turn
        parts = f"{config.sessions} sessions, warm-up about {_span(warmup)} of it"
    return f"about {_span(total)}: {parts} (assuming {TOKENS_PER_S:g} tokens/s for each agent)"


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
