"""What is sampled beside the driver: the client's own lateness, the heartbeat, the engine's counters, the GPU."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from windtunnel.agents import events as ev
from windtunnel.simulator.engines import signatures
from windtunnel.simulator.engines.launch import Launched
from windtunnel.simulator.run.driver import Driver
from windtunnel.simulator.run.gpu import Gpus

NS = 1_000_000_000
PROBE_NS = 20_000_000
"""Event-loop lateness is probed this often."""


async def client_samples(driver: Driver) -> None:
    """One ClientSample a second: lateness of every probe, dispatch delays, CPU share, resident memory."""
    clock = driver.clock
    lag: list[int] = []
    since, cpu = clock.now_ns(), time.process_time()
    due = since
    while True:
        due += PROBE_NS
        await clock.sleep_until(due)
        now = clock.now_ns()
        lag.append(max(0, now - due) // 1000)
        if now - due > PROBE_NS:  # a blocked loop missed probes: each of them would have been late too
            missed = (now - due) // PROBE_NS
            lag.extend(max(0, now - due - k * PROBE_NS) // 1000 for k in range(1, missed + 1))
            due += missed * PROBE_NS
        if now - since >= NS:
            spent = time.process_time()
            driver.emit(
                ev.ClientSample(
                    t=driver.at(now),
                    lag_us=tuple(lag),
                    dispatch_us=tuple(driver.dispatch_us),
                    cpu=round((spent - cpu) * NS / (now - since), 4),
                    rss=resident_bytes(),
                    live=len(driver.live),
                )
            )
            driver.emit(ev.Heartbeat(t=driver.at(now)))
            driver.dispatch_us.clear()
            lag.clear()
            since, cpu = now, spent


def resident_bytes() -> int | None:
    """Resident memory of this process, where /proc says."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def compilation(launched: Launched, driver: Driver) -> None:
    """A Note for each time a started engine's log tells of compilation: inside the window it spoils the figures."""
    mark = launched.log_mark()
    while True:
        await driver.clock.sleep(1.0)
        upto = launched.log_mark()  # before reading: what is written meanwhile is read twice and not lost
        told = signatures.compiling(await asyncio.to_thread(launched.log_lines_since, mark))
        mark = upto
        if told:
            text = f"the engine compiled while it served: {told[0].strip()[:200]}"
            driver.emit(ev.Note(t=driver.now(), level="warning", text=text, reason="compilation"))


async def every(seconds: float, driver: Driver, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` at absolute deadlines; a late one is not made up for."""
    due = driver.clock.now_ns()
    step = round(seconds * NS)
    while True:
        await work()
        due = max(due + step, driver.clock.now_ns())
        await driver.clock.sleep_until(due)


async def cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """Stop the samplers; an error of theirs is ours and must show."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


def gpu_samples(gpus: Gpus, t: int, engine: int | None) -> tuple[ev.GpuSample, ...]:
    """One sample a GPU; `engine` is the process group of a started engine. Takes milliseconds: call it in a thread."""
    return gpus.sample(t, () if engine is None else group_members(engine))


def group_members(group: int) -> frozenset[int]:
    """Process ids of a process group: the engine and its workers."""
    members = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if int(fields[2]) == group:
                    members.add(int(entry.name))
    return frozenset(members)
