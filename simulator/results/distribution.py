"""Many values to the few numbers that are told."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from windtunnel.simulator.results.summary_model import Distribution

DIGITS = 9
"""Decimals kept: times are whole nanoseconds, so nothing below is more than noise of the division."""


def tidy(value: float) -> float:
    return round(float(value), DIGITS)


def ratio(part: float | None, whole: float | None) -> float | None:
    """None where a part is not known or the whole is nothing."""
    return None if part is None or not whole else tidy(part / whole)


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return tidy(sum(known) / len(known)) if known else None


def percentiles(data: NDArray[np.float64], wanted: Sequence[float]) -> list[float]:
    """As `numpy.percentile` by its method "linear", to the last bit, without the modules that it loads for it."""
    ordered, last = np.sort(data), len(data) - 1
    found = []
    for percent in wanted:
        place = last * (percent / 100)
        at = int(place)
        low, high, share = float(ordered[at]), float(ordered[min(at + 1, last)]), place - at
        # From the nearer end, so that a share of 1 is `high` itself.
        found.append(low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share))
    return found


def distribution(values: Sequence[float | None] | NDArray[np.float64]) -> Distribution | None:
    """None where there is no value at all; missing values are left out, never zero."""
    if isinstance(values, np.ndarray):
        data = values
    else:
        data = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(data):
        return None
    p50, p90, p95, p99 = percentiles(data, (50, 90, 95, 99))
    return Distribution(
        n=len(data),
        mean=tidy(data.mean()),
        p50=tidy(p50),
        p90=tidy(p90),
        p95=tidy(p95),
        p99=tidy(p99),
        max=tidy(data.max()),
    )
