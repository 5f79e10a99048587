"""The published ladder of one engine: calibrated on its first rung alone, its last one predicted.

One figure fixes one number. Here it is a factor on all times of a step alike: the shares of the peaks that are reached
are divided by it, the fixed times multiplied. What each later rung does follows from the formula and from figures that
have a source or are named as assumed; the sensitivity of the last rung to each of them is computed, with the factor
fitted to the first rung again each time.
"""

import tomllib
from functools import cache

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.constants import Constants, constants, figures
from windtunnel.simulator.emulator.measured import Case, Closed
from windtunnel.simulator.emulator.profile import Errors, Profile, Source
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.simulator.emulator.shipped_text import shipped_text
from windtunnel.simulator.emulator.trial import Trial

_SHARES = ("hw", "hf", "hk", "ha", "he", "hfe", "hk8")
_TIMES = ("step_ms", "seq_us", "layer_us")
_FIGURE_SHARES = ("state_triton", "state_flashinfer", "exchange_gb_s")
_FIGURE_TIMES = ("cpu_step_ms", "cpu_sequence_us", "draft_pass_us", "eager_layer_us", "piecewise_layer_us", "lookup_us")
_METRIC = "output_tokens_per_s"
_LENGTHS = (1.4, 1.95)
VARIED = (
    "cpu_step_ms",
    "cpu_sequence_us",
    "threads_factor",
    "state_triton",
    "state_flashinfer",
    "draft_pass_us",
    "skew",
)
"""Assumed figures that the ladder hangs on."""


class Rung(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    mechanism: str
    source: str
    flags: list[str] = []
    environ: dict[str, str] = {}
    measured: float | None = None


class _Ladder(Struct, frozen=True, forbid_unknown_fields=True):
    gpu: str
    model: str
    flags: list[str]
    concurrency: int
    tokens_in: int
    tokens_out: int
    rung: list[Rung]


class Climbed(Struct, frozen=True):
    """One rung as emulated."""

    rung: Rung
    emulated: float
    """Output tokens a second."""

    @property
    def measured(self) -> float | None:
        return self.rung.measured


class Swing(Struct, frozen=True):
    """The last rung with one assumed figure lower and higher."""

    figure: str
    value: float
    low: float
    at_low: float
    high: float
    at_high: float


def climb(known: Constants | None = None) -> list[Climbed]:
    """All rungs, with the factor that the first one's measured figure gives."""
    known = known or constants()
    trials = _trials()
    reached, scaled = fitted(known)
    rungs = ladder().rung
    return [Climbed(rung, trial.emulated(reached, scaled)[_METRIC]) for rung, trial in zip(rungs, trials, strict=True)]


def factor(known: Constants | None = None) -> float:
    """On all times of a step, so that the first rung comes out as measured."""
    known, first, trial = known or constants(), ladder().rung[0], _trials()[0]
    assert first.measured is not None
    found = 1.0
    for _ in range(6):  # requests' ways outside of steps do not scale, so once is not quite enough
        found *= trial.emulated(*_scaled(known, found))[_METRIC] / first.measured
    return found


def if_synchronous() -> float:
    """The last rung, had the first one run one step after the other."""
    first = ladder().rung[0]
    assert first.measured is not None
    slow = Trial(replace(_trials()[0].case, flags=(*_trials()[0].case.flags, "--no-async-scheduling")))
    found = 1.0
    for _ in range(6):
        found *= slow.emulated(*_scaled(constants(), found))[_METRIC] / first.measured
    return _trials()[-1].emulated(*_scaled(constants(), found))[_METRIC]


def fitted(known: Constants | None = None) -> tuple[Reached, Constants]:
    known = known or constants()
    return _scaled(known, factor(known))


def profile() -> Profile:
    """The ladder's GPU as calibrated on the first rung, as `--profile ladder` has it."""
    reached, scaled = fitted()
    known, changed = asdict(constants()), asdict(scaled)
    top = climb()[-1]
    assert top.measured is not None
    first = Source("the published ladder's first rung", f"{ladder().rung[0].measured:g} tokens/s", ladder().model, 256)
    return Profile(
        gpu=ladder().gpu,
        engine="vllm 0.32.0rc1",
        reached=reached,
        error=Errors(in_sample=0.0, held_out=abs(top.emulated / top.measured - 1), split="the ladder's last rung"),
        figures={name: value for name, value in changed.items() if value != known[name]},
        source=(first,),
    )


def swings() -> list[Swing]:
    """How the last rung moves with each assumed figure at half and at twice its value (shares: at most 1)."""
    found: list[Swing] = []
    for name in VARIED:
        value = getattr(constants(), name)
        low, high = value / 2, min(2 * value, 1.0) if value <= 1 and name not in _FIGURE_TIMES else 2 * value
        ends = [_top(replace(constants(), **{name: changed})) for changed in (low, high)]
        found.append(Swing(name, value, low, ends[0], high, ends[1]))
    top = _trials()[-1]
    assert top.settings.speculation is not None
    reached = fitted()
    ends = [_accepting(length).emulated(*reached)[_METRIC] for length in _LENGTHS]
    found.append(Swing("acceptance", top.settings.speculation.length, _LENGTHS[0], ends[0], _LENGTHS[1], ends[1]))
    return found


def said(name: str) -> str:
    """What a figure is and where it comes from."""
    if name == "acceptance":
        return "tokens that a verification of one draft yields; continued from lengths measured at K = 3 and 7"
    figure = figures()[name]
    return f"{figure.unit}; {figure.source}"


@cache
def ladder() -> _Ladder:
    text = shipped_text("ladder.toml")
    return msgspec.convert(tomllib.loads(text), _Ladder)


def _accepting(length: float) -> Trial:
    """The last rung with another acceptance."""
    case = _trials()[-1].case
    drafts = '"num_speculative_tokens":1'
    asked = f'{drafts},"rejection_sample_method":"synthetic","synthetic_acceptance_length":{length}'
    return Trial(replace(case, flags=tuple(flag.replace(drafts, asked) for flag in case.flags)))


def _top(known: Constants) -> float:
    return _trials()[-1].emulated(*fitted(known))[_METRIC]


@cache
def _trials() -> list[Trial]:
    plan = ladder()
    flags = ["--gpu", plan.gpu, "--model", plan.model, "--max-num-seqs", str(plan.concurrency), *plan.flags]
    environ: dict[str, str] = {}
    trials: list[Trial] = []
    load = Closed("fixed", plan.concurrency, plan.tokens_in, plan.tokens_out)
    for rung in plan.rung:
        flags = _added(flags, rung.flags)
        environ = environ | rung.environ
        case = Case(
            id=rung.name,
            flags=tuple(flags),
            load=load,
            environ=tuple(environ.items()),
            measured={_METRIC: rung.measured or 1.0},
            gpu=plan.gpu,
            model=plan.model,
        )
        trials.append(Trial(case))
    return trials


def _added(flags: list[str], more: list[str]) -> list[str]:
    """A switch replaces its opposite; of a flag given twice the parser takes the later value."""
    opposite = {f"--{flag.removeprefix('--no-')}" if flag.startswith("--no-") else f"--no-{flag[2:]}" for flag in more}
    return [flag for flag in flags if flag not in opposite] + more


def _scaled(known: Constants, by: float) -> tuple[Reached, Constants]:
    reached = facts.gpu(ladder().gpu).reached
    shares = {name: value / by for name in _SHARES if (value := getattr(reached, name)) is not None}
    times = {name: getattr(reached, name) * by for name in _TIMES}
    figured = asdict(known)
    changed = {name: figured[name] / by for name in _FIGURE_SHARES}
    changed |= {name: figured[name] * by for name in _FIGURE_TIMES}
    return replace(reached, **shares, **times), replace(known, **changed)
