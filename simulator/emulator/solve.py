"""Least squares for a few positive constants: Gauss-Newton on their logarithms, with priors, robust against outliers.

Constants that the data do not speak of stay at their prior. A residual beyond one (in the caller's units) counts less
and less, so that one run measured differently does not bend all constants.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from windtunnel.simulator.emulator.ranges import Range
from windtunnel.simulator.emulator.replay import Floats

_STEP = 0.01
"""Of a logarithm, for the slopes."""
_REACH = 0.7
"""Most that a logarithm moves at once."""


def solve(
    residuals: Callable[[dict[str, float]], Sequence[float] | Floats],
    start: Mapping[str, float],
    spread: Mapping[str, float],
    *,
    begin: Mapping[str, float] | None = None,
    bounds: Mapping[str, Range] | None = None,
    rounds: int = 20,
    enough: float = 1e-3,
) -> dict[str, float]:
    """The constants named in `spread` that make `residuals` small; those of `start` otherwise.

    `spread` is how far, as a logarithm, each may lie from its start at the cost of one unit of residual. The search
    begins at `begin`, where that is given, and stays within `bounds`.
    """
    names = list(spread)
    origin = np.log([start[name] for name in names])
    width = np.array([spread[name] for name in names])

    def all_residuals(x: Floats) -> Floats:
        values = dict(start) | dict(zip(names, np.exp(x).tolist(), strict=True))
        return np.concatenate([np.asarray(residuals(values), dtype=np.float64), (x - origin) / width])

    lowest, highest = (np.array(ends) for ends in zip(*(_ends(name, bounds or {}) for name in names), strict=True))
    x = np.clip(np.log([(begin or start)[name] for name in names]), lowest, highest)
    damping = 1e-2
    rest = all_residuals(x)
    cost = _cost(rest, len(names))
    for _ in range(rounds):
        slopes = np.column_stack([(all_residuals(x + _STEP * unit) - rest) / _STEP for unit in np.eye(len(x))])
        weight = (1 + rest**2) ** -0.25
        weight[-len(names) :] = 1.0
        weighted, target = slopes * weight[:, None], rest * weight
        square = weighted.T @ weighted
        for _ in range(6):
            move = np.linalg.solve(square + damping * np.diag(np.diag(square)), -weighted.T @ target)
            moved = np.clip(x + np.clip(move, -_REACH, _REACH), lowest, highest)
            tried = all_residuals(moved)
            if _cost(tried, len(names)) < cost:
                damping /= 3
                break
            damping *= 4
        else:
            break
        gained = cost - _cost(tried, len(names))
        x, rest, cost = moved, tried, cost - gained
        if gained < enough * cost:
            break
    return dict(start) | dict(zip(names, np.exp(x).tolist(), strict=True))


def _ends(name: str, bounds: Mapping[str, Range]) -> tuple[float, float]:
    """The logarithms between which a constant may be."""
    allowed = bounds.get(name)
    if allowed is None:
        return -np.inf, np.inf
    return (float(np.log(allowed.low)) if allowed.low > 0 else -np.inf), float(np.log(allowed.high))


def loss(
    residuals: Sequence[float] | Floats,
    values: Mapping[str, float],
    start: Mapping[str, float],
    spread: Mapping[str, float],
) -> float:
    """What `solve` makes small."""
    strayed = [np.log(values[name] / start[name]) / width for name, width in spread.items()]
    return _cost(np.concatenate([np.asarray(residuals, dtype=np.float64), strayed]), len(strayed))


def _cost(residuals: Floats, priors: int) -> float:
    """Large residuals count by their size, the last ones, of the priors, by their square."""
    data, strayed = residuals[:-priors], residuals[-priors:]
    return float(np.sum(np.sqrt(1 + data**2) - 1) + np.sum(strayed**2) / 2)
