"""`windtunnel capacity --try`: the engine's own command with a lever pulled, for each lever against what limits it."""

import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct

from windtunnel.simulator.diagnose import levers_left
from windtunnel.simulator.engines import command as cmd
from windtunnel.simulator.engines.levers import GPUS, HIGHER, KINDS, Lever
from windtunnel.simulator.experiments.plan import Step

MOST = 3
"""Levers that are tried; each takes a search."""
NAME = "with {}"
"""Of what is tried, `with --kv-cache-dtype fp8`."""
SETTINGS = {
    "--gpu-memory-utilization": "cache_config.gpu_memory_utilization",
    "--max-num-seqs": "scheduler_config.max_num_seqs",
    "--max-num-batched-tokens": "scheduler_config.max_num_batched_tokens",
}
"""Where vLLM and the emulator tell what a flag that is to be raised stands at; SGLang tells it by the flag's name."""


class Try(Struct, frozen=True):
    step: Step
    """Named by its flags, see `NAME`."""
    flags: str


class Tries(Struct, frozen=True):
    pulled: tuple[Try, ...]
    """Best first."""
    left_out: tuple[str, ...]
    """What is known against the limit beside them, each with why it is not tried here."""
    further: tuple[Try, ...] = ()
    """What could be tried too, beyond `MOST`."""


def tries(kind: str, command: str, run: Mapping[str, Any]) -> Tries:
    """Against the limit `kind`, on the engine of `command`; `run` is the `run.json` of a run of it."""
    engine = run.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    resolved = engine.get("resolved")
    settings = resolved if isinstance(resolved, dict) else {}
    if kind not in KINDS or not engine:
        return Tries((), ())
    pulled: list[Try] = []
    left_out: list[str] = []
    for lever in levers_left({**run, "config": {"engine": command}}, kind, settings):
        flags, why = _flags(lever, command, settings)
        if flags is None:
            left_out.append(f"{lever.text}: {why}")
        else:
            pulled.append(Try(_step(lever, flags, command), flags))
    return Tries(tuple(pulled[:MOST]), tuple(left_out), tuple(pulled[MOST:]))


def _flags(lever: Lever, command: str, settings: Mapping[str, Any]) -> tuple[str | None, str]:
    """What is to be added to the command; or None and why not."""
    if lever.note == GPUS:
        return None, "it takes twice the GPUs, which is another machine"
    if lever.flag is None or lever.flag == "--workers":
        return None, "no flag of the engine's command"
    if lever.text.startswith(HIGHER):
        return _raised(lever, lever.flag, command, settings)
    words = shlex.split(lever.text)
    follow = [not word.startswith("--") for word in words]
    if any(a and b for a, b in pairwise(follow)):
        return None, "its value is yours to choose"
    return lever.text, ""


def _raised(lever: Lever, flag: str, command: str, settings: Mapping[str, Any]) -> tuple[str | None, str]:
    """To the most of a share; to twice a number."""
    given = cmd.flags_of(cmd.split(command)[1]).get(flag)
    of_sglang = settings.get("server_args." + flag.removeprefix("--").replace("-", "_"))
    told = settings.get(SETTINGS.get(flag, ""), of_sglang)
    try:
        now = float(told if told is not None else str(given))
    except (TypeError, ValueError):
        return None, "what it stands at is not known, so neither is what is higher"
    if lever.most is not None:
        return f"{lever.text.removeprefix(HIGHER)} {lever.most:g}", ""
    return f"{lever.text.removeprefix(HIGHER)} {round(2 * now)}", ""


def _step(lever: Lever, flags: str, command: str) -> Step:
    env, words = cmd.split(command)
    added = shlex.split(flags)
    left = cmd.changed(words, {}, [word for word in added if word.startswith("--")])
    return Step(
        name=NAME.format(flags), command=cmd.join(env, [*left, *added]), previous=0, changes=(flags,), lossy=lever.lossy
    )
