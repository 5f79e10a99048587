"""One request on its way through the proxy and the answer coming back."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from windtunnel.agents.client import Target
from windtunnel.agents.recorder.heads import Header
from windtunnel.agents.recorder.told import How
from windtunnel.agents.recorder.usage_chunk import UsageStripper


class Exchange(Struct, eq=False):
    """What both sides of a connection know about the request under way. Times are ns of CLOCK_MONOTONIC."""

    number: int
    method: bytes
    path: bytes
    headers: list[Header]
    body: bytes = b""
    """As the client sent it; whole once the request is."""
    parts: list[bytes] = []
    """Of a body that is still coming in."""
    tag: str = ""
    recorded: bool = False
    held: bool = False
    """The request is sent on when it is whole."""
    stripper: UsageStripper | None = None
    """Set while usage that only we asked for has to be hidden."""
    upgrade: bool = False
    status: int | None = None
    content_type: str = ""
    content_encoding: str = ""
    pieces: list[tuple[int, bytes]] = []
    """(arrival, body bytes) not told yet."""
    failure: str = ""
    """The name of what went wrong with the connection to the server."""


class Listener(Protocol):
    """Who is told what the proxy sees. Called right after bytes were sent on, so each must cost little."""

    def opened(self, exchange: Exchange, t: int, connection: int) -> None: ...

    def closed(self, exchange: Exchange, t: int, how: How, detail: str = "") -> None: ...


class Shared(Struct, eq=False):
    """What the connections of one proxy have in common."""

    target: Target
    listener: Listener
    now_ns: Callable[[], int]
    asks_usage: bool = True
    """False once a server has refused to be asked."""
    live: dict[int, Exchange] = {}
    """Recorded exchanges under way, for whoever takes their pieces from time to time."""
    numbers: int = 0
    connections: int = 0
