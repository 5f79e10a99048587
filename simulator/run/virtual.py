"""A run on the virtual clock: sessions and emulator in one process, hours in seconds, the same for the same seed.

Traces, preparation, plans, driver, events, folder and summary are those of a run over HTTP; only the sockets between
client and engine are not there (`direct`, `door`). Nothing in the results is read off a real clock, and what only a
real client can tell (its lateness, its share of a core) is not reported.
"""

import asyncio
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from windtunnel.agents import events as ev
from windtunnel.agents.clock import VirtualClock
from windtunnel.agents.plan import Planners
from windtunnel.simulator.emulator.about import describe as settings_as_config
from windtunnel.simulator.emulator.about import labels
from windtunnel.simulator.emulator.acceptance import acceptance_of
from windtunnel.simulator.emulator.build import core_of
from windtunnel.simulator.emulator.flags import VLLM_VERSION, Settings, parse
from windtunnel.simulator.emulator.script import Inventory
from windtunnel.simulator.emulator.shipped_costs import builtin_calibration
from windtunnel.simulator.emulator.template import Renderer, Template
from windtunnel.simulator.emulator.template_folder import FolderTemplate
from windtunnel.simulator.emulator.tokenizer import Vocabulary, builtin
from windtunnel.simulator.emulator.tokenizer_folder import FolderTokenizer
from windtunnel.simulator.engines.base import Capabilities, Resolved, choose_model
from windtunnel.simulator.engines.emulator import Emulator
from windtunnel.simulator.engines.launch import EMULATOR, take_environment
from windtunnel.simulator.engines.vllm import flatten, match_unit, speculation
from windtunnel.simulator.results.emulation import announced
from windtunnel.simulator.results.store import HERE, RunFolder, RunWriter
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.text import count
from windtunnel.simulator.run import samplers
from windtunnel.simulator.run.bodies import Bodies
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.direct import Direct, Tells
from windtunnel.simulator.run.door import ROOT, Door
from windtunnel.simulator.run.driver import Driver
from windtunnel.simulator.run.estimate import estimate
from windtunnel.simulator.run.link import Link
from windtunnel.simulator.run.outcome import describe, outcome
from windtunnel.simulator.run.prepare import prepare_run
from windtunnel.simulator.run.spoken import Speech
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import digest_of
from windtunnel.traces.outlet import readable
from windtunnel.traces.sources import Loaded

if TYPE_CHECKING:
    import aiohttp

SAMPLE_S = 1.0
WRITTEN = 1 << 18
"""Bytes of events and text that one write to the folder takes."""
Talk = Callable[[str], None]
Receiver = Callable[[ev.Event], None]


def virtual_run(config: RunConfig, loaded: Loaded, out: Path | None = None) -> Summary:
    """One run of the emulator that `config.engine` describes; its folder is `out`, else `config.out`, else a new one
    in ./runs.

    Nothing is shared between two calls but what is remembered of constant tables: they may follow each other in one
    process. UsageError and EngineError as from a run over HTTP.
    """
    return VirtualRun(config, loaded, out).run()


def emulator_flags(engine: str | None) -> tuple[dict[str, str], list[str]]:
    """Environment and flags of `--engine "NAME=VALUE emulator ..."`; UsageError where another engine is asked for."""
    try:
        words = shlex.split(engine or EMULATOR)
    except ValueError as error:
        raise UsageError(f"--engine {engine}: the quotes do not match") from error
    environ = take_environment(words)
    if not words or words[0] != EMULATOR:
        raise UsageError('--virtual runs the emulator in this process: give --engine "emulator ..." or leave it out')
    return environ, [word.replace("{port}", "0") for word in words[1:]]


def run_id_of(seed: int) -> str:
    """The run's name, from which its salt and its tags come."""
    return digest_of("virtual", str(seed))[:8]


class VirtualRun:
    """`run` does it; `stop` may be called meanwhile, from a signal's handler too."""

    def __init__(
        self,
        config: RunConfig,
        loaded: Loaded,
        out: Path | None = None,
        *,
        talk: Talk = lambda _: None,
        receivers: Sequence[Receiver] = (),
        leaps: bool = True,
    ) -> None:
        """`leaps` False: every step of the engine is computed by itself, with the same result."""
        self.config = config
        self.loaded = loaded
        self.run_id = run_id_of(config.seed)
        self.folder: Path | None = None
        """Where the run is written, once it has begun."""
        environ, flags = emulator_flags(config.engine)
        self.settings = parse(flags, environ)
        self._out = out if out is not None or config.out is None else Path(config.out)
        self._talk = talk
        self._receivers = receivers
        self._leaps = leaps
        self._clock = VirtualClock()
        self._driver: Driver | None = None
        self.moved: str | None = None
        """What there is to say about a run folder that did not stay where it was."""

    def run(self) -> Summary:
        return self._clock.run(self._main())

    def stop(self) -> bool:
        """End the run and keep what was done; False when it has not begun yet."""
        if self._driver is None:
            return False
        self._clock.soon(self._driver.stop, "interrupted")
        return True

    async def _main(self) -> Summary:
        settings, config = self.settings, self.config
        tokenizer, template = words_of(settings)
        core = core_of(settings, lazy=True, parks=self._leaps)
        resolved = resolve(settings, config.model)
        self._talk(f"engine: {resolved.name} {resolved.version}  model {resolved.model}, on the virtual clock")
        self._talk(announced(resolved.emulation))
        door = cast("aiohttp.ClientSession", Door(settings, core, template, tokenizer))
        link = Link(door, ROOT, Emulator(), resolved)
        prepared = await prepare_run(
            config,
            self.loaded.traces,
            link,
            run_id=self.run_id,
            talk=self._talk,
            packed=True,
            known=builtin_calibration if settings.tokenizer is None else None,
        )
        writer = RunWriter.create(self._out, self.run_id, no_text=not config.text)
        try:
            self._talk(f"{count(config.agents, 'agent')}, {prepared.in_words()}, route {prepared.route}")
            planners = Planners(prepared.traces, config.policy())
            self._talk(f"length: {estimate(prepared.traces, config, planners)}")
            self._talk(f"results: {writer.path}")
            about = describe(
                config,
                self.loaded,
                prepared,
                resolved,
                run_id=self.run_id,
                target=ROOT,
                origin_ns=0,
                wall_clock=time.time(),
            )
            writer.write_run({**about, "run_dir": HERE, "virtual": True})
            acceptance = acceptance_of(settings)
            words = config.keeps_text or acceptance is not None or config.lengths == "natural"
            bodies = Bodies(settings, template, tokenizer, digests=words)
            direct = Direct(
                core,
                bodies,
                Speech(tokenizer),
                Inventory.of(tokenizer),
                acceptance,
                self._clock,
                keep_text=config.keeps_text,
                front=settings.front_ns,
                tells=Tells(cached=settings.prompt_details, queue=settings.call_metrics),
            )
            driver = Driver(
                config=config,
                prepared=prepared.prepared,
                options=prepared.options,
                clock=self._clock,
                client=direct,
                writer=writer,
                run_id=self.run_id,
                origin_ns=0,
                match_unit=resolved.block_size,
                reader=direct,
                planners=planners,
                virtual=True,
                pulse=direct.pulse,
            )
            return await self._drive(driver, direct, writer)
        finally:
            writer.close()

    async def _drive(self, driver: Driver, direct: Direct, writer: RunWriter) -> Summary:
        self._driver, self.folder = driver, writer.path
        writer.least = WRITTEN
        happened: list[ev.Event] = []

        def keep(event: ev.Event) -> None:
            if type(event) not in _UNCOUNTED:
                happened.append(event)
            if isinstance(event, ev.SessionEnd):
                direct.session_over(f"{self.run_id}-{event.session}-")

        writer.subscribe(keep)
        for receiver in self._receivers:
            writer.subscribe(receiver)
        writer.emit(ev.RunStart(t=0, agents=self.config.agents, wall_clock=0.0))
        driver.emit(direct.sample(0))

        due = self._clock.now_ns()

        def look() -> int:
            nonlocal due
            now = driver.now()
            writer.emit(direct.sample(now))  # not the driver's: nothing changes by it
            dispatched = tuple(driver.dispatch_us)
            driver.dispatch_us.clear()
            writer.emit(ev.ClientSample(t=now, lag_us=(), dispatch_us=dispatched, live=len(driver.live)))
            writer.emit(ev.Heartbeat(t=now))
            due = max(due + round(SAMPLE_S * 1e9), self._clock.now_ns())
            return due

        tasks = [asyncio.create_task(self._clock.repeat(look))]
        try:
            await driver.run()
        finally:
            await samplers.cancelled(tasks)
        driver.emit(direct.sample(driver.now()))
        status, reason = outcome(driver)
        writer.emit(ev.RunEnd(t=driver.now(), status=status, reason=reason))
        self.moved = writer.follow()
        self.folder = writer.path
        summary = summarise(RunFolder.open(writer.path).run, happened)
        writer.write_summary(summary)
        return replace(summary, run_dir=readable(writer.path.absolute()))


_UNCOUNTED = (ev.Progress, ev.Heartbeat)
"""What a summary is not made of; the run's end comes after them all."""


def words_of(settings: Settings) -> tuple[Vocabulary, Renderer]:
    """The tokenizer and the chat template of this engine."""
    if settings.tokenizer is None:
        return builtin(), Template(builtin())
    tokenizer = FolderTokenizer(Path(settings.tokenizer))
    return tokenizer, FolderTemplate(Path(settings.tokenizer), tokenizer)


def resolve(settings: Settings, model: str | None = None) -> Resolved:
    """What a probe over HTTP finds out about this emulator."""
    config = settings_as_config(settings)
    cache = config["cache_config"]
    served = [{"id": name} for name in settings.served]
    return Resolved(
        name=Emulator.name,
        version=f"{VLLM_VERSION}+windtunnel.emulator",
        model=choose_model(served, model, ROOT)["id"],
        models=settings.served,
        max_model_len=settings.limits.max_model_len,
        block_size=match_unit(cache),
        kv_tokens=cache["kv_cache_size_tokens"],
        num_blocks=cache["num_gpu_blocks"],
        prefix_caching=cache["enable_prefix_caching"],
        speculation=speculation(config)[0],
        speculative_tokens=speculation(config)[1],
        flags=flatten(config),
        emulated=True,
        emulation=labels(settings),
        capabilities=Capabilities(
            tokenize=True,
            token_strings=True,
            token_prompts=True,
            return_token_ids=True,
            prompt_token_details=settings.prompt_details,
            reset=True,
            cache_salt=True,
            ignore_eos=True,
            metrics=True,
            server_info=True,
            continuous_usage=True,
        ),
    )
