"""Streams in other processes: the same answers as in one, and nothing that outlives the run or dies unseen."""

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from windtunnel.agents.client import parse_target
from windtunnel.agents.http import RawStream
from windtunnel.agents.prompt import Options
from windtunnel.agents.sse import Parsed
from windtunnel.simulator.run import samplers, workers
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.counts import Counts
from windtunnel.simulator.run.pipe import Abort, Answered, Pipe, Seen, Send, ToRun, ToWorker
from windtunnel.simulator.run.probe import Health
from windtunnel.simulator.run.workers import Workers
from windtunnel.traces.errors import RunError, UsageError

from .test_loop import LateClock, Watched

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Says one word a token. A body that begins with `stay` gets two words and no end."""

    def __init__(self):
        self.bodies = []
        self.dropped = 0
        self.said = asyncio.Event()

    async def __call__(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.bodies.append(body)
                stays = body.startswith(b"stay")
                writer.write(HEAD)
                words = [("one ", None), ("two ", None), ("three", "length")][: 2 if stays else 3]
                for word, finish in words:
                    self._say(writer, {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": finish}]})
                if not stays:
                    self._say(writer, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
                    self._event(writer, b"data: [DONE]\n\n")
                    writer.write(b"0\r\n\r\n")
                await writer.drain()
                self.said.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.dropped += 1
        finally:
            writer.close()

    def _say(self, writer, event):
        self._event(writer, b"data: " + msgspec.json.encode(event) + b"\n\n")

    def _event(self, writer, data):
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))


@asynccontextmanager
async def working(count=2, *, keep_text=True):
    """Workers and the server that they send to."""
    said = Server()
    server = await asyncio.start_server(said, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    shared = await Workers.start(count, parse_target(url), keep_text=keep_text)
    try:
        yield shared, said
    finally:
        await shared.close()
        server.close()


async def asked(shared, name, body=b"go"):
    raw = await shared.stream("/v1/chat/completions", (b"", body), request_id=name)
    return raw, await shared.finish(raw)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_workers_share_the_streams_and_hand_back_whole_answers():
    async with working() as (shared, server):
        large = bytes(range(256)) * 2000
        before = time.perf_counter_ns()
        bodies = [b"go%d" % n + large for n in range(6)]
        answers = await asyncio.gather(*(asked(shared, f"r{n}", body) for n, body in enumerate(bodies)))
        after = time.perf_counter_ns()
        assert sorted(server.bodies) == bodies
        for raw, parsed in answers:
            assert (parsed.text, parsed.finish, parsed.completion_tokens, parsed.failure) == (
                "one two three",
                "length",
                3,
                None,
            )
            assert (raw.status, raw.failure) == (200, None)
            # Every process reads the same clock.
            assert before <= raw.t_start <= raw.t_write <= raw.t_sent <= parsed.t_first <= raw.t_end <= after
            assert (list(parsed.chunk_n), len(parsed.chunk_t)) == ([1, 1, 1], 3)
        assert len(set(shared.pids)) == 2
        assert os.getpid() not in shared.pids
    assert not any(alive(pid) for pid in shared.pids)


async def test_a_request_that_is_given_up_keeps_what_had_arrived():
    async with working(1) as (shared, server):
        seen = []
        task = asyncio.create_task(
            shared.stream(
                "/v1/x", (b"stay",), request_id="a", on_start=lambda raw: seen.append((raw, shared.open(raw)))
            )
        )
        await server.said.wait()
        (raw, flight) = seen[0]
        while flight.tokens < 2:
            await shared.catch_up()
        assert (flight.tokens, flight.tail) == (2, "one two ")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        shared.forget(raw)
        assert (raw.failure, flight.rest().text, flight.rest().completion_tokens) == ("aborted", "one two ", None)
        assert raw.t_sent < flight.rest().t_last < raw.t_end
        # The worker goes on with the next one, on a connection of its own.
        assert (await asked(shared, "b"))[1].text == "one two three"
        assert server.dropped == 1


async def test_what_a_worker_does_not_tell_in_time_is_an_estimate():
    counts = Counts(Options("m"))
    async with working(1) as (shared, server):
        seen = []
        task = asyncio.create_task(
            shared.stream("/v1/x", (b"stay",), request_id="a", on_start=lambda raw: seen.append(shared.open(raw)))
        )
        await server.said.wait()
        (flight,) = seen
        while flight.tokens < 2:
            await shared.catch_up()
        assert counts.exact(flight, time.perf_counter_ns())
        os.kill(shared.pids[0], signal.SIGSTOP)
        await shared.catch_up()
        assert (flight.tokens, counts.exact(flight, time.perf_counter_ns())) == (2, False)
        os.kill(shared.pids[0], signal.SIGCONT)
        while flight.late:
            await shared.catch_up()
        assert counts.exact(flight, time.perf_counter_ns())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_worker_tells_of_the_requests_that_the_server_does_not_take():
    held = asyncio.Event()

    async def hold(reader, writer):
        await held.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        shared = await Workers.start(2, parse_target(url), keep_text=False)
        body = bytes(16_000_000)
        tasks = [asyncio.create_task(asked(shared, f"r{n}", body)) for n in range(3)]
        told = set()
        while not {1, 2} <= told:  # one of the two has two of the three
            await asyncio.sleep(0.05)
            told |= {health.blocked for health in shared.health()}
        assert (told - {0}, shared.blocked) == ({1, 2}, 0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held.set()
        await shared.close()


async def test_a_request_given_up_before_its_worker_began_is_answered_too():
    async with working(1) as (shared, _):
        task = asyncio.create_task(asked(shared, "a", b"stay"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)


async def test_failures_keep_their_names():
    shared = await Workers.start(2, parse_target("http://127.0.0.1:1"), keep_text=False)
    try:
        raw, parsed = await asked(shared, "a")
        assert (raw.failure, raw.t_sent, parsed.failure) == ("connect_refused", None, "connect_refused")
    finally:
        await shared.close()


async def test_a_killed_worker_is_named_and_its_streams_can_be_given_up():
    async with working(2) as (shared, server):
        tasks = [asyncio.create_task(asked(shared, f"r{n}", b"stay")) for n in range(2)]
        await server.said.wait()
        os.kill(shared.pids[1], signal.SIGKILL)
        said = await asyncio.wait_for(shared.wait_lost(), 10)
        assert said == (
            f"client process 2 of 2 (pid {shared.pids[1]}) is lost with its streams: it was killed by SIGKILL"
        )
        for task in tasks:
            task.cancel()
        assert all(isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_worker_that_hangs_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(workers, "ABORT_S", 0.1)
    async with working(1) as (shared, server):
        task = asyncio.create_task(asked(shared, "a", b"stay"))
        await server.said.wait()
        os.kill(shared.pids[0], signal.SIGSTOP)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert "SIGKILL" in await shared.wait_lost()


async def test_a_worker_that_does_not_start_is_an_error_in_words(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RunError, match="client process 1 of 2 did not start: it ended with exit code 1"):
        await Workers.start(2, parse_target("http://127.0.0.1:1"), keep_text=False)


# -- what goes through the pipe


class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.data = b""

    def is_closing(self):
        return False

    def writelines(self, parts):
        self.data += b"".join(parts)


@pytest.mark.parametrize("step", [1, 2, 7, 64, 10_000])
def test_frames_survive_any_cut(step):
    got = []
    ends = [Pipe(ToWorker, lambda message, body: got.append((message, body)), lambda: None) for _ in range(2)]
    wire = Wire()
    ends[0].connection_made(wire)
    said = [(Send(1, "/v1/x", "r-1"), b"\x00body" * 50), (Abort(1), b""), (Send(2, "/v1/x", "r-2"), b"")]
    for message, body in said:
        ends[0].send(message, (body[:10], body[10:]))
    for at in range(0, len(wire.data), step):
        ends[1].data_received(wire.data[at : at + step])
    assert got == said


def test_an_answer_comes_out_as_it_went_in():
    parsed = Parsed(t_first=10**15, text="naïve", tool_calls=(("a", "b", "{}"),), token_ids=[1, 2**31 - 1])
    parsed = msgspec.structs.replace(parsed, chunk_t=[10**15, 10**15 + 1], chunk_n=[3, 1], ended=True)
    raw = RawStream("r", t_sent=1, t_end=2, status=200, headers={"x": "y"}, pieces=[(1, b"left")])
    sent = msgspec.msgpack.encode(Answered.of(7, raw, parsed))
    came = msgspec.msgpack.decode(sent, type=ToRun)
    assert isinstance(came, Answered)
    whole = came.whole()
    rows = [list(row) for row in (whole.token_ids, whole.chunk_t, whole.chunk_n)]
    assert rows == [[1, 2**31 - 1], [10**15, 10**15 + 1], [3, 1]]
    short = {"token_ids": (), "chunk_t": (), "chunk_n": ()}
    assert msgspec.structs.replace(whole, **short) == msgspec.structs.replace(parsed, **short)
    assert (came.number, came.raw.headers, came.raw.pieces) == (7, {"x": "y"}, [])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Seen([(1, 2, "t")])), type=ToRun) == Seen([(1, 2, "t")])


async def test_the_client_is_as_late_as_all_its_processes_and_as_busy_as_the_busiest():
    clock = LateClock(*([0.5] * 22), 0)
    driver = Watched(clock)
    driver.client.blocked = 1
    told = [[Health((9, 8), 0.93, 1000, 4), Health((7,), 0.2, None, 2)]]
    task = asyncio.create_task(samplers.client_samples(driver, lambda: told.pop() if told else ()))
    while clock.late:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await samplers.cancelled([task])
    sample = driver.events[0]
    assert sample.lag_us == (*(500,) * 22, 9, 8, 7)
    assert sample.cpu == 0.93
    assert sample.rss > 1_001_000
    assert sample.blocked == 7


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_number_of_workers_that_cannot_be(count):
    with pytest.raises(UsageError, match=f"--workers {count}: give 1 to 64"):
        RunConfig(workers=count).checked()
