"""What a run and its worker processes say to each other, and the socket they say it through.

A frame is two lengths, a message in msgpack, and bytes that go as they are: a request's body is never encoded again.
All times are ns of CLOCK_MONOTONIC, which is the same clock in every process.
"""

import asyncio
import socket
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from windtunnel.agents.client import RawStream, Target
from windtunnel.agents.sse import Parsed
from windtunnel.simulator.run.probe import Health

_LENGTHS = struct.Struct("<II")


class Hello(Struct, frozen=True, tag=True):
    """To a worker, once: where its requests go. Sent here because headers hold keys and a command line can be read."""

    target: Target
    keep_text: bool


class Send(Struct, frozen=True, tag=True):
    """To a worker: send this request, whose body follows the message."""

    number: int
    path: str
    request_id: str


class Abort(Struct, frozen=True, tag=True):
    """To a worker: give this request up; what it had received comes back as its answer."""

    number: int


class Look(Struct, frozen=True, tag=True):
    """To a worker: parse what has arrived and tell how far each stream is."""


class Ready(Struct, frozen=True, tag=True):
    """From a worker, once."""


class Seen(Struct, frozen=True, tag=True):
    """From a worker: (request, tokens, tail) of its live streams."""

    streams: list[tuple[int, int, str]]


class Answered(Struct, frozen=True, tag=True):
    """From a worker: a request is over. The long rows of numbers go as the arrays' own bytes."""

    number: int
    raw: RawStream
    parsed: Parsed
    token_ids: bytes
    chunk_t: bytes
    chunk_n: bytes

    @classmethod
    def of(cls, number: int, raw: RawStream, parsed: Parsed) -> "Answered":
        raw.pieces = []
        short = msgspec.structs.replace(parsed, token_ids=(), chunk_t=(), chunk_n=())
        rows = (array("i", parsed.token_ids), array("q", parsed.chunk_t), array("i", parsed.chunk_n))
        ids, times, counts = (row.tobytes() for row in rows)
        return cls(number, raw, short, ids, times, counts)

    def whole(self) -> Parsed:
        """`parsed` with its rows."""
        ids, times, counts = array("i", self.token_ids), array("q", self.chunk_t), array("i", self.chunk_n)
        return msgspec.structs.replace(self.parsed, token_ids=ids, chunk_t=times, chunk_n=counts)


ToWorker = Hello | Send | Abort | Look
ToRun = Ready | Seen | Answered | Health
T = TypeVar("T")


class Pipe(asyncio.Protocol, Generic[T]):
    """One end. `got(message, body)` is called for each frame, `lost` once, when the other end has gone."""

    def __init__(self, kinds: Any, got: Callable[[T, bytes], None], lost: Callable[[], None]) -> None:
        self._decode = msgspec.msgpack.Decoder(kinds).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._got = got
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def send(self, message: Struct, parts: Sequence[bytes] = ()) -> None:
        """Nothing is said to an end that has gone."""
        if self._transport is not None and not self._transport.is_closing():
            head = self._encode(message)
            self._transport.writelines([_LENGTHS.pack(len(head), sum(map(len, parts))), head, *parts])

    def close(self) -> None:
        """At once: the other end is told by the end of the stream."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # a reset and an end mean the same here
        self._transport = None
        self._lost()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _LENGTHS.size:
            first, second = _LENGTHS.unpack_from(buffer)
            middle = _LENGTHS.size + first
            end = middle + second
            if len(buffer) < end:
                return
            with memoryview(buffer) as view:
                message = self._decode(view[_LENGTHS.size : middle])
                body = bytes(view[middle:end])
            del buffer[:end]
            self._got(message, body)


async def start_process(module: str, pipe: Pipe[Any]) -> asyncio.subprocess.Process:
    """`python -m MODULE FD` with the pipe's other end, in a session of its own: no signal of a terminal reaches it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    ours.setblocking(False)
    await asyncio.get_running_loop().create_unix_connection(lambda: pipe, sock=ours)
    return process
