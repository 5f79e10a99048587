"""Configurations beside each other by the agents that they carry, and what may be said of the difference.

Each was searched on the same sessions with the same seeds. Its interval goes from the number that all seeds pass to the
last one that any passes. Only where two intervals have nothing in common is one said to carry more: by chance that
happens to three seeds against three others in one of ten searches, and less often the more seeds decide.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from windtunnel.simulator.experiments import step_runs as sr
from windtunnel.simulator.experiments.step_runs import StepRuns

Carries = Literal["more", "fewer", "no_difference_shown", "no_verdict"]
LEAST_SEEDS = 3
"""With fewer, intervals that have nothing in common are no rare accident."""
FEW_SEEDS = f"no verdict with fewer than {LEAST_SEEDS} seeds (--repeats)"
BEYOND = (
    "no verdict: the level held at the most that was tried (give a higher --most), or the client gave out first, "
    "or no run of the next number counts"
)
MIXED = "no verdict: one is emulated, the other measured"
LOSSY = "may change what the model answers: quality not checked"


class Versus(Struct, frozen=True, kw_only=True):
    """How many agents one carries against the first."""

    ratio: float | None
    """None where the first carries none."""
    low: float | None
    high: float | None
    """From its least over the other's most to its most over the other's least; None: without an end."""
    verdict: Carries
    why: str | None = None
    """Why there is no verdict."""


class Configuration(Struct, frozen=True, kw_only=True):
    """One of `configurations` in `windtunnel capacity --json`."""

    name: str
    command: str | None
    target: str | None
    agents: int | None = None
    """None where it did not start."""
    low: int | None = None
    high: int | None = None
    capped: bool = False
    open: bool = False
    """The interval has no upper end: a seed still passed the most that was tried, the client gave out first, or of
    the next number no run counts."""
    output_tokens_per_s: float | None = None
    kv_usage: float | None = None
    """Both at `agents`, means over its runs."""
    limit: str | None = None
    lever: str | None = None
    emulated: bool = False
    runs_made: int = 0
    not_valid: int = 0
    notes: tuple[str, ...] = ()
    lossy: bool = False
    """Against the first it may change what the model answers."""
    assumed: str | None = None
    """On what its number hangs that nobody measured."""
    unsteady: bool = False
    """Any of the runs that met the level from `low` on was still rising or falling: it may carry fewer."""
    not_steady: int = 0
    deciding: int = 0
    """How many of how many."""
    tried: bool = False
    """By `--try`."""
    failed: str | None = None
    same_as: str | None = None
    """Name of an earlier one whose settings these resolve to: it was not searched again."""
    again: tuple[int, int, int] | None = None
    """Of the first: agents, low and high, when it was looked at once more after all others."""
    versus_first: Versus | None = None
    folder: str = "."
    """Inside the search's."""


def silent(steps: Sequence[StepRuns], i: int, *, seeds: int) -> str | None:
    """Why nothing may be said of step `i` against the first; each has one run that stands for all."""
    if sr.other_work(steps[i], steps[0]):
        return sr.OTHER_WORK
    if sr.forced(steps[i], steps[0]):
        return sr.FORCED
    if flags := sr.unmodelled(steps[i], steps[0]):
        return sr.no_model(flags)
    emulated = {run.summary.emulated for step in (steps[i], steps[0]) for run in step.runs.values()}
    if len(emulated) > 1:
        return MIXED
    return FEW_SEEDS if seeds < LEAST_SEEDS else None


def versus(first: Configuration, other: Configuration, why: str | None) -> Versus | None:
    """`why`: a reason to say nothing; None where one of them was not measured."""
    if first.agents is None or other.agents is None:
        return None
    below, above = _interval(first)
    low, high = _interval(other)
    ratio = other.agents / first.agents if first.agents else None
    least = low / above if above else None if above == 0 else 0.0
    most = None if high is None or not below else high / below
    found = Versus(ratio=ratio, low=least, high=most, verdict="no_verdict", why=why)
    if why is not None:
        return found
    verdict: Carries = "no_difference_shown"
    if above is not None and low > above:
        verdict = "more"
    elif high is not None and high < below:
        verdict = "fewer"
    elif above is None or high is None:
        return Versus(ratio=ratio, low=least, high=most, verdict="no_verdict", why=BEYOND)
    return Versus(ratio=ratio, low=least, high=most, verdict=verdict)


def _interval(of: Configuration) -> tuple[int, int | None]:
    """With what it was when it was looked at again: a machine that drifts has a wide one."""
    assert of.low is not None
    assert of.high is not None
    lows, highs = [of.low], [of.high]
    if of.again is not None:
        lows.append(of.again[1])
        highs.append(of.again[2])
    return min(lows), None if of.open else max(highs)
