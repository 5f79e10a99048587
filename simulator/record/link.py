"""The proxy's end of the pipe: what the connections saw goes to the writer, in parts, and never while an agent waits.

A request that was sent on is told only with the next parts: reading it at once would compete for the processor with
the very answer that the agent waits for. A call that ended is told soon, when its agent's next request has passed.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from windtunnel.agents.recorder.exchange import Exchange
from windtunnel.agents.recorder.told import Arrived, Closed, How, Opened
from windtunnel.simulator.record.frames import Began, Begin, Broke, Done, End, Refused, ToProxy
from windtunnel.simulator.run.pipe import Pipe, start_process
from windtunnel.traces.errors import RunError, UsageError

START_S = 30.0
END_S = 60.0
PARTS_S = 0.25
SLICES = 10
SOON_S = 0.03


_TELLING = (b"[DONE]", b"message_stop", b"response.completed", b"content_block_stop", b"output_item.done")
"""A client may react to these before the answer has ended; the writer must know them before the client's request."""


def _opened(exchange: Exchange, t: int, connection: int) -> Opened:
    headers = tuple((lower.decode("latin-1"), value.decode("latin-1")) for lower, _, value in exchange.headers)
    return Opened(exchange.number, t, connection, exchange.path.decode("latin-1"), exchange.tag, headers)


class WriterLink:
    """A `Listener`. A writer that died leaves the agent undisturbed: bytes go on, nothing is recorded any more."""

    def __init__(self, broke: Callable[[str], None] = lambda _: None) -> None:
        """`broke` gets the reason when nothing is recorded any more, once and at once."""
        self._broke = broke
        self._ended = 0
        """Calls that the proxy has seen the end of."""
        self._recorded: int | None = None
        """Of these, when the writer could write no more."""
        self.kept: str | None = None
        """Where these are then; empty where that is nowhere."""
        self._live: dict[int, Exchange] = {}
        self._untold: list[tuple[Callable[[], Struct], list[bytes]]] = []
        self._soon: asyncio.TimerHandle | None = None
        self.pipe: Pipe[ToProxy] = Pipe(ToProxy, self._got, self._hung_up)
        self.lost: str | None = None
        """Why nothing is recorded any more, where the writer has gone before it was told to."""
        self._first: asyncio.Future[ToProxy | None] = asyncio.get_running_loop().create_future()
        self._done: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._begun = False
        """What is seen before waits: the writer must be told first of what it is part of."""

    async def start(self, begin: Begin) -> str:
        """The recording's folder. The writer has a session of its own: no signal of the terminal reaches it."""
        self._process = await start_process("windtunnel.simulator.record.writer", self.pipe)
        self.pipe.send(begin)
        self._begun = True
        try:
            said = await asyncio.wait_for(self._first, START_S)
        except TimeoutError:
            said = None
        if isinstance(said, Refused):
            raise UsageError(said.reason)
        if isinstance(said, Broke):
            raise RunError(said.reason)
        if not isinstance(said, Began):
            raise RunError("the process that writes the recording did not start: see its message above")
        return os.fsdecode(said.folder)

    async def end(self, *, failed: bool = False) -> Done | None:
        """What was recorded; None when the writer is gone. `failed`: the recording did not come to be."""
        await asyncio.sleep(0)  # what ended last is told in the loop's next turn
        self._tell()
        self.pipe.send(End(failed))
        try:
            done = await asyncio.wait_for(self._done, END_S)
        except TimeoutError:
            done = None
        self.pipe.close()
        if self._process is not None:
            await self._process.wait()
        return done

    @property
    def missed(self) -> int | None:
        """Calls that ended and were not recorded; None where the writer could not say how far it was."""
        return None if self._recorded is None else max(0, self._ended - self._recorded)

    def opened(self, exchange: Exchange, t: int, connection: int) -> None:
        """Told in the loop's next turn, as the end is: uvloop sends what was written only when this one is over."""
        asyncio.get_running_loop().call_soon(self._opened, exchange, t, connection)

    def closed(self, exchange: Exchange, t: int, how: How, detail: str = "") -> None:
        asyncio.get_running_loop().call_soon(self._closed, exchange, t, how, detail)

    def _opened(self, exchange: Exchange, t: int, connection: int) -> None:
        for other in self._live.values():
            if any(mark in data for _, data in other.pieces[-4:] for mark in _TELLING):
                self._parts(other)
        self._untold.append((partial(_opened, exchange, t, connection), [exchange.body]))

    def _closed(self, exchange: Exchange, t: int, how: How, detail: str) -> None:
        self._ended += 1
        self._parts(exchange)
        kind, failure = exchange.content_type, exchange.failure
        closed = Closed(exchange.number, t, exchange.status, how, kind, detail, failure)
        self._untold.append((lambda: closed, []))
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._tell)

    async def parts(self, live: dict[int, Exchange]) -> None:
        """Hands on the answers under way (the proxy's own table of them), for ever."""
        self._live = live
        while True:
            for turn in range(SLICES):  # many streams are not told at once: that would hold up all of them
                await asyncio.sleep(PARTS_S / SLICES)
                for number, exchange in list(live.items()):
                    if number % SLICES == turn:
                        self._parts(exchange)
                self._tell()

    def _parts(self, exchange: Exchange) -> None:
        if exchange.pieces and exchange.status is not None:
            pieces, exchange.pieces = exchange.pieces, []
            lengths = tuple((t, len(data)) for t, data in pieces)
            arrived = Arrived(exchange.number, lengths, exchange.content_type, exchange.content_encoding)
            self._untold.append((lambda: arrived, [data for _, data in pieces]))

    def _tell(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if not self._begun:
            return
        untold, self._untold = self._untold, []
        for message, parts in untold:
            self.pipe.send(message(), parts)

    def _got(self, message: ToProxy, body: bytes) -> None:
        del body
        if not self._first.done():
            self._first.set_result(message)
        elif isinstance(message, Done) and not self._done.done():
            self._done.set_result(message)
        elif isinstance(message, Broke):
            self._recorded, self.kept = message.calls, os.fsdecode(message.folder)
            self._lose(message.reason)
            self.pipe.close()

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self._broke(reason)

    def _hung_up(self) -> None:
        begun = self._first.done() and not isinstance(self._first.result(), Refused)
        if begun and not self._done.done():
            self._lose("the process that wrote the recording died")
        for waiting in (self._first, self._done):
            if not waiting.done():
                waiting.set_result(None)
