"""What can go wrong between a request and its answer: each has its name, none hangs, none disturbs other streams."""

import asyncio
import gzip
import socket

import pytest

from windtunnel.agents.client import StreamClient, Timeouts, parse_target
from windtunnel.agents.clock import VirtualClock
from windtunnel.agents.failures import Failure, explain
from windtunnel.agents.sse import parse

PATH = "/v1/completions"


async def ask(client):
    raw = await client.stream(PATH, [b"{}"], request_id="r")
    return raw, parse(raw.take(), raw.failure, raw.detail)


def status(line, body=b"", headers=b""):
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (
        line,
        headers,
        len(body),
        body,
    )


@pytest.mark.parametrize(
    ("answer", "failure", "detail"),
    [
        (status(b"400 Bad Request", b'{"error": {"message": "too long", "code": 400}}'), "http_400", "too long"),
        (status(b"400 Bad Request", b'{"object": "error", "message": "too long"}'), "http_400", "too long"),
        (status(b"422 Unprocessable", b'{"detail": [{"msg": "bad field"}]}'), "http_422", "[{'msg': 'bad field'}]"),
        (status(b"429 Too Many", b"slow down", b"Retry-After: 5\r\n"), "http_429", "slow down; retry after 5"),
        (status(b"500 Oops", b"x" * 1000), "http_500", "x" * 299 + "…"),
        (status(b"500 Oops", b'{"error":' * 50_000), "http_500", ('{"error":' * 50)[:299] + "…"),
        (status(b"503 Unavailable"), "http_503", None),
        (status(b"307 Moved", b"", b"Location: https://h/v1\r\n"), "redirect", "location: https://h/v1"),
        (status(b"204 None"), "http_204", None),
        (status(b"200 OK", b'{"choices": []}'), "not_sse", '{"choices": []}'),
        (b"SSH-2.0-OpenSSH\r\n", "malformed_http", None),
    ],
)
def test_answers_that_are_no_stream(run, talk, answer, failure, detail):
    async def main():
        async def script(_request, writer):
            writer.write(answer)
            return True

        async with talk(script) as (client, server):
            raw, got = await ask(client)
            assert (raw.failure, got.failure) == (failure, failure)
            if detail is not None:
                assert raw.detail == detail
            if failure.startswith("http_") and failure != "http_204":
                await ask(client)
                assert server.connections == 1

    run(main())


@pytest.mark.parametrize(("encoding", "failure"), [(b"gzip", "not_sse"), (b"identity", None)])
def test_an_answer_that_was_packed_unasked_says_so(run, talk, say, encoding, failure):
    async def main():
        async def script(_request, writer):
            body = b"".join(say.words("a"))
            body = gzip.compress(body) if failure else body
            more = b"\r\nContent-Encoding: %b\r\n\r\n" % encoding
            writer.write(say.head.replace(b"\r\n\r\n", more) + say.chunked(body))
            return True

        async with talk(script) as (client, _):
            raw, got = await ask(client)
            assert (raw.failure, got.failure) == (failure, failure)
            assert raw.detail == ("content-encoding gzip, which was not asked for" if failure else None)

    run(main())


def test_an_error_body_in_pieces_is_whole_although_somebody_takes_them(run, talk):
    answer = status(b"500 Oops", b'{"error": {"message": "out of luck"}}')

    async def main():
        live = []

        async def script(_request, writer):
            for cut in (answer[:-20], answer[-20:]):
                writer.write(cut)
                await writer.drain()
                await asyncio.sleep(0.01)
                assert live[0].take() == [] or live[0].done
            return True

        async with talk(script) as (client, _):
            raw = await client.stream(PATH, [b"{}"], request_id="r", on_start=live.append)
            assert (raw.failure, raw.detail) == ("http_500", "out of luck")

    run(main())


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("when", ["before", "headers", "middle"])
def test_the_connection_ends_too_early(run, talk, say, how, when):
    said = {
        "before": b"",
        "headers": say.head,
        "middle": say.head + say.chunked(*say.words("a", done=False), end=False),
    }
    expected = {("close", "before"): "server_disconnected", ("close", "headers"): "connection_closed"}
    expected[("close", "middle")] = "connection_closed"

    async def main():
        async def script(_request, writer):
            writer.write(said[when])
            await writer.drain()
            await asyncio.sleep(0.02)
            if how == "reset":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                writer.transport.abort()
            return False

        async with talk(script) as (client, _):
            raw, got = await ask(client)
            assert raw.failure == got.failure == expected.get((how, when), "connection_reset")
            assert got.text == ("a" if when == "middle" else "")
            assert raw.done

    run(main())


def test_streams_that_end_wrongly_by_themselves(run, talk, say):
    scripts = {
        b"1": say.words("a", finish=None),
        b"2": say.words("a", done=False),
        b"3": [*say.words("a", finish=None, done=False), say.event(error={"message": "boom"}), b"data: [DONE]\n\n"],
        b"4": [b"data: {oops\n\n", *say.words("a")],
        b"5": [b"hello"],
    }
    expected = {
        b"1": "no_finish_reason",
        b"2": "no_end_marker",
        b"3": "error_event",
        b"4": "malformed_stream",
        b"5": "not_sse",
    }

    async def main():
        async def script(request, writer):
            writer.write(say.head + say.chunked(*scripts[request.body]))
            return True

        async with talk(script) as (client, server):
            for body, failure in expected.items():
                raw = await client.stream(PATH, [body], request_id="r")
                assert raw.failure is None
                assert parse(raw.take()).failure == failure
            assert server.connections == 1

    run(main())


def test_nobody_listens(run):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]

    async def main():
        client = StreamClient(parse_target(f"http://localhost:{port}"))
        raw, _ = await ask(client)
        assert raw.failure == "connect_refused"
        assert raw.t_write is None
        await client.close()

    run(main())


def test_a_host_without_address(run):
    async def main():
        raw, _ = await ask(StreamClient(parse_target("http://no-such-host.invalid:1")))
        assert raw.failure == "unknown_host"
        assert "no-such-host.invalid" in raw.detail

    run(main())


def test_a_stall_before_and_after_the_first_byte(run, talk, say):
    async def main():
        async def script(request, writer):
            if request.body != b"{}":
                writer.write(say.head + say.chunked(*say.words("a", done=False), end=False))
                await writer.drain()
            await asyncio.sleep(30)
            return False

        async with talk(script, timeouts=Timeouts(stall_s=0.05)) as (client, _):
            raw, _ = await ask(client)
            assert (raw.failure, raw.detail) == ("read_timeout", "no byte for 0.05 s")
            raw = await client.stream(PATH, [b"[]"], request_id="r")
            got = parse(raw.take(), raw.failure)
            assert (got.failure, got.text) == ("read_timeout", "a")
            assert client.in_flight == 0

    run(main())


class Wire(asyncio.Transport):
    """A transport without a network, for virtual time: keeps what was written, says what the test tells it to."""

    def __init__(self, protocol):
        super().__init__()
        self.protocol = protocol
        self.sent = b""
        self.closing = False

    def writelines(self, list_of_data):
        self.sent += b"".join(list_of_data)

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def is_closing(self):
        return self.closing

    def abort(self):
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


def test_a_stall_of_sixty_seconds_counts_from_the_last_byte(say):
    clock = VirtualClock()
    wires = []

    async def dial(make):
        protocol = make()
        wires.append(Wire(protocol))
        protocol.connection_made(wires[-1])
        return protocol

    async def main():
        client = StreamClient(parse_target("http://h"), timeouts=Timeouts(stall_s=60), now_ns=clock.now_ns, dial=dial)
        task = asyncio.create_task(client.stream(PATH, [b"{}"], request_id="r"))
        await clock.sleep(50)
        wires[0].protocol.data_received(say.head)
        await clock.sleep(59)
        first, *_ = say.words("a", done=False)
        wires[0].protocol.data_received(say.chunked(first, end=False))
        raw = await task
        assert (raw.failure, raw.detail) == ("read_timeout", "no byte for 60 s")
        assert (raw.t_end, raw.t_headers) == (169_000_000_000, 50_000_000_000)
        assert wires[0].closing

    clock.run(main())


def test_a_connect_that_takes_too_long():
    clock = VirtualClock()

    async def dial(_make):
        await asyncio.sleep(3600)

    async def main():
        client = StreamClient(parse_target("http://h"), now_ns=clock.now_ns, dial=dial)
        raw = await client.stream(PATH, [b"{}"], request_id="r")
        assert (raw.failure, raw.t_end) == ("connect_timeout", 10_000_000_000)

    clock.run(main())


def test_faults_do_not_disturb_other_streams(run, talk, say):
    async def main():
        async def script(request, writer):
            if request.body == b"bad":
                writer.write(say.head + say.chunked(b"data: {", end=False))
                return False
            for part in (say.head, *(say.chunked(e, end=False) for e in say.words(*"abcdefgh", usage=8))):
                writer.write(part)
                await asyncio.sleep(0.005)
            writer.write(b"0\r\n\r\n")
            return True

        async with talk(script) as (client, _):
            bodies = [b"bad" if i % 3 == 0 else b"good" for i in range(60)]
            raws = await asyncio.gather(*(client.stream(PATH, [b], request_id=str(i)) for i, b in enumerate(bodies)))
            got = [parse(raw.take(), raw.failure) for raw in raws]
            for body, parsed in zip(bodies, got, strict=True):
                assert parsed.failure == ("connection_closed" if body == b"bad" else None)
                assert parsed.text == ("" if body == b"bad" else "abcdefgh")

    run(main())


def test_an_answer_before_the_request_was_read(run, talk):
    async def main():
        async def early(_request, writer):
            writer.write(status(b"413 Too Large", b'{"error": "body over 1 MB"}', b"Connection: close\r\n"))
            await writer.drain()
            await asyncio.sleep(30)
            return False

        async with talk(early) as (client, server):
            server.read_body = False
            raw = await client.stream(PATH, [b"x" * 20_000_000], request_id="r")
            assert (raw.failure, raw.detail, raw.t_sent) == ("http_413", "body over 1 MB", None)

    run(main())


def test_every_name_is_explained_in_a_sentence():
    for name in [*Failure, "http_429"]:
        assert explain(name).endswith(".")
        assert explain(name) != name


@pytest.mark.parametrize("flood", [b"X-More: and more\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_headers_without_end_are_given_up(run, talk, flood):
    async def main():
        async def script(_request, writer):
            writer.write(b"" if flood.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n")
            while not writer.is_closing():
                writer.write(flood * 1000)
                await writer.drain()
            return False

        async with talk(script) as (client, _):
            raw, got = await ask(client)
            assert (raw.failure, got.failure) == ("malformed_http", "malformed_http")
            assert raw.detail == "its headers have no end"
            assert raw.done

    run(main())


def test_a_few_answers_that_announce_another_are_waited_through(run, talk, say):
    async def main():
        async def script(_request, writer):
            head = say.head.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"y" * 60_000 + b"\r\n\r\n")
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 50 + head + say.chunked(*say.words("a")))
            return True

        async with talk(script) as (client, server):
            for _ in range(5):
                _, got = await ask(client)
                assert (got.failure, got.text) == (None, "a")
            assert server.connections == 1

    run(main())


def test_an_answer_nobody_asked_for_ends_its_connection_as_it_begins(run, talk, say):
    """It would fill the pool's connection for ever, and the next request would take it for its own."""

    async def main():
        flood = asyncio.Event()
        told = []

        async def script(_request, writer):
            writer.write(say.head + say.chunked(*say.words("a")))
            if not told:
                await writer.drain()
                await flood.wait()
                while not writer.transport.is_closing():
                    writer.write(say.head + b"5\r\nhello\r\n")
                    told.append(1)
                    await asyncio.sleep(0.001)
                return False
            return True

        async with talk(script) as (client, server):
            _, got = await ask(client)
            assert (got.text, len(client._idle)) == ("a", 1)
            flood.set()
            while client._idle[0].usable:
                await asyncio.sleep(0.001)
            _, got = await ask(client)
            assert (got.text, got.failure, server.connections) == ("a", None, 2)
            assert len(told) < 100

    run(main())
