"""One experiment from plan to verdicts: which run comes next, what is kept, when it is enough.

The folder is the state. A run counts when its folder has a summary; what a killed experiment left half done is moved
aside, never used and never deleted. Started again with the same file, an experiment goes on where it stood.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from windtunnel.simulator.engines.command import files_of, split
from windtunnel.simulator.experiments import claim, runs
from windtunnel.simulator.experiments import metrics as named
from windtunnel.simulator.experiments.digests import digest
from windtunnel.simulator.experiments.outcome import Outcome, assess, told
from windtunnel.simulator.experiments.plan import Plan, Step
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.statistics import order
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.results.store import SUMMARY_FILE, RunFolder
from windtunnel.traces.errors import EngineError, RunError, UsageError
from windtunnel.traces.outlet import to_json

PLAN_FILE, OUTCOME_FILE = claim.EXPERIMENT_FILE, claim.OUTCOME_FILE
SCHEMA = "windtunnel.experiment/1"


class Runner(Protocol):
    """Makes runs of steps; engines are started and stopped behind it."""

    async def identity(self, step: Step) -> str | None:
        """`engine_identity` of what the step's settings resolve to, where it can be known without a run.

        Raises EngineError with the true reason for an engine that does not start.
        """
        ...

    async def run(self, step: Step, seed: int, out: Path) -> None:
        """One run into the new folder `out`. Raises EngineError when the engine does not start."""
        ...

    async def close(self) -> None:
        """Stops what is still running."""
        ...


class Ended(Struct, frozen=True):
    """How an experiment came to its end."""

    reason: Literal["narrow", "blocks", "time", "nothing"]
    outcome: Outcome


class Experiment:
    def __init__(self, plan: Plan, folder: Path, *, talk: Callable[[str], None]) -> None:
        self.plan = plan
        self.folder = folder
        self.failed: dict[str, str] = {}
        self.twins: dict[str, str] = {}
        """Step to the earlier one whose settings it shares."""
        self._identities: dict[str, str] = {}
        self._talk = talk
        self._metrics = named.chosen(plan.metrics)
        self._measured: dict[Path, Measured] = {}
        """Read once: a run that has a summary does not change any more."""

    # -- the folder

    @classmethod
    def open(cls, plan: Plan, folder: Path, *, talk: Callable[[str], None]) -> "Experiment":
        """A new folder, or one that the same plan began; UsageError for one that another plan wrote."""
        experiment = cls(plan, folder, talk=talk)
        with experiment._taken():
            experiment._recall()
        return experiment

    @contextmanager
    def _taken(self) -> Iterator[None]:
        plan = self.plan
        mark = {"schema": SCHEMA, "name": plan.name, "plan": fingerprint(plan), "file": _text(plan.path)}
        with claim.taken(self.folder / PLAN_FILE, mark, by="plan") as mine:
            if not mine:
                raise UsageError(f"{self.folder} belongs to another plan than {plan.path}; give --out another folder")
            yield

    def _recall(self) -> None:
        for entry in claim.log_of(self.folder):
            step = str(entry.get("step"))
            match entry.get("type"):
                case claim.FAILED:
                    self.failed[step] = str(entry.get("reason"))
                case "run":
                    self.failed.pop(step, None)
                case "twin":
                    self.twins[step] = str(entry.get("of"))

    def _note(self, **entry: Any) -> None:
        """Append one line of what has happened; the end of one that was cut off by a kill does not spoil it."""
        try:
            with (self.folder / claim.LOG_FILE).open("ab") as log:
                log.write((b"\n" if log.tell() else b"") + to_json(entry))
        except OSError as error:
            raise RunError(
                f"cannot write {self.folder / claim.LOG_FILE} ({error.strerror}): free some space"
            ) from error

    def place(self, block: int, step: Step) -> Path:
        return self.folder / f"block-{block + 1:02}" / file_name(step.name)

    def done(self, block: int, step: Step) -> bool:
        return (self.place(block, step) / SUMMARY_FILE).exists()

    # -- the work

    async def conduct(self, runner: Runner, *, clock: Callable[[], float] = time.monotonic) -> Ended:
        """Block after block until the first metric's intervals are narrow, or the budget is used up.

        UsageError where another process is at the same folder, or has taken it for another plan since it was opened.
        """
        with self._taken():
            if self.failed:
                # What was missing (memory, a model, a port) may be there now.
                self._talk(f"tried again, for they failed in an earlier call: {', '.join(self.failed)}")
                self.failed.clear()
            return await self._conduct(runner, clock)

    async def _conduct(self, runner: Runner, clock: Callable[[], float]) -> Ended:
        plan, began = self.plan, clock()
        reason: Literal["narrow", "blocks", "time", "nothing"] = "blocks"
        try:
            for block in range(plan.most):
                if plan.time_s is not None and clock() - began >= plan.time_s:
                    reason = "time"
                    break
                await self._block(runner, block)
                if block + 1 >= plan.least and not self._comparable():
                    reason = "nothing"
                    break
                outcome = self.outcome()
                self._keep(outcome)
                if block + 1 >= plan.least and self._enough(outcome):
                    reason = "narrow"
                    break
        finally:
            await runner.close()
        outcome = self.outcome()
        self._keep(outcome)
        return Ended(reason, outcome)

    async def _block(self, runner: Runner, block: int) -> None:
        steps = self.plan.steps
        for place in order(len(steps), block if self.plan.interleaved else 0):
            step = steps[place]
            if step.name in self.failed or step.name in self.twins or self.done(block, step):
                continue
            most = f"{'at most ' if self.plan.least < self.plan.most else ''}{self.plan.most}"
            self._talk(f"block {block + 1} of {most}, {step.name}")
            try:
                if await self._is_twin(runner, step):
                    continue
                out = self.place(block, step)
                if (aside := claim.set_aside(out)) is not None:
                    self._talk(f"an unfinished run was moved to {aside}")
                out.parent.mkdir(parents=True, exist_ok=True)
                await runner.run(step, self.plan.workload.seed + block, out)
            except EngineError as error:
                self.failed[step.name] = str(error)
                self._note(type=claim.FAILED, step=step.name, reason=str(error))
                self._talk(f"{step.name} is left out: {error}")
            else:
                self._note(type="run", step=step.name, block=block, folder=str(out.relative_to(self.folder)))

    async def _is_twin(self, runner: Runner, step: Step) -> bool:
        """Whether an earlier step resolves to the same settings; asked once, before the step's first run."""
        if step.name in self._identities:
            return False
        try:
            identity = await runner.identity(step)
        except UsageError as error:  # flags that the emulator refuses in this process; a real engine exits on them
            raise EngineError(str(error)) from error
        if identity is None:
            return False
        self._identities[step.name] = identity
        for other in self.plan.steps[: self.plan.steps.index(step)]:
            if self._identity(other) == identity:
                self.twins[step.name] = other.name
                self._note(type="twin", step=step.name, of=other.name)
                self._talk(f"{step.name} resolves to the same settings as {other.name}: it is not run again")
                return True
        return False

    def _identity(self, step: Step) -> str | None:
        """Of a step that was asked for, or that an earlier call of the command has run."""
        if step.name not in self._identities:
            for block in range(self.plan.most):
                if self.done(block, step):
                    run = RunFolder.open(self.place(block, step)).run
                    self._identities[step.name] = runs.engine_identity(run)
                    break
        return self._identities.get(step.name)

    def _comparable(self) -> bool:
        """Whether further blocks could tell anything."""
        alive = [step for step in self.plan.steps if step.name not in self.failed and step.name not in self.twins]
        return len(alive) > 1

    def _enough(self, outcome: Outcome) -> bool:
        """By what would be found, or by the width of the intervals; never by what they say.

        Blocks with a run that does not count are none of the least.
        """
        first = [next(iter(step.versus_base.values()), None) for step in outcome.steps]
        if any(found is not None and 0 < found.blocks < self.plan.least for found in first):
            return False
        if self.plan.width is not None:
            return outcome.widest is not None and outcome.widest <= self.plan.width
        return outcome.reach is not None and outcome.reach <= self.plan.matters

    # -- what it says

    def outcome(self) -> Outcome:
        """What the runs so far allow to say."""
        found: dict[str, dict[int, Measured]] = {}
        for step in self.plan.steps:
            found[step.name] = {
                block: self._read(self.place(block, step)) for block in range(self.plan.most) if self.done(block, step)
            }
        steps = [
            StepRuns(
                name=step.name,
                runs=found[self.twins.get(step.name, step.name)],
                previous=step.previous,
                changes=step.changes,
                lossy=step.lossy,
                failed=self.failed.get(step.name),
                why=step.why,
            )
            for step in self.plan.steps
        ]
        return assess(
            steps,
            self._metrics if self.plan.metrics else told(self._metrics, steps),
            name=self.plan.name,
            experiment_dir=str(self.folder),
            matters=self.plan.matters,
        )

    def _read(self, place: Path) -> Measured:
        if place not in self._measured:
            self._measured[place] = runs.read(place)
        return self._measured[place]

    def _keep(self, outcome: Outcome) -> None:
        partial = self.folder / f".{OUTCOME_FILE}.partial"
        try:
            partial.write_bytes(msgspec.json.format(to_json(outcome), indent=2) + b"\n")
            partial.replace(self.folder / OUTCOME_FILE)
        except OSError as error:
            raise RunError(f"cannot write {self.folder / OUTCOME_FILE} ({error.strerror}): free some space") from error


def fingerprint(plan: Plan) -> str:
    """8 hex digits of what an experiment does: changed budgets go on with the same folder, other work does not.

    Other work is also an engine whose profile, or another file of settings, holds something else.
    """
    steps = [(step.name, step.command, step.target) for step in plan.steps]
    settings = [files_of(split(step.command)[1]) for step in plan.steps if step.command is not None]
    more = [settings] if any(settings) else []
    return digest([plan.workload.as_json(), steps, plan.virtual, *more], 4)


def default_folder(plan: Plan) -> Path:
    """The same for the same plan, so that the same command goes on."""
    return Path("runs") / f"compare-{file_name(plan.name)}-{fingerprint(plan)}"


def file_name(name: str) -> str:
    """A step's name as a file's: readable, and different for different names."""
    plain = "".join(c if c.isalnum() or c in "-_.=" else "-" for c in name)[:60].strip(".-") or "step"
    return plain if plain == name else f"{plain}-{blake2b(os.fsencode(name), digest_size=2).hexdigest()}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
