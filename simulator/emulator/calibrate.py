"""Fits the step time's constants to measured cases.

Constants belong to a GPU and an engine, never to a row: whatever a model or a load needs must follow from the formula.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.measured import Case, Open
from windtunnel.simulator.emulator.ranges import REACHED
from windtunnel.simulator.emulator.reached import SPREAD, Reached, usual
from windtunnel.simulator.emulator.replay import COLUMNS, Floats, Played
from windtunnel.simulator.emulator.solve import loss, solve
from windtunnel.simulator.emulator.trial import Trial, statistics

_TABLE = 0.1
"""Relative error of a row's mean that counts one; rows of published tables differ that much between themselves."""
_FIRST_TOKEN = 0.5
"""Weight of a TTFT against a TPOT: it hangs on the client's ways."""
_RUN = 0.02
"""The same for a statistic of a run that was recorded request by request."""
_CALL = 0.03
"""The same for a call's time, if there were `_CALLS` of them."""
_CALLS = 10
_HELD_OUT = 10
"""Calls in the first halves together from which they are fitted alone."""
_SHORT = 1e-6
"""Seconds; keeps the logarithm finite."""
_TURNS = 14
"""Times that a recorded run's steps are scheduled anew with the constants found."""
_SAME = 0.003
_FEW = 8
"""Rows of a GPU below which its fit starts from all GPUs of its architecture."""

Talk = Callable[[str], None]


class Fitted(Struct, frozen=True):
    """Constants and what they come to."""

    reached: Reached
    in_sample: float
    held_out: float | None = None
    before: float | None = None
    """With the usual constants."""
    before_held_out: float | None = None
    """The same over the held-out calls."""

    @property
    def fault(self) -> str | None:
        """In which way these constants are no gain."""
        for which, error, before in (
            ("in sample", self.in_sample, self.before),
            ("held out", self.held_out, self.before_held_out),
        ):
            if error is not None and before is not None and error >= before:
                return f"the constants found are {error:.1%} off {which}, the usual ones {before:.1%}"
        return None


class Half(Enum):
    """Of each run's calls, by time."""

    FIRST = "first"
    SECOND = "second"

    def of(self, count: int) -> slice:
        return slice(0, count // 2) if self is Half.FIRST else slice(count // 2, None)


def fit(trials: Sequence[Trial], start: Reached, *, narrow: float = 1.0, part: Half | None = None) -> Reached:
    """The constants that suit all trials best; `narrow` scales how far they may go from `start`.

    With `part` only that half of the calls of recorded runs is looked at.
    """
    spread = {name: SPREAD[name] * narrow for name in _free(trials)}
    given = {name: value for name, value in asdict(start).items() if name in SPREAD}
    for name, other in (("he", "hw"), ("hfe", "hf"), ("hk8", "hk")):
        given[name] = given[name] or given[other]

    def residuals(values: dict[str, float]) -> list[float]:
        reached = replace(start, **values)
        return [residual for trial in trials for residual in _residuals(trial, reached, part)]

    if any(isinstance(trial.case.load, Open) for trial in trials):
        values = _by_turns(trials, start, given, spread, residuals)
    else:
        values = solve(residuals, given, spread, bounds=REACHED)
    return replace(start, **{name: float(f"{value:.4g}") for name, value in values.items()})


def _by_turns(
    trials: Sequence[Trial],
    start: Reached,
    given: dict[str, float],
    spread: dict[str, float],
    residuals: Callable[[dict[str, float]], list[float]],
) -> dict[str, float]:
    """Where a run's steps depend on how long they take: scheduled with the constants found, fitted again, and so on.

    Each turn goes half the way, since what a fit makes of the steps as they were is an overstatement.
    """
    values, best, lowest = given, given, np.inf
    for _ in range(_TURNS):
        for trial in trials:
            trial.freeze(replace(start, **values))
        cost = loss(residuals(values), values, given, spread)
        if cost < lowest:
            best, lowest = values, cost
        found = solve(residuals, given, spread, begin=values, bounds=REACHED)
        if all(abs(found[name] / values[name] - 1) < _SAME for name in spread):
            break
        values = values | {name: float(np.sqrt(values[name] * found[name])) for name in spread}
    for trial in trials:
        trial.thaw()
    return best


def fit_groups(trials: Sequence[Trial]) -> dict[str, Reached]:
    """Constants for each GPU that has trials, from these trials alone."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.case.gpu, []).append(trial)
    found: dict[str, Reached] = {}
    for key, own in groups.items():
        gpu = facts.gpu(key)
        relatives = [t for t in trials if int(facts.gpu(t.case.gpu).capability) == int(gpu.capability) > 0]
        if len(own) < _FEW and len(relatives) > len(own):
            found[key] = fit(own, fit(relatives, usual(gpu.bf16)), narrow=0.5)
        else:
            found[key] = fit(own, usual(gpu.bf16))
    return found


def calibrate(cases: Sequence[Case], talk: Talk = lambda _: None) -> Fitted:
    """Constants for recorded runs of one GPU, and their errors: in sample, and held out by time.

    For the latter the first half of each run's calls is fitted and the second half predicted.
    """
    trials = [Trial(case) for case in cases]
    start = usual(facts.gpu(cases[0].gpu).bf16)
    before = error_of(trials, start)
    talk(f"with the usual constants, of a GPU that nobody measured: {before:.1%} mean error")
    reached = fit(trials, start)
    in_sample = error_of(trials, reached)
    talk(f"fitted to all calls: {in_sample:.1%}")
    if not all(isinstance(case.load, Open) for case in cases):
        return Fitted(reached, in_sample, before=before)
    calls = [len(case.load.asks) for case in cases if isinstance(case.load, Open)]
    half = sum(count // 2 for count in calls)
    if half < _HELD_OUT:
        return Fitted(reached, in_sample, before=before)
    held_out = error_of(trials, fit(trials, start, part=Half.FIRST), part=Half.SECOND)
    whose = "each run's" if len(calls) > 1 else "the"
    talk(f"fitted to the first half of {whose} calls ({half}), the other {sum(calls) - half} predicted: {held_out:.1%}")
    return Fitted(reached, in_sample, held_out, before, error_of(trials, start, part=Half.SECOND))


def error_of(trials: Sequence[Trial], reached: Reached, part: Half | None = None) -> float:
    """Mean of absolute relative errors over all metrics."""
    errors: list[float] = []
    for trial in trials:
        measured, emulated = _both(trial, reached, part)
        errors += [abs(emulated[metric] / measured[metric] - 1) for metric in emulated if measured[metric] > 0]
    return float(np.mean(errors)) if errors else 0.0


def _residuals(trial: Trial, reached: Reached, part: Half | None) -> list[float]:
    case, played = trial.case, trial.played(reached)
    recorded = isinstance(case.load, Open)
    measured, emulated = _both(trial, reached, part, played)
    found: list[float] = []
    for metric, value in emulated.items():
        if measured[metric] <= 0 or value <= 0:
            continue
        if recorded:
            slack = 1e3 * _step_s(case) if metric.startswith("ttft") else 0.0
            found.append(float(np.log((value + slack) / (measured[metric] + slack))) / _RUN)
        else:
            weight = _FIRST_TOKEN if metric.startswith("ttft") else 1.0
            found.append(weight * float(np.log(value / measured[metric])) / _TABLE)
    if case.seen is not None:
        chosen = slice(None) if part is None else part.of(len(case.seen.output))
        found += _by_call(trial.as_seen(played, reached), case.seen, chosen, _step_s(case)).tolist()
    return found


def _by_call(played: Played, seen: Played, part: slice, step_s: float) -> Floats:
    """Each call's own times; together they count as much as a few statistics, however many calls there are."""
    calls = len(seen.output[part])
    counts = _CALL * np.sqrt(calls / _CALLS)
    several = seen.output[part] > 1
    columns = [
        np.log((mine[part] + slack) / (theirs[part] + slack))
        for mine, theirs, slack in (
            (played.ttft_s, seen.ttft_s, step_s),
            (played.tpot_s, seen.tpot_s, _SHORT),
            (played.e2e_s, seen.e2e_s, step_s),
        )
    ]
    together: Floats = np.concatenate([columns[0], columns[1][several], columns[2]]) / counts
    return together


def _step_s(case: Case) -> float:
    """Two of the run's typical steps: how much of the running one an arrival meets is chance."""
    if case.seen is None or not (case.seen.output > 1).any():
        return 0.0
    return 2 * float(np.median(case.seen.tpot_s[case.seen.output > 1]))


def _both(
    trial: Trial, reached: Reached, part: Half | None, played: Played | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """What was measured and what is emulated."""
    case = trial.case
    played = trial.played(reached) if played is None else played
    if part is None or case.seen is None:
        return case.measured, trial.metrics(played, reached)
    chosen = part.of(len(case.seen.output))
    return statistics(case.seen, chosen), trial.metrics(_some(played, chosen), reached)


def _some(played: Played, part: slice) -> Played:
    return replace(played, **{name: getattr(played, name)[part] for name in COLUMNS})


def _free(trials: Sequence[Trial]) -> list[str]:
    """The constants that these trials can tell something about."""
    dense = any(not trial.settings.model.experts for trial in trials)
    mixed = any(trial.settings.model.experts for trial in trials)
    narrow = {trial.settings.model.kv_share(trial.settings.kv_dtype) < 1 for trial in trials}
    wanted = {
        "hf": dense,
        "he": mixed,
        "hfe": mixed,
        "hk": False in narrow,
        "hk8": True in narrow,
        # One model's layers cannot be told from its steps.
        "layer_us": len({trial.case.model for trial in trials}) > 1,
        "request_ms": any(trial.case.client_side for trial in trials),
    }
    return [name for name in SPREAD if wanted.get(name, True)]
