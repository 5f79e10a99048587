"""What a client says about each of its requests, whoever the client is, and what the server knows about the same ones.

All times are ns of CLOCK_MONOTONIC, which is `time.perf_counter_ns()` on Linux.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Times = NDArray[np.int64]
NO_TIMES: Times = np.empty(0, dtype=np.int64)


class Said(Struct, frozen=True):
    """One request as its client reported it. None where it never happened."""

    id: str
    """The X-Request-Id."""
    intended: int
    """When it was to be sent."""
    sent: int | None
    """When its last byte had left."""
    times: Times
    """Arrivals of chunks that carried tokens."""
    end: int | None = None
    start: int | None = None
    """When its first byte left."""
    tokens: int | None = None
    """Output tokens; None where the client does not count them."""
    first_tokens: int = 1
    """Tokens of the first chunk."""
    failure: str | None = None
    detail: str | None = None
    cut: bool = False

    @property
    def ttft_ns(self) -> int | None:
        return int(self.times[0]) - self.intended if len(self.times) else None


class Truth(Struct, frozen=True):
    """One request as the server logged it."""

    id: str
    fault: str
    how: str
    """done, closed, reset (by the server), client_closed."""
    number: int
    accepted: int
    full: int
    """The request's last byte was read; 0 if that never happened."""
    role: int
    end: int
    body: int
    """Bytes."""
    tokens: int
    """Written, whoever read them."""
    blocked: int
    """Times that the socket was full."""
    reused: bool
    times: Times
    """The moment before each chunk's send()."""


def from_files(out: Path) -> list[Said]:
    """What `raw_client` and `naive` write."""
    arrivals = np.fromfile(f"{out}.times", dtype=np.int64)
    said = []
    at = 0
    for line in out.read_text().splitlines():
        one = json.loads(line)
        times = arrivals[at : at + one["chunks"]]
        at += one["chunks"]
        said.append(Said(one["id"], one["intended"], one["sent"], times, one["end"], one["start"]))
    return said


def from_log(lines: bytes, times: bytes) -> list[Truth]:
    """The server's `/truth/log` and `/truth/times`."""
    written = np.frombuffer(times, dtype=np.int64)
    known = Truth.__struct_fields__

    def one(entry: dict[str, Any]) -> Truth:
        own = written[entry["at"] : entry["at"] + entry["chunks"]]
        return Truth(times=own, **{name: entry[name] for name in known if name != "times"})

    return [one(json.loads(line)) for line in lines.splitlines()]


def pairs(said: Iterable[Said], true: Iterable[Truth]) -> list[tuple[Said, Truth]]:
    """Both sides of each request that both know."""
    by_id = {one.id: one for one in true}
    return [(one, by_id[one.id]) for one in said if one.id in by_id]
