"""Acknowledging late what comes in small pieces: prompt acknowledgements cost a streaming client a fifth of its time.

Linux acknowledges each small segment as it is read, until a connection looks like a dialogue; from then on every second
one, and a lone one after 40 ms (tcp(7), TCP_QUICKACK). On loopback the prompt kind costs a client nearly as much as
reading does. A server that writes as soon as it has something does not notice. One that waits for acknowledgements
(Nagle's algorithm, RFC 1122 4.2.3.4) would send late, and a client must not cause what it measures. So one stream tries
first: the kernel gives up a dialogue in which it had to acknowledge a lone segment, and says so.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from typing import Protocol

_LOOK_S, _TRY_S = 0.25, 0.1
_FLOWS_NS = 35_000_000
"""Bytes came within this time: a stream whose pieces come more seldom gains nothing."""
_PROVEN_NS = 190_000_000
"""Kept by one stream for so long, the late kind is safe: a server that waits is found out after 40 ms."""
_AGAIN_NS = 1_900_000_000
"""Where it is known to be safe, a stream is looked at again after this time: a look costs as much as half a chunk."""
_MOST_FAILED = 3
"""Streams that tried in vain before no other does."""
_PATIENCE, _MOST_PATIENCE = 4, 8
"""Of a connection: a late kind that was kept adds one, one that was given up takes two."""
_OPTION: int | None = getattr(socket, "TCP_QUICKACK", None)


class Flow(Protocol):
    """A connection as seen here."""

    lateness: "Lateness"

    @property
    def transport(self) -> asyncio.BaseTransport | None: ...

    @property
    def arrived(self) -> int:
        """ns; the last bytes of the answer that is being read, 0 where there is none."""
        ...


class Lateness:
    """What is known about one connection."""

    __slots__ = ("due", "patience", "since")

    def __init__(self) -> None:
        self.since = 0
        """ns; acknowledged late since then, in the answer being read; 0 if not, and set to 0 at an answer's end."""
        self.due = 0
        """ns; when it is looked at again to see whether that has lasted."""
        self.patience = _PATIENCE


class Acks:
    """Over all connections to one server."""

    def __init__(self) -> None:
        self.safe = False
        """The server writes without waiting."""
        self._failed = 0
        self._trying: Lateness | None = None

    @property
    def hopeless(self) -> bool:
        """Nothing is left to do, for this server or on this system."""
        return _OPTION is None or (not self.safe and self._failed >= _MOST_FAILED)

    @property
    def look_in_s(self) -> float:
        """When to look again."""
        return _LOOK_S if self.safe else _TRY_S

    def look(self, flows: Iterable[Flow], now: int) -> None:
        """Set, leave or give up the late kind where an answer flows; `now` in ns."""
        for flow in flows:
            own = flow.lateness
            if own.since and now < own.due:
                continue
            if now - flow.arrived > _FLOWS_NS:
                own.since = 0
            elif own.since:
                self._check(flow, now)
            elif own.patience > 0 and (self.safe or not (self._somebody_tries or self.hopeless)):
                self._trying = own
                own.since = now
                own.due = now + (_AGAIN_NS if self.safe else 0)
                _set_late(flow)

    @property
    def _somebody_tries(self) -> bool:
        return self._trying is not None and self._trying.since > 0

    def _check(self, flow: Flow, now: int) -> None:
        own = flow.lateness
        if _is_late(flow):
            own.patience = min(own.patience + 1, _MOST_PATIENCE)
            self.safe |= now - own.since >= _PROVEN_NS
            own.due = now + (_AGAIN_NS if self.safe else 0)
            return
        own.patience -= 2
        own.since = 0
        if not self.safe:
            self._failed += 1


def _socket(flow: Flow) -> socket.socket | None:
    transport = flow.transport
    if _OPTION is None or transport is None or transport.is_closing():
        return None
    own: socket.socket | None = transport.get_extra_info("socket")
    return own if own is not None and own.family in {socket.AF_INET, socket.AF_INET6} else None


def _set_late(flow: Flow) -> None:
    own = _socket(flow)
    if own is not None and _OPTION is not None:
        with contextlib.suppress(OSError):
            own.setsockopt(socket.IPPROTO_TCP, _OPTION, 0)


def _is_late(flow: Flow) -> bool:
    own = _socket(flow)
    if own is not None and _OPTION is not None:
        with contextlib.suppress(OSError):
            return own.getsockopt(socket.IPPROTO_TCP, _OPTION) == 0
    return False
