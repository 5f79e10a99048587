"""What a comparison has to show, read beside the screen: an experiment's outcome, or runs side by side.

Reading takes seconds where a second of waiting is too long, so a thread reads and `poll` says what is known by now. An
experiment, or a run, that goes on is read again when something was added to it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.experiments import beside as side
from windtunnel.simulator.experiments import kept, runs
from windtunnel.simulator.experiments.experiment import OUTCOME_FILE
from windtunnel.simulator.experiments.metrics import chosen, parse
from windtunnel.simulator.experiments.outcome import Outcome, StepOutcome, StepRuns, assess
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.table import emulated
from windtunnel.simulator.results.curves import Curves, curves
from windtunnel.simulator.results.facts import is_recording
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import EVENTS_FILE, SUMMARY_FILE, RunFolder
from windtunnel.traces.errors import UsageError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789#@"
MOST_CURVES = 3
"""Runs of one configuration whose events are read for the curves."""
RECORDED = "a recording is real traffic, which nobody planned: figures differ with the work as well"
LOOK_S = 1.0
LIVE_S = 5.0
"""Between readings of a run that goes on: each is of the whole run."""


class Column(Struct, frozen=True, kw_only=True):
    """One configuration, or one run."""

    letter: str
    name: str
    step: StepOutcome
    paths: tuple[Path, ...]
    curves: tuple[Curves, ...] = ()
    """Of those of its runs that were read."""
    uncounted: dict[str, float] = {}
    """Metric to its figure where no run of it counts."""
    live: bool = False


class Contrast(Struct, frozen=True, kw_only=True):
    """Everything that the screen shows. Empty columns: nothing is known yet."""

    title: str = ""
    experiment: bool = False
    columns: tuple[Column, ...] = ()
    metrics: tuple[str, ...] = ()
    blocks: int = 0
    emulated: tuple[str, ...] = ()
    """Whose figures these are, where they are an emulator's."""
    notices: tuple[str, ...] = ()
    differences: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Settings of which not all columns have the same value."""
    live: bool = False
    progress: str = ""
    """What is being run now, or what is still being read."""
    problem: str = ""


class Comparing:
    """`poll` four times a second. With `whole` it reads everything at once and in place, for pictures and tests."""

    def __init__(
        self,
        paths: Sequence[Path],
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        *,
        whole: bool = False,
        metrics: Sequence[str] = (),
    ) -> None:
        self.paths = tuple(paths)
        self.experiment = len(self.paths) == 1 and kept.is_experiment(self.paths[0])
        self._wall, self._monotonic, self._whole = wall, monotonic, whole
        self._metrics = chosen(metrics)
        self._reader: ThreadPoolExecutor | None = None
        self._job: Future[None] | None = None
        self._looked: float | None = None
        self._signs: Any = None
        self._read: dict[Path, tuple[Any, Measured, Curves]] = {}
        """By run: the sign it had when it was read, and what was read."""
        self._latest = Contrast(title=self._title(), experiment=self.experiment, progress="reading")

    def _title(self) -> str:
        return kept.name_of(self.paths[0]) if self.experiment else ", ".join(path.name for path in self.paths)

    def poll(self) -> Contrast:
        now = self._monotonic()
        busy = self._job is not None and not self._job.done()
        if not busy and (self._looked is None or now - self._looked >= LOOK_S):
            self._looked = now
            signs = self._look(now)
            if signs != self._signs:
                self._signs = signs
                self._begin()
        if self._job is not None and self._job.done():
            job, self._job = self._job, None
            job.result()
        return self._latest

    def _begin(self) -> None:
        if self._whole:
            self._work()
            return
        if self._reader is None:
            self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="comparing")
        self._job = self._reader.submit(self._work)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)

    # -- what there is

    def _look(self, now: float) -> Any:
        """Changes when something has to be read again."""
        if not self.experiment:
            return [self._sign(path, now) for path in self.paths]
        folder = self.paths[0]
        return _mtime(folder / OUTCOME_FILE), kept.at_work(folder), list(kept.run_folders(folder))

    def _sign(self, path: Path, now: float) -> Any:
        ended = _mtime(path / SUMMARY_FILE)
        if ended is not None:
            return ended
        return _mtime(path / EVENTS_FILE), int(now / LIVE_S)

    def _one(self, path: Path, sign: Any) -> tuple[Measured, Curves]:
        known = self._read.get(path)
        if known is None or known[0] != sign:
            measured, tally = runs.read_whole(path)
            known = self._read[path] = (sign, measured, curves(tally))
        return known[1], known[2]

    # -- in the thread

    def _work(self) -> None:
        try:
            if self.experiment:
                self._work_experiment(self.paths[0])
            else:
                self._work_runs()
        except UsageError as error:
            self._latest = replace(self._latest, problem=str(error), progress="")

    def _work_runs(self) -> None:
        live = {p for p in self.paths if state(RunFolder.open(p), self._wall()) == "running"}
        read = []
        for number, (path, sign) in enumerate(zip(self.paths, self._signs, strict=True)):
            self._latest = replace(self._latest, progress=f"reading run {number + 1} of {len(self.paths)}")
            measured = self._one(path, sign)[0]
            read.append(_so_far(measured) if path in live else measured)
        found = side.beside(read, self._metrics)
        recorded = [RECORDED] if any(is_recording(measured.run) for measured in read) else []
        notices = [
            *found.notices,
            *recorded,
            *(f"{p.name} is still going on: its figures so far" for p in self.paths if p in live),
        ]
        columns = tuple(
            Column(
                letter=LETTERS[i],
                name=step.name if len(mine) == 1 and step.name == mine[0].path.name else _short(mine),
                step=step,
                paths=tuple(run.path for run in mine),
                curves=tuple(self._read[run.path][2] for run in mine),
                uncounted=_uncounted(mine, self._metrics),
                live=any(run.path in live for run in mine),
            )
            for i, (step, mine) in enumerate(zip(found.outcome.steps, found.runs, strict=True))
        )
        differences = side.differing([side.settings(mine[0].run) for mine in found.runs])
        self._latest = Contrast(
            title=self._title(),
            columns=columns,
            metrics=tuple(map(str, self._metrics)),
            blocks=found.outcome.blocks,
            emulated=tuple(emulated(found.outcome)) if found.outcome.emulated else (),
            notices=tuple(notices),
            differences=tuple(differences),
            live=bool(live),
        )

    def _work_experiment(self, folder: Path) -> None:
        outcome, said = self._outcome(folder)
        at_work = kept.at_work(folder)
        columns = [
            Column(
                letter=LETTERS[i % len(LETTERS)],
                name=step.name,
                step=step,
                paths=tuple(kept.run_of(folder, run) for run in step.runs),
            )
            for i, step in enumerate(outcome.steps if outcome else ())
        ]
        base = Contrast(
            title=outcome.name if outcome else self._title(),
            experiment=True,
            columns=tuple(columns),
            metrics=tuple(outcome.steps[0].metrics) if outcome and outcome.steps else (),
            blocks=outcome.blocks if outcome else 0,
            emulated=tuple(emulated(outcome)) if outcome and outcome.emulated else (),
            notices=said,
            live=at_work,
            progress=_now_run(folder) if at_work else "",
        )
        self._latest = replace(base, problem="" if columns else self._nothing(folder))
        self._fill(base, columns)

    def _nothing(self, folder: Path) -> str:
        return (
            f"no run of {folder.name} is complete yet" if kept.at_work(folder) else f"{folder.name} has no complete run"
        )

    def _fill(self, base: Contrast, columns: list[Column]) -> None:
        """Settings first, which are quick; then the events, a run of each configuration after the other."""
        heads = [_run_json(column.paths[0]) if column.paths else {} for column in columns]
        base = replace(base, differences=tuple(side.differing([side.settings(run) if run else {} for run in heads])))
        # Runs that count go before others: the curves are of what the figures are of.
        best = [sorted(column.paths, key=_counts, reverse=True)[:MOST_CURVES] for column in columns]
        todo = [(n, i) for n in range(MOST_CURVES) for i, paths in enumerate(best) if n < len(paths)]
        for done, (n, i) in enumerate(todo):
            progress = base.progress or f"reading run {done + 1} of {len(todo)}"
            self._latest = replace(base, columns=tuple(columns), progress=progress)
            path = best[i][n]
            try:
                measured, found = self._one(path, _mtime(path / SUMMARY_FILE))
            except UsageError:
                continue
            columns[i] = replace(columns[i], curves=(*columns[i].curves, found))
            if n == 0 and columns[i].step.invalid_runs:
                metrics = [parse(name) for name in base.metrics]
                columns[i] = replace(columns[i], uncounted=_uncounted([measured], metrics))
        self._latest = replace(base, columns=tuple(columns), problem=self._latest.problem if not columns else "")

    def _outcome(self, folder: Path) -> tuple[Outcome | None, tuple[str, ...]]:
        """What the experiment came to; before its first block is whole, what its runs so far allow to say."""
        if (folder / OUTCOME_FILE).exists():
            return kept.read_outcome(folder), ()
        names = {str(e.get("folder")): str(e.get("step")) for e in kept.log_of(folder) if e.get("type") == "run"}
        steps: dict[str, dict[int, Measured]] = {}
        for path, over in kept.run_folders(folder):
            name = names.get(str(path.relative_to(folder)))
            if over and name is not None:
                steps.setdefault(name, {})[int(path.parent.name[6:])] = self._one(path, _mtime(path / SUMMARY_FILE))[0]
        if not steps:
            return None, ()
        made = [StepRuns(name=n, runs=r, previous=0 if i else None) for i, (n, r) in enumerate(steps.items())]
        said = "its first block is not whole yet: what the runs so far say"
        return assess(made, self._metrics, name=kept.name_of(folder), experiment_dir=str(folder)), (said,)


def _so_far(measured: Measured) -> Measured:
    """Of a run that goes on: that it has no end yet is nothing against its figures."""
    reasons = tuple(reason for reason in measured.summary.invalid_reasons if reason != "died")
    summary = replace(measured.summary, status=None, valid=not reasons, invalid_reasons=reasons)
    return replace(measured, summary=summary)


def _uncounted(mine: Sequence[Measured], metrics: Sequence[Any]) -> dict[str, float]:
    return {str(m): value for m in metrics if (value := side.uncounted(mine, m)) is not None}


def _short(mine: Sequence[Measured]) -> str:
    first = mine[0].path.name
    return first if len(mine) == 1 else f"{first} and {len(mine) - 1} more"


def _mtime(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _counts(path: Path) -> bool:
    try:
        summary = RunFolder.open(path).summary()
    except UsageError:
        return False
    return summary is not None and summary.valid


def _run_json(path: Path) -> dict[str, Any]:
    try:
        return RunFolder.open(path).run
    except UsageError:
        return {}


def _now_run(folder: Path) -> str:
    """`block 2, prefix cache off is running`."""
    for path, over in kept.run_folders(folder):
        if not over:
            return f"block {int(path.parent.name[6:])}, {path.name} is running"
    return "between two runs"
