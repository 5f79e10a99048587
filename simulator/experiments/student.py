"""Student's t distribution for whole degrees of freedom.

The distribution function is the finite trigonometric sum of Abramowitz and Stegun, Handbook of Mathematical Functions,
26.7.3 (odd) and 26.7.4 (even); quantiles follow from it by bisection, exact to the last digits of a double.
"""

from functools import lru_cache
from math import atan, cos, inf, pi, sin, sqrt


def two_sided(t: float, df: int) -> float:
    """Probability that |T| exceeds |t|; `df` >= 1."""
    if df < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    angle = atan(abs(t) / sqrt(df))
    cosine, sine = cos(angle), sin(angle)
    square = cosine * cosine
    if df % 2:
        term, total = cosine, cosine if df > 1 else 0.0
        for k in range(3, df - 1, 2):
            term *= square * (k - 1) / k
            total += term
        inside = 2 / pi * (angle + sine * total)
    else:
        term = total = 1.0
        for k in range(2, df - 1, 2):
            term *= square * (k - 1) / k
            total += term
        inside = sine * total
    return min(1.0, max(0.0, 1.0 - inside))


@lru_cache(maxsize=4096)
def quantile(tail: float, df: int) -> float:
    """The t that |T| exceeds with probability `tail` (0 to 1): 0.05 gives the factor of a 95% interval."""
    if tail <= 0:
        return inf
    low, high = 0.0, 1.0
    while two_sided(high, df) > tail:
        high *= 2
        if high > 1e12:
            return high
    for _ in range(80):
        middle = (low + high) / 2
        if two_sided(middle, df) > tail:
            low = middle
        else:
            high = middle
    return high
