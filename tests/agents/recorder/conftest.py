"""A proxy between raw sockets, and exchanges told by hand: what a client sent, what a server answered, and when."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from windtunnel.agents import events as ev
from windtunnel.agents.client import parse_target
from windtunnel.agents.recorder.exchange import Exchange
from windtunnel.agents.recorder.proxy import Proxy
from windtunnel.agents.recorder.recorder import Recorder
from windtunnel.agents.recorder.screen import Wrote
from windtunnel.agents.recorder.told import Arrived, Closed, How, Opened
from windtunnel.traces.check import faults
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Trace

sys.path.insert(0, str(Path(__file__).parent))  # these tests share their requests and answers
WALL = 1_800_000_000.0
MS = 1_000_000


class Heard:
    """What a proxy told, as it came."""

    def __init__(self) -> None:
        self.opened_: list[tuple[Exchange, int, int]] = []
        self.closed_: list[tuple[Exchange, How, str]] = []

    def opened(self, exchange: Exchange, t: int, connection: int) -> None:
        self.opened_.append((exchange, t, connection))

    def closed(self, exchange: Exchange, t: int, how: How, detail: str = "") -> None:
        self.closed_.append((exchange, how, detail))


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def upstream(handler: Handler) -> AsyncIterator[int]:
    """A server of raw bytes; gives its port."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.001)


@asynccontextmanager
async def proxied(handler: Handler, path: str = "") -> AsyncIterator[tuple[int, int, Heard]]:
    """(the server's port, the proxy's, what the proxy told)."""
    async with upstream(handler) as port:
        heard = Heard()
        proxy = Proxy(parse_target(f"http://127.0.0.1:{port}{path}"), heard)
        await proxy.start(0)
        try:
            yield port, proxy.port, heard
        finally:
            await proxy.close()
            await asyncio.sleep(0.001)


class Sink:
    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.texts: list[Wrote] = []

    def emit(self, event: ev.Event) -> None:
        self.events.append(event)

    def wrote(self, what: Wrote) -> None:
        self.texts.append(what)

    def of(self, kind: type[Any]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]


class Told:
    """Tells a recorder about exchanges; times in ms since its start."""

    def __init__(self, folder: Path, name: str = "rec") -> None:
        self.folder = folder
        self.sink = Sink()
        self.recorder = Recorder(
            folder, self.sink, name=name, client="tester", source="recorded from test", origin_ns=0, wall_clock=WALL
        )
        self.recorder.resume()
        self.count = 0

    def again(self) -> "Told":
        """A new recorder in the same folder."""
        return Told(self.folder, "second")

    def ask(self, path: str, body: dict[str, Any], at: float, tag: str = "", **headers: str) -> int:
        self.count += 1
        named = tuple((k.replace("_", "-"), v) for k, v in headers.items())
        opened = Opened(self.count, round(at * MS), self.count, path, tag, named)
        self.recorder.opened(opened, json.dumps(body).encode())
        return self.count

    def answer(
        self,
        number: int,
        at: float,
        *bodies: bytes,
        status: int | None = 200,
        how: How = "complete",
        kind: str = "text/event-stream",
    ) -> None:
        """The bodies came one ms apart, the last of them at `at`, and the answer ended."""
        self.arrive(number, at, *bodies, kind=kind)
        self.recorder.closed(Closed(number, round(at * MS), status, how, kind))

    def arrive(self, number: int, at: float, *bodies: bytes, kind: str = "text/event-stream") -> None:
        first = at - len(bodies) + 1
        pieces = tuple((round((first + i) * MS), len(b)) for i, b in enumerate(bodies))
        if pieces:
            self.recorder.arrived(Arrived(number, pieces, kind), b"".join(bodies))

    def finish(self, at: float = 1e6) -> list[Trace]:
        """The recorded sessions, in order of their file names; each must be sound."""
        self.recorder.finish(round(at * MS))
        return self.traces()

    def traces(self) -> list[Trace]:
        out = []
        for path in sorted(self.folder.glob("*.jsonl")):
            result = read_trace(path)
            assert result.problems == ()
            out += result.traces
        for trace in out:
            assert faults(trace) == []
            sums = trace.prompt_tokens()
            assert {c.id: sums[c.id] for c in trace.calls} == {c.id: c.usage.prompt for c in trace.calls}
        return out


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


@pytest.fixture
def proxy() -> Callable[..., Any]:
    return proxied
