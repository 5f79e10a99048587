"""When a call's tokens came, as its event tells it."""

from array import array
from functools import cache
from typing import cast

import numpy as np

from windtunnel.agents import events as ev
from windtunnel.agents.http import RawStream
from windtunnel.agents.sse import Parsed


def chunks_of(raw: RawStream, parsed: Parsed, *, packed: bool = False) -> ev.Chunks:
    """Arrivals as differences in microseconds; each is rounded from the absolute time, so that errors do not add up.

    `packed`: as arrays, where many events are kept.
    """
    if raw.t_sent is None or not parsed.chunk_t:
        return ev.Chunks()
    came = parsed.chunk_t
    if isinstance(came, array) and came.typecode == "q":
        times = np.frombuffer(came, dtype=np.int64)
    else:
        times = np.array(came, dtype=np.int64)
    times = (times - raw.t_sent) // 1000
    times[1:] = times[1:] - times[:-1]
    if packed:
        counts = parsed.chunk_n
        ones = _ones(len(counts)) if len(counts) == parsed.completion_tokens else tuple(counts)
        return ev.Chunks(us=cast("tuple[int, ...]", array("q", times.tobytes())), n=ones)
    return ev.Chunks(us=tuple(times.tolist()), n=tuple(parsed.chunk_n))


@cache
def _ones(count: int) -> tuple[int, ...]:
    """As a rule each chunk carries one token: equal ones are the same object."""
    return (1,) * count
