"""The proxy's end of the pipe: what the connections saw goes to the writer, answers in parts four times a second."""

import asyncio
import socket
import sys

from windtunnel.agents.recorder.exchange import Exchange
from windtunnel.agents.recorder.told import Arrived, Closed, How, Opened
from windtunnel.simulator.record.frames import Began, Begin, Done, End, Refused, ToProxy
from windtunnel.simulator.run.pipe import Pipe
from windtunnel.traces.errors import RunError, UsageError

START_S = 30.0
END_S = 60.0
PARTS_S = 0.25


_TELLING = (b"[DONE]", b"message_stop", b"response.completed", b"content_block_stop", b"output_item.done")
"""A client may react to these before the answer has ended; the writer must know them before the client's request."""


class WriterLink:
    """A `Listener`. A writer that died leaves the agent undisturbed: bytes go on, nothing is recorded any more."""

    def __init__(self) -> None:
        self._live: dict[int, Exchange] = {}
        self.pipe: Pipe[ToProxy] = Pipe(ToProxy, self._got, self._hung_up)
        self.lost = False
        """The writer has gone before it was told to."""
        self._first: asyncio.Future[ToProxy | None] = asyncio.get_running_loop().create_future()
        self._done: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, begin: Begin) -> str:
        """The recording's folder. The writer has a session of its own: no signal of the terminal reaches it."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "windtunnel.simulator.record.writer", str(theirs.fileno())]
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self.pipe, sock=ours)
        self.pipe.send(begin)
        try:
            said = await asyncio.wait_for(self._first, START_S)
        except TimeoutError:
            said = None
        if isinstance(said, Refused):
            raise UsageError(said.reason)
        if not isinstance(said, Began):
            raise RunError("the process that writes the recording did not start: see its message above")
        return said.folder

    async def end(self) -> Done | None:
        """What was recorded; None when the writer is gone."""
        self.pipe.send(End())
        try:
            done = await asyncio.wait_for(self._done, END_S)
        except TimeoutError:
            done = None
        self.pipe.close()
        if self._process is not None:
            await self._process.wait()
        return done

    def opened(self, exchange: Exchange, t: int, connection: int) -> None:
        for other in self._live.values():
            if any(mark in data for _, data in other.pieces[-4:] for mark in _TELLING):
                self._parts(other)
        headers = tuple((n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in exchange.headers)
        path = exchange.path.decode("latin-1")
        self.pipe.send(Opened(exchange.number, t, connection, path, exchange.tag, headers), [exchange.body])

    def closed(self, exchange: Exchange, t: int, how: How, detail: str = "") -> None:
        self._parts(exchange)
        self.pipe.send(Closed(exchange.number, t, exchange.status, how, exchange.content_type, detail))

    async def parts(self, live: dict[int, Exchange]) -> None:
        """Hands on the answers under way (the proxy's own table of them), for ever."""
        self._live = live
        while True:
            await asyncio.sleep(PARTS_S)
            for exchange in list(live.values()):
                self._parts(exchange)

    def _parts(self, exchange: Exchange) -> None:
        if exchange.pieces and exchange.status is not None:
            pieces, exchange.pieces = exchange.pieces, []
            lengths = tuple((t, len(data)) for t, data in pieces)
            arrived = Arrived(exchange.number, lengths, exchange.content_type, exchange.content_encoding)
            self.pipe.send(arrived, [data for _, data in pieces])

    def _got(self, message: ToProxy, body: bytes) -> None:
        del body
        if not self._first.done():
            self._first.set_result(message)
        elif isinstance(message, Done) and not self._done.done():
            self._done.set_result(message)

    def _hung_up(self) -> None:
        self.lost = not self._done.done()
        for waiting in (self._first, self._done):
            if not waiting.done():
                waiting.set_result(None)
