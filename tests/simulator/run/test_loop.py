"""The client's event loop: nothing that runs beside the streams holds it, and how late it is is told."""

import asyncio
import subprocess
import sys
import time
from asyncio.events import Handle
from types import SimpleNamespace

from windtunnel.agents import events as ev
from windtunnel.agents.clock import RealClock
from windtunnel.agents.fake import Answer, FakeClient
from windtunnel.agents.prompt import Options, Rendering, prepare
from windtunnel.simulator.results.store import RunWriter
from windtunnel.simulator.run import samplers
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.simulator.run.driver import Driver

from .conftest import NS, WITH_IDS, chain

STREAMS = 256
LIMIT_MS = 1.0


def test_nothing_periodic_holds_the_loop_for_a_millisecond(tmp_path, monkeypatch, capsys):
    """Every step of the tasks beside 256 streams, by the time that this thread computed."""
    steps = {"progress": [], "samples": [], "window": []}
    run_handle = Handle._run

    def timed(handle):
        task = getattr(handle._callback, "__self__", None)
        name = task.get_name() if isinstance(task, asyncio.Task) else ""
        began = time.thread_time_ns()
        run_handle(handle)
        if name in steps:
            steps[name].append((time.thread_time_ns() - began) / 1e6)

    monkeypatch.setattr(Handle, "_run", timed)

    async def main():
        clock = RealClock()
        config = RunConfig(
            agents=STREAMS, ramp_s=0.2, start="fresh", warmup=Warmup(calls=0), duration_s=2.4, pace="none"
        )
        writer = RunWriter.create(tmp_path / "run", "r", no_text=False)
        rendering = Rendering(WITH_IDS, tag_tokens=8)
        driver = Driver(
            config=config,
            prepared=[prepare(chain(f"t{n}", 4, out=400), "tokens", rendering) for n in range(4)],
            options=Options("m"),
            clock=clock,
            client=FakeClient(clock, lambda asked: Answer(first_s=0.1 + asked.number / 1000, token_s=0.1, per_chunk=4)),
            writer=writer,
            run_id="r",
            origin_ns=clock.now_ns(),
            match_unit=16,
        )
        shown = []
        writer.subscribe(lambda event: shown.append(event) if isinstance(event, ev.Progress) else None)
        sampling = asyncio.create_task(samplers.client_samples(driver), name="samples")
        await driver.run()
        await samplers.cancelled([sampling])
        writer.close()
        return shown

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        shown = runner.run(main())
    assert max(len(event.agents) for event in shown) == STREAMS
    with capsys.disabled():
        for name, held in steps.items():
            held.sort()
            print(
                f"\n{name}: {len(held)} steps, median {held[len(held) // 2]:.3f} ms, longest {held[-1]:.3f} ms", end=""
            )
    for name, held in steps.items():
        # The few longest are left out: a garbage collection falls where it falls.
        assert held[: int(len(held) * 0.95)][-1] < LIMIT_MS, name


class LateClock:
    """Wakes everybody late by what is told, once each."""

    def __init__(self, *late_ms):
        self.now = 0
        self.late = list(late_ms)

    def now_ns(self):
        return self.now

    async def sleep_until(self, t_ns):
        if not self.late:
            await asyncio.Event().wait()
        self.now = max(self.now, t_ns) + round(self.late.pop(0) * 1e6)
        await asyncio.sleep(0)


class Watched:
    """As much of a driver as is sampled."""

    def __init__(self, clock):
        self.clock = clock
        self.dispatch_us = [7, 9]
        self.live = {0: None, 1: None}
        self.client = SimpleNamespace(blocked=0)
        self.events = []

    def at(self, ns):
        return ns

    def emit(self, event):
        self.events.append(event)


async def sampled(clock):
    driver = Watched(clock)
    task = asyncio.create_task(samplers.client_samples(driver))
    while clock.late:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await samplers.cancelled([task])
    return driver.events


async def test_every_probe_tells_how_late_the_loop_was():
    events = await sampled(LateClock(*([0.5] * 22), 0))
    sample, beat = events[:2]
    assert isinstance(beat, ev.Heartbeat)
    assert sample.lag_us == (500,) * 22
    assert (sample.dispatch_us, sample.live) == ((7, 9), 2)
    assert sample.rss > 1_000_000
    assert NS <= sample.t < 1.047 * NS


async def test_the_most_sockets_that_were_blocked_at_one_time_are_told():
    clock = LateClock(*([0] * 44))
    driver = Watched(clock)
    at_look = [0, 3, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2]  # with every other probe, and one with each sample

    class Client:
        @property
        def blocked(self):
            return at_look.pop(0) if at_look else 0

    driver.client = Client()
    task = asyncio.create_task(samplers.client_samples(driver))
    while clock.late:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await samplers.cancelled([task])
    told = [e.blocked for e in driver.events if isinstance(e, ev.ClientSample)]
    assert told == [7, 2]


async def test_a_blocked_loop_is_late_for_all_the_probes_it_missed():
    """One hold of 105 ms is not one late probe among twenty: two probes were missed."""
    events = await sampled(LateClock(*([0] * 10), 105, *([0] * 12)))
    assert events[0].lag_us == (*[0] * 10, 105_000, 58_000, 11_000, *[0] * 9)


async def test_samples_come_once_a_second_on_average():
    events = await sampled(LateClock(*([0] * 640)))
    times = [e.t for e in events if isinstance(e, ev.ClientSample)]
    assert len(times) == 30
    assert all(n * NS <= t < n * NS + 47_000_000 for n, t in enumerate(times, 1))


async def test_work_beside_a_run_keeps_its_deadlines_and_makes_up_for_none():
    """A scrape that took too long is followed at once by the next one, and those missed are left out."""
    clock = LateClock(0, 0, 3500, 0, 0)
    driver = Watched(clock)
    began = []

    async def work():
        began.append(clock.now / NS)

    task = asyncio.create_task(samplers.every(1.0, driver, work))
    while clock.late:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await samplers.cancelled([task])
    assert began == [0.0, 1.0, 2.0, 6.5, 6.5, 7.5]


class Log:
    """A started engine's log that grows by one piece a look; a piece may arrive while it is being read."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)
        self.lines = []

    def log_mark(self):
        self.lines += self.pieces.pop(0) if self.pieces else []
        return len(self.lines)

    def log_lines_since(self, mark):
        return self.lines[mark:]


async def test_compilation_while_the_engine_serves_is_noted():
    class Soon(LateClock):
        async def sleep(self, seconds):
            await self.sleep_until(self.now + round(seconds * NS))

    told = "INFO torch.compile took 31.2 s"
    log = Log(["Compiling a graph at the start"], [], [told, "INFO all is well"], [])
    driver = Watched(Soon(0, 0, 0, 0))
    driver.now = lambda: driver.clock.now
    task = asyncio.create_task(samplers.compilation(log, driver))
    while driver.clock.late:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    await samplers.cancelled([task])
    (note,) = driver.events
    assert (note.reason, note.level) == ("compilation", "warning")
    assert told in note.text
    assert note.t == 2 * NS


async def test_an_error_of_a_sampler_is_raised():
    async def broken():
        raise ZeroDivisionError

    task = asyncio.create_task(broken())
    await asyncio.sleep(0)
    try:
        await samplers.cancelled([task])
    except ZeroDivisionError:
        return
    raise AssertionError("it went unseen")


def test_a_run_loads_no_screen():
    """The viewer is a process of its own: nothing of it is in the process that measures."""
    code = (
        "import sys, windtunnel.simulator.cli, windtunnel.simulator.run.run; "
        "print([m for m in sys.modules if m.startswith(('textual', 'rich', 'windtunnel.tui'))])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
