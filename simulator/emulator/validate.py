"""Holds the emulator against measured runs: files in the layouts of published ones, or the points that ship with it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.calibrate import fit_groups
from windtunnel.simulator.emulator.constants import Constants, replaced
from windtunnel.simulator.emulator.measured import Case, Cases, Closed, Skipped, read_table
from windtunnel.simulator.emulator.measured_run import is_run, read_run
from windtunnel.simulator.emulator.profile import Profile
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.simulator.emulator.run_folder import is_run_folder, read_run_folder
from windtunnel.simulator.emulator.trial import Trial
from windtunnel.traces.errors import EngineError, UsageError


class Point(Struct, frozen=True):
    """One figure of one case. Times in ms, throughput in output tokens a second."""

    id: str
    metric: str
    measured: float
    emulated: float
    error: float
    """Signed fraction of what was measured."""


class Validation(Struct, frozen=True):
    points: list[Point]
    skipped: list[Skipped]
    mean_abs_error: float | None
    median_abs_error: float | None


def read(sources: Sequence[Path], gpu: str | None = None, model: str | None = None) -> Cases:
    """The cases in tables, in folders with a recorded run, and in folders of both.

    `gpu` and `model` are those of runs that do not say them.
    """
    cases: list[Case] = []
    skipped: list[Skipped] = []
    for source in sources:
        for path in _runs_and_tables(source):
            if path.is_dir():
                try:
                    cases.append((read_run if is_run(path) else read_run_folder)(path, gpu, model))
                except UsageError as error:
                    if path == source:
                        raise
                    skipped.append(Skipped(path.name, str(error)))
            else:
                try:
                    rows, left = read_table(path)
                except UsageError as error:
                    if path == source:
                        raise
                    rows, left = [], [Skipped(path.name, str(error))]
                cases += rows
                skipped += left
    return cases, skipped


def validate(cases: Sequence[Case], skipped: Sequence[Skipped], profile: Profile | None = None) -> Validation:
    """Every case with the constants of its GPU's row, or of the profile where that is its GPU's."""
    trials, left = _trials(cases)
    points: list[Point] = []
    for trial in trials:
        mine = _points(trial, *_of_profile(trial.case, profile))
        points += mine
        left += _without(trial, mine)
    return summed(points, [*skipped, *left])


def validate_split(cases: Sequence[Case], skipped: Sequence[Skipped], share: float) -> tuple[Validation, Validation]:
    """Constants fitted to a share of the cases, by id: the errors of the others, and those of the fitted ones."""
    ordered = sorted(cases, key=lambda case: case.id)
    chosen = {at for at in range(len(ordered)) if int(at * share) != int((at - 1) * share) or at == 0}
    trials, left = _trials(ordered)
    known = {case.id: at for at, case in enumerate(ordered)}
    inside = [trial for trial in trials if known[trial.case.id] in chosen]
    outside = [trial for trial in trials if known[trial.case.id] not in chosen]
    constants = fit_groups(inside)
    halves: list[Validation] = []
    for part in (outside, inside):
        points: list[Point] = []
        unknown: list[Skipped] = []
        for trial in part:
            if trial.case.gpu in constants:
                mine = _points(trial, constants[trial.case.gpu])
                points += mine
                unknown += _without(trial, mine)
            else:
                unknown.append(Skipped(trial.case.id, f"no row of {trial.case.gpu} is among those fitted."))
        halves.append(summed(points, [*skipped, *left, *unknown] if part is outside else []))
    return halves[0], halves[1]


def _trials(cases: Sequence[Case]) -> tuple[list[Trial], list[Skipped]]:
    """Cases that can be served; runs that were measured once and listed twice share one schedule."""
    trials: list[Trial] = []
    skipped: list[Skipped] = []
    same: dict[object, Trial] = {}
    for case in cases:
        try:
            trial = Trial(case)
        except (UsageError, EngineError) as error:
            skipped.append(Skipped(case.id, str(error)))
            continue
        if isinstance(case.load, Closed):
            trial.share(same.setdefault((case.flags, case.environ, case.load), trial))
        trials.append(trial)
    return trials, skipped


def _points(trial: Trial, reached: Reached | None, figures: Constants | None = None) -> list[Point]:
    emulated, measured = trial.emulated(reached, figures), trial.case.measured
    return [
        Point(trial.case.id, metric, measured[metric], value, value / measured[metric] - 1)
        for metric, value in emulated.items()
        if measured[metric] > 0
    ]


def _without(trial: Trial, points: list[Point]) -> list[Skipped]:
    """What was measured and is in no point."""
    missing = trial.case.measured.keys() - {point.metric for point in points}
    return [Skipped(trial.case.id, f"{metric} cannot be emulated for this load.") for metric in sorted(missing)]


def _of_profile(case: Case, profile: Profile | None) -> tuple[Reached | None, Constants | None]:
    if profile is None or profile.gpu_name != facts.gpu(case.gpu).name:
        return None, None
    return profile.reached, replaced(profile.figures)


def summed(points: list[Point], skipped: list[Skipped]) -> Validation:
    errors = np.abs([point.error for point in points])
    if not len(errors):
        return Validation(points, skipped, None, None)
    return Validation(points, skipped, float(errors.mean()), float(np.median(errors)))


def _runs_and_tables(source: Path) -> list[Path]:
    if source.is_file() or is_run(source) or is_run_folder(source):
        return [source]
    if not source.is_dir():
        raise UsageError(f"{source} does not exist: give a table, a run's folder, or a folder of them.")
    found = sorted(p for p in source.iterdir() if p.suffix == ".csv" or is_run(p) or is_run_folder(p))
    if not found:
        raise UsageError(f"{source} holds no measured run: give a table (.csv) or a folder with requests.csv.")
    return found
