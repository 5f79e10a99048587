"""What an emulated result must say of itself: whose figures it emulates, how well that is known, and the error bar.

The emulator tells it (`/server_info`), the run keeps it (`engine.emulation` in `run.json`), every view of a result
shows it. None where the emulator did not say.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from windtunnel.traces.model import EMULATED
from windtunnel.traces.outlet import shown

NARROW_CACHE = "reading an 8-bit cache (fitted as slower than one of 16 bit)"
"""One of `Emulation.unverified`: halving the bytes cannot make reading slower, so a fit that says it is in doubt."""

_HARMLESS = {
    "keys": "--api-key --hf-token",
    "the HTTP server's manners": "--allow-credentials --allowed-headers --allowed-methods --allowed-origins "
    "--root-path --shutdown-timeout --disable-fastapi-docs --enable-offline-docs --enable-request-id-headers "
    "--enable-tokenizer-info-endpoint",
    "what is logged; not --disable-log-stats, which ends the engine's metrics": "--log-config-file --log-level "
    "--logging-config --max-log-len --uvicorn-log-level --disable-uvicorn-access-log "
    "--disable-access-log-for-endpoints --enable-log-requests --enable-log-outputs --enable-log-deltas "
    "--log-error-stack --aggregate-engine-logging",
    "how weights come to the engine, which is over when it serves": "--trust-remote-code --download-dir "
    "--use-tqdm-on-load",
    "in which fields of an answer the same tokens stand": "--reasoning-parser --reasoning-parser-plugin "
    "--tool-parser-plugin --response-role",
}
"""Reason to flags that are not modelled and surely change nothing that is measured: no label names them, no verdict
hangs on one.
"""
HARMLESS = frozenset(name for names in _HARMLESS.values() for name in names.split())

_DEFAULTS = frozenset({"--dtype auto"})
"""What is so without the flag, too."""


class Emulation(Struct, frozen=True, kw_only=True):
    gpu: str | None = None
    model: str | None = None
    vllm: str | None = None
    """Whose rules: `vLLM 0.32.0`."""
    calibrated: bool | None = None
    """Constants of the step time were fitted to measurements, by a profile."""
    fit: str | None = None
    """What they were fitted to."""
    unverified: tuple[str, ...] = ()
    """Figures without a source that the times rest on."""
    ignored: tuple[str, ...] = ()
    """Real vLLM flags that were given and that it does not model, with their values."""
    error_bar: float | None = None
    """Relative error to expect of times."""


def of_run(run: dict[str, Any]) -> Emulation | None:
    """By `run.json`; None for an engine that is none of ours."""
    engine = run.get("engine")
    if not isinstance(engine, dict) or engine.get("emulated") is not True:
        return None
    told = engine.get("emulation")
    told = told if isinstance(told, dict) else {}
    bar, calibrated = told.get("error_bar"), told.get("calibrated")
    return Emulation(
        gpu=_text(told.get("gpu")),
        model=_text(told.get("model")),
        vllm=_text(told.get("emulates")),
        calibrated=calibrated if isinstance(calibrated, bool) else None,
        fit=_text(told.get("fit")),
        unverified=_texts(told.get("unverified")),
        ignored=_texts(told.get("ignored_flags")),
        error_bar=float(bar) if isinstance(bar, int | float) else None,
    )


def announced(emulation: dict[str, Any] | None) -> str:
    """What a run says of an emulated engine before it begins."""
    found = of_run({"engine": {"emulated": True, "emulation": emulation}})
    told = in_words(found) if found is not None else ""
    return f"{EMULATED}{': ' if told else ''}{told}"


def in_words(emulation: Emulation) -> str:
    """One line for people.

    `vLLM 0.32.0's rules, H200, Qwen3-32B; uncalibrated, times +-20%; unverified: gpu; not modelled: --cpu-offload-gb 9`
    """
    rules = f"{emulation.vllm}'s rules" if emulation.vllm else ""
    what = ", ".join(shown(part) for part in (rules, emulation.gpu, emulation.model) if part)
    parts = [what, how_sure(emulation)]
    if emulation.unverified:
        parts.append(f"unverified: {', '.join(emulation.unverified)}")
    if flags := missed(emulation.ignored):
        parts.append(not_modelled(flags))
    return "; ".join(part for part in parts if part)


def missed(ignored: Iterable[str]) -> tuple[str, ...]:
    """Of flags that are not modelled those that may change what is measured."""
    return tuple(flag for flag in ignored if flag not in _DEFAULTS and not harmless(name_of(flag)))


def harmless(name: str) -> bool:
    """By a flag's name, `--no-` or not, or the name of a part of it."""
    return name.partition(".")[0].replace("--no-", "--", 1) in HARMLESS


def name_of(flag: str) -> str:
    """Without its value."""
    return flag.partition(" ")[0]


def not_modelled(flags: Iterable[str]) -> str:
    return f"not modelled: {', '.join(map(shown, flags))}"


def missed_by(emulation: Any) -> tuple[str, ...]:
    """The same of `engine.emulation` in `run.json`; nothing of an engine that is none of ours."""
    return missed(_texts(emulation.get("ignored_flags"))) if isinstance(emulation, dict) else ()


def how_sure(emulation: Emulation) -> str:
    """`uncalibrated, times +-20%`; empty where nothing is known."""
    fit = {True: "calibrated", False: "uncalibrated", None: ""}[emulation.calibrated]
    bar = "error of times not known" if emulation.error_bar is None else f"times {bar_of(emulation)}"
    return ", ".join(part for part in (fit, bar if fit or emulation.error_bar is not None else "") if part)


def bar_of(emulation: Emulation, sign: str = "+-") -> str:
    """`+-20%`; `+-?` where an emulator says that it does not know; empty where it says nothing."""
    if emulation.error_bar is None:
        return "" if emulation.calibrated is None else f"{sign}?"
    percent = 100 * emulation.error_bar
    return f"{sign}{percent:.0f}%" if percent >= 2 else f"{sign}{percent:.1f}%"


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
