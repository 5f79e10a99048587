"""Who makes the runs: the emulator on the virtual clock, engines that are started here, or servers that run already."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from windtunnel.simulator.engines.base import Resolved, detect, engine_of, open_session, root_of
from windtunnel.simulator.engines.launch import Launched, expand
from windtunnel.simulator.engines.patience import patiently
from windtunnel.simulator.engines.recipes import advice
from windtunnel.simulator.experiments import runs
from windtunnel.simulator.experiments.experiment import file_name
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.run import gpu
from windtunnel.simulator.run.config import RunConfig
from windtunnel.traces.errors import EngineError
from windtunnel.traces.sources import Loaded

Talk = Callable[[str], None]
ENGINE_LOG = "engine.log"


def identity_of(resolved: Resolved, step: Step, target: str | None) -> str:
    """`engine_identity` of a step's server before anything was run on it."""
    config = {"engine": step.command}
    return runs.engine_identity({"target": target, "config": config, "engine": engine_of(resolved)})


class Virtual:
    """Runs of the emulator in this process; hours in seconds. Each runs in a thread of its own, for its own clock."""

    def __init__(self, workload: RunConfig, loaded: Loaded, talk: Talk) -> None:
        self._workload = workload
        self._loaded = loaded
        self._talk = talk

    async def identity(self, step: Step) -> str | None:
        from windtunnel.simulator.run.virtual import VirtualRun, resolve

        run = VirtualRun(self._config(step, 0), self._loaded)
        return identity_of(resolve(run.settings), step, None)

    async def run(self, step: Step, seed: int, out: Path, *, agents: int | None = None) -> None:
        from windtunnel.simulator.run.virtual import virtual_run

        began = time.monotonic()
        config = self._config(step, seed)
        config = config if agents is None else replace(config, agents=agents)
        summary = await asyncio.to_thread(virtual_run, config, self._loaded, out)
        self._talk(f"  {summary.duration_s:,.0f} s of virtual time in {time.monotonic() - began:.1f} s")

    async def close(self) -> None:
        """Nothing stays."""

    def _config(self, step: Step, seed: int) -> RunConfig:
        return replace(self._workload, engine=step.command, seed=seed, virtual=True)


class Real:
    """Runs of engines that are started here, one at a time, or of servers that run already.

    An engine is kept until another step is wanted: where two blocks meet the same step follows itself.
    """

    def __init__(self, workload: RunConfig, loaded: Loaded, folder: Path, talk: Talk) -> None:
        self._workload = workload
        self._loaded = loaded
        self._folder = folder
        self._talk = talk
        self._up: tuple[Step, Launched] | None = None

    async def identity(self, step: Step) -> str | None:
        url = await self._serve(step)
        async with open_session(dict(self._workload.headers)) as session:
            root = root_of(url)
            async with patiently(self._talk, root):
                adapter = await detect(root, session)
                resolved = await adapter.probe(session, root, self._workload.model)
        return identity_of(resolved, step, root)

    async def run(self, step: Step, seed: int, out: Path, *, agents: int | None = None) -> None:
        from windtunnel.simulator.run.run import Run

        url = await self._serve(step)
        launched = None if self._up is None else self._up[1]
        # The command stays in run.json: it is part of what was measured.
        config = replace(self._workload, target=url, engine=step.command, seed=seed, out=str(out))
        config = config if agents is None else replace(config, agents=agents)
        summary = await Run(config, self._loaded, screen=False, exit_when_done=True).on(url, launched)
        if launched is not None and launched.exited() is not None:
            why = launched.failure()
            await self.close()
            if not summary.calls:
                raise EngineError(f"the engine ended before it answered a call: {why}")
            self._talk(f"the engine ended during the run: {why}")

    async def close(self) -> None:
        if self._up is not None:
            step, launched = self._up
            self._up = None
            self._talk(f"stopping the engine of {step.name}")
            await launched.stop()

    def _log_of(self, step: Step) -> Path:
        """A file of its own for each start, numbered on where an earlier call of the command ended."""
        folder = self._folder / "engines"
        started = len(list(folder.glob("*.log"))) if folder.is_dir() else 0
        return folder / f"{started + 1:03}-{file_name(step.name)}.log"

    async def _serve(self, step: Step) -> str:
        """The URL of the step's engine, started if need be."""
        if step.target is not None:
            await self.close()
            return step.target
        if self._up is not None and self._up[0].name == step.name and self._up[1].exited() is None:
            return self._up[1].url
        await self.close()
        began = time.monotonic()
        log = self._log_of(step)
        self._talk(f"starting: {step.command}")
        command = expand(step.command)
        for line in advice(command, os.environ):
            self._talk(f"  {line}")
        launched = Launched.start(command, log, gpu_memory=gpu.used_memory)
        self._up = (step, launched)
        try:
            async with open_session() as session:
                await launched.wait_ready(
                    session, progress=lambda line: self._talk(f"  {time.monotonic() - began:5.0f} s  {line[:120]}")
                )
        except EngineError:
            await self.close()
            raise
        self._talk(f"  it serves after {time.monotonic() - began:.0f} s")
        return launched.url
