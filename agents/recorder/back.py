"""The proxy's connection to the server. What comes is sent on before anything else is done with it."""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from windtunnel.agents.failures import Failure
from windtunnel.agents.recorder.exchange import Exchange

REFUSED = (400, 422)
"""Answers of servers that do not know a field."""


class FrontSide(Protocol):
    """The client's connection as this one needs it."""

    def write(self, data: bytes) -> None: ...

    def answered(self, t: int, *, keep: bool) -> None: ...

    def refused_usage(self) -> None: ...

    def server_gone(self, t: int, failure: Failure, detail: str) -> None: ...

    def switched(self) -> None: ...


class Back(asyncio.Protocol):
    def __init__(self, front: FrontSide, now_ns: Callable[[], int]) -> None:
        self._front = front
        self._now = now_ns
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._t = 0
        self._raw = False
        """Bytes go on as they come; else they are looked at first."""
        self._tunnel = False
        self._kept = bytearray()
        """Bytes of an answer of which it is not known yet whether it must be changed."""
        self._refused = False
        self._chunked = False
        self._until_close = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""

    # What the client's side asks of it.

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._raw = exchange.stripper is None
        self._refused = self._until_close = False
        self._kept.clear()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def tunnel(self) -> None:
        self._tunnel = True

    def pause(self) -> None:
        if self.usable and self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.usable and self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the transport reports.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._t = self._now()
        if self._tunnel:
            self._front.write(data)
            return
        if self._raw:
            self._front.write(data)
        elif self._kept or self._exchange is None or self._exchange.status is None or self._refused:
            self._kept += data
        try:
            self._parser.feed_data(data)
        except HttpParserCallbackError:
            raise  # ours, not the server's: let it be seen
        except HttpParserUpgrade:
            self._tunnel = True
            self._front.switched()
        except HttpParserError as error:
            self._front.server_gone(self._t, Failure.MALFORMED_HTTP, f"not valid HTTP: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        t = self._now()
        if self._exchange is not None and self._until_close and exc is None:
            self._flush_stripped()
            self._ended(keep=False, t=t)
        elif exc is not None:
            self._front.server_gone(t, Failure.CONNECTION_RESET, str(exc) or type(exc).__name__)
        else:
            begun = self._exchange is not None and (self._exchange.status is not None or self._refused)
            failure = Failure.CONNECTION_CLOSED if begun else Failure.SERVER_DISCONNECTED
            self._front.server_gone(t, failure, "the server closed the connection")
        del self._parser  # it holds this object's methods: the cycle would live until the next garbage collection

    # What the parser reports. `on_body` is the hot one.

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, []
        reason, self._reason = self._reason, b""
        status = self._parser.get_status_code()
        exchange = self._exchange
        if exchange is None or status < 200:
            return
        known = {name.lower(): value for name, value in headers}
        exchange.status = status
        exchange.content_type = known.get(b"content-type", b"").decode("latin-1")
        exchange.content_encoding = known.get(b"content-encoding", b"").decode("latin-1").lower()
        self._chunked = b"chunked" in known.get(b"transfer-encoding", b"").lower()
        has_end = self._chunked or b"content-length" in known
        bodiless = exchange.method == b"HEAD" or status in (204, 304)
        self._until_close = not has_end and not bodiless
        if exchange.stripper is not None:
            self._decide(exchange, status, reason, headers)
        if exchange.method == b"HEAD":
            keep = self._parser.should_keep_alive()
            self._parser = HttpResponseParser(self)
            self._ended(keep=keep, t=self._t)

    def _decide(self, exchange: Exchange, status: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """With the head of an answer known: change it, send it on as it is, or ask again without the usage."""
        if status in REFUSED:
            self._refused = True
            return
        if status == 200 and "event-stream" in exchange.content_type and exchange.content_encoding in ("", "identity"):
            self._kept.clear()
            lines = [b"HTTP/1.1 %d %s" % (status, reason)]
            lines += [name + b": " + value for name, value in headers if name.lower() != b"content-length"]
            if not self._chunked and not self._until_close:
                lines.append(b"Transfer-Encoding: chunked")
                self._chunked = True
            self._front.write(b"\r\n".join(lines) + b"\r\n\r\n")
            return
        exchange.stripper = None
        self._send_kept()

    def _send_kept(self) -> None:
        self._raw = True
        self._front.write(bytes(self._kept))
        self._kept.clear()

    def on_body(self, body: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.recorded:
            exchange.pieces.append((self._t, body))
        if exchange.stripper is not None and not self._refused:
            self._write_framed(exchange.stripper.feed(body))

    def _write_framed(self, data: bytes) -> None:
        if data:
            self._front.write(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    def _flush_stripped(self) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.stripper is not None and not self._refused:
            self._write_framed(exchange.stripper.rest())
            if self._chunked:
                self._front.write(b"0\r\n\r\n")

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or exchange.status is None:
            return  # an interim answer
        keep = self._parser.should_keep_alive()
        if self._refused and keep:
            exchange.pieces.clear()
            exchange.status = None
            self._front.refused_usage()
            return
        if self._refused:
            self._send_kept()
        else:
            self._flush_stripped()
        self._ended(keep=keep, t=self._t)

    def _ended(self, *, keep: bool, t: int) -> None:
        self._exchange = None
        self._front.answered(t, keep=keep)
