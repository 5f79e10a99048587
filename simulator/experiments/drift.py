"""Figures by block and configuration, their means, and how they grow while an experiment goes on."""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

import numpy as np

from windtunnel.simulator.experiments.metrics import Metric
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.statistics import Series


def by_block(valid: Sequence[Mapping[int, Measured]], metric: Metric) -> Any:
    blocks = sorted({b for runs_ in valid for b in runs_})
    measured = [runs_ for runs_ in valid if runs_]
    rows = [
        [np.nan if b not in r or (v := metric.of(r[b].summary, r[b].calls)) is None else v for r in measured]
        for b in blocks
    ]
    return np.array(rows, dtype=float).reshape(len(blocks), len(measured))


def drift(values: Any, places: Mapping[Any, int], valid: Sequence[Mapping[int, Measured]]) -> float | None:
    """Slope of the logarithm over the runs' places, steps apart; None where fewer than six runs tell.

    Runs in virtual time know nothing of each other: what would show is the seeds.
    """
    measured = [runs_ for runs_ in valid if runs_]
    if any(run.virtual for runs_ in measured for run in runs_.values()):
        return None
    blocks = sorted({b for runs_ in valid for b in runs_})
    points = [
        (column, places[str(r[b].path)], log(values[row, column]))
        for column, r in enumerate(measured)
        for row, b in enumerate(blocks)
        if b in r and values[row, column] > 0
    ]
    if len(points) < 6:
        return None
    table = np.array(points)
    for column in range(len(measured)):
        mine = table[:, 0] == column
        table[mine, 1:] -= table[mine, 1:].mean(axis=0)
    spread = float((table[:, 1] ** 2).sum())
    return None if spread == 0 else exp(float((table[:, 1] * table[:, 2]).sum()) / spread) - 1


def mean(known: Sequence[float]) -> float:
    """Geometric, as ratios are; where there is a zero the usual one."""
    if len(set(known)) == 1:
        return known[0]
    return exp(float(np.log(known).mean())) if min(known) > 0 else sum(known) / len(known)


def means_of(series: Series) -> tuple[float | None, float | None]:
    """Of both sides, over the blocks in which both are told."""
    pairs = [(a, b) for a, b in zip(series.base, series.other, strict=True) if a is not None and b is not None]
    return (mean([a for a, _ in pairs]), mean([b for _, b in pairs])) if pairs else (None, None)
