"""From the runs of an experiment to what may be said: figures with intervals, and verdicts between steps.

A run that is not valid says nothing and its block is dropped for its step. Steps that resolve to the same settings are
one configuration. What a comparison cannot know (text that was forced under speculation, answers that may have become
worse, flags that the emulator does not model, runs that were not interleaved) takes its verdict away or stands beside
it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import exp, sqrt
from typing import Any

import numpy as np
from msgspec import Struct

from windtunnel.simulator.experiments import runs
from windtunnel.simulator.experiments import statistics as st
from windtunnel.simulator.experiments import step_runs as sr
from windtunnel.simulator.experiments.drift import by_block, drift, mean, means_of
from windtunnel.simulator.experiments.metrics import Metric
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.experiments.student import quantile


class Figure(Struct, frozen=True):
    """Geometric mean over blocks (the usual one where one is zero), its 95% interval; None where there are too few."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    ratio: float | None
    low: float | None
    high: float | None
    verdict: st.Verdict
    blocks: int = 0
    base: float | None = None
    other: float | None = None
    """What the ratio is made of: geometric means over the blocks in which both count, of `paired` metrics over the
    calls that both completed. From five blocks on the ratio is without the drift, which they are not."""
    table: int | None = None
    """Figures that the verdict holds for together; 0 where a note says why there is none; None where it is not told."""


SAME_RUNS = Comparison(ratio=1.0, low=1.0, high=1.0, verdict="no_difference")
NOT_TOLD = Comparison(ratio=None, low=None, high=None, verdict="too_noisy")


class StepOutcome(Struct, frozen=True, kw_only=True):
    name: str
    resolved: dict[str, Any]
    """Engine name, version, model and resolved settings."""
    runs: tuple[str, ...]
    metrics: dict[str, Figure]
    versus_previous: dict[str, Comparison]
    versus_base: dict[str, Comparison]
    failed: str | None
    """Why it did not start, or not again after `runs`."""
    notes: tuple[str, ...]
    changes: tuple[str, ...] = ()
    previous: str | None = None
    invalid_runs: tuple[str, ...] = ()
    """Folder and reasons of the runs that do not count."""

    @property
    def failure(self) -> str:
        """Why it has no runs, or no more of them, in words; empty where nothing failed."""
        if self.failed is not None:
            return f"{'did not start again' if self.runs else 'did not start'}: {self.failed}"
        return "" if self.runs else "not run yet"


class Outcome(Struct, frozen=True, kw_only=True):
    """`windtunnel compare --json`."""

    experiment_dir: str | None
    name: str
    steps: tuple[StepOutcome, ...]
    noise_floor: dict[str, st.Floor | None]
    """What a configuration against itself would show."""
    drift: dict[str, float | None]
    """Relative growth of each metric from one run to the next, over the whole experiment."""
    blocks: int
    """In which any run counts."""
    emulated: bool
    matters: float
    widest: float | None
    """Largest half-width of an interval of the first metric."""
    reach: float | None = None
    """Smallest difference of the first metric that would be found; what the budget is spent on."""
    blocks_run: int | None = None
    """In which any run was made; None where an older version did not tell."""
    blocks_whole: int = 0
    """In which a run of every configuration counts that has any."""


def told(metrics: Sequence[Metric], steps: Sequence[StepRuns]) -> tuple[Metric, ...]:
    """Of metrics that nobody asked for by name, those that can be compared: two runs of a block report them.

    All of them while there is no such run.
    """
    valid = [{b: run for b, run in step.runs.items() if run.summary.valid} for step in steps]
    least = min(2, sum(bool(runs_) for runs_ in valid))

    def comparable(metric: Metric) -> bool:
        counts = Counter(b for runs_ in valid for b, run in runs_.items() if _value(metric, run) is not None)
        return max(counts.values(), default=0) >= least > 0

    return tuple(filter(comparable, metrics)) or tuple(metrics)


def _value(metric: Metric, run: Measured) -> float | None:
    return metric.of(run.summary, run.calls)


def assess(
    steps: Sequence[StepRuns],
    metrics: Sequence[Metric],
    *,
    name: str,
    experiment_dir: str | None = None,
    matters: float = st.MATTERS,
) -> Outcome:
    """Everything that the runs so far allow to say. Step 0 is the base."""
    valid = [{b: run for b, run in step.runs.items() if run.summary.valid} for step in steps]
    places = _places(steps)
    twins = _twins(steps)
    pairs = {(i, "base"): 0 for i in range(1, len(steps))}
    pairs |= {(i, "previous"): step.previous for i, step in enumerate(steps) if step.previous is not None}
    found: dict[tuple[str, str], st.Estimate] = {}
    means: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    seen: set[tuple[int, int, str]] = set()
    for (i, kind), j in pairs.items():
        for metric in metrics:
            # The first step is compared with the base twice; it is one test.
            if twins[i] == twins[j] or (kind == "previous" and (i, j, str(metric)) in seen):
                continue
            seen.add((i, j, str(metric)))
            series = _series(valid[j], valid[i], places, metric)
            found[f"{i}>{j}", str(metric)] = st.estimate(series, matters=matters)
            means[f"{i}>{j}", str(metric)] = means_of(series)
    verdicts = st.judge(found, {str(metric): metric.better for metric in metrics})

    def compared(i: int, j: int | None) -> dict[str, Comparison]:
        if j is None:
            return {}
        if twins[i] == twins[j]:
            return {str(m): SAME_RUNS if _told(valid[twins[i]], m) else NOT_TOLD for m in metrics}
        silent = _blocked(valid[j], valid[i], places)
        silent = silent or sr.forced(steps[i], steps[j]) or sr.other_work(steps[i], steps[j])
        silent = silent or bool(sr.unmodelled(steps[i], steps[j]))
        silent = silent or any(run.live for step in (steps[i], steps[j]) for run in step.runs.values())
        said, table = {}, 0 if silent else sum(e.df > 0 for e in found.values()) or None
        for metric in map(str, metrics):
            e = found[f"{i}>{j}", metric]
            verdict = "too_noisy" if silent else verdicts[f"{i}>{j}", metric]
            base, other = means[f"{i}>{j}", metric]
            said[metric] = Comparison(
                ratio=e.ratio,
                low=e.low,
                high=e.high,
                verdict=verdict,
                blocks=e.blocks,
                base=base,
                other=other,
                table=table,
            )
        return said

    known = _first(steps, valid, {key: e for key, e in found.items() if key[1] == str(metrics[0])})
    versus_base = [compared(i, 0 if i else None) for i in range(len(steps))]
    grid = {str(m): by_block(valid, m) for m in metrics}
    blocks = {b for runs_ in valid for b in runs_}
    alive = [runs_ for runs_, step in zip(valid, steps, strict=True) if step.runs]
    return Outcome(
        experiment_dir=experiment_dir,
        name=name,
        steps=tuple(
            StepOutcome(
                name=step.name,
                resolved=sr.resolved(step),
                runs=tuple(str(run.path) for _, run in sorted(step.runs.items())),
                metrics={str(m): _figure([m.of(run.summary, run.calls) for run in valid[i].values()]) for m in metrics},
                versus_previous=compared(i, step.previous),
                versus_base=versus_base[i],
                failed=step.failed,
                notes=tuple(
                    _notes(
                        steps,
                        i,
                        twins,
                        blocked=bool(i) and _blocked(valid[0], valid[i], places),
                        said={found.verdict for found in versus_base[i].values()},
                    )
                ),
                changes=step.changes,
                previous=None if step.previous is None else steps[step.previous].name,
                invalid_runs=tuple(
                    f"{run.place}: {', '.join(run.summary.invalid_reasons)}"
                    for b, run in sorted(step.runs.items())
                    if b not in valid[i]
                ),
            )
            for i, step in enumerate(steps)
        ),
        noise_floor={key: st.floor(values) for key, values in grid.items()},
        drift={key: drift(values, places, valid) for key, values in grid.items()},
        blocks=len(blocks),
        blocks_run=len({b for step in steps for b in step.runs}),
        blocks_whole=sum(all(b in runs_ for runs_ in alive) for b in blocks),
        emulated=any(run.summary.emulated for step in steps for run in step.runs.values()),
        matters=matters,
        widest=max((e.half_width for e in known), default=None),
        reach=st.reach(known, sum(e.df > 0 for e in found.values())) if known else None,
    )


def _first(
    steps: Sequence[StepRuns], valid: Sequence[Mapping[int, Measured]], found: Mapping[tuple[str, str], st.Estimate]
) -> list[st.Estimate]:
    """Comparisons that say how much is known; none while one lacks runs that count."""
    known = []
    for (pair, _), e in found.items():
        i, j = map(int, pair.split(">"))
        if e.df:
            known.append(e)
        elif len(valid[i].keys() & valid[j].keys()) < st.LEAST_BLOCKS and not (steps[i].failed or steps[j].failed):
            return []
    return known


def _places(steps: Sequence[StepRuns]) -> dict[Any, int]:
    """Run folder to its place in time."""
    made = sorted((run.began, str(run.path)) for step in steps for run in step.runs.values())
    return {path: place for place, (_, path) in enumerate(made)}


def _twins(steps: Sequence[StepRuns]) -> list[int]:
    """For each step the first one with the same resolved settings."""
    first: dict[str, int] = {}
    twins = []
    for i, step in enumerate(steps):
        run = next(iter(step.runs.values()), None)
        twins.append(i if run is None else first.setdefault(runs.engine_identity(run.run), i))
    return twins


def _blocked(base: Mapping[int, Measured], other: Mapping[int, Measured], places: Mapping[Any, int]) -> bool:
    """Whether one ran as a whole before the other: then time itself could be the difference. Virtual time cannot."""
    if any(run.virtual for run in (*base.values(), *other.values())) or len(base) < 2 or len(other) < 2:
        return False
    a, b = ([places[str(run.path)] for run in runs_.values()] for runs_ in (base, other))
    return max(a) < min(b) or max(b) < min(a)


def _series(
    base: Mapping[int, Measured], other: Mapping[int, Measured], places: Mapping[Any, int], metric: Metric
) -> st.Series:
    common = sorted(base.keys() & other.keys())
    pairs = [metric.both((base[b].summary, base[b].calls), (other[b].summary, other[b].calls)) for b in common]
    return st.Series(
        [a for a, _ in pairs],
        [b for _, b in pairs],
        [places[str(base[b].path)] for b in common],
        [places[str(other[b].path)] for b in common],
    )


def _figure(values: Sequence[float | None]) -> Figure:
    known = [value for value in values if value is not None]
    if not known:
        return Figure(None)
    if len(known) < st.LEAST_BLOCKS or min(known) <= 0:
        return Figure(mean(known))
    logs = np.log(known)
    half = quantile(st.LEVEL, len(known) - 1) * float(logs.std(ddof=1)) / sqrt(len(known))
    centre = float(logs.mean())
    return Figure(exp(centre), exp(centre - half), exp(centre + half))


def _told(valid: Mapping[int, Measured], metric: Metric) -> bool:
    return any(metric.of(run.summary, run.calls) is not None for run in valid.values())


def _notes(
    steps: Sequence[StepRuns], i: int, twins: Sequence[int], *, blocked: bool, said: AbstractSet[st.Verdict]
) -> list[str]:
    """`said`: the verdicts against the base."""
    step, notes = steps[i], []
    if twins[i] != i:
        notes.append(sr.SAME.format(steps[twins[i]].name))
    if sr.lossy(steps, i):
        faster = sr.LOSSY_IN_PART if "worse" in said else sr.LOSSY
        notes.append(faster if "better" in said else sr.LOSSY_NOT_FASTER)
    if blocked:
        notes.append(sr.BLOCKED)
    others = (steps[step.previous or 0], steps[0]) if i else ()
    missed = [flag for other in others for flag in sr.unmodelled(step, other)]
    if i and (sr.forced(step, steps[step.previous or 0]) or sr.forced(step, steps[0])):
        notes.append(sr.FORCED)
    elif (doubt := sr.assumed(step, told=missed)) is not None:
        notes.append(doubt)
    if missed:
        notes.append(sr.no_model(missed))
    if i and (sr.other_work(step, steps[step.previous or 0]) or sr.other_work(step, steps[0])):
        notes.append(sr.OTHER_WORK)
    if sr.models((steps[0], step)) > 1:
        notes.append(sr.OTHER_MODEL)
    inside = [run for _, run in sorted(step.runs.items())]
    notes += [sr.LIVE.format(run.place) for run in inside if run.live]
    seen = [(run.place, run.summary.output_tokens_by_progress) for run in inside]
    notes += [sr.BY_PROGRESS.format(place, tokens) for place, tokens in seen if tokens]
    return notes + [f"{run.place}: {run.damage}" for run in inside if run.damage]
