"""The recording reverse proxy: each connection of a client has one of its own to the server.

Bytes are sent on as they come, in both directions, so that the client sees what it would see without the proxy: the
same headers, the same pieces, the same closes. Changed are the `Host` line, encodings that could not be read here, and
chat streams whose client did not ask for usage (`usage_chunk`). The read path does nothing else than to send on and to
append; what the bytes mean is worked out by whoever listens.
"""

import asyncio
import ssl
from collections import deque
from time import perf_counter_ns
from typing import cast

import msgspec
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from windtunnel.agents.client import Target, unconnected
from windtunnel.agents.failures import Failure
from windtunnel.agents.recorder.back import Back
from windtunnel.agents.recorder.exchange import Exchange, Listener, Shared
from windtunnel.agents.recorder.heads import READABLE, Header, head, route_of, split_tag
from windtunnel.agents.recorder.told import How
from windtunnel.agents.recorder.usage_chunk import UsageStripper, asking
from windtunnel.traces.errors import UsageError

__all__ = ["Proxy"]

_PLAIN = ("identity",)
LINGER_S = 1.0
"""A client that hangs up after the last token has not cancelled: the rest (usage, the end marker) is still read."""
_LAST = (b'"finish_reason":"', b'"finish_reason": "', b"message_delta", b"response.completed")


class Front(asyncio.Protocol):
    """A client's connection, and by it the one to the server."""

    def __init__(self, shared: Shared, tls: ssl.SSLContext | None) -> None:
        self._shared = shared
        self._tls = tls
        self._parser = HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._back: Back | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._unsent = bytearray()
        """For the server, while the connection to it is being made."""
        self._refusal: str | None = None
        self._refused_as = Failure.CONNECT_FAILED
        self._number = 0
        self._reading: Exchange | None = None
        self._active: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        """Requests that were sent before the answer to the one before them had ended."""
        self._url = b""
        self._fields: list[Header] = []
        self._chunked = False
        self._tunnel = False
        self._ending: asyncio.TimerHandle | None = None

    # What the client's transport reports.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._shared.connections += 1
        self._number = self._shared.connections
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        target = self._shared.target
        back = Back(self, self._shared.now_ns)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: back,
                target.host,
                target.port,
                ssl=self._tls,
                server_hostname=target.host if self._tls else None,
            )
        except OSError as error:
            self._refusal, self._refused_as = str(error), unconnected(error)
            if self._active is not None:
                self._refuse(self._active)
            return
        if self._transport is None:
            back.abort()
            return
        self._back = back
        if self._active is not None:
            back.begin(self._active)
        if self._unsent:
            back.write(bytes(self._unsent))
            self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        if self._tunnel:
            self._to_server(data)
            return
        try:
            self._parser.feed_data(data)
        except HttpParserCallbackError:
            raise  # ours, not the client's: let it be seen
        except HttpParserUpgrade as switch:
            self._tunnel = True
            rest = data[int(switch.args[0]) :] if switch.args else b""
            if rest:
                self._to_server(rest)
        except HttpParserError:
            self.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self._close()

    def pause_writing(self) -> None:
        if self._back is not None:
            self._back.pause()

    def resume_writing(self) -> None:
        if self._back is not None:
            self._back.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._waiting.clear()
        active = self._active
        if active is not None and active.recorded and self._nearly_over(active):
            self._ending = asyncio.get_running_loop().call_later(LINGER_S, self._hung_up)
        else:
            self._hung_up()
        del self._parser  # it holds this object's methods: the cycle would live until the next garbage collection

    def _nearly_over(self, exchange: Exchange) -> bool:
        recent = b"".join(piece for _, piece in exchange.pieces[-8:])
        return self._back is not None and any(mark in recent for mark in _LAST)

    def _hung_up(self) -> None:
        self._end("client_gone", self._shared.now_ns())
        if self._back is not None:
            self._back.abort()

    # What the parser of requests reports.

    def on_message_begin(self) -> None:
        self._url = b""
        self._fields = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), name, value))

    def on_headers_complete(self) -> None:
        shared = self._shared
        method = self._parser.get_method()
        tag, path = split_tag(self._url)
        shared.numbers += 1
        known = {lower: value for lower, _, value in self._fields}
        recorded = route_of(method, path) is not None
        exchange = Exchange(shared.numbers, method, path, self._fields, tag=tag, recorded=recorded)
        exchange.upgrade = self._parser.should_upgrade()
        exchange.held = recorded or self._active is not None
        self._reading = exchange
        self._chunked = b"chunked" in known.get(b"transfer-encoding", b"").lower()
        if exchange.held and b"100-continue" in known.get(b"expect", b"").lower():
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not exchange.held:
            self._start(exchange, head(method, path, self._fields, shared.target))
            if self._refusal is not None:
                self._refuse(exchange)

    def on_body(self, body: bytes) -> None:
        exchange = self._reading
        if exchange is None:
            return
        if exchange.held:
            exchange.parts.append(body)
        else:
            self._to_server(b"%x\r\n%s\r\n" % (len(body), body) if self._chunked else body)

    def on_message_complete(self) -> None:
        exchange, self._reading = self._reading, None
        if exchange is None:
            return
        exchange.body, exchange.parts = b"".join(exchange.parts), []
        if not exchange.held:
            if self._chunked:
                self._to_server(b"0\r\n\r\n")
        elif self._active is not None:
            self._waiting.append(exchange)
        else:
            self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        """Send a request that is held in full."""
        shared = self._shared
        body = exchange.body
        encodings: tuple[str, ...] | None = READABLE if exchange.recorded else None
        if exchange.recorded and shared.asks_usage and b"/chat/completions" in exchange.path:
            with_usage = asking(body)
            if with_usage is not None:
                body, encodings = with_usage, _PLAIN
                exchange.stripper = UsageStripper()
        length = len(body) if body or exchange.recorded else None
        start = head(
            exchange.method, exchange.path, exchange.headers, shared.target, length=length, encodings=encodings
        )
        self._start(exchange, start, body)
        if exchange.recorded:
            shared.live[exchange.number] = exchange
            shared.listener.opened(exchange, shared.now_ns(), self._number)
        if self._refusal is not None:
            self._refuse(exchange)

    def _start(self, exchange: Exchange, start: bytes, body: bytes = b"") -> None:
        self._active = exchange
        if self._back is not None:
            self._back.begin(exchange)
        self._to_server(start)
        if body:
            self._to_server(body)

    def _to_server(self, data: bytes) -> None:
        if self._back is not None:
            self._back.write(data)
        else:
            self._unsent += data

    def _refuse(self, exchange: Exchange) -> None:
        """The server cannot be reached: say so as a gateway does."""
        shared = self._shared
        text = f"{shared.target.url()} cannot be reached: {self._refusal}"
        body = msgspec.json.encode({"error": {"type": "bad_gateway", "message": text}})
        self.write(
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        exchange.status = 502
        exchange.failure = self._refused_as
        exchange.pieces.append((shared.now_ns(), body))
        self._end("no_upstream", shared.now_ns(), self._refusal or "")
        self._close()

    # What the server's side reports.

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def answered(self, t: int, *, keep: bool) -> None:
        active = self._active
        self._end("complete", t)
        if active is not None and active.upgrade and self._tunnel:
            keep = False  # the server did not switch, and what else the client sent cannot be read as requests
        if not keep:
            self._close()
        elif self._waiting:
            self._send(self._waiting.popleft())

    def refused_usage(self) -> None:
        """Ask again as the client asked, and never more with a field that this server does not know."""
        exchange = self._active
        if exchange is None:
            return
        self._shared.asks_usage = False
        exchange.stripper = None
        start = head(
            exchange.method,
            exchange.path,
            exchange.headers,
            self._shared.target,
            length=len(exchange.body),
            encodings=READABLE,
        )
        self._start(exchange, start, exchange.body)

    def server_gone(self, t: int, failure: Failure, detail: str) -> None:
        if self._active is not None:
            self._active.failure = failure
        self._end("upstream_gone", t, detail)
        self._close()

    def switched(self) -> None:
        self._end("complete", self._shared.now_ns())
        self._tunnel = True

    def _end(self, how: How, t: int, detail: str = "") -> None:
        exchange, self._active = self._active, None
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if exchange is not None and exchange.recorded:
            self._shared.live.pop(exchange.number, None)
            hung_up = self._transport is None and how == "complete"
            self._shared.listener.closed(exchange, t, "client_gone" if hung_up else how, detail)

    def _close(self) -> None:
        """After what was written has left."""
        if self._transport is not None:
            self._transport.close()
        elif self._back is not None:
            self._back.abort()


class Proxy:
    """Listens on loopback until closed."""

    def __init__(self, target: Target, listener: Listener) -> None:
        self.shared = Shared(target, listener, perf_counter_ns)
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int, host: str = "127.0.0.1") -> None:
        """`port` 0 takes any free one."""
        tls = ssl.create_default_context() if self.shared.target.scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Front(self.shared, tls), host, port, backlog=512)
        except OSError as error:
            raise UsageError(f"port {port} cannot be used ({error.strerror}): give another --port") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening; what is under way is told as it stands."""
        if self._server is not None:
            self._server.close()
        t = self.shared.now_ns()
        for exchange in list(self.shared.live.values()):
            self.shared.listener.closed(exchange, t, "client_gone")
        self.shared.live.clear()
