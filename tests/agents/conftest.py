"""A server that says exactly the bytes a test scripts, and a way to run a test on each kind of event loop."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from windtunnel.agents.client import StreamClient, Timeouts, parse_target

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop


class Request:
    """What the server read: start line, headers (lower case), body, and the number of its connection."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader, connection: int) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
        self.reader = reader
        self.body = b""
        self.connection = connection


Script = Callable[[Request, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request; True keeps the connection."""


class ScriptedServer:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self.read_body = True
        self.tasks: set[asyncio.Task[Any]] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = Request(head, reader, number)
                if self.read_body:
                    request.body = await reader.readexactly(int(request.headers["content-length"]))
                self.requests.append(request)
                if not await self.script(request, writer):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.tasks.discard(task)

    async def stop(self) -> None:
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """The server alone. Its connections are gone when this ends."""
    handler = ScriptedServer(script)
    server = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=tls, backlog=512)
    handler.port = server.sockets[0].getsockname()[1]
    try:
        yield handler
    finally:
        server.close()
        await handler.stop()


@asynccontextmanager
async def talking(
    script: Script, *, path: str = "", tls: ssl.SSLContext | None = None, timeouts: Timeouts | None = None, **more: Any
) -> AsyncIterator[tuple[StreamClient, ScriptedServer]]:
    """A scripted server and a client of it."""
    async with serving(script, tls=tls) as server:
        scheme = "https" if tls else "http"
        key = more.pop("api_key", None)
        if "client_tls" in more:
            more["tls"] = more.pop("client_tls")
        target = parse_target(f"{scheme}://127.0.0.1:{server.port}{path}", api_key=key)
        client = StreamClient(target, timeouts=timeouts, **more)
        try:
            yield client, server
        finally:
            await client.close()
            await asyncio.sleep(0)


@pytest.fixture
def talk() -> Callable[..., Any]:
    return talking


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine to its end on the loop that the parameter names, failing after 20 s instead of hanging."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield lambda main: runner.run(asyncio.wait_for(main, 20))


def event(**fields: Any) -> bytes:
    import msgspec

    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def words(*texts: str, finish: str | None = "stop", usage: int | None = None, done: bool = True) -> list[bytes]:
    """The events of a small chat stream, as vLLM sends them."""
    events = [event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])]
    for i, text in enumerate(texts):
        last = i == len(texts) - 1
        events.append(
            event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish if last else None}])
        )
    if usage is not None:
        events.append(
            event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": usage, "total_tokens": 7 + usage})
        )
    if done:
        events.append(b"data: [DONE]\n\n")
    return events


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*bodies: bytes, end: bool = True) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(b), b) for b in bodies) + (b"0\r\n\r\n" if end else b"")


@pytest.fixture
def say() -> type:
    """The vocabulary of scripts: HEAD, chunked, words, event."""

    class Say:
        head = HEAD
        chunked = staticmethod(chunked)
        words = staticmethod(words)
        event = staticmethod(event)

    return Say
