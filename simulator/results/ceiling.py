"""What an endless cache would have held: the bound that hits are set against.

It is made of the prompts sent before. So it leaves out what the engine generated itself and finds again, and where
prompts are messages their lengths are estimates: a cache can find more. What was found could be found; the bound is
never less.
"""

import msgspec

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results.summary_model import Summary

_RATIOS = ("expected_cache_hit_ratio", "expected_cache_hit_ratio_exact")


def ceiling(call: CallEnd, *, exact: bool = False) -> int | None:
    """Tokens of one call's prompt, to the engine's blocks or `exact`; None where nothing was expected.

    What was expected is of the prompt as it was planned. Where the engine counts a shorter one, it is as much shorter.
    """
    expected = call.expected_cached_exact if exact else call.expected_cached_tokens
    if expected is None:
        return None
    if call.prompt_tokens is not None:
        if call.prompt_tokens < call.expected_prompt_tokens:
            expected = expected * call.prompt_tokens // call.expected_prompt_tokens
        expected = min(expected, call.prompt_tokens)
    return expected if call.cached_tokens is None else max(expected, call.cached_tokens)


def bounded(summary: Summary) -> Summary:
    """The same of a stored summary, which may be older than the rule."""
    hit = summary.cache_hit_ratio
    told = {name: getattr(summary, name) for name in _RATIOS}
    low = {name: hit for name, most in told.items() if hit is not None and most is not None and most < hit}
    return msgspec.structs.replace(summary, **low) if low else summary
