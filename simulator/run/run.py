"""One run from start to summary: traces, engine, preparation, driving, measuring, results, exit code."""

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.agents import events as ev
from windtunnel.agents.client import StreamClient, parse_target
from windtunnel.agents.clock import RealClock
from windtunnel.simulator.engines.base import detect, open_session, root_of
from windtunnel.simulator.engines.launch import EMULATOR, GRACE_S, Launched, expand
from windtunnel.simulator.engines.patience import patiently
from windtunnel.simulator.engines.recipes import advice
from windtunnel.simulator.results.emulation import announced
from windtunnel.simulator.results.store import ENGINE_LOG, RunWriter
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.text import count, render_summary
from windtunnel.simulator.run import gpu, samplers
from windtunnel.simulator.run.beginning import beginning
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.driver import Driver
from windtunnel.simulator.run.estimate import estimate
from windtunnel.simulator.run.link import Link
from windtunnel.simulator.run.loop import COLLECT, loop_factory
from windtunnel.simulator.run.outcome import describe, outcome
from windtunnel.simulator.run.prepare import Preparation, prepare_run
from windtunnel.simulator.run.scrape import Scraper, names_on
from windtunnel.simulator.run.viewer import DETACH, STOP, PlainProgress, Viewer, again, keys_kept, one_line, say
from windtunnel.simulator.run.workers import Workers
from windtunnel.traces.errors import EngineError, RunError
from windtunnel.traces.outlet import shown
from windtunnel.traces.sources import Loaded, load

SCRAPE_S = 1.0
GPU_S = 1.0
LOOK_S = 1.0
"""Between looks at whether the run folder is still there."""
SETTLE_S, SETTLE_TRIES = 0.2, 15
STOP_SOON_S = 2.0
FAILED, INTERRUPTED = 1, 130
HUP = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
ENDING = frozenset((signal.SIGINT, signal.SIGTERM, *HUP))
"""Signals that end a run and keep it. Under nohup a run goes on when its terminal is closed."""


def execute(config: RunConfig, *, as_json: bool, screen: bool, exit_when_done: bool) -> int:
    """Do the run and print its summary on stdout; returns the exit code."""
    for signum in ENDING - {signal.SIGINT}:
        signal.signal(signum, signal.default_int_handler)  # while traces are read: as Ctrl-C
    loaded = load(config.traces)
    for problem in loaded.problems[:10]:
        talk(str(problem))
    if len(loaded.problems) > 10:
        talk(f"... and {len(loaded.problems) - 10} more problems in the traces")
    run = Run(config, loaded, screen=screen, exit_when_done=exit_when_done)
    try:
        with (
            keys_kept() if screen else contextlib.nullcontext(),
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            summary = runner.run(run.main())
    except asyncio.CancelledError:
        kept = "before the run began" if run.folder is None else f"at once: what was written is in {run.folder}"
        talk(f"interrupted {kept}")
        return INTERRUPTED
    print(msgspec.json.encode(summary).decode() if as_json else render_summary(summary), flush=True)
    if run.folder is not None and not as_json:
        talk(f"see it again: {again(run.folder)}")
    if run.moved is not None:
        talk(run.moved)
        return FAILED
    if summary.status == "interrupted":
        return INTERRUPTED
    return FAILED if summary.status == "failed" else 0


def _counters(sample: ev.EngineSample) -> tuple[float | None, ...]:
    return sample.prompt_tokens, sample.generation_tokens, sample.prefix_hits, sample.requests_finished


def _end(writer: RunWriter, driver: Driver) -> ev.RunStatus:
    status, reason = outcome(driver)
    writer.emit(ev.RunEnd(t=driver.now(), status=status, reason=reason))
    writer.flush()
    return status


async def _stop(launched: Launched) -> None:
    """Stop the engine; trouble with that must not hide what was measured."""
    stopping = asyncio.create_task(launched.stop())
    _, slow = await asyncio.wait({stopping}, timeout=STOP_SOON_S)
    if slow:
        talk(f"the engine takes its time to stop; it is killed after {GRACE_S:g} s")
    try:
        await stopping
    except EngineError as error:
        talk(f"warning: {error}")


def talk(text: str) -> None:
    say(text)


class Run:
    """One run; `main` does it. Nothing is printed to the terminal while the viewer has it."""

    def __init__(self, config: RunConfig, loaded: Loaded, *, screen: bool, exit_when_done: bool) -> None:
        self.config = config
        self.loaded = loaded
        self.screen = screen
        self.exit_when_done = exit_when_done
        self.run_id = secrets.token_hex(4)
        self.folder: Path | None = None
        """Where the run is written, once it has begun."""
        self._driver: Driver | None = None
        self._main: asyncio.Task[Any] | None = None
        self._viewer: Viewer | None = None
        self._signalled = False
        self._keeps_engine = False
        self.moved: str | None = None
        """What there is to say about a run folder that did not stay where it was."""
        self._lost: RunError | None = None

    async def on(self, url: str, launched: Launched | None) -> Summary:
        """The run against a server that runs already, `launched` or not by the caller, who also stops it."""
        self._keeps_engine = True
        return await self._against(url, launched, None)

    async def main(self) -> Summary:
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for signum in ENDING:
            loop.add_signal_handler(signum, self._on_signal)
        if self.config.target is not None:
            return await self._against(self.config.target, None, None)
        command = expand(self.config.engine)
        writer = self._create()
        talk(f"starting the engine: {self.config.engine or EMULATOR}")
        for line in advice(command, os.environ):
            talk(line)
        began = time.monotonic()
        with beginning(writer):
            launched = Launched.start(command, writer.path / ENGINE_LOG, gpu_memory=gpu.used_memory)
            try:
                async with open_session() as session:
                    await launched.wait_ready(
                        session,
                        progress=lambda line: talk(one_line(f"  {time.monotonic() - began:5.0f} s  {line[:120]}")),
                    )
                return await self._against(launched.url, launched, writer)
            finally:
                await _stop(launched)

    def _create(self) -> RunWriter:
        out = None if self.config.out is None else Path(self.config.out)
        return RunWriter.create(out, self.run_id, no_text=not self.config.text)

    def _on_signal(self) -> None:
        """First: end the run and keep what was measured. Second, or before the run: leave at once."""
        if self._driver is not None and not self._signalled:
            self._signalled = True
            self._driver.stop("interrupted")
        elif self._main is not None:
            self._main.cancel()

    async def _against(self, url: str, launched: Launched | None, writer: RunWriter | None) -> Summary:
        headers = dict(self.config.headers)
        async with open_session(headers) as session:
            root = root_of(url)
            if launched is None:
                talk(f"asking {root} what it can do")
            async with patiently(talk, root):
                adapter = await detect(root, session)
                resolved = await adapter.probe(session, root, self.config.model)
            talk(f"engine: {resolved.name} {shown(resolved.version or '')}  model {shown(resolved.model)}")
            if resolved.emulated:
                talk(announced(resolved.emulation))
            link = Link(session, root, adapter, resolved)
            scraper = await self._scraper(link)
            prepared = await prepare_run(self.config, self.loaded.traces, link, run_id=self.run_id, talk=talk)
            made = self._create() if writer is None else writer
            talk(f"{count(self.config.agents, 'agent')}, {prepared.in_words()}, route {prepared.route}")
            talk(f"length: {estimate(prepared.traces, self.config)}")
            talk(f"results: {made.path}")
            with beginning(made) if writer is None else contextlib.nullcontext():
                return await self._drive(link, prepared, launched, made, scraper)

    async def _drive(
        self,
        link: Link,
        prepared: Preparation,
        launched: Launched | None,
        writer: RunWriter,
        scraper: Scraper | None,
    ) -> Summary:
        root, resolved = link.root, link.resolved
        clock = RealClock()
        target = parse_target(root, headers=self.config.headers)
        workers, processes = None, self.config.workers
        if processes > 1:
            workers = await Workers.start(processes, target, keep_text=self.config.keeps_text)
        origin, wall = clock.now_ns(), time.time()
        writer.write_run(
            describe(
                self.config,
                self.loaded,
                prepared,
                resolved,
                run_id=self.run_id,
                target=root,
                origin_ns=origin,
                wall_clock=wall,
                worker_pids=() if workers is None else workers.pids,
                cold_start=None if launched is None else launched.cold_start,
            )
        )
        writer.emit(ev.RunStart(t=0, agents=self.config.agents, wall_clock=wall))
        writer.flush()
        client = workers or StreamClient(target)
        driver = Driver(
            config=self.config,
            prepared=prepared.prepared,
            options=prepared.options,
            clock=clock,
            client=client,
            writer=writer,
            run_id=self.run_id,
            origin_ns=origin,
            match_unit=resolved.block_size,
            reader=workers,
        )
        self._driver, self.folder = driver, writer.path  # from here on an interrupt ends the run and keeps it
        plain = PlainProgress(sys.stderr, self.config.agents, clock="emulated " if resolved.emulated else "")
        writer.subscribe(plain)
        plain.enabled = not self.screen

        async def scrape() -> None:
            if scraper is None:
                return
            if (sample := await scraper.once(driver.now())) is not None:
                driver.emit(sample)
            if (news := scraper.news()) is not None:
                driver.emit(ev.Note(t=driver.now(), level="warning", text=news))

        local = launched is not None or "://127.0.0.1" in root or "://localhost" in root
        gpus = gpu.Gpus.open() if local and not resolved.emulated else None

        async def look_at_gpus() -> None:
            if gpus is not None:
                group = None if launched is None else launched.pid
                for event in await asyncio.to_thread(samplers.gpu_samples, gpus, driver.now(), group):
                    driver.emit(event)

        await scrape()  # the counters' baseline, after the reset and before the first call
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        tasks = [asyncio.create_task(samplers.client_samples(driver, workers.health if workers else tuple))]
        tasks.append(asyncio.create_task(samplers.every(LOOK_S, driver, lambda: self._watch_folder(writer, driver))))
        if workers is not None:
            tasks.append(asyncio.create_task(self._watch_workers(workers, driver)))
        if scraper is not None:
            tasks.append(asyncio.create_task(samplers.every(SCRAPE_S, driver, scrape)))
        if gpus is not None:
            tasks.append(asyncio.create_task(samplers.every(GPU_S, driver, look_at_gpus)))
        if launched is not None:
            tasks.append(asyncio.create_task(self._watch_engine(launched, driver)))
            tasks.append(asyncio.create_task(samplers.compilation(launched, driver)))
        if self.screen:
            self._viewer = await Viewer.start(writer.path, exit_when_done=self.exit_when_done)
            tasks.append(asyncio.create_task(self._watch_viewer(self._viewer, driver, plain)))
        try:
            try:
                await self._to_its_end(driver)
            finally:
                watcher = tasks.pop() if self.screen else None
                await samplers.cancelled(tasks)
                await client.close()
            await self._watch_folder(writer, driver)
            if self._lost is not None:
                if self._viewer is not None:
                    await self._viewer.stop()
                raise self._lost
            if scraper is not None:
                await self._settle(scraper, driver)
        except asyncio.CancelledError:
            _end(writer, driver)
            raise
        status = _end(writer, driver)
        summary = recompute(writer.path)
        writer.write_summary(summary)
        if launched is not None and not self._keeps_engine:
            await _stop(launched)
        await self._leave(watcher, status)
        return summary

    async def _to_its_end(self, driver: Driver) -> None:
        """A run that is given up cuts its sessions first: only then may its engine be stopped by whoever started it."""
        work = asyncio.create_task(driver.run())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if self._signalled:  # they are cut already, and somebody does not want to wait
                work.cancel()
            driver.stop("interrupted")
            await asyncio.gather(work, return_exceptions=True)
            raise

    async def _scraper(self, link: Link) -> Scraper | None:
        """Of the target's metrics, or of its replicas' where they are named."""
        urls = self.config.metrics_urls
        if urls:
            return Scraper(link.session, link.root, await names_on(link.session, urls), urls=urls)
        if not link.resolved.capabilities.metrics:
            return None
        return Scraper(link.session, link.root, link.adapter.metric_names, path=link.adapter.metrics_path)

    async def _settle(self, scraper: Scraper, driver: Driver) -> None:
        """What the engine counted in the end: it publishes a step's counts a little after the step's last chunk."""
        last: ev.EngineSample | None = None
        for _ in range(SETTLE_TRIES):
            sample = await scraper.once(driver.now())
            if sample is None:  # a dead engine has nothing to say
                break
            if last is not None and not sample.running and _counters(sample) == _counters(last):
                last = sample
                break
            last = sample
            await driver.clock.sleep(SETTLE_S)
        if last is not None:
            driver.emit(last)

    async def _leave(self, watcher: asyncio.Task[None] | None, status: str) -> None:
        """Wait until the person closes the screen, unless the run was stopped."""
        if self._viewer is None or watcher is None:
            return
        if status == "interrupted" or self.moved is not None:
            await self._viewer.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher

    async def _watch_folder(self, writer: RunWriter, driver: Driver) -> None:
        """Whether the results still go where they are looked for; without a folder there is nothing to measure for."""
        if self._lost is not None:
            return
        try:
            told = writer.follow()
        except RunError as error:
            self._lost = error
            driver.stop("interrupted")
            return
        if told is not None:
            self.folder, self.moved = writer.path, told
            driver.emit(ev.Note(t=driver.now(), level="warning", text=told))

    async def _watch_engine(self, launched: Launched, driver: Driver) -> None:
        await launched.wait_exit()
        driver.emit(ev.Note(t=driver.now(), level="error", text=f"the engine has exited: {launched.failure()}"))
        driver.stop("engine_gone")

    async def _watch_workers(self, workers: Workers, driver: Driver) -> None:
        driver.emit(ev.Note(t=driver.now(), level="error", text=await workers.wait_lost()))
        driver.stop("worker_gone")

    async def _watch_viewer(self, viewer: Viewer, driver: Driver, plain: PlainProgress) -> None:
        code = await viewer.wait()
        if code == STOP:
            driver.stop("interrupted")
        else:
            plain.enabled = True
            how = "detached" if code == DETACH else f"the screen ended with exit code {code}, the run goes on"
            talk(f"{how}: {again(self.folder or Path())} comes back; ctrl-c stops the run")
