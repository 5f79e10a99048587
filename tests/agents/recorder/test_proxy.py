"""The proxy on the wire: what either side sees is what it would see without the proxy."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Heard

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n',
)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n'
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ndate: today\r\nContent-Type: text/event-stream\r\nX-Odd-Case: Yes\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*bodies: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(b), b) for b in bodies) + b"0\r\n\r\n"


def post(path: str, body: dict[str, Any], *more: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: agent.example", "X-Mixed-CASE: kept", *more]
    return "\r\n".join(lines).encode() + b"\r\nContent-Length: %d\r\n\r\n" % len(data) + data


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = {k.lower(): v for k, _, v in (line.partition(b": ") for line in head.split(b"\r\n"))}
    return head, await reader.readexactly(int(lines.get(b"content-length", b"0")))


class Script:
    """Answers each request with the next bytes; keeps the requests."""

    def __init__(self, *answers: bytes, close: bool = False) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[bytes, bytes]] = []
        self.close = close
        self.lost = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.requests.append(await read_request(reader))
                writer.write(self.answers.pop(0))
                await writer.drain()
                if self.close:
                    return
        finally:
            self.lost.set()


async def talk(port: int, data: bytes, until: bytes | int | None = None) -> bytes:
    """What comes back: up to some bytes, so many of them, or up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        if until is None:
            return await asyncio.wait_for(reader.read(-1), 5)
        if isinstance(until, int):
            return await asyncio.wait_for(reader.readexactly(until), 5)
        return await asyncio.wait_for(reader.readuntil(until), 5)
    finally:
        writer.close()


CASES = {
    "stream": (post("/v1/messages?beta=true", {"stream": True}), HEAD + chunked(*STREAM, USAGE, DONE)),
    "whole": (post("/v1/responses", {}), b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"),
    "refused": (post("/v1/chat/completions", {}), b"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nslow"),
    "other path": (post("/v1/embeddings", {"input": "x"}), b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]"),
    "no body": (b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n", b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n"),
    "head": (b"HEAD /v1/models HTTP/1.1\r\nHost: h\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
    "interim": (post("/v1/messages", {}), b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!"),
    "asked by the client": (
        post("/v1/chat/completions", {"stream": True, "stream_options": {"include_usage": True}}),
        HEAD + chunked(*STREAM, USAGE, DONE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_the_client_gets_the_servers_bytes_as_they_are(name: str, proxy: Callable[..., Any]) -> None:
    request, answer = CASES[name]
    script = Script(answer, answer)
    async with proxy(script) as (server, port, _):
        direct = await talk(server, request, len(answer))
        through = await talk(port, request, len(answer))
    assert through == direct == answer
    sent, forwarded = script.requests
    assert forwarded[1] == sent[1]
    changed = {a: b for a, b in zip(sent[0].split(b"\r\n"), forwarded[0].split(b"\r\n"), strict=True) if a != b}
    host = sent[0].split(b"\r\n")[1]
    assert changed == {host: b"Host: 127.0.0.1:%d" % server}


async def test_usage_is_asked_for_and_hidden(proxy: Callable[..., Any]) -> None:
    """The server is asked, the client sees the stream as it would have been, in the same events."""
    body = {"model": "m", "stream": True, "messages": []}
    null = [event.replace(b"}]}", b'}],"usage":null}') for event in STREAM]
    script = Script(HEAD + chunked(*null, USAGE + DONE))
    async with proxy(script) as (_, port, heard):
        through = await talk(port, post("/v1/chat/completions", body, "Accept-Encoding: gzip, br"), b"0\r\n\r\n")
    assert through == HEAD + chunked(*STREAM, DONE)
    head, sent = script.requests[0]
    assert json.loads(sent) == {**body, "stream_options": {"include_usage": True}}
    assert b"\r\nAccept-Encoding: identity\r\n" in head
    (exchange, how, _) = heard.closed_[0]
    assert how == "complete"
    assert USAGE in b"".join(data for _, data in exchange.pieces)
    assert json.loads(exchange.body) == body


async def test_a_stream_cut_anywhere_loses_only_the_hidden_usage(proxy: Callable[..., Any]) -> None:
    whole = b"".join((*STREAM, USAGE, DONE))
    request = post("/v1/chat/completions", {"stream": True})
    for size in (1, 7, 50):
        script = Script(HEAD + chunked(*(whole[i : i + size] for i in range(0, len(whole), size))))
        async with proxy(script) as (_, port, _):
            through = await talk(port, request, b"0\r\n\r\n")
        assert unchunked(through.removeprefix(HEAD)) == b"".join((*STREAM, DONE))


def unchunked(data: bytes) -> bytes:
    out = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        out += rest[: int(size, 16)]
        data = rest[int(size, 16) + 2 :]
    return out


async def test_a_server_that_refuses_to_be_asked_is_asked_as_the_client_did(proxy: Callable[..., Any]) -> None:
    refusal = b"HTTP/1.1 400 Bad\r\nContent-Length: 13\r\n\r\nunknown field"
    good = HEAD + chunked(*STREAM, DONE)
    body = {"stream": True, "messages": []}
    script = Script(refusal, good, good)
    async with proxy(script) as (_, port, _):
        request = post("/v1/chat/completions", body)
        first = await talk(port, request, b"0\r\n\r\n")
        second = await talk(port, request, b"0\r\n\r\n")
    assert first == second == good
    assert [json.loads(b) for _, b in script.requests] == [
        {**body, "stream_options": {"include_usage": True}},
        body,
        body,
    ]


async def test_a_client_that_hangs_up_is_heard_by_the_server(proxy: Callable[..., Any]) -> None:
    script = Script(HEAD + b"5\r\nhello\r\n")
    async with proxy(script) as (_, port, heard):
        assert (await talk(port, post("/v1/messages", {}), b"hello\r\n")).endswith(b"hello\r\n")
        await asyncio.wait_for(script.lost.wait(), 5)
    assert [how for _, how, _ in heard.closed_] == ["client_gone"]


async def test_a_client_that_hangs_up_after_the_last_token_still_gets_its_usage_recorded(
    proxy: Callable[..., Any],
) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD + b"".join(b"%x\r\n%b\r\n" % (len(b), b) for b in STREAM))
        await gone.wait()
        writer.write(chunked(USAGE, DONE))
        await writer.drain()
        await reader.read()

    gone = asyncio.Event()
    async with proxy(slow) as (_, port, heard):
        await talk(port, post("/v1/chat/completions", {"stream_options": {"include_usage": True}}), STREAM[1])
        await asyncio.sleep(0.01)
        gone.set()
        for _ in range(100):
            if heard.closed_:
                break
            await asyncio.sleep(0.01)
    exchange, how, _ = heard.closed_[0]
    assert how == "client_gone"
    assert b"".join(data for _, data in exchange.pieces) == b"".join((*STREAM, USAGE, DONE))


async def test_no_server_is_a_bad_gateway(proxy: Callable[..., Any]) -> None:
    from windtunnel.agents.client import parse_target
    from windtunnel.agents.recorder.proxy import Proxy

    class Deaf:
        opened = closed = staticmethod(lambda *_: None)

    unused = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = unused.sockets[0].getsockname()[1]
    unused.close()
    alone = Proxy(parse_target(f"http://127.0.0.1:{port}"), Deaf())
    await alone.start(0)
    answer = await talk(alone.port, post("/v1/messages", {}))
    await alone.close()
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert (
        f"http://127.0.0.1:{port} cannot be reached" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]
    )


async def test_an_answer_that_ends_with_the_connection_ends_the_clients_too(proxy: Callable[..., Any]) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"".join((*STREAM, DONE))
    async with proxy(Script(answer, close=True)) as (_, port, heard):
        assert await talk(port, post("/v1/messages", {})) == answer
    assert [how for _, how, _ in heard.closed_] == ["complete"]


async def test_tags_and_base_paths(proxy: Callable[..., Any]) -> None:
    script = Script(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    async with proxy(script, "/api/v1") as (_, port, heard):
        await talk(port, post("/tag/my%20run/v1/messages", {}), b"{}")
    assert script.requests[0][0].startswith(b"POST /api/v1/messages HTTP/1.1\r\n")
    assert [e.tag for e, _, _ in heard.opened_] == ["my run"]


async def test_requests_one_after_the_other_on_one_connection(proxy: Callable[..., Any]) -> None:
    """Also when the second is sent before the first was answered."""
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
    script = Script(ok + b"1", ok + b"2", ok + b"3")
    async with proxy(script) as (_, port, heard):
        request = post("/v1/messages", {"n": 1}) + post("/v1/other", {"n": 2}) + post("/v1/messages", {"n": 3})
        assert await talk(port, request, b"3") == ok + b"1" + ok + b"2" + ok + b"3"
    assert [json.loads(body)["n"] for _, body in script.requests] == [1, 2, 3]
    assert [json.loads(e.body)["n"] for e, _, _ in heard.closed_] == [1, 3]


async def test_a_switch_of_protocols_is_passed_on(proxy: Callable[..., Any]) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        writer.write(await reader.readexactly(5))
        await writer.drain()

    ask = b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with proxy(echo) as (_, port, _):
        assert (await talk(port, ask + b"hello")).endswith(b"\r\n\r\nhello")


async def test_the_wait_for_permission_to_send_a_body_is_ended(proxy: Callable[..., Any]) -> None:
    script = Script(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    async with proxy(script) as (_, port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await asyncio.wait_for(reader.readuntil(b"{}"), 5)).startswith(b"HTTP/1.1 200 OK")
        writer.close()
    assert b"Expect" not in script.requests[0][0]


def ends(heard: Any) -> list[tuple[str, str]]:
    return [(exchange.failure, how) for exchange, how, _ in heard.closed_]


@pytest.mark.parametrize(
    ("sends", "reset", "failure"),
    [
        (b"", True, "connection_reset"),
        (b"", False, "server_disconnected"),
        (HEAD + b"5\r\nhel", True, "connection_reset"),
        (HEAD + b"5\r\nhel", False, "connection_closed"),
        (b"no HTTP at all\r\n\r\n", False, "malformed_http"),
    ],
)
async def test_a_connection_that_fails_has_the_name_that_the_client_gives_it(
    sends: bytes, reset: bool, failure: str, proxy: Callable[..., Any]
) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(sends)
        await writer.drain()
        if reset:
            unread = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, unread)

    async with proxy(break_off) as (_, port, heard):
        assert (await talk(port, post("/v1/messages", {}))).endswith(sends)
    assert ends(heard) == [(failure, "upstream_gone")]


async def test_a_port_where_nobody_listens_is_named_so() -> None:
    from windtunnel.agents.client import parse_target
    from windtunnel.agents.recorder.proxy import Proxy

    heard = Heard()
    unused = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = unused.sockets[0].getsockname()[1]
    unused.close()
    alone = Proxy(parse_target(f"http://127.0.0.1:{port}"), heard)
    await alone.start(0)
    await talk(alone.port, post("/v1/messages", {}))
    await alone.close()
    assert ends(heard) == [("connect_refused", "no_upstream")]
