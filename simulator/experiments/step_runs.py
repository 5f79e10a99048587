"""What has to be known of a configuration before its figures are held against another's: whether both did the same
work, whether answers may have become worse, whether anybody judged the drafts that it rests on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from windtunnel.simulator.experiments import runs
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.results.emulation import NARROW_CACHE, missed_by, name_of, not_modelled

SAME = "resolves to the same settings as {}: one configuration"
LOSSY = "faster, quality not checked"
LOSSY_IN_PART = "better in part, quality not checked"
LOSSY_NOT_FASTER = "quality not checked: it may change what the model answers"
FORCED = (
    "no verdict: drafts were accepted or refused on forced text; give a synthetic acceptance, or measure with real text"
)
BLOCKED = "no verdict: the runs were not interleaved"
NOT_MODELLED = "no verdict: the emulator does not model {}"
OTHER_WORK = "no verdict: its settings made other sessions be replayed than those it is compared with"
LIVE = "{} is still going on: its figures so far, and no verdict"
BY_PROGRESS = "{}: ~{:,} of its output tokens are of calls without an end, as far as its progress saw them"
ASSUMED = "acceptance is assumed: the emulator has no drafts to judge"
OTHER_MODEL = "same work forced on both models: speed only"


PRECISIONS = (
    "model_config.quantization",
    "model_config.dtype",
    "cache_config.cache_dtype",
    "cache_config.mamba_cache_dtype",
    "cache_config.mamba_ssm_cache_dtype",
    "server_args.quantization",
    "server_args.kv_cache_dtype",
)
"""Settings of weights, KV cache and state, in the engines' names: one below 16 bits (of a state: 32) is lossy."""


class StepRuns(Struct, frozen=True, kw_only=True):
    """One configuration's runs."""

    name: str
    runs: Mapping[int, Measured]
    """Block to run."""
    previous: int | None = None
    """Index of the step it extends; None for the base."""
    changes: tuple[str, ...] = ()
    lossy: bool = False
    failed: str | None = None
    """Why it did not start."""
    why: str = ""


def resolved(step: StepRuns) -> dict[str, Any]:
    run = next(iter(step.runs.values()), None)
    engine = None if run is None else run.run.get("engine")
    if not isinstance(engine, dict):
        return {}
    return {key: engine.get(key) for key in ("name", "version", "model", "kv_tokens", "emulation", "resolved")}


def _setting(step: StepRuns, name: str) -> Any:
    settings = resolved(step).get("resolved")
    return settings.get(name) if isinstance(settings, dict) else None


def speculates(step: StepRuns) -> bool:
    run = next(iter(step.runs.values()), None)
    engine = None if run is None else run.run.get("engine")
    told = engine.get("speculation") if isinstance(engine, dict) else None
    return told is not None or _setting(step, "speculative_config.method") is not None


def forced(step: StepRuns, other: StepRuns) -> bool:
    """Whether drafts of one of them were judged on text that the model would not have written.

    The emulator has no text to judge: its acceptance is a table's or the user's, and it says so.
    """
    return any(
        speculates(s)
        and not (resolved(s).get("emulation"))
        and not any(run.natural for run in s.runs.values())
        and _setting(s, "speculative_config.rejection_sample_method") != "synthetic"
        for s in (step, other)
    )


def other_work(step: StepRuns, other: StepRuns) -> bool:
    """Whether the two did not replay the same sessions: one's context is shorter, or the traces were changed since."""
    return len({runs.played(run.run) for s in (step, other) for run in s.runs.values()}) > 1


def unmodelled(step: StepRuns, other: StepRuns) -> tuple[str, ...]:
    """Flags by which the two differ and that an emulated one of them does not model: what they bring is not in it."""
    if not step.runs or not other.runs:
        return ()
    mine, theirs = (missed_by(resolved(s).get("emulation")) for s in (step, other))
    return tuple(flag for flag in (*mine, *theirs) if (flag in mine) != (flag in theirs))


def no_model(flags: Sequence[str]) -> str:
    """Why nothing may be said of two that differ by these flags."""
    return NOT_MODELLED.format(", ".join(dict.fromkeys(map(name_of, flags))))


def assumed(step: StepRuns, *, told: Sequence[str] = ()) -> str | None:
    """What of an emulated engine's times is in doubt: which drafts would be accepted, how fast its cache is read, what
    flags would do that are not modelled (those that are not `told` already).
    """
    emulation = resolved(step).get("emulation")
    if not emulation:
        return None
    doubted = NARROW_CACHE in (emulation.get("unverified") or ())
    said = [ASSUMED] if speculates(step) else []
    flags = [flag for flag in missed_by(emulation) if flag not in told]
    said += [f"unverified: {NARROW_CACHE}"] if doubted else []
    return "; ".join([*said, *([not_modelled(flags)] if flags else [])]) or None


def models(steps: Sequence[StepRuns]) -> int:
    """How many different ones ran."""
    return len({resolved(step).get("model") for step in steps if step.runs})


def lossy(steps: Sequence[StepRuns], i: int) -> bool:
    """Whether answers may have become worse against the base: it says so, or one that it extends, or its precision."""
    step = steps[i]
    if step.lossy or any(_coarser(_setting(step, name), _setting(steps[0], name), name) for name in PRECISIONS):
        return True
    return step.previous is not None and step.previous < i and lossy(steps, step.previous)


def _coarser(mine: Any, base: Any, name: str) -> bool:
    whole = {"auto", "none", "float32"} if "mamba" in name else {"auto", "none", "float32", "bfloat16", "float16"}
    return mine is not None and mine != base and str(mine).removeprefix("torch.").lower() not in whole
