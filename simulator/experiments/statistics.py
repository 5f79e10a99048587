"""What may be said of the difference between two engine configurations.

The unit is the block: one run of every configuration on the same sessions with the same seeds, in an order that is
turned round from block to block (A B, B A, ...). Sessions of one run share an engine, so they are no replicates; blocks
are. A comparison is the mean over blocks of the logarithm of a ratio, with a Student interval. From five blocks on a
steady drift over time is fitted along with it; with fewer it only widens the interval. Fewer than three say nothing.

An interval stands for itself (95%). Verdicts are of the whole table: the chance of one false word anywhere in it, be it
a difference that is none or a missing one, is at most 5% (see `judge`).
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, log, sqrt
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.simulator.experiments.student import quantile, two_sided

Verdict = Literal["better", "worse", "no_difference", "too_noisy"]
Better = Literal["higher", "lower"]

LEAST_BLOCKS = 3
DRIFT_BLOCKS = 5
"""From here on a block's degree of freedom is well spent on the drift."""
LEVEL = 0.05
"""Chance of one interval that misses."""
TABLE = 0.045
"""Chance of one false verdict in a table. Blocks end when errors look small, so errors look a little too small where
they end; with this the chance is 5% all the same."""
ROUNDING = 1e-6
"""Relative differences below this come from clocks and sums that are rounded. Emulated blocks have no other noise, so
that no interval would hold them apart from a difference."""
POWER = 0.9
"""Chance of finding a difference that matters for which blocks are planned."""
MATTERS = 0.05
"""Ratios nearer to 1 than this make no difference to anybody, unless an experiment says otherwise."""


RUN_NOISE = 0.025
"""Relative standard deviation of one run's throughput that budgets are made for.

Measured with vLLM 0.32.0 on a CPU (8 agents, 4k contexts, 40 s, prefix caching, engine and client on a core each and
before other programs there): 1.5% from run to run of the same sessions while the machine's other load was steady, six
degrees of freedom, so with 90% confidence no more than 2.5%. While other programs came and went it was 6%: on such a
machine ask for more blocks. A quieter one ends before its budget.
"""


class Series(Struct, frozen=True):
    """One metric's values of one configuration against another, a pair for each block; None where it was not told."""

    base: Sequence[float | None]
    other: Sequence[float | None]
    base_at: Sequence[int]
    """Place of each run in the order in which all runs were made."""
    other_at: Sequence[int]


class Estimate(Struct, frozen=True, kw_only=True):
    """How `other` stands to `base`."""

    blocks: int
    """Pairs that count."""
    ratio: float | None
    """other / base, geometric mean over the blocks."""
    low: float | None = None
    high: float | None = None
    """95% interval of the ratio; None with fewer than three blocks."""
    error: float = inf
    """Standard error of the ratio's logarithm."""
    df: int = 0
    p: float = 1.0
    """Two-sided, of no difference at all."""
    alike_p: float = 1.0
    """Of a difference that matters: small means that none does."""
    drift: float | None = None
    """Growth of the metric from one run to the next, relative; None where it was not fitted."""

    @property
    def half_width(self) -> float:
        """Of the interval, relative to the ratio."""
        return inf if self.df < 1 else exp(quantile(LEVEL, self.df) * self.error) - 1


def estimate(series: Series, *, matters: float = MATTERS) -> Estimate:
    """Compare over blocks. A missing value drops its block; where one is zero there is no ratio, for without those
    blocks the mean would be of the others alone.
    """
    pairs = [
        (a, b, float(bt - at))
        for a, b, at, bt in zip(series.base, series.other, series.base_at, series.other_at, strict=True)
        if a is not None and b is not None
    ]
    count = len(pairs)
    if not count or any(a <= 0 or b <= 0 for a, b, _ in pairs):
        return Estimate(blocks=count, ratio=None)
    d, x = np.array([(log(b / a), apart) for a, b, apart in pairs]).T
    d[np.abs(d) < ROUNDING] = 0.0
    if count < LEAST_BLOCKS:
        return Estimate(blocks=count, ratio=exp(float(d.mean())))
    centre, error, df, drift = _fit(d, x)
    factor = quantile(LEVEL, df)
    margin = log(1 + matters)
    return Estimate(
        blocks=count,
        ratio=exp(centre),
        low=exp(centre - factor * error),
        high=exp(centre + factor * error),
        error=error,
        df=df,
        p=_tail(centre, error, df) * 2 if error else float(centre == 0),
        alike_p=_tail(margin - abs(centre), error, df, signed=True) if error else float(abs(centre) > margin),
        drift=drift,
    )


def _fit(d: NDArray[np.float64], x: NDArray[np.float64]) -> tuple[float, float, int, float | None]:
    """(mean difference, its standard error, degrees of freedom, drift a run).

    d = difference + drift * x, where x is how many runs after the base the other one was made: turned orders make it
    change its sign, so that both can be told apart.
    """
    count = len(d)
    spread = float(((x - x.mean()) ** 2).sum())
    if count < DRIFT_BLOCKS or spread == 0:
        return float(d.mean()), float(d.std(ddof=1)) / sqrt(count), count - 1, None
    slope = float(((x - x.mean()) * (d - d.mean())).sum()) / spread
    centre = float(d.mean() - slope * x.mean())
    left = d - centre - slope * x
    df = count - 2
    variance = float((left**2).sum()) / df
    return centre, sqrt(variance * (1 / count + float(x.mean()) ** 2 / spread)), df, slope


def _tail(distance: float, error: float, df: int, *, signed: bool = False) -> float:
    """One-sided chance of being `distance` or further away; more than a half on the wrong side where `signed`."""
    half = two_sided(distance / error, df) / 2
    return 1 - half if signed and distance < 0 else half


def judge(table: Mapping[tuple[str, str], Estimate], better: Mapping[str, Better]) -> dict[tuple[str, str], Verdict]:
    """Verdicts for a whole table: keys are (comparison, metric), `better` says which way a metric improves.

    What differs by surely less than matters is no difference: on a virtual clock a thousandth can be certain.
    """
    differ, alike = _hold(table)
    verdicts: dict[tuple[str, str], Verdict] = {}
    for key, found in table.items():
        if key in differ and key not in alike and found.ratio is not None:
            verdicts[key] = "better" if (found.ratio > 1) == (better[key[1]] == "higher") else "worse"
        else:
            verdicts[key] = "no_difference" if key in alike else "too_noisy"
    return verdicts


def _hold(table: Mapping[tuple[str, str], Estimate]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The entries that differ and those that do not by as much as matters, with at most TABLE for one false among both.

    One step-down procedure over both questions (Shaffer 1986, "Modified sequentially rejective multiple test
    procedures", his S1): each smallest p is held against TABLE over the number of null hypotheses that can still be
    true. "No difference" and "one that matters" exclude each other, so an entry counts once until both are rejected.
    Holm's procedure for each question by itself lets the two errors add up where a table has entries of both kinds.
    """
    differ: set[tuple[str, str]] = set()
    alike: set[tuple[str, str]] = set()
    open_ = {key for key, e in table.items() if e.df}
    tests = [(table[key].p, key, differ) for key in open_] + [(table[key].alike_p, key, alike) for key in open_]
    for p, key, held in sorted(tests, key=lambda test: test[0]):
        if not open_ or p > TABLE / len(open_):
            break
        held.add(key)
        if key in differ and key in alike:
            open_.remove(key)
    return differ, alike


def blocks_needed(noise: float, effect: float, tests: int, *, power: float = POWER, most: int = 60) -> int:
    """Blocks that show a relative `effect` in `power` of the experiments (more than the 80% that are promised).

    `noise` is the relative standard deviation of one run's value between blocks, `tests` the entries of the table.
    """
    for count in range(LEAST_BLOCKS, most):
        df = count - 1 if count < DRIFT_BLOCKS else count - 2
        if _reach(noise * sqrt(2 / count), df, tests, power) <= effect:
            return count
    return most


def reach(found: Iterable[Estimate], tests: int) -> float:
    """The smallest relative difference that every one of these comparisons would show in POWER of the experiments.

    Says how much is known, whatever it says: it depends on the errors alone. `tests`: entries of the whole table.
    """
    return max((_reach(e.error, e.df, tests, POWER) for e in found if e.df), default=inf)


def _reach(error: float, df: int, tests: int, power: float) -> float:
    """The usual sum of two quantiles times the standard error, at the level that a table's first entry is held to."""
    return exp(min(700.0, (quantile(TABLE / max(1, tests), df) + quantile(2 * (1 - power), df)) * error)) - 1


class Floor(Struct, frozen=True):
    """What the same configuration against itself would show."""

    noise: float
    """Relative standard deviation of a run's value, block and step apart."""
    half_width: float
    """Of the 95% interval of A against A, relative."""


def floor(values: NDArray[np.float64]) -> Floor | None:
    """The noise floor of a metric from all runs: [blocks, steps], NaN where there is none.

    What is left after each step's mean and each block's mean are taken out. Blocks that lack a step are left out; None
    where fewer than three blocks or two steps remain.
    """
    whole = values[~np.isnan(values).any(axis=1)]
    blocks, steps = whole.shape
    if blocks < LEAST_BLOCKS or steps < 2 or (whole <= 0).any():
        return None
    y = np.log(whole)
    left = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    noise = sqrt(float((left**2).sum()) / ((blocks - 1) * (steps - 1)))
    df = blocks - 1 if blocks < DRIFT_BLOCKS else blocks - 2
    return Floor(exp(noise) - 1, exp(quantile(LEVEL, df) * noise * sqrt(2 / blocks)) - 1)


def order(steps: int, block: int) -> list[int]:
    """The order of the steps in a block: forth in even ones, back in odd ones."""
    return list(range(steps)) if block % 2 == 0 else list(range(steps - 1, -1, -1))
