"""What a viewer is asked to open. Loads little: the screen is a process of its own and loads the rest once more."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from windtunnel.simulator.results import searched
from windtunnel.simulator.results.store import EVENTS_FILE, RUN_FILE, RunFolder, without_description
from windtunnel.simulator.results.unstarted import reason_of
from windtunnel.traces.errors import UsageError

FASTEST = 10_000.0
"""Times real time that a run is played again; faster, nobody sees anything."""
LATEST_S = 10_000_000.0
"""Moment of a run that may be asked for: months after its start."""


def factor(text: str) -> float:
    """`--speed`: how many times as fast; ValueError says what is expected."""
    value = _number(text.removesuffix("x"))
    if not 0.0 < value <= FASTEST:
        raise ValueError(f"{text}: give a factor greater than zero and up to {FASTEST:,.0f}, such as 10")
    return value


def moment(text: str) -> float:
    """`--at`: seconds after the run's start; ValueError says what is expected."""
    value = _number(text)
    if not 0.0 <= value <= LATEST_S:
        raise ValueError(f"{text}: give seconds after the run's start, from 0 to {LATEST_S:,.0f}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def kind_of(paths: Sequence[Path]) -> Literal["run", "comparison", "runs"]:
    """What these paths ask for; UsageError for what is neither a run, nor an experiment, nor a folder."""
    if not paths:
        return "runs"
    if len(paths) == 1 and paths[0].is_dir() and not (paths[0] / RUN_FILE).exists():
        # Only now: it loads all that experiments are made of, and most that is opened is one run.
        from windtunnel.simulator.experiments.kept import holds_runs, is_experiment

        if is_experiment(paths[0]):
            return "comparison"
        if holds_runs(paths[0]) or next(paths[0].glob(f"*/{searched.PLAN_FILE}"), None) is not None:
            return "runs"
        if (reason := reason_of(paths[0])) is not None:
            raise UsageError(f"the run in {paths[0]} did not start: {reason}")
        if searched.is_search(paths[0]):
            return "runs"  # its first has not begun
        if (said := without_description(paths[0])) is not None:
            raise UsageError(said)
        if (paths[0] / EVENTS_FILE).exists():
            RunFolder.open(paths[0])  # a run that has not begun: its own sentence
        raise UsageError(f"{paths[0]} is no run folder: it has no {RUN_FILE}, and there are no runs in it")
    for path in paths:
        RunFolder.open(path)
    return "run" if len(paths) == 1 else "comparison"
