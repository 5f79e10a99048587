"""A server that misbehaves, behind real connections of the client: bytes cross no socket and time is virtual."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from windtunnel.agents.client import StreamClient, Timeouts, parse_target
from windtunnel.agents.clock import VirtualClock

FIRST_S, GAP_S, LATE_S = 0.5, 0.02, 0.03
MIDDLE = 10
"""Chunks before what goes wrong in the middle of a stream."""
SLOW_BYTES, SLOW_S = 256, 0.1
"""A slow server reads so much at a time, with so long a pause before each."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSALS = {
    "429": (b"429 Too Many Requests", b"slow down", b"Retry-After: 7\r\n"),
    "503": (b"503 Service Unavailable", b'{"error": {"message": "loading"}}', b""),
    "400": (b"400 Bad Request", b'{"error": {"message": "too long"}}', b""),
    "redirect": (b"307 Temporary Redirect", b"", b"Location: https://elsewhere/v1\r\n"),
    "not_sse": (b"200 OK", b'{"choices": []}', b""),
}
ENDLESS = ("endless", "endless_text", "endless_usage")
WIDE = "é🎈 "
"""Said by a server that tears its characters apart: 7 bytes."""


class Wire(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self, protocol: Any, engine: "Engine") -> None:
        super().__init__()
        self.protocol = protocol
        self.closing = False
        self.unread = bytearray()
        self._engine = engine
        self._high = 65_536
        self._paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def writelines(self, list_of_data: Any) -> None:
        self.unread += b"".join(list_of_data)
        self._engine.arrived(self)
        if len(self.unread) > self._high:
            self._paused = True
            self.protocol.pause_writing()

    def take(self, most: int) -> bytes:
        """What the server reads."""
        data = bytes(self.unread[:most])
        del self.unread[:most]
        if self._paused and not self.unread:
            self._paused = False
            self.protocol.resume_writing()
        return data

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        """What is said is heard at once."""

    resume_reading = pause_reading

    def abort(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def say(self, data: bytes) -> None:
        """Chunked, as long as anybody hears it."""
        if not self.closing:
            self.protocol.data_received(b"%x\r\n%b\r\n" % (len(data), data))


@dataclass
class Asked:
    """A request, and what the server knows of its answer."""

    request_id: str
    fault: str
    body: dict[str, Any]
    wire: Wire
    full: int
    written: int = 0
    """Tokens."""
    times: list[int] = field(default_factory=list)
    """ns at which each of them was written."""
    over: bool = False
    """The answer was given as it was meant to be."""


class Engine:
    """`fault` names what goes wrong with a request, by its id."""

    def __init__(self, clock: VirtualClock, fault: Callable[[str], str], *, stall_s: float = 60.0) -> None:
        self.clock = clock
        self.asked: dict[str, Asked] = {}
        self.client = StreamClient(
            parse_target("http://h"), timeouts=Timeouts(stall_s=stall_s), now_ns=clock.now_ns, dial=self._dial
        )
        self._fault = fault
        self._tasks: set[asyncio.Task[None]] = set()

    async def _dial(self, make: Callable[[], Any]) -> Any:
        protocol = make()
        protocol.connection_made(Wire(protocol, self))
        return protocol

    def arrived(self, wire: Wire) -> None:
        """A request is there as a whole, read or not."""
        head = bytes(wire.unread[: wire.unread.index(b"\r\n\r\n")])
        request_id = next(line[14:].decode() for line in head.split(b"\r\n") if line.startswith(b"X-Request-Id: "))
        task = asyncio.create_task(self._serve(wire, request_id, self._fault(request_id), len(head) + 4))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, wire: Wire, request_id: str, fault: str, head: int) -> None:
        data = wire.take(len(wire.unread)) if fault != "slow_read" else b""
        while wire.unread:
            await self.clock.sleep(SLOW_S)
            data += wire.take(SLOW_BYTES)
        asked = Asked(request_id, fault, msgspec.json.decode(data[head:]), wire, self.clock.now_ns())
        self.asked[request_id] = asked
        await self.clock.sleep(FIRST_S)
        if fault in REFUSALS:
            line, body, more = REFUSALS[fault]
            form = b"Content-Type: application/json\r\n"
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            wire.protocol.data_received(b"HTTP/1.1 " + line + b"\r\n" + form + more + length + body)
        elif fault == "endless_refusal":
            wire.protocol.data_received(HEAD.replace(b"200 OK", b"500 Oops"))
            while not wire.closing:
                wire.say(b"no. ")
                await self.clock.sleep(GAP_S)
        elif fault == "no_answer":
            wire.lose(None)
        elif fault == "not_http":
            wire.protocol.data_received(b"SSH-2.0-OpenSSH_9.6\r\n")
        elif not wire.closing:
            wire.protocol.data_received(HEAD)
            await self._stream(asked)

    async def _stream(self, asked: Asked) -> None:
        wire, fault = asked.wire, asked.fault
        total = asked.body["max_tokens"] - (fault == "short")
        for number in count() if fault in ENDLESS else range(total):
            if number:
                await self.clock.sleep(GAP_S)
            if number == MIDDLE and await self._breaks(wire, fault):
                return
            if wire.closing:
                return
            for piece in _pieces(fault, _chunk(fault, number, total)):
                wire.say(piece)
            asked.written += 1
            asked.times.append(self.clock.now_ns())
        if fault == "usage_late":
            await self.clock.sleep(LATE_S)
        if fault not in ("usage_absent", "counts_absent", "usage_early", "usage_beside"):
            for piece in _pieces(fault, _event(choices=[], usage=_usage(total))):
                wire.say(piece)
        if fault == "open_after_finish":
            return
        if fault != "no_end":
            for piece in _pieces(fault, b"data: [DONE]\n\n"):
                wire.say(piece)
        while fault == "open_after_done" and not wire.closing:
            wire.say(b": still here\n\n")
            await self.clock.sleep(1.0)
        wire.say(b"")
        asked.over = True

    async def _breaks(self, wire: Wire, fault: str) -> bool:
        """What happens in the middle of a stream; whether it ends it."""
        if fault == "reset":
            wire.lose(ConnectionResetError(104, "Connection reset by peer"))
        elif fault == "close":
            wire.lose(None)
        elif fault == "error_event":
            wire.say(_event(error={"message": "out of memory", "code": 500}))
            wire.say(b"data: [DONE]\n\n")
            wire.say(b"")
        elif fault == "open_after_error":
            wire.say(_event(error={"message": "out of memory", "code": 500}))
        elif fault == "malformed":
            wire.say(b'data: {"choices": [{"index"}]}\n\n')
            return False
        elif fault == "pause":
            await self.clock.sleep(59.0)
            return False
        elif fault != "stall":
            return False
        return True


def _chunk(fault: str, number: int, total: int) -> bytes:
    finish = "length" if number == total - 1 and fault not in ("no_finish", *ENDLESS) else None
    text = WIDE if fault == "split" else f"w{number} "
    more: dict[str, Any] = {}
    if fault in ("usage_early", "endless_usage") or (fault == "usage_beside" and number == total - 1):
        more["usage"] = _usage(number + 1)
    if fault == "long_ids" and number == 0:
        more["prompt_token_ids"] = list(range(100_000, 1_500_000))
    if fault == "long_text" and number == 0:
        text = "x" * 10_000_000
    ids = (
        {}
        if fault in ("usage_early", "usage_late", "usage_beside", "counts_absent", "endless_text", "endless_usage")
        else {"token_ids": [1000 + number]}
    )
    return _event(choices=[{"index": 0, "text": text, "finish_reason": finish, **ids}], **more)


def _usage(tokens: int) -> dict[str, Any]:
    return {"prompt_tokens": 5, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 0}}


def _event(**fields: Any) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def _pieces(fault: str, event: bytes) -> list[bytes]:
    """One event as the server of this fault puts it on the wire."""
    if fault == "split":
        return [event[at : at + 1] for at in range(len(event))]
    if fault == "crlf":
        return [event.replace(b"\n", b"\r\n")]
    if fault == "cr":
        return [event.replace(b"\n", b"\r")]
    if fault == "comments":
        return [b": still here\n\n", b":\n" + event, b"id: 7\nevent: x\nretry: 1\n\n"]
    if fault in ("long_ids", "long_text"):
        return [event[at : at + 65_536] for at in range(0, len(event), 65_536)]
    return [event]
