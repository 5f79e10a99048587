"""Damage done to logs: to fields of a JSON value, to the order of records, to bytes; and what must hold afterwards."""

import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import FrameType
from typing import Any

import msgspec

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported

MOST_BYTES = 50_000
MOST_CPU_S = 5.0
"""Processor time for one input, so that a busy machine does not look like a hang."""
NONSENSE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**18,
    10**400,
    1e308,
    -0.5,
    float("nan"),
    float("inf"),
    "",
    "\ud83e",
    "\x00",
    "x" * 300,
    "2026-13-45T99:99:99Z",
    "9999-12-31T23:59:59.999999Z",
    [],
    {},
    [None, 1, "a", {}],
    {"type": "text", "text": None},
    {"content": [[[]]]},
)
"""What no field should hold and some field accepts."""
_BYTES = (b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\r", b"\xc3", b'"', b"\\", b"\\u12", b"{", b"]", b"1e999", b"-")


class Hangs(BaseException):
    """An input took longer than any should. Not an Exception: no handler may swallow it."""


@contextmanager
def time_limit(seconds: float = MOST_CPU_S) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from paths(item, (*at, key))


def mutate_value(value: Any, rng: random.Random) -> Any:
    """A copy with one to three of its places deleted, replaced, renamed, doubled, perturbed or given another's value."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        places = list(paths(value))
        if places:
            _mutate_at(value, rng.choice(places), places, rng)
    return value


def _mutate_at(value: Any, where: tuple[Any, ...], places: list[tuple[Any, ...]], rng: random.Random) -> None:
    holder, key = _holder(value, where), where[-1]
    kind = rng.random()
    if kind < 0.25:
        del holder[key]
    elif kind < 0.6:
        holder[key] = deepcopy(rng.choice(NONSENSE))
    elif kind < 0.8:
        holder[key] = _perturbed(holder[key], rng)
    elif kind < 0.9:
        other = rng.choice(places)
        holder[key] = deepcopy(_holder(value, other)[other[-1]])
    elif isinstance(holder, list):
        holder.insert(key, deepcopy(holder[key]))
    else:
        holder[f"{key}_"] = holder.pop(key)


def _holder(value: Any, where: tuple[Any, ...]) -> Any:
    for key in where[:-1]:
        value = value[key]
    return value


def _perturbed(old: Any, rng: random.Random) -> Any:
    """Something near the old value: believable at first sight."""
    if isinstance(old, bool) or old is None:
        return not old
    if isinstance(old, int | float):
        return rng.choice((old + 1, old - 1, -old, old * 1_000, old // 3, str(old), [old]))
    if isinstance(old, str):
        at = rng.randrange(len(old) + 1)
        return rng.choice(
            (old[:at], old[at:], old.upper(), old * 3, old[:at] + "\u2028" + old[at:], [old], {"text": old})
        )
    if isinstance(old, list):
        return rng.choice((old[::-1], old * 2, old[:1], {"0": old}, dict.fromkeys("ab", old)))
    return rng.choice(([old], list(old), list(old.values()), dict.fromkeys(old)))


def mutate_order(log: list[Any], rng: random.Random) -> list[Any]:
    """Records lost, doubled, swapped or shuffled."""
    log = list(log)
    kind = rng.randrange(4)
    at, other = rng.randrange(len(log)), rng.randrange(len(log))
    if kind == 0:
        del log[min(at, other) : max(at, other) + 1]
    elif kind == 1:
        log[at:at] = log[min(at, other) : max(at, other) + 1]
    elif kind == 2:
        log[at], log[other] = log[other], log[at]
    else:
        rng.shuffle(log)
    return log


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    at, upto = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    kind = rng.randrange(9)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[min(upto, at + 200) :]
    if kind == 2:
        return data[:at] + rng.randbytes(rng.randint(1, 40)) + data[at:]
    if kind == 3:
        return data[:at] + b"\n" + rng.choice((b"[", b'{"a":')) * 3_000 + b"\n" + data[at:]
    if kind == 4:
        return data[:at] + data[at:upto] * 2 + data[upto:]
    if kind == 5:
        flipped = bytearray(data)
        for _ in range(rng.randint(1, 20)):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if kind == 6:
        return data[:at] + rng.choice(_BYTES) + data[at:]
    if kind == 7:
        return data.replace(b"\n", b"\r\n") if rng.random() < 0.5 else data[at:] + data[:at]
    return data[:at] + bytes(upto - at) + data[upto:]


def encoded(log: Any) -> bytes:
    """A list as JSON lines, anything else as one document."""
    return b"".join(json.dumps(r).encode() + b"\n" for r in log) if isinstance(log, list) else json.dumps(log).encode()


def mutated(log: Any, rng: random.Random) -> bytes:
    """The bytes of a damaged log."""
    if rng.random() < 0.3:
        return mutate_bytes(encoded(log), rng)
    if not isinstance(log, list):
        return encoded(mutate_value(log, rng))
    if rng.random() < 0.2:
        log = mutate_order(log, rng) or log
    log = list(log)
    at = rng.randrange(len(log))
    log[at] = mutate_value(log[at], rng)
    return encoded(log)


def listed(log: list[Any], rng: random.Random) -> bytes:
    """The bytes of a damaged log that is one JSON list."""
    if rng.random() < 0.3:
        return mutate_bytes(json.dumps(log).encode(), rng)
    return json.dumps(mutate_value(log, rng)).encode()


def check(result: Imported, what: str) -> None:
    """Something came of it, it was said, and what was kept keeps the promises of the model."""
    assert result.traces or result.problems, f"{what}: neither a trace nor a problem"
    for trace in result.traces:
        assert trace.calls, f"{what}: a session without calls"
        # a sub-agent whose start the log does not show runs from the session's start
        found = [f for f in faults(trace) if not f.endswith("is started by no call")]
        assert not found, f"{what}: {found[:3]}"
        assert all(c.start_s is None or c.start_s >= 0 for c in trace.calls), what
        msgspec.json.encode(trace)
