"""Which configurations `windtunnel capacity` is asked of, and on what workload: flags, or an experiment file."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.cli_options import to_config
from windtunnel.simulator.experiments.plan import Step, is_emulated, load, shipped
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.traces.errors import UsageError

NAMED = re.compile(r"(?P<name>[^\s:=\"'{}](?:(?! -)[^:=\"'{}]){0,59}?)\s*:\s+(?P<command>\S.*)", re.DOTALL)
"""`8 bit: vllm serve ...`. No command has a colon and a blank before its first flag, quote or `=`."""
FIELDS = {
    "shape": "traces",
    "duration": "duration_s",
    "ramp": "ramp_s",
    "no_text": "text",
    "metrics_url": "metrics_urls",
    "header": "headers",
    "api_key": "headers",
}
"""Of the workload, by the names of flags that are called otherwise."""
ENDS = frozenset({"duration", "sessions", "calls"})
VIRTUAL_DURATION_S = 1200.0
"""Default window where only the emulator is asked: at five minutes numbers still pass that twenty do not let pass."""
LONG_WAITS_WARMUP_S = 300.0
"""Default where a human's wait has no cap: two calls of each agent may lie hours apart there."""


class Asked(Struct, frozen=True, kw_only=True):
    workload: RunConfig
    """Without an engine, and with a level."""
    steps: tuple[Step, ...]
    out: str | None
    in_real_time: bool = False
    """An experiment that asks for the emulator as a process."""

    def virtual(self, step: Step) -> bool:
        return not self.in_real_time and step.command is not None and is_emulated(step.command)


def asked(flags: Mapping[str, Any], given: Collection[str], *, default_slo: str) -> Asked:
    """`flags` as click read them, `given`: those that stood on the command line."""
    engines: tuple[str, ...] = flags["engine"]
    for engine in engines:
        if not engine.strip():
            raise UsageError("--engine: it is empty, give a command or leave it out for the emulator")
        if NAMED.fullmatch(f"{engine.strip()} x") and engine.strip().endswith(":"):
            raise UsageError(f"--engine {engine.strip()} has a name and no command: write 'NAME: COMMAND'")
    named = [NAMED.fullmatch(engine.strip()) for engine in engines]
    commands = [engine if found is None else found["command"] for engine, found in zip(engines, named, strict=True)]
    one = {**flags, "engine": commands[0] if commands else None}
    file = _experiment(flags["traces"])
    if file is not None:
        return _of_file(file, {**one, "traces": ()}, given, default_slo)
    config = to_config({**one, "slo": flags["slo"] or default_slo})
    if len(engines) < 2:
        command = None if config.target else config.engine or "emulator"
        name = "as asked" if not engines or named[0] is None else named[0]["name"]
        steps = [Step(name=name, command=command, target=config.target)]
    else:
        steps = [
            Step(name=f"engine {i + 1}" if found is None else found["name"], command=command, previous=0 if i else None)
            for i, (command, found) in enumerate(zip(commands, named, strict=True))
        ]
    for step in steps:
        if [other.name for other in steps].count(step.name) > 1:
            raise UsageError(f"--engine: two are named {step.name!r}; give each its own name")
        if config.virtual and (step.command is None or not is_emulated(step.command)):
            raise UsageError(
                '--virtual asks the emulator in this process: give --engine "emulator ..." or leave it out'
            )
    what = Asked(workload=_plain(config), steps=tuple(steps), out=config.out)
    return _with_defaults(what, given)


def _with_defaults(what: Asked, said: Collection[str]) -> Asked:
    """Lengths that a search needs, where the flags in `said` and the file leave them open."""
    workload = what.workload
    if ENDS.isdisjoint(said) and all(what.virtual(step) for step in what.steps):
        workload = replace(workload, duration_s=VIRTUAL_DURATION_S)
    if "warmup" not in said and _waits_long(workload):
        workload = replace(workload, warmup=Warmup(calls=None, seconds=LONG_WAITS_WARMUP_S))
    return replace(what, workload=workload)


def _waits_long(config: RunConfig) -> bool:
    """Whether a wait for a tool or a human is as long as it was recorded, or in proportion to that."""
    dials = (config.human_time, config.tool_time)
    return any(config.pace == "recorded" if d is None else d.kind in ("recorded", "scale") for d in dials)


def _plain(config: RunConfig) -> RunConfig:
    # The clock is the engine's: said or not, it is the same question.
    return replace(config, target=None, engine=None, out=None, virtual=False, text=False)


def _experiment(traces: tuple[str, ...]) -> Path | None:
    if len(traces) != 1:
        return None
    if traces[0].endswith(".toml"):
        return Path(traces[0])
    return None if Path(traces[0]).exists() else shipped().get(traces[0])


def _of_file(file: Path, flags: dict[str, Any], given: Collection[str], default_slo: str) -> Asked:
    for name in ("engine", "target"):
        if name in given:
            raise UsageError(f"--{name}: the engines stand in {file}; leave out one of the two")
    if not file.exists():
        raise UsageError(f"{file} does not exist; give an experiment file, or one of {', '.join(shipped())}")
    plan = load(file)
    config = to_config({**flags, "engine": None})
    fields = {FIELDS.get(name, name) for name in given if name not in ("traces", "out", "virtual", "slo")}
    if fields & {"duration_s", "sessions", "calls"}:
        fields |= {"duration_s", "sessions", "calls"}  # one end takes the place of another
    changed = {name: getattr(config, name) for name in fields if name in RunConfig.__struct_fields__}
    workload = replace(plan.workload, **changed, slo=config.slo or plan.workload.slo or default_slo)
    what = Asked(
        workload=_plain(workload),
        steps=plan.steps,
        out=config.out,
        in_real_time=not plan.virtual and all(s.command is not None and is_emulated(s.command) for s in plan.steps),
    )
    return _with_defaults(what, {*plan.said, *given})
