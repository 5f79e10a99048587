"""What is sampled beside the driver: the client's own lateness, the heartbeat, the engine's counters, the GPU."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from windtunnel.agents import events as ev
from windtunnel.simulator.engines import signatures
from windtunnel.simulator.engines.launch import Launched
from windtunnel.simulator.run.driver import Driver
from windtunnel.simulator.run.gpu import Gpus
from windtunnel.simulator.run.probe import Health, Stolen, probe

NS = 1_000_000_000


async def client_samples(driver: Driver, beside: Callable[[], Sequence[Health]] = tuple) -> None:
    """One ClientSample a second: lateness of every probe, dispatch delays, CPU share, memory, blocked sockets.

    `beside` gives what the client's other processes told since the last sample: their probes are pooled with those of
    this one, the share of a core is that of the busiest process, memory and blocked sockets are added up.
    """
    host = Stolen()

    def tell(now: int, own: Health) -> None:
        processes = (own, *beside())
        sizes = [health.rss for health in processes if health.rss is not None]
        driver.emit(
            ev.ClientSample(
                t=driver.at(now),
                lag_us=tuple(lag for health in processes for lag in health.lag_us),
                dispatch_us=tuple(driver.dispatch_us),
                cpu=max(health.cpu for health in processes),
                rss=sum(sizes) if sizes else None,
                live=len(driver.live),
                blocked=sum(health.blocked for health in processes),
                stolen=host.share(),
            )
        )
        driver.emit(ev.Heartbeat(t=driver.at(now)))
        driver.dispatch_us.clear()

    await probe(driver.clock, tell, lambda: driver.client.blocked)


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
