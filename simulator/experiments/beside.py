"""Run folders side by side for a person who looks at them: also those that `compare` refuses.

Where `compare` has a word it is that word. Runs of one configuration, and runs of different work, stand each for
itself: a single run gives a ratio and never a verdict.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.experiments import runs
from windtunnel.simulator.experiments import statistics as st
from windtunnel.simulator.experiments.digests import text
from windtunnel.simulator.experiments.folders import grouped
from windtunnel.simulator.experiments.metrics import Metric
from windtunnel.simulator.experiments.outcome import Comparison, Outcome, assess
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.step_runs import SAME as SAME_AS
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.results.emulation import missed_by

SAME = "the same settings in every run: what differs is noise, or the machine"
OTHER = "other work than {}, so no verdict: {}"
MOST_DIFFERENCES = 4
NAME = "runs side by side"
BLOCKS = "cache_config.num_gpu_blocks"
MADE_OF_BLOCKS = ("kv_tokens", "cache_config.kv_cache_size_tokens", "cache_config.kv_cache_max_concurrency")
"""Of requests of the full length: they change with what is scheduled ahead, though no block more is there."""
SAME_SETTINGS = SAME_AS.partition("{")[0]


class Beside(Struct, frozen=True):
    outcome: Outcome
    runs: tuple[tuple[Measured, ...], ...]
    """Of each step of the outcome."""
    notices: tuple[str, ...] = ()
    """What has to be known before any figure is read."""


def beside(measured: Sequence[Measured], metrics: Sequence[Metric]) -> Beside:
    """Two runs or more; the first is what the others are compared with."""
    first = measured[0]
    unlike = [(run, found) for run in measured[1:] if (found := runs.differences(first.run, run.run))]
    alike = len({runs.engine_identity(run.run) for run in measured}) == 1
    if not unlike and not alike:
        steps = grouped(measured)
        return Beside(assess(steps, metrics, name=NAME), tuple(tuple(step.runs.values()) for step in steps))
    steps = [
        StepRuns(
            name=run.path.name,
            runs={0: run},
            previous=0 if i else None,
            changes=tuple(runs.setting_differences(first.run, run.run)[:MOST_DIFFERENCES]) if i else (),
        )
        for i, run in enumerate(measured)
    ]
    outcome = assess(steps, metrics, name=NAME)
    ratios = [_ratios(first, run, metrics) if i else {} for i, run in enumerate(measured)]
    compared = [
        replace(
            step,
            versus_previous=mine,
            versus_base=mine,
            notes=tuple(note for note in step.notes if not note.startswith(SAME_SETTINGS)),
        )
        for step, mine in zip(outcome.steps, ratios, strict=True)
    ]
    notices = [OTHER.format(first.path.name, _said(found, run.path.name, len(measured))) for run, found in unlike]
    if alike and not unlike:
        notices.append(SAME)
    return Beside(replace(outcome, steps=tuple(compared)), tuple((run,) for run in measured), tuple(notices))


def _said(found: Sequence[str], name: str, runs_: int) -> str:
    more = f" and {len(found) - MOST_DIFFERENCES} more" if len(found) > MOST_DIFFERENCES else ""
    return f"{f'{name}: ' if runs_ > 2 else ''}{'; '.join(found[:MOST_DIFFERENCES])}{more}"


def _ratios(base: Measured, other: Measured, metrics: Sequence[Metric]) -> dict[str, Comparison]:
    """One run against one: no interval, no verdict. Runs that do not count have no ratio."""
    found = {}
    for metric in metrics:
        a, b = metric.both((base.summary, base.calls), (other.summary, other.calls))
        if not (base.summary.valid and other.summary.valid):
            a = b = None
        e = st.estimate(st.Series([a], [b], [0], [1]))
        found[str(metric)] = Comparison(
            ratio=e.ratio, low=None, high=None, verdict="too_noisy", blocks=e.blocks, base=a, other=b
        )
    return found


def uncounted(measured: Sequence[Measured], metric: Metric) -> float | None:
    """The mean figure of runs whether they count or not: to be shown as what it is where none does."""
    values = [v for run in measured if (v := metric.of(run.summary, run.calls)) is not None]
    return sum(values) / len(values) if values else None


def settings(run: Mapping[str, Any]) -> dict[str, str]:
    """Everything by which one `run.json` may differ from another, by name: the engine, its settings, the work."""
    engine = run.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    emulation = engine.get("emulation")
    emulation = emulation if isinstance(emulation, dict) else {}
    resolved = engine.get("resolved")
    named = {"engine": engine.get("name"), "version": engine.get("version"), "model": engine.get("model")}
    named |= {"gpu": emulation.get("gpu") or engine.get("gpu"), "kv_tokens": engine.get("kv_tokens")}
    named |= {"seed": run.get("seed"), "not modelled": ", ".join(missed_by(emulation)) or None}
    found = {key: text(value) for key, value in named.items() if value is not None}
    found |= runs.workload(run)
    if isinstance(resolved, dict):
        found |= {str(key): text(value) for key, value in resolved.items()}
    return found


def differing(settings_: Sequence[Mapping[str, str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Names of which not all have the same value, in the order in which they were told, with everybody's values.

    One that tells nothing at all (it never ran) makes no difference. Where the KV cache has as many blocks in all of
    them, the tokens that the engine makes of these for itself make none either.
    """
    names = dict.fromkeys(name for one in settings_ for name in one)
    told = [one for one in settings_ if one]
    blocks = {one.get(BLOCKS) for one in told}
    if len(blocks) == 1 and None not in blocks:
        for name in MADE_OF_BLOCKS:
            names.pop(name, None)
    return [
        (name, tuple(one.get(name, "") for one in settings_))
        for name in names
        if len({one.get(name, "") for one in told}) > 1
    ]
