"""Least squares for a few positive constants: Gauss-Newton on their logarithms, with priors, robust against outliers.

Constants that the data do not speak of stay at their prior. A residual beyond one (in the caller's units) counts less
and less, so that one run measured differently does not bend all constants.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from windtunnel.simulator.emulator.replay import Floats

_STEP = 0.01
"""Of a logarithm, for the slopes: below it a schedule that changes with the times is noise."""
_REACH = 0.7
"""Most that a logarithm moves at once."""


def solve(
    residuals: Callable[[dict[str, float]], Sequence[float] | Floats],
    start: Mapping[str, float],
    spread: Mapping[str, float],
    *,
    rounds: int = 20,
    enough: float = 1e-3,
    costly: bool = False,
) -> dict[str, float]:
    """The constants named in `spread` that make `residuals` small; those of `start` otherwise.

    `spread` is how far, as a logarithm, each may lie from its start at the cost of one unit of residual. Where
    residuals are `costly` the slopes are taken once and corrected by what each move showed (Broyden).
    """
    names = list(spread)
    origin = np.log([start[name] for name in names])
    width = np.array([spread[name] for name in names])

    def all_residuals(x: Floats) -> Floats:
        values = dict(start) | dict(zip(names, np.exp(x).tolist(), strict=True))
        return np.concatenate([np.asarray(residuals(values), dtype=np.float64), (x - origin) / width])

    x, damping = origin.copy(), 1e-2
    rest = all_residuals(x)
    cost = _cost(rest)
    slopes: Floats | None = None
    for _ in range(rounds):
        if slopes is None or not costly:
            slopes = np.column_stack([(all_residuals(x + _STEP * unit) - rest) / _STEP for unit in np.eye(len(x))])
        weight = (1 + rest**2) ** -0.25
        weighted, target = slopes * weight[:, None], rest * weight
        square = weighted.T @ weighted
        for _ in range(6):
            move = np.linalg.solve(square + damping * np.diag(np.diag(square)), -weighted.T @ target)
            moved = x + np.clip(move, -_REACH, _REACH)
            tried = all_residuals(moved)
            if costly:
                went = moved - x
                slopes = slopes + np.outer(tried - rest - slopes @ went, went) / float(went @ went)
            if _cost(tried) < cost:
                damping /= 3
                break
            damping *= 4
        else:
            break
        gained = cost - _cost(tried)
        x, rest, cost = moved, tried, _cost(tried)
        if gained < enough * cost:
            break
    return dict(start) | dict(zip(names, np.exp(x).tolist(), strict=True))


def _cost(residuals: Floats) -> float:
    return float(np.sum(np.sqrt(1 + residuals**2) - 1))
