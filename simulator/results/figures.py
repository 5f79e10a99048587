"""How the figures of `metrics` are computed from a tally."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from windtunnel.agents.events import CallEnd, SessionEnd, SessionStart
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.ceiling import ceiling
from windtunnel.simulator.results.distribution import distribution, ratio, tidy
from windtunnel.simulator.results.summary_model import Distribution
from windtunnel.simulator.results.tally import Tally, Window


def total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _untold(figure: Callable[[CallEnd], int | None]) -> Callable[[CallEnd], bool]:
    """Whether a call was completed and its server did not say so many tokens: a sum without them would be of others."""
    return lambda call: of_call.completed(call) and figure(call) is None


_output_untold = _untold(of_call.output_tokens)
_prompt_untold = _untold(of_call.prompt_tokens)


def output_tokens(tally: Tally) -> int | None:
    """None where the server left out the count of any call that was completed; so are all sums and rates here."""
    if any(map(_output_untold, tally.calls)):
        return None
    told = tally.unended.output if len(tally.unended.times) else None
    return total([*map(of_call.output_tokens, tally.calls), told])


def prompt_tokens(tally: Tally) -> int | None:
    if any(map(_prompt_untold, tally.calls)):
        return None
    return total([*map(of_call.prompt_tokens, tally.calls), tally.unended.prompt])


def sessions_with(status: str) -> Callable[[Tally], int]:
    return lambda tally: sum(1 for s in tally.sessions.values() if s.end is not None and s.end.status == status)


def per_call(figure: Callable[[Any], float | None]) -> Callable[[Tally], Distribution | None]:
    return lambda tally: distribution([figure(call) for call in tally.window_calls])


def output_per_s(tally: Tally) -> float | None:
    window = tally.window
    if window is None:
        return None
    if any(_output_untold(call) and _streamed(call, window) for call in tally.calls):
        return None  # its chunks are known, how many tokens came in them is not
    return tidy(tally.arrivals.inside(window) / window.seconds) if len(tally.arrivals.times) else None


def _streamed(call: CallEnd, window: Window) -> bool:
    """Whether it was being answered at a time inside the window."""
    begun = call.t_first is not None and call.t_first <= window.end
    return begun and (call.t if call.t_last is None else call.t_last) >= window.start


def prompt_per_s(tally: Tally) -> float | None:
    window = tally.window
    if window is None:
        return None
    first = [call for call in tally.calls if window.holds(call.t_first)]
    if any(map(_prompt_untold, first)):
        return None
    tokens = [of_call.prompt_tokens(call) for call in first]
    tokens += [prompt for first, prompt in tally.unended.prompts if window.holds(first)]
    if not tokens:
        return 0.0
    whole = total(tokens)
    return None if whole is None else tidy(whole / window.seconds)


def prompts_over(tally: Tally) -> float | None:
    counted = [(call.prompt_tokens, call.expected_prompt_tokens) for call in tally.calls if call.prompt_tokens]
    wanted = sum(expected for _, expected in counted)
    return tidy(sum(prompt for prompt, _ in counted) / wanted - 1) if wanted else None


def cache_known_prompt(tally: Tally) -> int | None:
    return total([of_call.prompt_tokens(call) for call in tally.calls if call.cached_tokens is not None])


def calls_unended(tally: Tally) -> int | None:
    window = tally.window
    if window is None:
        return None
    cut = sum(1 for call in tally.calls if call.cut and window.holds(call.t_intended))
    return cut + sum(1 for call in tally.open_calls.values() if window.holds(call.t_intended))


def calls_begun(tally: Tally) -> int | None:
    window = tally.window
    if window is None:
        return None
    ended = sum(1 for call in tally.calls if window.holds(call.t_intended))
    return ended + sum(1 for call in tally.open_calls.values() if window.holds(call.t_intended))


def hit_ratio(tally: Tally) -> float | None:
    both = [c for c in tally.window_calls if c.cached_tokens is not None and c.prompt_tokens]
    return ratio(sum(c.cached_tokens or 0 for c in both), sum(c.prompt_tokens or 0 for c in both))


def expected_ratio(tally: Tally, *, exact: bool = False) -> float | None:
    """Of the calls that `hit_ratio` is made of, so that the two can be compared; where none is, of all."""
    known = [(c, most) for c in tally.window_calls if (most := ceiling(c, exact=exact)) is not None]
    known = [(c, most) for c, most in known if c.cached_tokens is not None and c.prompt_tokens] or known
    whole = sum(c.prompt_tokens if c.prompt_tokens is not None else c.expected_prompt_tokens for c, _ in known)
    return ratio(sum(most for _, most in known), whole)


def mean_agents(seconds: Callable[[Tally], float]) -> Callable[[Tally], float | None]:
    return lambda tally: tidy(seconds(tally) / tally.window.seconds) if tally.window else None


def _ended_in_window(tally: Tally) -> list[tuple[SessionStart, SessionEnd]]:
    ended = [(session.start, session.end) for session in tally.sessions.values() if session.end is not None]
    window = tally.window
    return [(a, b) for a, b in ended if b.status == "completed" and window is not None and window.holds(b.t)]


def sessions_per_hour(tally: Tally) -> float | None:
    if tally.window is None:
        return None
    return tidy(len(_ended_in_window(tally)) * 3600 / tally.window.seconds)


def equivalents_per_hour(tally: Tally) -> float | None:
    window = tally.window
    if window is None:
        return None
    weights: dict[str, list[tuple[int, int]]] = {}
    for call in tally.calls:
        if of_call.completed(call):
            weight = call.expected_prompt_tokens + call.pinned_tokens
            weights.setdefault(call.session, []).append((of_call.ended_ns(call), weight))
    done = 0.0
    for name, session in tally.sessions.items():
        if session.end is None:
            continue
        parts = weights.get(name, [])
        whole = sum(weight for _, weight in parts)
        if whole:
            done += session.end.work_done * sum(w for t, w in parts if window.holds(t)) / whole
        elif window.holds(session.end.t):
            done += session.end.work_done
    return tidy(done * 3600 / window.seconds)


def makespans_s(tally: Tally) -> list[float]:
    """Of sessions that were replayed from their beginning and completed inside the window."""
    return [(end.t - start.t) / NS for start, end in _ended_in_window(tally) if start.first_turn == 0]


def makespan(tally: Tally) -> Distribution | None:
    return distribution(makespans_s(tally))


def gaps(tally: Tally) -> Distribution | None:
    return distribution(of_call.gaps_s(*tally.window_calls))


def tool_waits(tally: Tally) -> Distribution | None:
    window = tally.window
    if window is None:
        return None
    return distribution([(wait.end - wait.start) / NS for wait in tally.tool_waits if window.holds(wait.start)])


def pooled_us(field: Literal["lag_us", "dispatch_us"]) -> Callable[[Tally], Distribution | None]:
    def compute(tally: Tally) -> Distribution | None:
        probes = [us for sample in tally.client_in_window() for us in getattr(sample, field)]
        return distribution(np.array(probes, dtype=np.float64) / 1e6)

    return compute


def throttled(tally: Tally) -> Distribution | None:
    if not any(call.throttled_ns for call in tally.calls):
        return None
    return distribution([call.throttled_ns / NS for call in tally.window_calls])


def stall(tally: Tally) -> float | None:
    return tidy(tally.occupancy.stall_s / tally.agents) if tally.window and tally.agents else None
