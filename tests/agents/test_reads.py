"""The compiled loops against those in Python and against the HTTP parser: the same results, whatever comes."""

import asyncio
import importlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from windtunnel.agents import http, reads
from windtunnel.agents.http import Connection, RawStream

needs_compiler = pytest.mark.skipif(not reads.COMPILED, reason="installed without a C compiler")

OPENING = b'data: {"id":"c-1","choices":[{"delta":{"content":"'
LITERALS = (b'"}}],"usage":{"prompt_tokens":', b',"completion_tokens":', b"}}\n\n")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TEXTS = (
    b"", b" def", b"\\n", b'\\"', b"\\u00e9", b"\\uD83D", b"\\u12", b"\\u12g4", b"\\x", b"\\", b"\n", b"\x00",
    b"\x1f", b"\x7f", b"\xc3\xa9", b"\xff", b"a" * 900, b'"', b"\\/", b"\\b\\f\\r\\t",
)  # fmt: skip
NUMBERS = (
    b"0",
    b"7",
    b"07",
    b"500",
    b"501",
    b"999999999",
    b"1000000000",
    b"99999999999999999999999",
    b"",
    b"-1",
    b"1.5",
)


def likely_event(rng: random.Random, total: int) -> bytes:
    text = rng.choice(TEXTS) if rng.random() < 0.2 else b" word"
    fixed = rng.choice(NUMBERS) if rng.random() < 0.05 else b"500"
    grown = rng.choice(NUMBERS) if rng.random() < 0.05 else b"%d" % total
    event = OPENING + text + LITERALS[0] + fixed + LITERALS[1] + grown + LITERALS[2]
    if rng.random() < 0.1:
        at = rng.randrange(len(event) + 1)
        event = rng.choice((event[:at], event[:at] + bytes([rng.randrange(256)]) + event[at:], event[at:]))
    return event


@needs_compiler
@pytest.mark.parametrize("seed", range(8))
def test_alike_says_what_it_says_in_python(seed: int) -> None:
    rng = random.Random(seed)
    taken = 0
    for _ in range(400):
        total = rng.choice((0, 3, 998))
        pieces = []
        for t in range(rng.randrange(1, 20)):
            total += rng.choice((1, 1, 1, 1, 1, 1, 1, 4, 0))
            pieces.append((t, likely_event(rng, total)))
        fixed = (rng.choice((b"500", b"500", None)), None)
        first, before = rng.randrange(len(pieces) + 1), rng.choice((0, 2))
        ask = (pieces, first, OPENING, LITERALS, fixed, rng.choice((1, 1, -1)), before)
        found, known = reads.alike(*ask), reads.python_alike(*ask)
        assert (found and (found[0], list(found[1]), found[2])) == (known and (known[0], list(known[1]), known[2]))
        taken += len(found[1]) if found else 0
    assert taken > 500


@needs_compiler
def test_what_is_no_piece_is_an_error_and_no_crash() -> None:
    ask = (OPENING, LITERALS, (None, None), 1, 0)
    for pieces in ([(1, "text")], [b"bytes"], [(1,)], [None]):
        with pytest.raises(TypeError):
            reads.alike(pieces, 0, *ask)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one number"):
        reads.alike([(0, b"")], 0, OPENING, LITERALS, (None,), 0, 0)
    with pytest.raises(ValueError, match="one number"):
        reads.alike([(0, b"")], 0, OPENING, ("a", "b"), (None,), 0, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one number"):
        reads.alike([(0, b"")], -1, OPENING, LITERALS, (None, None), 1, 0)
    with pytest.raises(TypeError):
        reads.whole_chunks(bytearray(b"1\r\na\r\n"), 0, [])  # type: ignore[arg-type]


class Silent(asyncio.Transport):
    """Takes what is written and says nothing."""

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def writelines(self, list_of_data: object) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...


def cuts(rng: random.Random, data: bytes, ends: list[int]) -> Iterator[bytes]:
    """Reads of the data: nearly all end where a chunk ends, as a server's writes do."""
    at = 0
    while at < len(data):
        later = [end for end in ends if end > at]
        end = rng.choice(later[:3]) if rng.random() < 0.8 and later else at + rng.randrange(1, 40)
        yield data[at:end]
        at = min(end, len(data))


async def received(reads_of_answer: list[bytes]) -> tuple[RawStream, bool]:
    ticks = count(1)
    connection, raw = Connection(lambda: next(ticks)), RawStream(request_id="r")
    connection.connection_made(Silent())
    task = asyncio.create_task(connection.exchange(raw, b"", [b"{}"], 60.0))
    await asyncio.sleep(0)
    for data in reads_of_answer:
        connection.data_received(data)
    if not raw.done:
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return raw, connection.usable


@needs_compiler
@pytest.mark.parametrize("seed", range(60))
def test_chunks_taken_without_the_parser_are_those_it_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch, run: object
) -> None:
    rng = random.Random(seed)
    answer, ends = HEAD, [len(HEAD)]
    for _ in range(rng.randrange(2, 60)):
        body = rng.choice((b"data: {}\n\n", b"\r\n", b"0\r\n\r\n", b"5\r\n", b"x" * rng.randrange(1, 300)))
        extension = b";a=b" if rng.random() < 0.05 else b""
        size = rng.choice((b"%x", b"%X", b"%04x")) % len(body)
        answer += size + extension + b"\r\n" + body + b"\r\n"
        ends.append(len(answer))
    if rng.random() < 0.3:
        at = rng.randrange(len(HEAD), len(answer))
        answer = answer[:at] + bytes([rng.randrange(256)]) + answer[at + 1 :]
    if rng.random() < 0.8:
        answer += b"0\r\n" + (b"Trailer: 1\r\n" if rng.random() < 0.2 else b"") + b"\r\n"
    pieces = list(cuts(rng, answer, ends))
    skipped = 0

    def counted(data: bytes, t: int, found: list[tuple[int, bytes]]) -> bool:
        nonlocal skipped
        taken = reads.whole_chunks(data, t, found)
        skipped += taken
        return taken

    monkeypatch.setattr(http, "whole_chunks", counted)
    fast, fast_usable = run(received(pieces))  # type: ignore[operator]
    monkeypatch.setattr(http, "whole_chunks", reads.python_whole_chunks)
    slow, slow_usable = run(received(pieces))  # type: ignore[operator]
    assert fast.pieces == slow.pieces
    assert (fast.failure, fast.detail, fast.t_headers, fast.t_end) == (
        slow.failure, slow.detail, slow.t_headers, slow.t_end,
    )  # fmt: skip
    assert fast_usable == slow_usable
    assert skipped or len(pieces) < 12 or fast.failure


@needs_compiler
def test_sizes_that_are_none_are_left_to_the_parser() -> None:
    for data in (
        b"", b"0\r\n\r\n", b"1\r\na\r", b"1\r\na\n\n", b"\r\n", b"g\r\na\r\n", b"1 \r\na\r\n", b"ffffffff\r\na\r\n",
        b"7fffffffffffffff\r\na\r\n", b"1\r\nab\r\n", b"1\r\na\r\n0\r\n\r\n", b"1;x=y\r\na\r\n", b"1\na\r\n", b"-1\r\na\r\n",
    ):  # fmt: skip
        pieces: list[tuple[int, bytes]] = []
        assert not reads.whole_chunks(data, 5, pieces)
        assert pieces == []
    pieces = []
    assert reads.whole_chunks(b"1\r\na\r\n00A\r\n0123456789\r\n", 5, pieces)
    assert pieces == [(5, b"a"), (5, b"0123456789")]


def test_the_environment_can_say_python() -> None:
    module = importlib.util.find_spec("windtunnel.agents.reads")
    assert module is not None
    ask = "from windtunnel.agents import reads; print(reads.COMPILED, reads.alike is reads.python_alike)"
    said = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "WINDTUNNEL_COMPILED": "0"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.split() == ["False", "True"]
