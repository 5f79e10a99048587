"""One HTTP/1.1 connection that sends a request and notes when each byte of the answer arrived.

The read path does two things per read: one timestamp, and one list append for each piece of the body. What the bytes
mean is worked out later by `sse`, off this path. The connection knows nothing about pools: `client` owns those.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, cast

import msgspec
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from windtunnel.agents.acks import Lateness
from windtunnel.agents.failures import Failure, http_failure
from windtunnel.agents.reads import COMPILED, whole_chunks

_DETAIL_CHARS = 300
_ERROR_BYTES = 65_536
"""At most this much of an error's body is looked at."""
_HEAD_BYTES, _INTERIM_BYTES = 1 << 18, 1 << 10
"""Headers are never so long; an answer that only announces another one counts as some."""
_NO_HEAD = "its headers have no end"

_LARGE_READ = 65_536
"""After one of these the other sockets go first. libuv reads up to 32 times from a socket before it turns to the next,
which with megabytes waiting is 10 ms.
"""

_FORGETFUL_WRITELINES = (3, 12) <= sys.version_info < (3, 13, 2)
"""asyncio's own `writelines` did not pause its protocol in these (CPython gh-127655); uvloop's always does."""


class RawStream(Struct):
    """A request and the bytes of its answer. Times are ns of the client's clock; None until it happened."""

    request_id: str
    t_start: int | None = None
    """`stream` was called; until `t_write` a connection was found or made."""
    t_write: int | None = None
    """The first byte was handed to the socket."""
    t_sent: int | None = None
    """The kernel had taken the last byte of the body (with TLS: the TLS layer had encrypted and passed it on)."""
    t_headers: int | None = None
    """Arrival of the read that completed the response's headers."""
    t_end: int | None = None
    """Arrival of the read that completed the answer, or the moment of failure."""
    status: int | None = None
    headers: dict[str, str] = {}
    """Names in lower case; repeated ones joined by `, `."""
    pieces: list[tuple[int, bytes]] = []
    """(arrival, body bytes), not yet taken. HTTP framing is removed, nothing else is touched."""
    failure: str | None = None
    detail: str | None = None
    """What the server or the system said, shortened."""
    reconnected: bool = False
    """The kept-alive connection had gone stale and the request was sent again on a fresh one."""
    most_tokens: int | None = None
    """What the request asks for at most, where it says."""
    give_up: Any = None
    """`give_up(failure, detail)` closes the connection and ends the exchange so; None but while it goes on."""

    def take(self, limit: int | None = None) -> list[tuple[int, bytes]]:
        """Remove and return the pieces so far, or the `limit` oldest of them: what parses off the read path.

        The body of an error stays until it is whole, because `detail` is read from it.
        """
        if self.status != 200 and not self.done:
            return []
        pieces = self.pieces
        if limit is None or len(pieces) <= limit:
            self.pieces = []
            return pieces
        head = pieces[:limit]
        del pieces[:limit]
        return head

    @property
    def done(self) -> bool:
        return self.t_end is not None


class Connection(asyncio.Protocol):
    """A socket to the target. One exchange at a time; `exchange` returns when the answer is complete or has failed."""

    def __init__(self, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self.reused = False
        """Had served an earlier exchange when the present one began."""
        self.idle_since = 0
        """ns; when it became free."""
        self.lateness = Lateness()
        self._now = now_ns
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._raw: RawStream | None = None
        self._ended: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stall_ns = 0
        self._t = 0
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        """Of this answer's headers so far."""
        self._until_close = False
        self._keep_alive = False
        self._blocked = False
        self._between = False
        """What was read so far of the answer ends where one HTTP chunk has ended and the next is to begin."""
        self._waits = False
        """For the other sockets."""

    # What the client asks of it.

    @property
    def usable(self) -> bool:
        """Open, between exchanges, and both sides willing to go on."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and self._raw is None and self._keep_alive

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    @property
    def arrived(self) -> int:
        """ns; the last bytes of the answer that is being read, 0 where there is none."""
        raw = self._raw
        return self._t if raw is not None and raw.status == 200 else 0

    @property
    def blocked(self) -> bool:
        """The kernel takes no more of the request: the server reads slower than we write."""
        return self._blocked

    async def exchange(self, raw: RawStream, head: bytes, parts: Sequence[bytes], stall_s: float) -> None:
        """Send the request and collect the answer in `raw`; failures are named there. Cancelling closes the socket."""
        transport = self._transport
        if transport is None or self._raw is not None:
            raise RuntimeError("an exchange needs an open and free connection")
        loop = asyncio.get_running_loop()
        self._raw = raw
        self._ended = loop.create_future()
        self._stall_ns = round(stall_s * 1e9)
        self._until_close = self._keep_alive = False
        raw.give_up = self._give_up
        self._head_bytes = 0
        raw.t_write = self._t = self._now()
        self._timer = loop.call_later(stall_s, self._check_stall)
        if _FORGETFUL_WRITELINES and type(transport).__module__.startswith("asyncio."):
            transport.write(b"".join([head, *parts]))
        else:
            transport.writelines([head, *parts])
        if not self._blocked and raw.t_end is None:
            raw.t_sent = self._now()
        try:
            await self._ended
        except asyncio.CancelledError:
            self._fail(Failure.ABORTED)
            raise
        self.idle_since = cast("int", raw.t_end)

    def abort(self) -> None:
        """Close at once; the server sees the connection end."""
        if self._transport is not None:
            self._transport.abort()

    async def closed(self) -> None:
        """Wait until the transport is gone."""
        if self._transport is not None:
            if self._lost is None:
                self._lost = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._lost)

    # What the transport reports.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A mark of (nearly) zero makes `resume_writing` tell when the last byte has left; asyncio's TLS layer counts
        # "at the mark" as full, the plain ones "above the mark".
        high = 1 if transport.get_extra_info("sslcontext") else 0
        self._transport.set_write_buffer_limits(high=high, low=0)

    def data_received(self, data: bytes) -> None:
        self._t = t = self._now()
        # The parser counts nothing from chunk to chunk, so that it does not miss those that come whole.
        if not (self._between and (raw := self._raw) is not None and whole_chunks(data, t, raw.pieces)):
            self._parse(data)
        if len(data) >= _LARGE_READ:
            self._give_way()

    def _parse(self, data: bytes) -> None:
        self._between = False
        try:
            self._parser.feed_data(data)
        except HttpParserCallbackError:
            raise  # ours, not the server's: let it be seen
        except HttpParserUpgrade:
            self._fail(Failure.MALFORMED_HTTP, "the server switched protocols")
        except HttpParserError as error:
            self._fail(Failure.MALFORMED_HTTP, str(error))
        self._between = self._between and data.endswith(b"\r\n")  # else a part of the next header has come, too

    def _give_way(self) -> None:
        """Read on in the next turn of the loop."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self._waits:
            self._waits = True
            transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._waits = False
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        if self._raw is not None and self._raw.t_sent is None:
            self._raw.t_sent = self._now()

    def eof_received(self) -> None:
        """Returning None closes the transport; `connection_lost` decides what that means."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        raw = self._raw
        if raw is not None:
            self._t = self._now()
            if exc is not None:
                self._fail(Failure.CONNECTION_RESET, str(exc) or type(exc).__name__)
            elif raw.status is None:
                self._fail(Failure.SERVER_DISCONNECTED)
            elif self._until_close:
                self._finish(raw)
            else:
                self._fail(Failure.CONNECTION_CLOSED)
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        del self._parser  # it holds this object's methods: the cycle would live until the next garbage collection

    # What the parser reports. `on_body` is the hot one.

    def on_message_begin(self) -> None:
        if self._raw is None:
            self.abort()  # an answer nobody asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _HEAD_BYTES:
            self._fail(Failure.MALFORMED_HTTP, _NO_HEAD)
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, {}
        status = self._parser.get_status_code()
        raw = self._raw
        if raw is None:
            return
        if status < 200:
            self._head_bytes += _INTERIM_BYTES
            if self._head_bytes > _HEAD_BYTES:
                self._fail(Failure.MALFORMED_HTTP, _NO_HEAD)
            return
        raw.status = status
        raw.headers = headers
        raw.t_headers = self._t
        has_end = "chunked" in headers.get("transfer-encoding", "").lower() or "content-length" in headers
        self._until_close = not has_end and status not in (204, 304)

    def on_body(self, body: bytes) -> None:
        raw = self._raw
        if raw is not None:
            raw.pieces.append((self._t, body))

    def on_chunk_header(self) -> None:
        self._between = False

    def on_chunk_complete(self) -> None:
        self._between = COMPILED

    def on_message_complete(self) -> None:
        self._between = False
        raw = self._raw
        if raw is not None and raw.status is not None:
            self._keep_alive = self._parser.should_keep_alive() and raw.t_sent is not None
            self._finish(raw)

    # How an exchange ends.

    def _check_stall(self) -> None:
        raw = self._raw
        if raw is None:
            return
        left = self._t + self._stall_ns - self._now()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left / 1e9, self._check_stall)
            return
        self._give_up(Failure.READ_TIMEOUT.value, f"no byte for {self._stall_ns / 1e9:g} s")

    def _give_up(self, failure: str, detail: str | None) -> None:
        """Fail now, whatever came last."""
        self._t = self._now()
        self._fail(failure, detail)

    def _finish(self, raw: RawStream) -> None:
        status = cast("int", raw.status)
        if status != 200:
            raw.failure = http_failure(status)
            raw.detail = error_detail(raw)
        elif not may_be_sse(raw.headers.get("content-type")):
            raw.failure = Failure.NOT_SSE.value
            raw.detail = error_detail(raw) or raw.headers.get("content-type")
        elif raw.headers.get("content-encoding", "identity").lower() != "identity":
            raw.failure = Failure.NOT_SSE.value
            raw.detail = shorten(f"content-encoding {raw.headers['content-encoding']}, which was not asked for")
        self._end(raw)
        if not self._keep_alive:
            self.abort()

    def _fail(self, failure: str, detail: str | None = None) -> None:
        raw = self._raw
        if raw is not None:
            raw.failure = str(failure)
            raw.detail = detail
            self._keep_alive = False
            if failure == Failure.ABORTED:
                self._t = self._now()
            self._end(raw)
        self.abort()

    def _end(self, raw: RawStream) -> None:
        raw.t_end = self._t
        raw.give_up = None
        self.lateness.since = 0
        self._raw = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def may_be_sse(content_type: str | None) -> bool:
    """Plain text and no type at all are left to the parser: some servers stream events under them."""
    return content_type is None or content_type.lower().startswith(("text/event-stream", "text/plain"))


def error_detail(raw: RawStream) -> str | None:
    """What an answer that is no stream says: the error's message, a redirect's aim, when to come back."""
    body = b"".join(data for _, data in raw.pieces)[:_ERROR_BYTES]
    words = [error_message(body)]
    if "location" in raw.headers:
        words.append(f"location: {raw.headers['location']}")
    if "retry-after" in raw.headers:
        words.append(f"retry after {raw.headers['retry-after']}")
    return "; ".join(shorten(w) for w in words if w) or None


def error_message(body: bytes) -> str:
    """The message in an error's body, in any of the shapes engines use; the text itself where there is none."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace")
    return message_of(said) or body.decode("utf-8", "replace")


def message_of(said: object) -> str | None:
    """`{"error": {"message": m}}`, `{"error": m}`, `{"message": m}` and `{"detail": m}` all give m."""
    if isinstance(said, str):
        return said
    if isinstance(said, dict):
        for key in ("error", "message", "detail"):
            if said.get(key):
                return message_of(said[key]) or str(said[key])
    return None


def shorten(text: str, most: int = _DETAIL_CHARS) -> str:
    """One line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
