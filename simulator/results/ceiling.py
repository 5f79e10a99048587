"""What an endless cache would have held: the bound that hits are set against.

It is made of the prompts sent before. So it leaves out what the engine generated itself and finds again, and where
prompts are messages their lengths are estimates: a cache can find more. What was found could be found; the bound is
never less.
"""

import msgspec

from windtunnel.simulator.results.summary_model import Summary

_RATIOS = ("expected_cache_hit_ratio", "expected_cache_hit_ratio_exact")


def ceiling(expected: int, cached: int | None) -> int:
    """Tokens of one call's prompt."""
    return expected if cached is None else max(expected, cached)


def bounded(summary: Summary) -> Summary:
    """The same of a stored summary, which may be older than the rule."""
    hit = summary.cache_hit_ratio
    told = {name: getattr(summary, name) for name in _RATIOS}
    low = {name: hit for name, most in told.items() if hit is not None and most is not None and most < hit}
    return msgspec.structs.replace(summary, **low) if low else summary
