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
from windtunnel.simulator.experiments import kept
from windtunnel.simulator.experiments.claim import log_of
from windtunnel.simulator.experiments.experiment import OUTCOME_FILE
from windtunnel.simulator.experiments.metrics import chosen, parse
from windtunnel.simulator.experiments.outcome import Outcome, StepOutcome, assess
from windtunnel.simulator.experiments.runs import Measured, Reading, differences
from windtunnel.simulator.experiments.step_runs import LIVE, OTHER_WORK, StepRuns
from windtunnel.simulator.experiments.table import NO_BLOCK, blocks, emulated
from windtunnel.simulator.results.curves import Curves, curves, outlined
from windtunnel.simulator.results.store import EVENTS_FILE, SUMMARY_FILE, RunFolder
from windtunnel.simulator.results.validity import is_recording
from windtunnel.traces.errors import UsageError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789#@"
MOST_CURVES = 3
"""Runs of one configuration whose events are read for the curves."""
RECORDED = "a recording is real traffic, which nobody planned: figures differ with the work as well"
LOOK_S = 1.0
LIVE_S = 5.0
"""Between looks at what was added to a run that goes on."""
SHARE = 20.0
"""Such a look takes no more than one part in so many of the time."""


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
    this: bool = False
    """It is the run from which the comparison was asked for."""
    other_work: bool = False
    """Its figures differ from the first one's with the work as well."""


class Contrast(Struct, frozen=True, kw_only=True):
    """Everything that the screen shows. Empty columns: nothing is known yet."""

    title: str = ""
    experiment: bool = False
    columns: tuple[Column, ...] = ()
    metrics: tuple[str, ...] = ()
    blocks: str = ""
    """How many were run, and how many of them count."""
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
        this: Path | None = None,
    ) -> None:
        self.paths = tuple(paths)
        self.experiment = len(self.paths) == 1 and kept.is_experiment(self.paths[0])
        self._wall, self._monotonic, self._whole = wall, monotonic, whole
        self._metrics = chosen(metrics)
        self._this = this
        """The run that is shown below the comparison."""
        self.wanted: tuple[int, ...] = ()
        """Columns whose curves are asked for first."""
        self._reader: ThreadPoolExecutor | None = None
        self._job: Future[None] | None = None
        self._looked: float | None = None
        self._signs: Any = None
        self._read: dict[Path, tuple[Any, Measured, Curves]] = {}
        """By run: the sign it had when it was read, and what was read."""
        self._outlines: dict[Path, tuple[Any, Curves]] = {}
        """The same of runs whose figures are known."""
        self._readings: dict[Path, Reading] = {}
        """Of runs that go on."""
        self._live_s = LIVE_S
        self._over = False
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
        self._over = True
        if self._reader is None:
            self._forget()
            return
        # Whoever reads the files closes them.
        self._reader.submit(self._forget)
        self._reader.shutdown(wait=False)

    def _forget(self) -> None:
        for reading in self._readings.values():
            reading.close()
        self._readings.clear()

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
        return _mtime(path / EVENTS_FILE), int(now / self._live_s)

    def _one(self, path: Path, sign: Any) -> tuple[Measured, Curves]:
        """A run and its curves; of one that goes on only what was added is read."""
        known = self._read.get(path)
        if known is None or known[0] != sign:
            began = self._monotonic()
            reading = self._readings.pop(path, None) or Reading(path)
            measured = reading.on(self._wall())
            known = self._read[path] = (sign, measured, curves(reading.tally))
            if measured.live:
                self._readings[path] = reading
                self._live_s = max(LIVE_S, SHARE * (self._monotonic() - began))
            else:
                reading.close()
        return known[1], known[2]

    def _outline(self, path: Path) -> Curves:
        """Of a run that is over and whose figures are known."""
        sign = _mtime(path / SUMMARY_FILE)
        if path in self._read and self._read[path][0] == sign:
            return self._read[path][2]
        known = self._outlines.get(path)
        if known is None or known[0] != sign:
            known = self._outlines[path] = (sign, outlined(RunFolder.open(path)))
        return known[1]

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
        read = []
        for number, (path, sign) in enumerate(zip(self.paths, self._signs, strict=True)):
            self._latest = replace(self._latest, progress=f"reading run {number + 1} of {len(self.paths)}")
            read.append(self._one(path, sign)[0])
        live = [LIVE.format(measured.place) for measured in read if measured.live]
        found = side.beside(read, self._metrics)
        recorded = [RECORDED] if any(is_recording(measured.run) for measured in read) else []
        notices = [
            *found.notices,
            *recorded,
            *live,
        ]
        columns = tuple(
            Column(
                letter=LETTERS[i],
                name=step.name if len(mine) == 1 and step.name == mine[0].path.name else _short(mine),
                # It stands above the table.
                step=replace(step, notes=tuple(note for note in step.notes if note not in live)),
                paths=tuple(run.path for run in mine),
                curves=tuple(self._read[run.path][2] for run in mine),
                uncounted=_uncounted(mine, self._metrics),
                live=any(run.live for run in mine),
                this=self._this is not None and any(_same(run.path, self._this) for run in mine),
                other_work=bool(differences(read[0].run, mine[0].run)),
            )
            for i, (step, mine) in enumerate(zip(found.outcome.steps, found.runs, strict=True))
        )
        settings = side.differing([side.settings(mine[0].run) for mine in found.runs])
        self._latest = Contrast(
            title=self._title(),
            columns=columns,
            metrics=_reported(columns, list(map(str, self._metrics))),
            blocks=blocks(found.outcome),
            emulated=tuple(emulated(found.outcome)) if found.outcome.emulated else (),
            notices=tuple(notices),
            differences=tuple(settings),
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
                other_work=OTHER_WORK in step.notes,
            )
            for i, step in enumerate(outcome.steps if outcome else ())
        ]
        base = Contrast(
            title=outcome.name if outcome else self._title(),
            experiment=True,
            columns=tuple(columns),
            metrics=_reported(columns, list(outcome.steps[0].metrics)) if outcome and outcome.steps else (),
            blocks=blocks(outcome) if outcome else NO_BLOCK,
            emulated=tuple(emulated(outcome)) if outcome and outcome.emulated else (),
            notices=said,
            live=at_work,
            progress=_now_run(folder) if at_work else "",
        )
        # Until the curves are there it is not over.
        self._latest = replace(
            base, progress=base.progress or "reading", problem="" if columns else self._nothing(folder)
        )
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
        total = len(todo)
        while todo and not self._over:
            progress = base.progress or f"reading run {total - len(todo) + 1} of {total}"
            self._latest = replace(base, columns=tuple(columns), progress=progress)
            # What is looked at comes first, then one run of each configuration after the other.
            n, i = min(todo, key=lambda place: (place[0], place[1] not in self.wanted, place[1]))
            todo.remove((n, i))
            path = best[i][n]
            try:
                if n == 0 and columns[i].step.invalid_runs:
                    measured = self._one(path, _mtime(path / SUMMARY_FILE))[0]
                    metrics = [parse(name) for name in base.metrics]
                    columns[i] = replace(columns[i], uncounted=_uncounted([measured], metrics))
                columns[i] = replace(columns[i], curves=(*columns[i].curves, self._outline(path)))
            except UsageError:
                continue
        self._latest = replace(base, columns=tuple(columns), problem=self._latest.problem if not columns else "")

    def _outcome(self, folder: Path) -> tuple[Outcome | None, tuple[str, ...]]:
        """What the experiment came to; before its first block is whole, what its runs so far allow to say."""
        if (folder / OUTCOME_FILE).exists():
            return kept.read_outcome(folder), ()
        names = {str(e.get("folder")): str(e.get("step")) for e in log_of(folder) if e.get("type") == "run"}
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


def _reported(columns: Sequence[Column], metrics: Sequence[str]) -> tuple[str, ...]:
    """Those that any column reports; all of them while none does."""

    def told(column: Column, metric: str) -> bool:
        figure = column.step.metrics.get(metric)
        return metric in column.uncounted or (figure is not None and figure.value is not None)

    return tuple(m for m in metrics if any(told(c, m) for c in columns)) or tuple(metrics)


def _uncounted(mine: Sequence[Measured], metrics: Sequence[Any]) -> dict[str, float]:
    return {str(m): value for m in metrics if (value := side.uncounted(mine, m)) is not None}


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute()


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
        summary = RunFolder.open(path).summary(strict=True)
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
