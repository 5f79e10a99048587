"""`windtunnel engine`: the emulator as a server of its own process, started, watched and stopped like a vLLM."""

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from time import perf_counter_ns, strftime
from typing import Any

from aiohttp import web

from windtunnel.simulator.emulator.about import describe, labels
from windtunnel.simulator.emulator.build import core_of
from windtunnel.simulator.emulator.engine import Engine
from windtunnel.simulator.emulator.flags import VLLM_VERSION, Settings, parse
from windtunnel.simulator.emulator.metrics import Metrics
from windtunnel.simulator.emulator.routes import Server
from windtunnel.simulator.emulator.template_folder import FolderTemplate
from windtunnel.simulator.emulator.tokenizer import builtin
from windtunnel.simulator.emulator.tokenizer_folder import FolderTokenizer
from windtunnel.traces.errors import EngineError, UsageError

_PR_SET_PDEATHSIG = 1


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    try:
        settings = parse(argv, os.environ)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except EngineError as error:
        _log("ERROR", str(error))
        return 1
    if settings.exit_with_parent:
        die_with_parent()
    try:
        return _run(_serve(settings))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        # vLLM's own words: whoever watches its log for them finds them here.
        reason = os.strerror(error.errno) if error.errno else error.strerror  # asyncio's is a sentence of its own
        where = f"{settings.host}:{settings.port}"
        _log("ERROR", f"[Errno {error.errno}] cannot listen on {where} ({reason}): choose another --port.")
        return 1


def build(settings: Settings, loop: asyncio.AbstractEventLoop) -> tuple[Engine, web.Application]:
    """The engine and its routes on a loop."""
    core = core_of(settings)
    metrics = Metrics(core.scheduler, settings.served[0], describe(settings)["cache_config"])
    if settings.auto_tools:
        metrics.parsed = {}
    engine = Engine(core, metrics, perf_counter_ns, loop, settings.front_ns)
    if settings.tokenizer is None:
        return engine, Server(settings, engine, builtin()).application()
    tokenizer = FolderTokenizer(Path(settings.tokenizer))
    template = FolderTemplate(Path(settings.tokenizer), tokenizer)
    return engine, Server(settings, engine, tokenizer, template).application()


async def _serve(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    _introduce(settings)
    engine, app = build(settings, loop)
    # What start-up built lives as long as the process: collections need not walk it again.
    gc.freeze()
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, settings.host, settings.port, backlog=1024)
    try:
        await site.start()
        port = runner.addresses[0][1]
        _log("INFO", f"Starting vLLM API server 0 on http://{settings.host}:{port}")
        _log("INFO", "Application startup complete.")
        if settings.port == 0:
            print(port, flush=True)
        await stopped.wait()
        _log("INFO", "Shutting down")
    finally:
        engine.stop()
        await runner.cleanup()
    return 0


def _introduce(settings: Settings) -> None:
    limits, model = settings.limits, settings.model
    _log("INFO", f"vLLM API server version {VLLM_VERSION}, emulated: no GPU is used and times are modelled.")
    told = labels(settings)
    sources = f" Unverified: {', '.join(settings.unverified)}." if settings.unverified else ""
    fit = "calibrated" if told["calibrated"] else "uncalibrated"
    bar = "error not known" if told["error_bar"] is None else f"+-{told['error_bar']:.0%}"
    _log("INFO", f"Emulating {model.name} on {settings.gpu.name}, {fit}, {bar}.{sources}")
    if settings.ignored:
        _log("WARNING", f"Accepted and not modelled: {', '.join(settings.ignored)}")
    for flag in settings.idle:
        _log("WARNING", f"{flag} changes nothing: the checkpoint is in {settings.quantization}, as in vLLM.")
    _log("INFO", f"Available KV cache memory: {settings.pool.bytes / (1 << 30):.2f} GiB")
    _log(
        "INFO",
        f"GPU KV cache size: {settings.kv_tokens:,} tokens, Maximum concurrency for {limits.max_model_len:,} tokens "
        f"per request: {settings.pool.requests:.2f}x",
    )


def die_with_parent() -> None:
    """Ask the kernel for a SIGTERM when the parent dies (Linux); elsewhere nothing happens."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _run(server: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(server)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(server)


def _log(level: str, text: str) -> None:
    print(f"{level} {strftime('%m-%d %H:%M:%S')} [emulator] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
