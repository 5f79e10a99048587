"""What a run says of itself when it begins and when it ends, whatever it ran against."""

import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from windtunnel.agents import events as ev
from windtunnel.agents.reads import COMPILED
from windtunnel.simulator.engines.base import Resolved, engine_of
from windtunnel.simulator.engines.coldstart import ColdStart
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.driver import Driver
from windtunnel.simulator.run.prepare import Preparation
from windtunnel.simulator.version import VERSION
from windtunnel.traces.sources import Loaded


def outcome(driver: Driver) -> tuple[ev.RunStatus, str | None]:
    """Status of a run that is over and, where it is not completed, the reason."""
    match driver.stopped:
        case "interrupted":
            return "interrupted", "interrupted"
        case "engine_gone":
            return "failed", "engine_gone"
        case "worker_gone":
            return "failed", "worker_gone"
        case "failures":
            return "failed", "nothing_completed"
    if not driver.calls_ok:
        return "failed", "nothing_completed"
    started = max(1, driver.sessions_started)
    if driver.sessions_failed / started > driver.config.max_failures:
        return "failed", "max_failures"
    return "completed", None


def describe(
    config: RunConfig,
    loaded: Loaded,
    prepared: Preparation,
    resolved: Resolved,
    *,
    run_id: str,
    target: str,
    origin_ns: int,
    wall_clock: float,
    worker_pids: Sequence[int] = (),
    cold_start: ColdStart | None = None,
) -> dict[str, Any]:
    """run.json: everything needed to repeat the run and to judge it."""
    return {
        "run_id": run_id,
        "windtunnel": VERSION,
        "python": sys.version.split()[0],
        "compiled_reads": COMPILED,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "worker_pids": list(worker_pids),
        "argv": sys.argv[1:] if not config.headers else None,
        "perf_counter_origin_ns": origin_ns,
        "wall_clock": wall_clock,
        "config": config.as_json(),
        "agents": config.agents,
        "seed": config.seed,
        "target": target,
        "cold_start": None if cold_start is None else msgspec.to_builtins(cold_start),
        "engine": engine_of(resolved),
        **prepared.describe(dict(zip((t.header.id for t in loaded.traces), loaded.paths, strict=True))),
    }
