"""Comparing runs that were made before: which belong to one configuration, and whether they may be compared."""

from collections.abc import Sequence
from pathlib import Path

from windtunnel.simulator.experiments import runs
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.traces.errors import UsageError

MOST_DIFFERENCES = 6


def group(paths: Sequence[Path], now: float | None = None) -> list[StepRuns]:
    """Run folders by engine configuration; the first one's configuration is the base. `now` is Unix time, see `read`.

    Runs of one block have the same seed, or else the same place among their configuration's runs in time. Raises
    UsageError for runs whose workloads differ, with what differs.
    """
    measured = [runs.read(path, now) for path in dict.fromkeys(path.resolve() for path in paths)]
    if len(measured) < 2:
        raise UsageError("compare needs two run folders at least, or an experiment file")
    return grouped(measured)


def grouped(measured: Sequence[Measured]) -> list[StepRuns]:
    """The same of runs that were read."""
    for other in measured[1:]:
        found = runs.differences(measured[0].run, other.run)
        if found:
            raise UsageError(
                f"{other.path} was another workload than {measured[0].path}: {'; '.join(found[:MOST_DIFFERENCES])}"
            )
    groups: dict[str, list[Measured]] = {}
    for run in measured:
        groups.setdefault(runs.engine_identity(run.run), []).append(run)
    if len(groups) == 1:
        # One configuration, measured again and again: its figures with their intervals, and nothing to compare.
        return [StepRuns(name=_name(measured[0]), runs=dict(enumerate(sorted(measured, key=lambda run: run.began))))]
    by_seed = _seeds_match(list(groups.values()))
    base = next(iter(groups.values()))[0]
    return [
        StepRuns(
            name=_name(members[0]),
            runs={
                (run.seed or 0) if by_seed else number: run
                for number, run in enumerate(sorted(members, key=lambda run: run.began))
            },
            previous=None if members[0] is base else 0,
            changes=tuple(runs.setting_differences(base.run, members[0].run)[:MOST_DIFFERENCES]),
        )
        for members in groups.values()
    ]


def _seeds_match(groups: Sequence[Sequence[Measured]]) -> bool:
    seeds = [[run.seed for run in members] for members in groups]
    return all(len(set(mine)) == len(mine) and set(mine) == set(seeds[0]) for mine in seeds)


def _name(run: Measured) -> str:
    return f"{runs.engine_title(run.run)} ({run.path.parent.name}/{run.path.name})"
