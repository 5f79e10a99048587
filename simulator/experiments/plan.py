"""Experiment files: which engine configurations are compared, on what workload, and for how long.

TOML. `[workload]` holds the flags of `windtunnel run` under the same names with `_`; `[engine]` the base command. Then
either `ladder` (each step changes the one before it), `variants` (each changes the base) or `grid` (all combinations).
"""

import itertools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.simulator.engines import command as cmd
from windtunnel.simulator.experiments.metrics import chosen
from windtunnel.simulator.experiments.statistics import LEAST_BLOCKS, MATTERS, RUN_NOISE, blocks_needed
from windtunnel.simulator.run.config import RunConfig, parse_seconds, parse_share
from windtunnel.simulator.toml_file import parsed
from windtunnel.traces.errors import UsageError

MOST_STEPS = 64
MOST_BLOCKS = 20
"""Of the budget that is derived; a file may say more."""
EMULATOR = "emulator"
NOT_HERE = ("target", "engine", "virtual", "out", "as_json", "json", "plain")
"""Flags of a run that an experiment sets itself."""


class Change(Struct, forbid_unknown_fields=True, kw_only=True):
    """One step of a ladder or one variant."""

    name: str
    set: dict[str, cmd.Value] = {}
    unset: list[str] = []
    env: dict[str, str] = {}
    command: str | None = None
    """In place of the base command."""
    target: str | None = None
    """A running server in place of a command."""
    lossy: bool = False
    """It may change what the model answers: faster is then not yet better."""
    why: str = ""


class Engine(Struct, forbid_unknown_fields=True, kw_only=True):
    command: str = EMULATOR
    name: str = "base"
    env: dict[str, str] = {}
    target: str | None = None
    virtual: bool | None = None
    """On the virtual clock; emulator only (default there: yes)."""
    why: str = ""


class Blocks(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When enough is known."""

    least: int = LEAST_BLOCKS
    most: int | None = None
    """Budget; default: blocks that show a difference that matters at the noise of real runs."""
    width: str | None = None
    """Half-width of the intervals at which no further block is run; default: when one that matters would be found."""
    matters: str = f"{MATTERS:.0%}"
    """Smallest difference that matters."""
    time: str | None = None
    """No block is begun after this."""
    order: str = "interleaved"
    """`interleaved`, or `blocked` where restarts are too slow: then nothing is better or worse than anything."""


class File(Struct, forbid_unknown_fields=True, kw_only=True):
    name: str | None = None
    about: str = ""
    steps_from: str | None = None
    """Take engine and steps from this file, beside this one."""
    workload: dict[str, Any] = {}
    engine: Engine | None = None
    blocks: Blocks = Blocks()
    metrics: list[str] = []
    ladder: list[Change] = []
    variants: list[Change] = []
    grid: dict[str, list[cmd.Value]] = {}


class Step(Struct, frozen=True, kw_only=True):
    """One configuration of the engine."""

    name: str
    command: str | None
    """Environment and words, `{port}` in it; None with `target`."""
    target: str | None = None
    previous: int | None = None
    """The step it is compared with, beside the base."""
    changes: tuple[str, ...] = ()
    """What it changes against `previous`, for people."""
    lossy: bool = False
    why: str = ""


class Plan(Struct, frozen=True, kw_only=True):
    name: str
    about: str
    path: Path
    workload: RunConfig
    steps: tuple[Step, ...]
    least: int
    most: int
    width: float | None
    matters: float
    time_s: float | None
    interleaved: bool
    virtual: bool
    metrics: tuple[str, ...]
    said: frozenset[str] = frozenset()
    """Names of the workload's flags that stand in the file, with _ for -."""


def shipped() -> dict[str, Path]:
    """Experiments that come with the program, by name."""
    entries = sorted(files("windtunnel.experiments").iterdir(), key=lambda entry: entry.name)
    return {entry.name.removesuffix(".toml"): Path(str(entry)) for entry in entries if entry.name.endswith(".toml")}


def find(named: Path) -> Path:
    """The file, or the shipped experiment of that name."""
    if named.exists():
        return named
    known = shipped()
    if str(named) in known:
        return known[str(named)]
    raise UsageError(f"{named} does not exist; give an experiment file, or one of {', '.join(known)}")


def load(path: Path) -> Plan:
    """Read and check an experiment file; UsageError says what is wrong and where."""
    file = _read(path)
    if file.steps_from is not None:
        if file.ladder or file.variants or file.grid:
            raise UsageError(f"{path}: steps_from brings the steps; take its own ladder, variants or grid out")
        if "\0" in file.steps_from:
            raise UsageError(f"{path}: steps_from is {file.steps_from[:80]!r}, which is no file's name; correct it")
        other = _read(path.parent / file.steps_from)
        file.engine = file.engine or other.engine
        file.ladder, file.variants, file.grid = other.ladder, other.variants, other.grid
    kinds = [name for name in ("ladder", "variants", "grid") if getattr(file, name)]
    if len(kinds) > 1:
        raise UsageError(f"{path}: {kinds[0]} and {kinds[1]} exclude each other; keep one of them")
    engine = file.engine or Engine()
    steps = _steps(path, engine, file)
    if len(steps) > MOST_STEPS:
        raise UsageError(f"{path}: it makes {len(steps)} steps, at most {MOST_STEPS} are run; take some values out")
    names = [step.name for step in steps]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: two steps are named {name!r}; give each its own name")
    blocks = file.blocks
    emulated = all(step.command is not None and is_emulated(step.command) for step in steps)
    if engine.virtual and not emulated:
        raise UsageError(f"{path}: engine.virtual is for the emulator only; leave it out or use the emulator")
    named = chosen(file.metrics)
    matters = parse_share(blocks.matters, f"{path}: blocks.matters")
    most = max(blocks.least, budget(steps, len(named), matters)) if blocks.most is None else blocks.most
    if not LEAST_BLOCKS <= blocks.least <= most:
        raise UsageError(f"{path}: blocks.least must be {LEAST_BLOCKS} to blocks.most, it is {blocks.least}")
    if blocks.order not in ("interleaved", "blocked"):
        raise UsageError(f"{path}: blocks.order is {blocks.order!r}; write interleaved or blocked")
    plan = Plan(
        name=file.name or path.stem,
        about=file.about,
        path=path,
        workload=_workload(path, file.workload),
        steps=tuple(steps),
        least=blocks.least,
        most=most,
        width=None if blocks.width is None else parse_share(blocks.width, f"{path}: blocks.width"),
        matters=matters,
        time_s=None if blocks.time is None else parse_seconds(blocks.time, f"{path}: blocks.time"),
        interleaved=blocks.order == "interleaved",
        virtual=emulated if engine.virtual is None else engine.virtual,
        metrics=tuple(file.metrics),
        said=frozenset(name.replace("-", "_") for name in file.workload),
    )
    if len(steps) < 2:
        raise UsageError(f"{path} has one configuration, nothing to compare; add [[variants]], [[ladder]] or [grid]")
    return plan


def budget(steps: Sequence[Step], metrics: int, matters: float) -> int:
    """Blocks by which a difference that matters shows at the noise of real runs, for a table of that many entries."""
    pairs = sum((step.previous is not None) + bool(step.previous) for step in steps)
    return blocks_needed(RUN_NOISE, matters, pairs * metrics, most=MOST_BLOCKS)


def _read(path: Path) -> File:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give an experiment file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    try:
        data = parsed(text)
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    try:
        return msgspec.convert(data, File)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        at = where.strip("`").removeprefix("$").removeprefix(".")
        raise UsageError(f"{path}: {what}" + (f", in {at}" if at else "") + "; see docs/compare.md") from error


def _steps(path: Path, engine: Engine, file: File) -> list[Step]:
    if engine.target and engine.env:
        raise UsageError(f"{path}: engine.target runs already; take engine.env out")
    env, words = ({}, []) if engine.target else _split(path, engine.command)
    env |= engine.env
    steps = [
        Step(
            name=engine.name,
            command=None if engine.target else cmd.join(env, words),
            target=engine.target,
            why=engine.why,
        )
    ]
    changes = file.ladder or file.variants or _grid(file.grid)
    for number, change in enumerate(changes):
        if engine.target and not (change.target or change.command):
            raise UsageError(
                f"{path}: step {change.name!r} changes flags of a server known by its URL; give it a target or command"
            )
        if change.target and (change.command or change.set or change.unset or change.env):
            raise UsageError(
                f"{path}: step {change.name!r} has a target, which runs already; take its other changes out"
            )
        before = (dict(env), list(words))
        if change.command is not None:
            env, words = _split(path, change.command)
        for name in [*change.set, *change.unset]:
            if not name.startswith("-"):
                raise UsageError(f"{path}: step {change.name!r} sets {name!r}; write it as a flag, --{name}")
        env, words = env | change.env, cmd.changed(words, change.set, change.unset)
        steps.append(
            Step(
                name=change.name,
                command=None if change.target else cmd.join(env, words),
                target=change.target,
                previous=number if file.ladder else 0,
                changes=tuple(_said(change)),
                lossy=change.lossy,
                why=change.why,
            )
        )
        if not file.ladder:
            env, words = before
    return steps


def _split(path: Path, command: str) -> tuple[dict[str, str], list[str]]:
    try:
        return cmd.split(command)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _grid(grid: Mapping[str, list[cmd.Value]]) -> list[Change]:
    """All combinations, in the order of the file; each is named by its values."""
    return [
        Change(
            name=" ".join(f"{flag.lstrip('-')}={value}" for flag, value in zip(grid, values, strict=True)),
            set=dict(zip(grid, values, strict=True)),
        )
        for values in itertools.product(*grid.values())
        if grid
    ]


def _said(change: Change) -> list[str]:
    said = [f"{name}={value}" for name, value in change.env.items()]
    said += [" ".join(cmd.changed([], {name: value})) for name, value in change.set.items()]
    said += [f"without {name}" for name in change.unset]
    return said + ([change.command or change.target or ""] if change.command or change.target else [])


def is_emulated(command: str) -> bool:
    return cmd.split(command)[1][0] == EMULATOR


def _workload(path: Path, given: Mapping[str, Any]) -> RunConfig:
    """`[workload]` through the very parser of `windtunnel run`."""
    from windtunnel.simulator.cli_options import config_of

    words: list[str] = []
    for name, value in given.items():
        if name in NOT_HERE:
            raise UsageError(f"{path}: workload.{name} is not the workload's; engines stand in [engine] and its steps")
        if name == "traces":
            words += [value] if isinstance(value, str) else [str(v) for v in value]
        elif value is True:
            words.append("--" + name.replace("_", "-"))
        elif value is not False:
            for one in value if isinstance(value, list) else [value]:
                words += ["--" + name.replace("_", "-"), str(one)]
    try:
        return config_of(words)
    except UsageError as error:
        raise UsageError(f"{path}: [workload] {error}") from error
