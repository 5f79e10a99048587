"""Whole runs in virtual time: sessions sketched by hand, an engine without a socket, and what the run wrote down."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from windtunnel.agents import events as ev
from windtunnel.agents.clock import VirtualClock
from windtunnel.agents.fake import Answer, Asked, FakeClient
from windtunnel.agents.prompt import Options, Rendering, prepare
from windtunnel.simulator.results.store import RunFolder, RunWriter
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.simulator.run.driver import Driver
from windtunnel.traces.model import Block, Call, Header, Message, Thread, ToolSet, Trace, Usage, Wait, digest_of
from windtunnel.traces.text import Calibration, stored

NS = 1_000_000_000
WITH_IDS = Calibration("ids", stored().ratio, stored().costs, ids=tuple(range(1000, 5000)))


class Sketch:
    """A shape-only session. Each call goes on from the one before it in its thread."""

    def __init__(self, name: str = "a", *, system: int = 100, user: int = 30, front: str | None = None) -> None:
        self.header = Header(name, shape_only=True, models=("m",))
        self.blocks: list[Block] = []
        self.messages: list[Message] = []
        self.threads = [Thread(0)]
        self.calls: list[Call] = []
        self.waits: list[Wait] = []
        self.sizes = (system, user)
        self.front = front or name
        self.toolsets: list[ToolSet] = []
        self.last: dict[int, int] = {}

    def block(self, tokens: int, digest: str | None = None) -> int:
        number = len(self.blocks)
        self.blocks.append(Block(number, digest or digest_of(self.header.id, str(number)), "prose", tokens))
        return number

    def message(self, role: Any, tokens: int, digest: str | None = None) -> int:
        self.messages.append(Message(len(self.messages), role, (self.block(tokens, digest),)))
        return len(self.messages) - 1

    def thread(self, after: int, *, delay: float = 0.0, name: str = "sub") -> int:
        """A sub-agent that the end of call `after` starts."""
        self.threads.append(Thread(len(self.threads), 0, after, delay, name=name))
        return len(self.threads) - 1

    def call(
        self,
        *waits: tuple[str, float | None],
        thread: int = 0,
        add: int = 15,
        out: int = 20,
        pinned: int | None = None,
        joins: tuple[int, ...] = (),
    ) -> int:
        before = self.last.get(thread)
        if before is None:
            system, user = self.sizes
            append = [self.message("system", system, digest_of("front", self.front)), self.message("user", user)]
            keep = 0
        else:
            previous = self.calls[before]
            assert previous.output is not None
            append = [previous.output, self.message("user", add)]
            keep = previous.keep + len(previous.append)
        number = len(self.calls)
        output = self.message("assistant", out)
        usage = Usage(completion=out if pinned is None else pinned)
        self.calls.append(Call(number, thread, tuple(append), before, keep, output=output, usage=usage, joins=joins))
        self.last[thread] = number
        for cause, seconds in waits:
            tools = ("Bash",) if cause == "tool" else ()
            self.waits.append(Wait(number, cause, seconds, tools))
        return number

    def trace(self) -> Trace:
        return Trace(
            self.header,
            tuple(self.blocks),
            tuple(self.messages),
            tuple(self.toolsets),
            tuple(self.threads),
            tuple(self.calls),
            (),
            tuple(self.waits),
        )


def chain(name: str = "a", calls: int = 3, *, wait: float = 2.0, out: int = 20, **more: Any) -> Trace:
    """A session of one thread whose every call but the first comes after a tool's time."""
    sketch = Sketch(name, **more)
    for number in range(calls):
        sketch.call(*([("tool", wait)] if number and wait else []), out=out)
    return sketch.trace()


@dataclass
class Outcome:
    """What a run left behind."""

    path: Path
    events: list[ev.Event]
    driver: Driver
    client: FakeClient

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def ends(self) -> list[ev.CallEnd]:
        return self.of(ev.CallEnd)

    def end(self, call: int, session: str = "s0") -> ev.CallEnd:
        (found,) = [e for e in self.ends if (e.session, e.call) == (session, call)]
        return found

    @property
    def phases(self) -> dict[str, float]:
        """Seconds at which each phase began."""
        return {e.phase: e.t / NS for e in self.of(ev.Phase)}

    def statuses(self) -> list[tuple[str, str, str | None]]:
        return sorted((e.session, e.status, e.reason) for e in self.of(ev.SessionEnd))

    @property
    def summary(self) -> Summary:
        return recompute(self.path)

    @property
    def data(self) -> bytes:
        return (self.path / "events.jsonl").read_bytes()


class Late:
    """A clock whose sleepers wake late by the same time each, as on a busy client. The engine's clock is punctual."""

    def __init__(self, clock: VirtualClock, late_s: float) -> None:
        self.clock = clock
        self.late_ns = round(late_s * NS)

    def now_ns(self) -> int:
        return self.clock.now_ns()

    async def sleep_until(self, t_ns: int) -> None:
        await self.clock.sleep_until(t_ns + (self.late_ns if t_ns > self.now_ns() else 0))

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.now_ns() + round(seconds * NS))


Replay = Callable[..., Outcome]


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Runs traces from the first lane to the last call on a clock of its own; `at` does something at a moment (s).

    Against an engine without a socket that answers as `answer` says, or whatever `connect` makes.
    """
    runs = 0

    def run(
        *traces: Trace,
        answer: Callable[[Asked], Answer] = lambda _: Answer(),
        at: Sequence[tuple[float, Callable[[Driver], None]]] = (),
        route: Any = "tokens",
        unit: int = 1,
        late_s: float = 0.0,
        connect: Callable[[VirtualClock], Any] | None = None,
        **dials: Any,
    ) -> Outcome:
        nonlocal runs
        runs += 1
        path = tmp_path / f"run{runs}"
        given = {"agents": 1, "ramp_s": 0.0, "start": "fresh", "warmup": Warmup(calls=0), **dials}
        config = RunConfig(**given).checked()
        writer = RunWriter.create(path, "r", no_text=not config.text)
        seen: list[ev.Event] = []
        writer.subscribe(seen.append)
        clock = VirtualClock()
        rendering = Rendering(WITH_IDS, tag_tokens=8)
        client: Any = FakeClient(clock, answer, unit=unit) if connect is None else connect(clock)

        async def main() -> Driver:
            driver = Driver(
                config=config,
                prepared=[prepare(trace, route, rendering) for trace in traces],
                options=Options("m", history=None if config.history == "auto" else config.history),
                clock=Late(clock, late_s),
                client=client,
                writer=writer,
                run_id="r",
                origin_ns=0,
                match_unit=unit,
            )
            writer.write_run({"config": config.as_json(), "agents": config.agents, "seed": config.seed})
            writer.emit(ev.RunStart(t=0, agents=config.agents, wall_clock=0.0))
            timers = [asyncio.create_task(_later(driver, when, what)) for when, what in at]
            await driver.run()
            for timer in timers:
                timer.cancel()
            writer.emit(ev.RunEnd(t=driver.now(), status="completed"))
            return driver

        try:
            driver = clock.run(asyncio.wait_for(main(), 20_000))
        finally:
            writer.close()
        # What is in the file is what was told.
        assert [type(e) for e in RunFolder.open(path).events()] == [type(e) for e in seen]
        return Outcome(path, seen, driver, client)

    return run


async def _later(driver: Driver, when: float, what: Callable[[Driver], None]) -> None:
    await driver.clock.sleep_until(round(when * NS))
    what(driver)
