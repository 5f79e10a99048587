"""How many agents an engine carries: runs at the numbers that the search asks for, and one sentence of it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.diagnose import Diagnosis, diagnose
from windtunnel.simulator.engines.command import files_of, split
from windtunnel.simulator.experiments.carried import Configuration
from windtunnel.simulator.experiments.claim import set_aside, taken
from windtunnel.simulator.experiments.digests import digest
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.experiments.readings import judged_by, reading_of, said
from windtunnel.simulator.experiments.search import Edge, Reading, Search, curve
from windtunnel.simulator.experiments.tries import NAME, tries
from windtunnel.simulator.experiments.waits import beside_pace
from windtunnel.simulator.results import emulation
from windtunnel.simulator.results.bottleneck import CLIENT_LATE
from windtunnel.simulator.results.facts import command_of
from windtunnel.simulator.results.files import read_regular
from windtunnel.simulator.results.lines import UNREADABLE
from windtunnel.simulator.results.searched import ANSWER_FILE, PLAN_FILE, unanswered
from windtunnel.simulator.results.store import SUMMARY_FILE, RunFolder
from windtunnel.simulator.results.text import count
from windtunnel.simulator.results.validity import in_words
from windtunnel.simulator.run.config import RunConfig
from windtunnel.traces.errors import EngineError, RunError, UsageError
from windtunnel.traces.outlet import to_json

DEFAULT_SLO = "ttft_s.p90<3,tpot_s.p90<0.05"
"""Somebody waits for it: three seconds to begin, 20 tokens a second."""


NOT_TRIED = (
    "not tried: {}: one of them may carry more; leave --try out and ask for each with an --engine of its own beside "
    'the plain one, --engine "..." --engine "... {}"'
)


class Runner(Protocol):
    async def identity(self, step: Step) -> str | None: ...

    async def run(self, step: Step, seed: int, out: Path, *, agents: int | None = None) -> None: ...

    async def close(self) -> None: ...


class Capacity(Struct, frozen=True, kw_only=True):
    """`windtunnel capacity --json`."""

    agents: int
    low: int
    high: int
    limit: str | None
    """What stops it first; None where the level still held at the most that was tried, or nothing tells."""
    lever: str | None
    lever_note: str | None = None
    """What has to be known of the lever first: what it may cost, and what is only assumed."""
    points: list[dict[str, Any]]
    """Each number that was tried: means over its runs, how many met the level, and how many of them are valid."""
    slo: str
    capped: bool
    """The engine may carry more: the level held at the most that was tried, the client gave out first, or of the next
    number no run counts."""
    pace: str
    """As given; `overrides` may leave little of it."""
    emulated: bool
    emulation: str | None = None
    """Whose figures they are and how far their times may be off."""
    evidence: str | None
    notes: tuple[str, ...]
    not_valid: int = 0
    """Runs that are not valid, of all that were made."""
    not_counted: int = 0
    """Runs that tell nothing of the level."""
    not_steady: int = 0
    """Of `deciding`: those that were still rising or falling, so that the answer may be too high."""
    deciding: int = 0
    """Runs that met the level from `low` agents on."""
    beyond: str | None = None
    """Name of the run in `runs` that the limit is read from."""
    runs: str
    """Folder with a run for each reading."""
    overrides: dict[str, str] = {}
    """What takes the place of the pace's own waits, by flag; of single calls their `shape`."""
    configurations: tuple[Configuration, ...] = ()
    """All that were asked, the first included, whose figures are those above; empty where it was one alone."""
    untried: tuple[str, ...] = ()
    """Flags for its command that are known against the limit and that `--try` did not search, best first; without those
    that take other hardware."""

    def beside(self, rows: Sequence[Configuration], notes: Sequence[str], runs: str) -> "Capacity":
        """The same with all configurations that were searched; what `--try` left aside is known by what it searched."""
        tried = [row.name for row in rows if row.tried]
        left = tuple(flags for flags in self.untried if NAME.format(flags) not in tried) if tried else self.untried
        said = [NOT_TRIED.format("; ".join(left), left[0])] if tried and left else []
        every = (*self.notes, *notes, *said)
        return replace(self, configurations=tuple(rows), notes=every, runs=runs, untried=left)


class NothingCountsError(RunError):
    """Runs were made, and none of them tells what a search needs to know."""


class Readings:
    """Runs in one folder, each of them made once: a search that was ended goes on where it stood."""

    def __init__(self, runner: Runner, step: Step, folder: Path, seed: int, talk: Callable[[str], None]) -> None:
        self.emulated = False
        self.emulation: str | None = None
        self.made = 0
        """Runs that were not there before, and what they took."""
        self.seconds = 0.0
        self._runner = runner
        self._step = step
        self._folder = folder
        self._seed = seed
        self._talk = talk

    async def measure(self, agents: int, seed: int) -> Reading:
        out = self._folder / f"agents-{agents:04}-seed-{self._seed + seed}"
        if not (out / SUMMARY_FILE).exists():
            set_aside(out)
            self._folder.mkdir(parents=True, exist_ok=True)
            began = time.monotonic()
            try:
                await self._runner.run(self._step, self._seed + seed, out, agents=agents)
            except EngineError as error:
                if not (out / SUMMARY_FILE).exists():  # it did not start
                    raise
                self._talk(str(error))
            self.made, self.seconds = self.made + 1, self.seconds + time.monotonic() - began
        summary = RunFolder.open(out).summary(strict=True)
        if summary is None:
            raise RunError(f"{out} was ended before it had a summary; start again to go on")
        self.emulated |= summary.emulated
        if summary.emulated:
            self.emulation = emulation.in_words(summary.engine.emulation) or None
        reading = reading_of(RunFolder.open(out).run, summary, agents, seed, out)
        self._talk(f"{count(agents, 'agent')}, seed {seed}: {said(summary, reading)}")
        return reading


@contextmanager
def claimed(folder: Path, workload: RunConfig, step: Step) -> Iterator[None]:
    """Work in the folder alone: make it, or go on in it; UsageError where other work was done there."""
    config = replace(workload, agents=1, seed=0, out=None).as_json()
    work: dict[str, object] = {"workload": config, "command": step.command, "target": step.target}
    if step.command is not None and (settings := files_of(split(step.command)[1])):
        work["settings"] = settings
    with taken(folder / PLAN_FILE, {"work": digest(work, 4), **work}, by="work") as mine:
        if not mine:
            raise UsageError(f"{folder} holds runs of another engine, workload or level; give --out another folder")
        yield


@contextmanager
def claimed_together(folder: Path, workload: RunConfig) -> Iterator[None]:
    """The same for a folder in which each of several configurations has a search in a folder of its own."""
    work = {"workload": replace(workload, agents=1, seed=0, out=None).as_json(), "several": True}
    with taken(folder / PLAN_FILE, {"work": digest(work, 4), **work}, by="work") as mine:
        if not mine:
            raise UsageError(f"{folder} holds runs of another workload or level; give --out another folder")
        yield


async def find(readings: Readings, *, first: int, most: int, repeats: int, resolution: float) -> Edge:
    """The edge; the runner is the caller's to close. NothingCountsError where no run of the least number counts."""
    edge = await Search(readings.measure, most=most, repeats=repeats, resolution=resolution).find(first)
    least = [reading for reading in edge.readings if reading.agents == edge.readings[0].agents]
    if not edge.agents and all(reading.uncounted for reading in least):
        whole = "none of its runs counts" if all(reading.uncounted for reading in edge.readings) else "no answer"
        at = count(least[0].agents, "agent")
        raise NothingCountsError(f"{Path(least[0].run).parent}: {whole}; with {at}, {least[0].uncounted}")
    return edge


def keep(found: Capacity, folder: Path) -> None:
    """Write the answer into the search's folder, whole or not at all."""
    path = folder / ANSWER_FILE
    partial = path.with_name(f".{ANSWER_FILE}.partial")
    try:
        partial.write_bytes(msgspec.json.format(to_json(found), indent=2) + b"\n")
        partial.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}); make room, and start again to go on") from error


def kept(folder: Path) -> Capacity:
    """The answer in a search's folder, wherever it lies by now; UsageError where there is none."""
    path = folder / ANSWER_FILE
    try:
        found = msgspec.json.decode(read_regular(path), type=Capacity)
    except FileNotFoundError:
        raise UsageError(f"{folder} is a capacity search without an answer: {unanswered(folder)}") from None
    except (OSError, *UNREADABLE) as error:
        raise UsageError(f"{path} cannot be read ({error}): {unanswered(folder)}") from error
    return replace(found, runs=str(folder))


def sentence(found: Capacity) -> str:
    """The answer."""
    lever = ""
    if found.lever:
        lever = f"; try {found.lever}" + (f" ({found.lever_note})" if found.lever_note else "")
    if not found.agents:
        return f"Not even one agent meets {found.slo}." + (f" Limit: {found.limit}{lever}." if found.limit else "")
    least = "at least " if found.capped else ""
    pace = f"{found.pace} " if found.pace in ("busy", "typical") and not found.overrides else ""
    text = f"{least}{count(found.agents, f'{pace}agent')}"
    inside = []
    if found.low != found.agents or found.high != found.agents:
        every = "every seed that counts" if found.not_counted else "every seed"
        inside.append(f"{found.low:,} with {every}, {found.high:,} with at least one")
    if found.not_steady:
        inside.append(unsteady(found.not_steady, found.deciding))
    inside += beside_pace(found.pace, found.overrides)
    text += f" ({'; '.join(inside)})" if inside else ""
    text += f" at {found.slo}"
    if found.limit:
        text += f"; next limit {found.limit}"
    text += lever
    return text[0].upper() + text[1:] + "."


def unsteady(rising: int, about: int) -> str:
    """What stands beside a number of agents that may not last."""
    return f"not steady: may be too high, by {rising} of {count(about, 'deciding run')}"


def beyond(edge: Edge) -> Diagnosis | None:
    """Of the first run beyond the edge; None where nothing tells what stops it."""
    failed = [r for r in edge.readings if r.agents > edge.agents and not (r.met or r.uncounted) and r.run]
    if not failed:
        return None
    first = min(failed, key=lambda reading: (reading.agents, reading.seed))
    found, _, _ = diagnose(Path(first.run), level=True)
    if not found.calls or found.bottleneck.kind == "unknown":
        return None
    said = "; ".join(found.bottleneck.evidence)
    evidence = (f"at {count(first.agents, 'agent')}: {said}",) if said else ()
    return replace(found, bottleneck=replace(found.bottleneck, evidence=evidence))


def answer(
    edge: Edge,
    *,
    slo: str,
    pace: str,
    emulated: bool,
    folder: Path,
    whose: str | None = None,
    duration_s: float | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Capacity:
    """`whose`: what emulated figures say of themselves; `duration_s`: of each run's window, where it has a length;
    `overrides`: see `waits`.
    """
    notes = []
    stops = beyond(edge)
    lag = [reading for reading in edge.readings if CLIENT_LATE.intersection(reading.reasons)]
    if lag:
        least = min(reading.agents for reading in lag)
        notes.append(f"from {count(least, 'agent')} on the client was late: those runs are not valid")
    notes += _not_valid(edge, duration_s)
    after = min((reading.agents for reading in edge.readings if reading.agents > edge.agents), default=None)
    rising, about = steadiness(edge)
    late = any(reading.agents == after and not reading.met for reading in lag)
    unknown = after is not None and all(r.uncounted for r in edge.readings if r.agents == after)
    uncounted = [reading for reading in edge.readings if reading.uncounted]
    notes += _uncounted(uncounted, len(edge.readings), after if unknown else None)
    notes += judged_by(edge)
    return Capacity(
        agents=edge.agents,
        low=edge.low,
        high=edge.high,
        limit=None if stops is None else stops.bottleneck.words,
        lever=None if stops is None else stops.lever,
        lever_note=None if stops is None else stops.lever_note,
        evidence=None if stops is None else next(iter(stops.bottleneck.evidence), None),
        points=curve(edge.readings),
        slo=slo,
        capped=edge.capped or late or unknown,
        not_counted=len(uncounted),
        pace=pace,
        overrides=dict(overrides or {}),
        emulated=emulated,
        emulation=whose,
        beyond=None if stops is None else Path(stops.run_dir).name,
        notes=tuple(notes),
        not_valid=sum(bool(reading.reasons) for reading in edge.readings),
        not_steady=rising,
        deciding=about,
        runs=str(folder),
        untried=_untried(stops),
    )


def _untried(stops: Diagnosis | None) -> tuple[str, ...]:
    """Flags against what stops it; none where the engine was not started by a command."""
    if stops is None:
        return ()
    run = RunFolder.open(Path(stops.run_dir)).run
    command = command_of(run)
    if command is None:
        return ()
    known = tries(stops.bottleneck.kind, command, run)
    return tuple(one.flags for one in (*known.pulled, *known.further))


def _not_valid(edge: Edge, duration_s: float | None) -> list[str]:
    """Of runs that are not valid for other reasons than the client: how many, why, and what that does to the answer."""
    told = [reading for reading in edge.readings if not reading.uncounted]
    counts = Counter(reason for reading in told for reason in reading.reasons if reason not in CLIENT_LATE)
    if not counts:
        return []
    runs = sum(not CLIENT_LATE.issuperset(reading.reasons) for reading in told)
    why = "; ".join(f"in {times}, {in_words(reason)}" for reason, times in counts.items())
    said = [f"{runs} of {count(len(edge.readings), 'run')} {'is' if runs == 1 else 'are'} NOT VALID: {why}"]
    rising, about = steadiness(edge)
    if rising:
        longer = "let the runs go on for longer" if duration_s is None else f"give --duration {_length(2 * duration_s)}"
        said.append(
            f"the answer may be too high: from {count(edge.low, 'agent')} on {rising} of {count(about, 'run')} "
            f"that met the level had not become steady and might have left it later; {longer}, twice as long"
        )
    return said


def _uncounted(readings: Sequence[Reading], made: int, unknown: int | None) -> list[str]:
    """`unknown`: the number after the answer, where no run of it counts."""
    said = [
        f"{times} of {count(made, 'run')} {'does' if times == 1 else 'do'} not count: {why}"
        for why, times in Counter(reading.uncounted for reading in readings).items()
    ]
    return (
        said if unknown is None else [*said, f"no run of {count(unknown, 'agent')} counts, so that may be carried too"]
    )


def steadiness(edge: Edge) -> tuple[int, int]:
    """(runs still rising or falling, runs) of those that met the level at the edge."""
    about = [reading for reading in edge.readings if reading.met and reading.agents >= edge.low]
    return sum("trend" in reading.reasons for reading in about), len(about)


def _length(seconds: float) -> str:
    """As `--duration` takes it."""
    return f"{seconds / 60:g}m" if seconds % 60 == 0 else f"{seconds:g}s"
