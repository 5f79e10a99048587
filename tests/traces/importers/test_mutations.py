"""Damaged logs: whatever a byte or a field became, nothing escapes, nothing hangs, and what is kept still adds up."""

import json
import random
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import IMPORTERS, Imported

MUTATIONS = 120
NONSENSE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**18,
    10**400,
    1e308,
    -0.5,
    "",
    "\ud83e",
    "x" * 300,
    [],
    {},
    [None, 1, "a", {}],
    {"type": "text", "text": None},
    {"content": [[[]]]},
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from paths(item, (*at, key))


def mutate_value(value: Any, rng: random.Random) -> Any:
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        where = rng.choice(list(paths(value)) or [()])
        if not where:
            continue
        holder = value
        for key in where[:-1]:
            holder = holder[key]
        if rng.random() < 0.3:
            del holder[where[-1]]
        else:
            holder[where[-1]] = deepcopy(rng.choice(NONSENSE))
    return value


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    at, upto = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[min(upto, at + 200) :]
    if kind == 2:
        return data[:at] + rng.randbytes(rng.randint(1, 40)) + data[at:]
    if kind == 3:
        return data[:at] + b"\n" + b"[" * 3_000 + b"\n" + data[at:]
    return data[:at] + data[at:upto] * 2 + data[upto:]


def mutated(log: Any, rng: random.Random) -> bytes:
    many = isinstance(log, list)
    if rng.random() < 0.7:
        if many:
            log = list(log)
            at = rng.randrange(len(log))
            log[at] = mutate_value(log[at], rng)
            if rng.random() < 0.2:
                rng.shuffle(log)
        else:
            log = mutate_value(log, rng)
        return encoded(log)
    return mutate_bytes(encoded(log), rng)


def encoded(log: Any) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in log) if isinstance(log, list) else json.dumps(log).encode()


def check(result: Imported, what: str) -> None:
    assert result.traces or result.problems, f"{what}: neither a trace nor a problem"
    for trace in result.traces:
        # a sub-agent whose start the log does not show runs from the session's start
        assert [f for f in faults(trace) if not f.endswith("is started by no call")] == [], what
        assert all(c.start_s is None or c.start_s >= 0 for c in trace.calls), what
        msgspec.json.encode(trace)


@pytest.mark.parametrize(
    ("importer", "fixture", "suffix"),
    [
        ("claude-code", "claude_log", ".jsonl"),
        ("codex", "codex_log", ".jsonl"),
        ("weka", "weka_log", ".json"),
    ],
)
def test_no_mutation_escapes(
    importer: str, fixture: str, suffix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    log = request.getfixturevalue(fixture)
    rng = random.Random(f"mutations of {importer}")
    began = time.perf_counter()
    for number in range(MUTATIONS):
        path = tmp_path / f"m{suffix}"
        path.write_bytes(mutated(log, rng))
        check(IMPORTERS[importer].read(path), f"mutation {number}")
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    ("importer", "fixture", "key", "suffix"),
    [
        ("claude-code", "claude_log", b'"input_tokens": 3', ".jsonl"),
        ("codex", "codex_log", b'"input_tokens": 5000', ".jsonl"),
        ("weka", "weka_log", b'"in": 200', ".json"),
    ],
)
def test_an_incredible_count_is_reported(
    importer: str, fixture: str, key: bytes, suffix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data = encoded(request.getfixturevalue(fixture))
    name = key.partition(b":")[0]
    for nonsense in (b"-5", b"1e300", b'"many"', b"123456789012345678901234567890"):
        path = tmp_path / f"m{suffix}"
        path.write_bytes(data.replace(key, name + b": " + nonsense, 1))
        assert any("not a credible count" in p.reason for p in IMPORTERS[importer].read(path).problems), nonsense
