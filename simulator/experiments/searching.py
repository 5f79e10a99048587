"""Capacity searches one after the other: of several configurations, or of one and of what is tried to make it more.

On the virtual clock searches know nothing of each other. Engines that were really started, and servers, share a machine
that may drift: after all others the first one's edge is looked at once more, and its interval is that of both.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments import carried, tries
from windtunnel.simulator.experiments import step_runs as sr
from windtunnel.simulator.experiments.capacity import Capacity, Readings, Runner
from windtunnel.simulator.experiments.carried import Configuration
from windtunnel.simulator.experiments.claim import given_up, worked_in
from windtunnel.simulator.experiments.experiment import file_name
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.experiments.runs import Measured, engine_identity
from windtunnel.simulator.experiments.search import Edge, Search
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.experiments.waits import overrides
from windtunnel.simulator.results.searched import PLAN_FILE
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.text import count
from windtunnel.simulator.run.config import RunConfig
from windtunnel.traces.errors import EngineError, UsageError

AGAIN = "again-after-{}"
FIRST_AGAIN = "{}, looked at again after the others: {} ({} to {})"
NOTHING_TELLS = "nothing is tried: nothing tells what stops it"
NOT_STOPPED = "nothing is tried: the level held at the most that was tried; give a higher --most"
CLIENT_STOPS = "nothing is tried on the engine: the client limits itself; {}"
RUNS_ALREADY = (
    "nothing is tried: a server that runs already is not restarted here; restart it with {} and ask the same with "
    'another --out, or let it be started, --engine "... --port {{port}}" --try'
)
MORE_RUNS, EMULATED_LONGER = 3, 3
"""How much more a search may take than the one before: in runs, and in time of a run on the virtual clock, where more
agents are carried. Of those that were looked at the worst made 2.5 times as many runs and took 5.6 times as long.
"""
FULL_SCALE_S = 90.0
"""From here on a time is told in minutes."""


class Question(Struct, frozen=True, kw_only=True):
    """What is asked of every configuration."""

    workload: RunConfig
    """Without an engine."""
    most: int
    repeats: int
    resolution: float

    @property
    def search(self) -> dict[str, Any]:
        return {"most": self.most, "repeats": self.repeats, "resolution": self.resolution}


class Searched(Struct, frozen=True, kw_only=True):
    """One configuration's search."""

    step: Step
    place: Path
    found: Capacity
    edge: Edge
    one: StepRuns
    """With the run at the edge, which stands for the configuration's settings."""
    each_s: float
    """What a run of it took in this call, in seconds; 0 where none was made."""


Talk = Callable[[str], None]


async def search(question: Question, runner: Runner, step: Step, place: Path, first: int, talk: Talk) -> Searched:
    """In a folder that is claimed for it; the runner is the caller's to close."""
    workload = question.workload
    readings = Readings(runner, step, place, workload.seed, talk)
    edge = await cap.find(readings, first=first, **question.search)
    found = cap.answer(
        edge,
        slo=workload.slo or cap.DEFAULT_SLO,
        pace=workload.pace,
        overrides=overrides(workload),
        emulated=readings.emulated,
        folder=place,
        whose=readings.emulation,
        duration_s=workload.duration_s,
    )
    cap.keep(found, place)
    told = [reading for reading in edge.readings if not reading.uncounted]
    shown = min(told, key=lambda reading: (abs(reading.agents - edge.agents), reading.seed))
    folder = RunFolder.open(Path(shown.run))
    summary = folder.summary()
    assert summary is not None  # it was read before
    one = StepRuns(
        name=step.name,
        runs={0: Measured(folder.path, folder.run, summary, {})},
        previous=step.previous,
        lossy=step.lossy,
        changes=step.changes,
    )
    return Searched(
        step=step,
        place=place,
        found=found,
        edge=edge,
        one=one,
        each_s=readings.seconds / readings.made if readings.made else 0.0,
    )


class _LeftOutError(EngineError):
    """Nothing was measured of one; the others may go on."""


class Beside:
    """Configurations in one folder, each with a search of its own in it."""

    def __init__(
        self, question: Question, folder: Path, runner_of: Callable[[Step], Runner], talk: Talk, *, first: int
    ) -> None:
        """`first`: where the first search begins; the others begin where it ended."""
        self._first = first
        self._question = question
        self._folder = folder
        self._runner_of = runner_of
        self._talk = talk
        self._rows: list[Configuration] = []
        self._searched: list[Searched] = []
        self._identities: dict[str, str] = {}

    async def of(self, steps: Sequence[Step]) -> Capacity:
        """The answer of the first that started, with all of them in it; EngineError where none did."""
        for step in steps:
            self._talk(f"{step.name}: {step.command or step.target}")
            await self._one(step, self._folder / f"search-{file_name(step.name)}")
        if not self._searched:
            ran = any(worked_in(self._folder / f"search-{file_name(step.name)}", PLAN_FILE) for step in steps)
            none = "none of them has an answer" if ran else "none of them started"
            raise EngineError(f"{none}; {self._rows[0].name}: {self._rows[0].failed}")
        await self._look_again()
        return self._answer()

    async def trying(self, step: Step) -> Capacity:
        """The answer of one, and of the levers against what limits it: until one carries more, or all were tried."""
        await self._one(step, self._folder, first=True)
        base = self._searched[0]
        found, note = self._levers(base)
        self._talk(note or self._announced(found, base))
        for lever in found.pulled:
            self._talk(f"trying {lever.flags}")
            row = await self._one(replace(lever.step), self._folder / f"try-{file_name(lever.flags)}", tried=True)
            if row.versus_first is not None and row.versus_first.verdict == "more":
                break
        if len(self._searched) > 1:
            await self._look_again()
        brought = any(row.versus_first is not None and row.versus_first.verdict == "more" for row in self._rows)
        left = [f"not tried: {said}" for said in found.left_out if not brought]
        return self._answer((note, *left) if note else tuple(left))

    def _levers(self, base: Searched) -> tuple[tries.Tries, str]:
        """What there is to try; or why there is nothing."""
        found, nothing = base.found, tries.Tries((), ())
        if found.capped and found.limit is None:
            return nothing, NOTHING_TELLS if found.not_counted else NOT_STOPPED
        if base.step.command is None:
            return nothing, RUNS_ALREADY.format(found.lever or "other flags")
        if found.beyond is None:
            return nothing, NOTHING_TELLS
        stops = cap.beyond(base.edge)
        kind = "unknown" if stops is None else stops.bottleneck.kind
        if kind == "client":
            return nothing, CLIENT_STOPS.format(f"try {found.lever}" if found.lever else "give it more cores")
        pulled = tries.tries(kind, base.step.command, RunFolder.open(base.place / found.beyond).run)
        if not pulled.pulled:
            return pulled, f"nothing is tried: no flag that is left is known against {found.limit}"
        return pulled, ""

    def _announced(self, found: tries.Tries, base: Searched) -> str:
        first, *others = (lever.flags for lever in found.pulled)
        then = f", and while nothing brings more {', then '.join(others)}" if others else ""
        runs = len(base.edge.readings)
        each = base.each_s or sum(run.summary.duration_s for run in base.one.runs.values())
        # More agents are more work for the emulator; in real time a run lasts as long as its window.
        longer = 1 if self._clock(base) else EMULATED_LONGER
        few, many = max(1, runs // 2), MORE_RUNS * runs
        made = f"{_long(few * each)} to {_long(many * longer * each)} each ({few:,} to {many:,} runs"
        made += "; where more agents are carried each takes longer)" if longer > 1 else ")"
        if self._clock(base):
            twice = count(2 * self._question.repeats, "run")
            made += f", the engine's start not counted; at the end the first one again, about {twice}"
        elif not base.each_s:
            made = "seconds for each run, on the virtual clock"
        return f"trying {first}{then}: {made}"

    def _clock(self, base: Searched) -> bool:
        """Whether real time passed, so that the machine may have changed."""
        return not any(run.virtual for run in base.one.runs.values())

    async def _one(self, step: Step, place: Path, *, first: bool = False, tried: bool = False) -> Configuration:
        row = Configuration(name=step.name, command=step.command, target=step.target, tried=tried, lossy=step.lossy)
        runner = self._runner_of(step)
        begin = self._searched[0].found.agents if self._searched else self._first
        try:
            if first:
                searched = await search(self._question, runner, step, place, begin, self._talk)
            elif same := await self._twin(runner, step):
                return self._add(replace(row, same_as=same))
            else:
                searched = await self._search_in_its_own(runner, step, place, max(1, begin))
        except (_LeftOutError, cap.NothingCountsError) as error:
            if first:
                raise
            self._talk(f"{step.name} is left out: {error}")
            return self._add(replace(row, failed=str(error)))
        self._searched.append(searched)
        inside = place.relative_to(self._folder)
        known = _configuration(searched, most=self._question.most, folder=str(inside))
        self._identities[engine_identity(next(iter(searched.one.runs.values())).run)] = step.name
        return self._add(replace(known, tried=tried))

    def _add(self, row: Configuration) -> Configuration:
        self._rows.append(row)
        self._judge()
        return self._rows[-1]

    async def _twin(self, runner: Runner, step: Step) -> str | None:
        """Name of an earlier one whose settings these resolve to."""
        try:
            return self._identities.get(await runner.identity(step) or "")
        except (EngineError, UsageError) as error:  # the emulator refuses flags; a real engine exits on them
            raise _LeftOutError(str(error)) from error

    async def _search_in_its_own(self, runner: Runner, step: Step, place: Path, first: int) -> Searched:
        with cap.claimed(place, self._question.workload, step), given_up(place, PLAN_FILE):
            try:
                return await search(self._question, runner, step, place, first, self._talk)
            except (EngineError, UsageError) as error:
                if worked_in(place, PLAN_FILE):
                    raise
                # It takes less than the workload wants, or it ended before its first run.
                raise _LeftOutError(str(error)) from error

    def _judge(self) -> None:
        """Every row against the first, by what is known of them now."""
        mine = {searched.step.name: searched.one for searched in self._searched}
        if not mine:
            return
        base = next(row for row in self._rows if row.name in mine)
        for at, row in enumerate(self._rows):
            if row is base or row.name not in mine:
                continue
            steps = [replace(mine[base.name], previous=None), replace(mine[row.name], previous=0)]
            why = carried.silent(steps, 1, seeds=self._question.repeats)
            notes = [sr.OTHER_MODEL] if sr.models(steps) > 1 and sr.OTHER_MODEL not in row.notes else []
            self._rows[at] = replace(
                row,
                lossy=row.lossy or sr.lossy(steps, 1),
                notes=(*row.notes, *notes),
                versus_first=carried.versus(base, row, why),
            )

    async def _look_again(self) -> None:
        base = self._searched[0]
        others = len(self._searched) - 1
        if not others or not self._clock(base):
            return
        place = base.place / AGAIN.format(others)
        self._talk(f"{base.step.name} again, for the machine may have changed")
        beyond = [r.agents for r in base.edge.readings if r.agents > base.edge.agents]
        workload = self._question.workload
        with cap.claimed(place, workload, base.step):
            readings = Readings(self._runner_of(base.step), base.step, place, workload.seed, self._talk)
            edge = await Search(readings.measure, **self._question.search).again(
                base.edge.agents, min(beyond, default=None)
            )
        if all(reading.uncounted for reading in edge.readings):
            self._talk(f"no run of {base.step.name} counts this time")
            return
        at = next(i for i, row in enumerate(self._rows) if row.name == base.step.name)
        self._rows[at] = replace(
            self._rows[at],
            again=(edge.agents, edge.low, edge.high),
            open=self._rows[at].open or edge.capped or edge.high >= self._question.most,
        )
        self._talk(FIRST_AGAIN.format(base.step.name, edge.agents, edge.low, edge.high))
        self._judge()

    def _answer(self, notes: tuple[str, ...] = ()) -> Capacity:
        found = self._searched[0].found.beside(self._rows, notes, str(self._folder))
        cap.keep(found, self._folder)
        return found


def _configuration(searched: Searched, *, most: int, folder: str) -> Configuration:
    step, found = searched.step, searched.found
    at = next((point for point in found.points if point["agents"] == found.agents), {})
    return Configuration(
        name=step.name,
        command=step.command,
        target=step.target,
        agents=found.agents,
        low=found.low,
        high=found.high,
        capped=found.capped,
        open=found.capped or found.high >= most,
        output_tokens_per_s=at.get("output_tokens_per_s"),
        kv_usage=at.get("kv_usage"),
        limit=found.limit,
        lever=found.lever,
        emulated=found.emulated,
        runs_made=sum(point["runs"] for point in found.points),
        not_valid=found.not_valid,
        notes=found.notes,
        assumed=sr.assumed(searched.one),
        unsteady=found.not_steady > 0,
        not_steady=found.not_steady,
        deciding=found.deciding,
        folder=folder,
    )


def _long(seconds: float) -> str:
    return f"{seconds / 60:,.0f} minutes" if seconds >= FULL_SCALE_S else f"{max(1, round(seconds))} s"
