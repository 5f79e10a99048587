"""Many streams to one target: the pool of connections, where the target is, and how a request begins.

`StreamClient.stream` is the measured path. Everything that is not measured (health, tokenise, metrics) uses aiohttp.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from windtunnel.agents.acks import Acks
from windtunnel.agents.failures import Failure
from windtunnel.agents.http import Connection, RawStream, shorten
from windtunnel.traces.errors import UsageError

__all__ = ["RawStream", "StreamClient", "Streams", "Target", "Timeouts", "parse_target"]

_STALE_NS = 1_000_000_000
"""A reused connection that ends this soon after the request, with no byte of an answer, had been closed before it."""
_ASKED = re.compile(rb',"max_tokens":(\d{1,9})[,}]')
_NEAR_BYTES = 4096
_LOOK_AT = 64
"""Connections whose acknowledgements are looked at before the loop turns to its sockets again."""


class Target(Struct, frozen=True):
    """A server: routes begin with `/v1/` after `prefix`."""

    scheme: str
    host: str
    port: int
    prefix: str = ""
    """Base path without `/v1` and without a slash at its end."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with each request; holds the API key, so it is not written into results."""

    @property
    def netloc(self) -> str:
        """The `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def url(self, path: str = "") -> str:
        """A route's full address, without secrets."""
        return f"{self.scheme}://{self.netloc}{self.prefix}{path}"

    def __repr__(self) -> str:
        return f"Target({self.url()!r})"


_LABEL = 63
"""Characters of a part of a host's name (RFC 1035, 2.3.4)."""
_PORTS = {"http": 80, "https": 443}


def parse_target(url: str, api_key: str | None = None, headers: Sequence[tuple[str, str]] = ()) -> Target:
    """A target from what a user types: with or without scheme (http), base path, `/v1`, or the route itself."""
    text = url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no usable target: {error}; give a URL such as http://127.0.0.1:8000.") from None
    if parts.scheme not in _PORTS or not host:
        raise UsageError(f"{url!r} is no usable target: give a URL such as http://127.0.0.1:8000.")
    if not host.isascii() or any(not 0 < len(label) <= _LABEL for label in host.rstrip(".").split(".")):
        try:
            host = host.encode("idna").decode("ascii")  # as it is looked up, and as HTTP names it
        except UnicodeError:
            raise UsageError(f"{url!r} is no usable target: {host!r} cannot be a host's name.") from None
    if parts.query or parts.fragment or parts.username or parts.password:
        raise UsageError(
            f"Target {parts.hostname!r} has a query, fragment or password: give scheme, host, port, path only."
        )
    prefix = parts.path.rstrip("/")
    for route in ("/chat/completions", "/completions", "/v1"):
        prefix = prefix.removesuffix(route)
    sent = list(headers)
    if api_key:
        sent.append(("Authorization", f"Bearer {api_key}"))
    for name, value in sent:
        if not (name + value).isascii() or not (name + value).isprintable() or not name or set(name) & set(" :"):
            raise UsageError(f"Header {name!r} holds characters that HTTP headers cannot: correct its name or value.")
    return Target(
        scheme=parts.scheme,
        host=host,
        port=port if port is not None else _PORTS[parts.scheme],
        prefix=prefix,
        headers=tuple(sent),
    )


class Timeouts(Struct, frozen=True):
    """Limits of one request, s."""

    connect_s: float = 10.0
    stall_s: float = 600.0
    """Longest time without a byte from the server, before and after the first."""
    idle_s: float = 4.0
    """A kept-alive connection that was idle for longer is not used again: uvicorn closes after 5 s."""


Dial = Callable[[Callable[[], Connection]], Awaitable[Connection]]
"""Opens a transport for the protocol that the function makes. Tests and in-process servers put their own here."""


class Streams(Protocol):
    """What sends the requests of a replay: `StreamClient`, or the engine without a socket in `fake`."""

    @property
    def blocked(self) -> int:
        """Streams of this process whose request the server is not reading as fast as we write it."""
        ...

    async def stream(
        self,
        path: str,
        parts: Sequence[bytes],
        *,
        request_id: str,
        headers: Sequence[tuple[str, str]] = (),
        on_start: Callable[[RawStream], None] | None = None,
    ) -> RawStream: ...


class StreamClient:
    """As many parallel streams as are asked for; a connection serves one at a time and is kept for the next.

    Nothing is retried. One exception is no retry of a request but of a connection: one that the server had closed while
    it lay in the pool (`RawStream.reconnected`).
    """

    def __init__(
        self,
        target: Target,
        *,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        now_ns: Callable[[], int] = perf_counter_ns,
        dial: Dial | None = None,
    ) -> None:
        self.target = target
        self._timeouts = timeouts or Timeouts()
        self._tls = tls
        self._now = now_ns
        self._dial: Dial = dial or self._dial_socket
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._heads: dict[str, bytes] = {}
        self._addresses: list[str] = []
        self._resolving = asyncio.Lock()
        self._closed = False
        self._acks = Acks()
        self._to_look: list[Connection] = []
        self._looking: asyncio.Handle | None = None

    @property
    def in_flight(self) -> int:
        """Exchanges under way."""
        return len(self._busy)

    @property
    def blocked(self) -> int:
        """Streams whose request the server is not reading as fast as we write it."""
        return sum(connection.blocked for connection in self._busy)

    async def stream(
        self,
        path: str,
        parts: Sequence[bytes],
        *,
        request_id: str,
        headers: Sequence[tuple[str, str]] = (),
        on_start: Callable[[RawStream], None] | None = None,
    ) -> RawStream:
        """POST the joined `parts` (JSON) to `path` (`/v1/...`) and collect the answer's bytes with their arrival times.

        `on_start` gets the stream before anything happens, so that its pieces can be taken while it runs. A failure is
        named in the result and never raised; cancelling closes the socket and names it `aborted`.
        """
        raw = RawStream(request_id=request_id, t_start=self._now(), most_tokens=asked_for(parts))
        if on_start is not None:
            on_start(raw)
        head = self._head(path, request_id, sum(map(len, parts)), headers)
        try:
            connection = self._take_idle() or await self._connect(raw)
            if connection is not None:
                await self._exchange(connection, raw, head, parts)
                if self._went_stale(connection, raw):
                    raw.failure = raw.detail = raw.t_end = raw.t_sent = raw.t_write = None
                    raw.reconnected = True
                    fresh = await self._connect(raw)
                    if fresh is not None:
                        await self._exchange(fresh, raw, head, parts)
        except asyncio.CancelledError:
            if raw.t_end is None:
                raw.failure, raw.t_end = Failure.ABORTED.value, self._now()
            raise
        return raw

    async def close(self) -> None:
        """Close all connections; streams still running end as failures."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.closed()

    async def _exchange(self, connection: Connection, raw: RawStream, head: bytes, parts: Sequence[bytes]) -> None:
        self._busy.add(connection)
        try:
            await connection.exchange(raw, head, parts, self._timeouts.stall_s)
        finally:
            self._busy.discard(connection)
        if connection.usable and not self._closed:
            self._idle.append(connection)
        else:
            connection.abort()

    def _went_stale(self, connection: Connection, raw: RawStream) -> bool:
        lost = raw.failure in {Failure.SERVER_DISCONNECTED, Failure.CONNECTION_RESET}
        unanswered = raw.status is None and raw.t_end is not None and raw.t_write is not None
        return connection.reused and lost and unanswered and _soon(raw) and not self._closed

    def _take_idle(self) -> Connection | None:
        """The connection used last, because it is the least likely to have been closed."""
        oldest = self._now() - round(self._timeouts.idle_s * 1e9)
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                connection.reused = True
                return connection
            connection.abort()
        return None

    def _head(self, path: str, request_id: str, length: int, headers: Sequence[tuple[str, str]]) -> bytes:
        fixed = self._heads.get(path)
        if fixed is None:
            lines = [
                f"POST {self.target.prefix}{path} HTTP/1.1",
                f"Host: {self.target.netloc}",
                "User-Agent: windtunnel",
                "Accept: text/event-stream",
                "Content-Type: application/json",
                *(f"{name}: {value}" for name, value in self.target.headers),
            ]
            fixed = self._heads[path] = "\r\n".join(lines).encode("latin-1")
        extra = "".join(f"\r\n{name}: {value}" for name, value in headers)
        return fixed + f"{extra}\r\nX-Request-Id: {request_id}\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")

    async def _connect(self, raw: RawStream) -> Connection | None:
        """A fresh connection, or None with the reason in `raw`."""
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                return await self._dial(lambda: Connection(self._now))
        except OSError as error:
            failure, detail = unconnected(error), str(error)
            if failure == Failure.CONNECT_TIMEOUT:
                detail = f"no connection within {self._timeouts.connect_s:g} s"
            elif failure == Failure.UNKNOWN_HOST:
                detail = f"{self.target.host}: {error.strerror}"
        raw.failure, raw.detail, raw.t_end = failure.value, shorten(detail), self._now()
        return None

    async def _dial_socket(self, make: Callable[[], Connection]) -> Connection:
        loop = asyncio.get_running_loop()
        addresses = await self._resolve()
        tls = self._tls_context()
        for address in addresses:
            try:
                _, connection = await loop.create_connection(
                    make,
                    address,
                    self.target.port,
                    ssl=tls,
                    server_hostname=self.target.host if tls else None,
                )
            except ConnectionError:
                if address == addresses[-1]:
                    raise
            else:
                if self._looking is None:
                    self._look_later()
                return connection
        raise ConnectionRefusedError(f"{self.target.host} has no address")

    def _look_later(self) -> None:
        if not (self._closed or self._acks.hopeless):
            self._looking = asyncio.get_running_loop().call_later(self._acks.look_in_s, self._look)

    def _look(self) -> None:
        """At how answers are acknowledged, a few at a time."""
        waiting = self._to_look
        if not waiting:
            waiting.extend(self._busy)
        self._acks.look(waiting[-_LOOK_AT:], self._now())
        del waiting[-_LOOK_AT:]
        if waiting:
            self._looking = asyncio.get_running_loop().call_soon(self._look)
        else:
            self._look_later()

    async def _resolve(self) -> list[str]:
        """Look the host up once: a lookup runs in a thread and would delay each connection by its own time."""
        async with self._resolving:
            if not self._addresses:
                found = await asyncio.get_running_loop().getaddrinfo(
                    self.target.host, self.target.port, type=socket.SOCK_STREAM
                )
                self._addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        return self._addresses

    def _tls_context(self) -> ssl.SSLContext | None:
        if self.target.scheme != "https":
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def unconnected(error: OSError) -> Failure:
    """Why no connection came about."""
    if isinstance(error, TimeoutError):
        return Failure.CONNECT_TIMEOUT
    if isinstance(error, ConnectionRefusedError):
        return Failure.CONNECT_REFUSED
    if isinstance(error, socket.gaierror):
        return Failure.UNKNOWN_HOST
    return Failure.TLS_FAILED if isinstance(error, ssl.SSLError) else Failure.CONNECT_FAILED


def asked_for(parts: Sequence[bytes]) -> int | None:
    """Most tokens that a request's body asks for: its last `max_tokens`, which stands near its end."""
    found = _ASKED.findall(parts[-1][-_NEAR_BYTES:]) if parts else ()
    return int(found[-1]) if found else None


def _soon(raw: RawStream) -> bool:
    return raw.t_end is not None and raw.t_write is not None and raw.t_end - raw.t_write < _STALE_NS
