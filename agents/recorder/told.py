"""What the proxy tells about an exchange. All times are ns of CLOCK_MONOTONIC, the same clock in every process."""

from typing import Literal

from msgspec import Struct

How = Literal["complete", "client_gone", "upstream_gone", "no_upstream"]
"""How an exchange ended: whole; the client hung up; the server did; it could not be reached."""


class Opened(Struct, frozen=True, tag=True):
    """A request for the model has come in whole. Its body, still encoded as sent, follows the message."""

    number: int
    t: int
    """When its last byte came."""
    connection: int
    path: str
    """Without the tag's prefix, with the query."""
    tag: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""


class Arrived(Struct, frozen=True, tag=True):
    """Bytes of an answer; they follow the message."""

    number: int
    pieces: tuple[tuple[int, int], ...]
    """(arrival, length)."""
    content_type: str = ""
    content_encoding: str = ""


class Closed(Struct, frozen=True, tag=True):
    number: int
    t: int
    """When the last byte came, or the end was noticed."""
    status: int | None
    how: How
    content_type: str = ""
    detail: str = ""
    failure: str = ""
    """What went wrong with the connection to the server, by the names of `Failure`."""


Told = Opened | Arrived | Closed
