"""The client against a server that says exactly the scripted bytes: good answers, reuse, transport of every kind."""

import asyncio
import shutil
import socket
import ssl
import subprocess

import pytest

from windtunnel.agents.client import StreamClient, Timeouts, parse_target
from windtunnel.agents.sse import parse

PATH = "/v1/chat/completions"
BODY = [b'{"model":"m",', b'"stream":true}']


async def ask(client, body=BODY, **more):
    raw = await client.stream(PATH, body, request_id="r-1", **more)
    return raw, parse(raw.take(), raw.failure, raw.detail)


def answering(*parts, keep=True):
    """A script that writes each part as its own segment."""

    async def script(_request, writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        return keep

    return script


def test_the_request_on_the_wire(run, talk, say):
    async def main():
        script = answering(say.head, say.chunked(*say.words("a", "b", usage=2)))
        async with talk(script, path="/base/v1", api_key="sk-1") as (client, server):
            _, got = await ask(client, headers=[("X-Session-ID", "s")])
            assert (got.text, got.failure, got.completion_tokens) == ("ab", None, 2)
            sent = server.requests[0]
            assert sent.line == "POST /base/v1/chat/completions HTTP/1.1"
            assert sent.body == b'{"model":"m","stream":true}'
            assert sent.headers["host"] == f"127.0.0.1:{server.port}"
            assert sent.headers["authorization"] == "Bearer sk-1"
            assert sent.headers["x-request-id"] == "r-1"
            assert sent.headers["x-session-id"] == "s"
            assert sent.headers["content-type"] == "application/json"

    run(main())


def test_times_are_in_order_and_pieces_can_be_taken_while_it_runs(run, talk, say):
    async def main():
        more = asyncio.Event()
        first, *rest = say.words("a", "b")

        async def script(_request, writer):
            writer.write(say.head + say.chunked(first, end=False))
            await more.wait()
            writer.write(say.chunked(*rest))
            return True

        async with talk(script) as (client, _):
            live = []
            task = asyncio.create_task(ask(client, on_start=live.append))
            while not live or not live[0].pieces:
                await asyncio.sleep(0.001)
            assert [data for _, data in live[0].take()] == [first]
            assert (live[0].done, live[0].status, client.in_flight) == (False, 200, 1)
            more.set()
            raw, got = await task
            assert raw is live[0]
            assert got.text == "ab"
            order = [raw.t_start, raw.t_write, raw.t_sent, raw.t_headers, got.t_first, got.t_last, raw.t_end]
            assert order == sorted(order)
            assert raw.headers["content-type"].startswith("text/event-stream")
            assert (raw.done, client.in_flight) == (True, 0)

    run(main())


def test_limited_takes_leave_the_rest(run, talk, say):
    async def main():
        async with talk(answering(say.head, say.chunked(*say.words("a", "b", "c")))) as (client, _):
            raw = await client.stream(PATH, BODY, request_id="r")
            pieces = list(raw.pieces)
            assert raw.take(2) + raw.take(2) + raw.take() == pieces
            assert raw.pieces == []

    run(main())


def test_a_connection_is_kept_and_parallel_streams_get_their_own(run, talk, say):
    async def main():
        gate = asyncio.Event()

        async def script(request, writer):
            if request.body == b"{}":
                await gate.wait()
            writer.write(say.head + say.chunked(*say.words("a")))
            return True

        async with talk(script) as (client, server):
            for _ in range(3):
                assert (await ask(client))[1].failure is None
            assert server.connections == 1
            tasks = [asyncio.create_task(ask(client, body=[b"{}"])) for _ in range(150)]
            while len(server.requests) < 153:
                await asyncio.sleep(0.005)
            assert client.in_flight == 150
            gate.set()
            assert {got.failure for _, got in await asyncio.gather(*tasks)} == {None}
            assert server.connections == 150

    run(main())


@pytest.mark.parametrize(
    "framing", ["content-length", "until-close", "chunk-extension", "lower-case", "continue", "http-1.0"]
)
def test_every_framing_of_a_body(run, talk, say, framing):
    body = b"".join(say.words("a", "b", usage=2))
    answers = {
        "content-length": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body,
        "until-close": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body,
        "chunk-extension": say.head + b"%X;a=b\r\n%b\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(body), body),
        "lower-case": say.head.lower().replace(b"http/1.1 200 ok", b"HTTP/1.1 200 OK") + say.chunked(body),
        "continue": b"HTTP/1.1 100 Continue\r\n\r\n" + say.head + say.chunked(body),
        "http-1.0": b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body,
    }
    closes = framing in {"until-close", "http-1.0"}

    async def main():
        async with talk(answering(answers[framing], keep=not closes)) as (client, server):
            for _ in range(2):
                raw, got = await ask(client)
                assert (raw.failure, got.failure, got.text, raw.status) == (None, None, "ab", 200)
            assert server.connections == (2 if closes else 1)

    run(main())


def test_a_body_cut_at_every_byte(run, talk, say):
    answer = say.head + say.chunked(*say.words("Grüße ", "🎈", usage=2))

    async def main():
        async with talk(answering(*[answer[i : i + 1] for i in range(len(answer))])) as (client, _):
            assert (await ask(client))[1].text == "Grüße 🎈"

    run(main())


def test_a_line_of_ten_megabytes_arrives_whole(run, talk, say):
    first = say.event(choices=[], prompt_token_ids=list(range(100_000, 1_550_000)))
    assert len(first) > 10_000_000

    async def main():
        async with talk(answering(say.head, say.chunked(first, *say.words("a", usage=1)))) as (client, _):
            _, got = await ask(client)
            assert (got.text, got.failure, got.prompt_token_ids_seen) == ("a", None, True)

    run(main())


def test_a_server_that_reads_slower_than_we_write(run, talk, say):
    body = [b"x" * 1_000_000] * 8

    async def main():
        received = 0
        reading = asyncio.Event()

        async def slow(request, writer):
            nonlocal received
            await reading.wait()
            while received < 8_000_000:
                received += len(await request.reader.read(50_000))
            writer.write(say.head + say.chunked(*say.words("a")))
            return True

        async with talk(slow) as (client, server):
            server.read_body = False
            live = []
            task = asyncio.create_task(ask(client, body=body, on_start=live.append))
            while not client.blocked:
                await asyncio.sleep(0.001)
            assert live[0].t_write is not None
            assert live[0].t_sent is None
            reading.set()
            raw, got = await task
            assert (got.failure, received, client.blocked) == (None, 8_000_000, 0)
            assert raw.t_write < raw.t_sent < raw.t_headers

    run(main())


def test_small_segments_are_sent_at_once(run, talk, say):
    options = []

    async def main():
        async with talk(answering(say.head, say.chunked(*say.words("a")))) as (client, _):
            await ask(client)
            sock = client._idle[0]._transport.get_extra_info("socket")
            options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    run(main())
    assert options[0] != 0


def test_cancelling_closes_the_socket(run, talk, say):
    async def main():
        gone = asyncio.Event()

        async def script(_request, writer):
            writer.write(say.head + say.chunked(*say.words("a", done=False), end=False))
            try:
                while True:
                    await asyncio.sleep(0.005)
                    writer.write(say.chunked(*say.words("b", done=False), end=False))
                    await writer.drain()
            except ConnectionError:
                gone.set()
            return False

        async with talk(script) as (client, _):
            live = []
            task = asyncio.create_task(ask(client, on_start=live.append))
            while not live or not live[0].pieces:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(gone.wait(), 5)
            assert (live[0].failure, live[0].done, client.in_flight) == ("aborted", True, 0)

    run(main())


def test_cancelling_while_connecting(run):
    async def main():
        async def never(_make):
            await asyncio.get_running_loop().create_future()

        client = StreamClient(parse_target("http://h"), dial=never)
        live = []
        task = asyncio.create_task(client.stream(PATH, BODY, request_id="r", on_start=live.append))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (live[0].failure, live[0].done) == ("aborted", True)

    run(main())


def test_closing_the_client_ends_its_streams(run, talk, say):
    async def main():
        async def script(_request, writer):
            writer.write(say.head)
            await asyncio.sleep(30)
            return False

        async with talk(script) as (client, _):
            task = asyncio.create_task(ask(client))
            while not client.in_flight:
                await asyncio.sleep(0.001)
            await client.close()
            raw, _ = await task
            assert raw.failure is not None

    run(main())


def test_a_connection_that_idled_too_long_is_not_used_again(run, talk, say):
    async def main():
        script = answering(say.head, say.chunked(*say.words("a")))
        now = [10**12]
        async with talk(script, timeouts=Timeouts(idle_s=4), now_ns=lambda: now[0]) as (client, server):
            await ask(client)
            now[0] += 3_900_000_000
            await ask(client)
            assert server.connections == 1
            now[0] += 4_100_000_000
            await ask(client)
            assert server.connections == 2

    run(main())


def test_an_idle_connection_that_the_server_closed_is_replaced_unseen(run, talk, say):
    async def main():
        async with talk(answering(say.head, say.chunked(*say.words("a")), keep=False)) as (client, server):
            await ask(client)
            while client._idle and client._idle[0].usable:
                await asyncio.sleep(0.001)
            raw, got = await ask(client)
            assert (got.failure, raw.reconnected, server.connections) == (None, False, 2)

    run(main())


@pytest.mark.parametrize("reset", [False, True])
def test_a_stale_connection_is_replaced_once_and_said(run, talk, say, reset):
    async def main():
        fatal = {2}

        async def script(request, writer):
            if len(server.requests) in fatal:
                writer.transport.abort() if reset else writer.close()
                return False
            writer.write(say.head + say.chunked(*say.words("a")))
            return True

        async with talk(script) as (client, server):
            await ask(client)
            raw, got = await ask(client)
            assert (got.failure, raw.reconnected, server.connections) == (None, True, 2)
            fatal |= {4, 5}
            raw, got = await ask(client)
            assert raw.reconnected
            assert got.failure in {"server_disconnected", "connection_reset"}
            assert len(server.requests) == 5

    run(main())


def test_a_fresh_connection_is_never_replaced(run, talk):
    async def main():
        async with talk(answering(keep=False)) as (client, server):
            raw, _ = await ask(client)
            assert (raw.failure, raw.reconnected) == ("server_disconnected", False)
            assert len(server.requests) == 1

    run(main())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-keyout", key, "-out", cert, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return key, cert


def test_https(run, talk, say, certificate):
    key, cert = certificate
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(cert, key)
    ours = ssl.create_default_context(cafile=str(cert))

    async def main():
        script = answering(say.head, say.chunked(*say.words("a", "b", usage=2)))
        async with serving_tls(talk, script, theirs, ours) as (client, server):
            for body in (BODY, [b"x" * 3_000_000], BODY):
                raw, got = await ask(client, body=body)
                assert (got.failure, got.text) == (None, "ab"), raw
                assert raw.t_write <= raw.t_sent <= raw.t_headers
            assert (server.connections, len(server.requests[1].body)) == (1, 3_000_000)

    run(main())


def test_a_certificate_nobody_trusts(run, talk, say, certificate):
    key, cert = certificate
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(cert, key)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with serving_tls(talk, answering(say.head), theirs, None) as (client, _):
            raw, _ = await ask(client)
            assert raw.failure == "tls_failed"
            assert "certificate" in raw.detail

    run(main())


def serving_tls(talk, script, theirs, ours):
    return talk(script, tls=theirs, client_tls=ours)
