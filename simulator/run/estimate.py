"""How long a run will take, said before it starts. A guess by plain rules; the assumptions stand in the sentence.

The sessions that will be drawn are known, and where each is entered: so are the prompts that all agents send cold at
the beginning, and how much the slowest of them has to generate until the warm-up is over.
"""

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from windtunnel.agents.plan import Plan, Planners, completion_tokens, make_plan
from windtunnel.agents.policy import usual_times
from windtunnel.simulator.results.text import count
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.deck import Deck, seeded
from windtunnel.traces.model import Trace

FIRST_TOKEN_S = 1.0
"""Assumed time to the first token of a prompt whose beginning is cached."""
LANES = 256
"""Agents that are looked at; more are like these."""


class Speed(Struct, frozen=True):
    """What is assumed of the server, tokens/s."""

    output: float
    """Of each agent."""
    prompt: float
    """Of all agents together, cold."""


SLOW, FAST = Speed(40.0, 30_000.0), Speed(100.0, 60_000.0)


class Lane(Struct, frozen=True):
    """What one agent has to do until its warm-up is over."""

    prompt: int
    """Tokens of its first prompt."""
    output: int
    """Tokens generated."""
    waits: float
    """Between the calls, s."""
    calls: int


def seconds_per_call(traces: Sequence[Trace], config: RunConfig, speed: Speed = SLOW) -> float:
    """Mean time of a turn of one agent: replayed waits + assumed first token + output at the assumed speed."""
    policy, usual = config.policy(), usual_times(traces)
    times = []
    for trace in traces:
        waits = make_plan(trace, policy, seeded(0), spread=False, usual=usual).wait_seconds
        output = sum(call.usage.completion or 1 for call in trace.calls)
        times.append((waits + output / speed.output) / max(1, len(trace.calls)) + FIRST_TOKEN_S)
    return statistics.fmean(times) if times else FIRST_TOKEN_S


def lanes(traces: Sequence[Trace], config: RunConfig, planners: Planners | None = None) -> list[Lane]:
    """Of the sessions that are drawn first, as many as there are agents. `planners`: of these traces."""
    planners = planners or Planners(traces, config.policy())
    deck = Deck(len(traces), config.seed, config.sessions)
    found = []
    for _ in range(min(config.agents, LANES) if traces else 0):
        draw = deck.next()
        if draw is None:
            break
        trace = traces[draw.index]
        plan = planners[draw.index].plan(seeded(config.seed, "start", draw.number))
        found.append(_lane(trace, plan, trace.prompt_tokens(), config.warmup.calls or 0))
    return found


def _lane(trace: Trace, plan: Plan, prompts: Mapping[int, int], warmup: int) -> Lane:
    order = plan.order[0]
    calls = order[:warmup]
    waits = sum(w.seconds or 0.0 for call in calls[1:] for w in plan.waits.get(call, ()))
    output = sum(completion_tokens(trace, trace.calls[call]) for call in calls)
    return Lane(prompts[order[0]] if order else 0, output, waits, len(calls))


def warmup_s(found: Sequence[Lane], config: RunConfig, speed: Speed) -> float:
    """Until the slowest agent is through; while the others' first prompts are computed hardly anything is generated."""
    if config.warmup.seconds is not None:
        return max(config.ramp_s, config.warmup.seconds)
    through = [lane.output / speed.output + lane.waits + lane.calls * FIRST_TOKEN_S for lane in found if lane.calls]
    return cold_s(found, config, speed) + max(through, default=0.0)


def cold_s(found: Sequence[Lane], config: RunConfig, speed: Speed) -> float:
    """Until all agents have begun and their first prompts are computed."""
    prompts = statistics.fmean([lane.prompt for lane in found]) * config.agents if found else 0.0
    return max(config.ramp_s, prompts / speed.prompt)


def estimate(traces: Sequence[Trace], config: RunConfig, planners: Planners | None = None) -> str:
    """One sentence with the expected length, from fast to slow, warm-up included. `planners` as for `lanes`."""
    found = lanes(traces, config, planners)
    warm = [warmup_s(found, config, speed) for speed in (FAST, SLOW)]
    warmup = f"warm-up {_range(*warm)}"
    if config.duration_s is not None:
        total = [w + config.duration_s for w in warm]
        parts = f"{warmup}, then {_span(config.duration_s)} measured"
    else:
        turns = [seconds_per_call(traces, config, speed) for speed in (FAST, SLOW)]
        if config.calls is not None:
            calls = max(1.0, config.calls / config.agents)
            what = count(config.calls, "call")
        else:
            each = statistics.fmean([len(t.calls) for t in traces]) * (0.5 if config.start == "spread" else 1.0)
            calls = max(1.0, (config.sessions or 1) / config.agents) * each
            what = count(config.sessions or 1, "session")
        cold = [cold_s(found, config, speed) for speed in (FAST, SLOW)]
        total = [c + calls * turn for c, turn in zip(cold, turns, strict=True)]
        parts = what
    return f"{_range(*total)}: {parts} (assuming {_assumed(found)})"


def _assumed(found: Sequence[Lane]) -> str:
    cold = f", first prompts at {SLOW.prompt:,.0f} to {FAST.prompt:,.0f}" if any(lane.prompt for lane in found) else ""
    return f"{SLOW.output:g} to {FAST.output:g} tokens/s for each agent{cold}"


def _range(low: float, high: float) -> str:
    """`80 to 130 s`; one figure where both are the same."""
    a, b = _span(low), _span(high)
    if a == b:
        return f"about {a}"
    number, _, unit = a.partition(" ")
    return f"{number if b.endswith(f' {unit}') else a} to {b}"


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min" if seconds >= 300 else f"{round(seconds, -1):.0f} s"
    return f"{seconds / 3600:.1f} h"
