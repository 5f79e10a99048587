"""`windtunnel cost`: what a run's traffic costs an hour, on its machine and at APIs, for people and as JSON."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from windtunnel.simulator.engines import command as cmd
from windtunnel.simulator.results import emulation
from windtunnel.simulator.results.cautions import by_progress
from windtunnel.simulator.results.cost import AtApi, Traffic, at_apis, chosen, shipped, traffic
from windtunnel.simulator.results.eventless import with_events
from windtunnel.simulator.results.facts import command_of
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.text import count, marked, percent
from windtunnel.simulator.results.why_text import Paper
from windtunnel.simulator.view import opened, so_far
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Problem
from windtunnel.traces.outlet import safe, to_json

WIDTH = 80
_NAME = 34
_COLUMN = 11
_UNSAID = "; -: no hits are known, so the least is not"
ASSUMED = "one GPU is assumed, for the engine does not tell how many; --gpus N says it"

_VLLM = {
    f"--{name.replace('_', '-')}": f"parallel_config.{name}"
    for name in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "prefill_context_parallel_size",
    )
}
SIZES: dict[str, dict[str, str]] = {
    "vllm": _VLLM,
    "windtunnel-emulator": _VLLM,
    "sglang": {f"--{name}-size": f"server_args.{name}_size" for name in ("tp", "pp", "dp")},
    "tensorrt-llm": {f"--{name}-size": f"parallel_config.{name}_size" for name in ("tp", "pp", "cp")},
}
"""By the engine: flags whose product is its number of GPUs, and where its resolved settings have them."""
_SHORT = {"tp": "tensor", "pp": "pipeline", "dp": "data"}
_OF_VLLM = {f"-{short}": f"--{long}-parallel-size" for short, long in (*_SHORT.items(), ("pcp", "prefill-context"))}
_OF_OTHERS = {f"--{short}": f"--{short}-size" for short in _SHORT} | {
    f"--{long}-parallel-size": f"--{short}-size" for short, long in (*_SHORT.items(), ("cp", "context"))
}
SPELLINGS = {"vllm": _OF_VLLM, "windtunnel-emulator": _OF_VLLM, "sglang": _OF_OTHERS, "tensorrt-llm": _OF_OTHERS}
"""Other names of these flags."""
_SHARED = "--enable-dp-attention", "server_args.enable_dp_attention"
"""With it SGLang's data parallel ranks are the tensor parallel ones."""


class Cost(Struct, frozen=True, kw_only=True):
    """`windtunnel cost --json`. Money in $; of an hour like the run's window, or of a whole recording."""

    run_dir: str
    kind: str
    valid: bool
    invalid_reasons: tuple[str, ...]
    emulated: bool
    traffic: Traffic
    machine: float | None
    """An hour of it, all its GPUs."""
    gpus: int | None
    """None of a recording."""
    gpus_from: Literal["given", "engine", "assumed"] | None
    """Who says how many; assumed is one."""
    gpus_not_modelled: tuple[str, ...] = ()
    """Flags of an emulator that give it more GPUs than its times are of."""
    gpu_hour: float | None
    """Of one, rented."""
    apis: tuple[AtApi, ...]
    prices_as_of: str
    prices_source: str


def gpus_of(run: Mapping[str, Any]) -> int | None:
    """How many GPUs the engine of a run has, by its resolved settings, else by its command; None: neither tells."""
    engine = _engine(run)
    name = str(engine.get("name"))
    resolved, sizes = engine.get("resolved"), SIZES.get(name, {})
    settings = resolved if isinstance(resolved, dict) else {}
    shared = settings.get(_SHARED[1]) is True
    told = {flag: settings[where] for flag, where in sizes.items() if where in settings}
    if not told and sizes:
        given = _given(run, name)
        told = {flag: given[flag] for flag in sizes if flag in given}
        shared = _SHARED[0] in given
    else:
        told |= not_modelled(run)
    numbers = [_whole(value) for flag, value in told.items() if not (shared and flag == "--dp-size")]
    known = [number for number in numbers if number is not None]
    return math.prod(known) if known else None


def not_modelled(run: Mapping[str, Any]) -> dict[str, int]:
    """Sizes that an emulator was given and that its times leave out, by their flags."""
    engine = _engine(run)
    name, resolved, labels = str(engine.get("name")), engine.get("resolved"), engine.get("emulation")
    if name != "windtunnel-emulator" or not isinstance(resolved, dict):
        return {}
    ignored = labels.get("ignored_flags") if isinstance(labels, dict) else None
    words = [word for flag in ignored if isinstance(flag, str) for word in flag.split()] if ignored else []
    given = {**_given(run, name), **cmd.flags_of(words, SPELLINGS[name])}
    sizes = {flag: _whole(given.get(flag)) for flag, where in SIZES[name].items() if where not in resolved}
    return {flag: size for flag, size in sizes.items() if size is not None and size > 1}


def _engine(run: Mapping[str, Any]) -> dict[str, Any]:
    engine = run.get("engine")
    return engine if isinstance(engine, dict) else {}


def _given(run: Mapping[str, Any], name: str) -> dict[str, str]:
    """The flags of its command; none where it was not started by a command, or by none that can be read."""
    try:
        return cmd.flags_of(cmd.split(command_of(run) or "")[1], SPELLINGS[name])
    except UsageError:
        return {}


def _whole(value: Any) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number > 0 else None


def show(
    path: Path, *, gpu_hour: float | None, owned: float | None, gpus: int | None, apis: Sequence[str], as_json: bool
) -> int:
    """Print it. `gpu_hour`: $ for one GPU, rented; `owned`: $ for an hour of the whole machine."""
    known = shipped()
    prices = chosen(apis, known)
    problems: list[Problem] = []
    folder = with_events(RunFolder.open(path))
    folder.summary()  # one that cannot be read is told
    summary = opened(recompute(path, problems), folder)
    if state(folder, time.time()) == "running":
        summary = so_far(summary)
        what = "recording" if summary.kind == "recording" else "run"
        print(f"the {what} in {path} is still running; what follows is of what it has so far", file=sys.stderr)
    load = traffic(summary)
    told = None if gpus is not None else gpus_of(folder.run)
    left_out = not_modelled(folder.run) if told else {}
    known_gpus = gpus or told or 1
    hour = owned if gpu_hour is None else gpu_hour * known_gpus
    recording = summary.kind == "recording"
    cost = Cost(
        run_dir=str(path),
        kind=summary.kind,
        valid=summary.valid,
        invalid_reasons=tuple(summary.invalid_reasons),
        emulated=summary.emulated,
        traffic=load,
        machine=hour,
        gpus=None if recording else known_gpus,
        gpus_from=None if recording else "given" if gpus else "engine" if told else "assumed",
        gpus_not_modelled=tuple(f"{flag} {size}" for flag, size in left_out.items()),
        gpu_hour=gpu_hour,
        apis=tuple(at_apis(load, prices, summary.engine.model, hour)),
        prices_as_of=known.as_of,
        prices_source=known.source,
    )
    for problem in problems[:5]:
        print(problem, file=sys.stderr)
    if as_json:
        text = msgspec.json.format(to_json(cost), indent=1).decode()
        sys.stdout.buffer.write(safe(text).encode() + b"\n")
    else:
        print("\n".join(lines(cost, summary, own=bool(apis))))
    return 0


def lines(cost: Cost, summary: Summary, *, own: bool) -> list[str]:
    """For people. `own`: the prices were given."""
    load, paper = cost.traffic, Paper(WIDTH)
    recording = cost.kind == "recording"
    out = [f"{'the recording' if recording else 'an hour like the window of'} {cost.run_dir}"]
    if cost.emulated:
        told = emulation.in_words(summary.engine.emulation)
        out += paper.wrapped(f"EMULATED, not measured{': ' if told else ''}{told}", "")
    if not cost.valid:
        out += paper.wrapped(f"{'NOT WHOLE' if recording else 'NOT VALID'}: {', '.join(cost.invalid_reasons)}", "")
    could = ""
    if load.cacheable is not None and load.prompt:
        could = f" ({percent(load.cacheable / load.prompt)} possible)"
    if load.cached is None:
        cached = f"cached: unknown{could}"
    else:
        cached = f"{percent(load.cached / load.prompt if load.prompt else 0.0)} cached{could}"
    prompt, output = marked(summary, _millions(load.prompt)), marked(summary, _millions(load.output))
    told = f"{prompt} prompt tokens, {cached}, {output} output tokens"
    out += ["", *paper.wrapped(told, "traffic       ", " " * 14)]
    if said := by_progress(summary):
        out += paper.wrapped(said, " " * 14)
    out += _machine(cost)
    out += ["", *_table(cost)]
    out += paper.wrapped(_columns(cost), "")
    if any(one.same_model for one in cost.apis):
        out += paper.wrapped("* the model that was served here", "")
    out += paper.wrapped("Others answer differently: this compares what tokens cost, not what they are worth.", "")
    if not own:
        out += paper.wrapped(f"List prices of {cost.prices_as_of}, {cost.prices_source}; --api takes yours.", "")
    return out


def _columns(cost: Cost) -> str:
    """What the sums are made of."""
    load, endless = cost.traffic, "endless: with all that an endless cache could have had"
    if load.cached is not None:
        hits = f"as cached: with the hits of this {'recording' if cost.kind == 'recording' else 'run'}"
        return f"{hits}; {endless}" if load.cacheable is not None else hits
    unknown = "the server did not tell what came from its cache"
    if load.cacheable is not None:
        return f"{endless}; as cached: unknown, {unknown}"
    return f"as cached: unknown, {unknown}; endless: unknown too"


def _machine(cost: Cost) -> list[str]:
    load, hour = cost.traffic, cost.machine
    if cost.kind == "recording":
        told = "what a machine carries is told by a run, not by a recording"
        return [] if hour is None else [f"machine       {told}"]
    if hour is None:
        return ["machine       no price given: --gpu-hour, or --buy with --watts and --kwh"]
    whole = f"{_money(hour)} an hour"
    if cost.gpu_hour is None:
        whole += ", all its GPUs together"
    elif (cost.gpus or 1) > 1:
        whole = f"{count(cost.gpus or 1, 'GPU')} at {_money(cost.gpu_hour)}: {whole}"
    parts = [whole, f"{_money(hour / load.agents)} an agent"]
    if load.sessions:
        parts.append(f"{_money(hour / load.sessions)} a session equivalent")
    if load.output:
        parts.append(f"{_money(hour / load.output * 1e6)} per million output tokens, prompts included")
    said = ", ".join(parts)
    if cost.gpu_hour is not None and cost.gpus_from == "assumed":
        said += f"; {ASSUMED}"
    if cost.gpu_hour is not None and cost.gpus_not_modelled:
        said += f"; {', '.join(cost.gpus_not_modelled)} is in the price and not in the emulator's times, which are of "
        said += "fewer GPUs; --gpus N prices so many"
    return Paper(WIDTH).wrapped(said, "machine       ", " " * 14)


def _table(cost: Cost) -> list[str]:
    """A row for each API, dearest first."""
    load, priced = cost.traffic, cost.machine is not None and cost.kind != "recording"
    hits, most = load.cached is not None, load.cacheable is not None
    heads = ["as cached"] * hits + ["endless"] * most + ["no cache"]
    last = ["pays from"] if priced else []
    what = "$ for the same tokens" if cost.kind == "recording" else "$ an hour for the same tokens"
    out = [
        what.ljust(_NAME) + "".join(f"{head:>{_COLUMN}}" for head in heads) + "".join(f"{head:>11}" for head in last)
    ]
    for one in cost.apis:
        price = one.price
        kept = "-" if price.cached is None else f"{price.cached:g}"
        told = f" {price.input:g}/{kept}/{price.output:g}"
        name = f"{'*' if one.same_model else ''}{price.name}"[: _NAME - 1 - len(told)] + told
        sums = [one.as_cached_here] * hits + [one.all_that_can_be] * most + [one.nothing_cached]
        line = f"{name:<{_NAME}}" + "".join(f"{_money(value):>{_COLUMN}}" for value in sums if value is not None)
        out.append(line + (f"{_share(one.pays_from):>11}" if priced else ""))
    if priced:
        out += Paper(WIDTH).wrapped(
            "pays from: so many of its hours must the machine carry this load to cost no more than the least of these; "
            "no: not even always" + (_UNSAID if any(one.pays_from is None for one in cost.apis) else ""),
            "",
        )
    return out


def _share(value: float | None) -> str:
    if value is None:
        return "-"
    return "no" if value > 1 else f"{100 * value:.0f}%" if value >= 0.1 else f"{100 * value:.1f}%"


def _money(value: float) -> str:
    return f"${value:,.0f}" if value >= 1000 else f"${value:,.2f}" if value >= 0.1 else f"${value:,.4f}"


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:,.1f} M" if tokens >= 1e5 else f"{tokens:,.0f}"
