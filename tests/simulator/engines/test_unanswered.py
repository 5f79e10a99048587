"""A request without an answer is told in words: where it was led, what was cut, and never by a class of a library."""

import asyncio
import contextlib
import re

import aiohttp
import pytest

from windtunnel.simulator.engines import base
from windtunnel.simulator.engines.base import fetch
from windtunnel.simulator.engines.launch import free_port
from windtunnel.simulator.engines.patience import patiently
from windtunnel.traces.errors import EngineError

OK = b"HTTP/1.1 200 OK\r\n"


@contextlib.asynccontextmanager
async def serving(*answer):
    """A server that reads a head and sends these bytes, part by part: -> (session, url)."""

    writers = []

    async def serve(reader, writer):
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        for number, part in enumerate(answer):
            if number:
                await asyncio.sleep(0.02)
            writer.write(part)
            await writer.drain()
        if len(answer) > 1:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x"
    async with aiohttp.ClientSession() as session, server:
        yield session, url
    for writer in writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def redirect(to):
    return f"HTTP/1.1 307 Temporary\r\nLocation: {to}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()


async def told(*answer, body=None):
    """What is said of that answer behind the URL."""
    async with serving(*answer) as (session, url):
        with pytest.raises(EngineError) as error:
            await fetch(session, url, body)
    said = str(error.value)
    assert said.startswith(f"{url}: ")
    assert "\n" not in said
    assert "Error" not in said
    return said.removeprefix(f"{url}: ")


@pytest.mark.parametrize("body", [None, {"model": "m"}])
async def test_a_redirect_to_where_nothing_listens_is_named(body):
    port = free_port()
    assert await told(redirect(f"http://127.0.0.1:{port}/other"), body=body) == (
        f"it redirects to 127.0.0.1:{port}, and nothing listens there; start what it leads to or correct the redirect"
    )


async def test_a_redirect_to_an_unknown_host_is_named():
    assert await told(redirect("http://no-such-host.invalid/")) == (
        "it redirects to no-such-host.invalid:80, and the host name is not known; "
        "start what it leads to or correct the redirect"
    )


async def test_redirects_without_end_and_to_no_address_are_named():
    assert await told(redirect("/round")) == "it redirects on and on, at last to '/round'; give the URL that is meant"
    assert await told(redirect("ftp://h/x")) == (
        "it redirects to 'ftp://h/x', which is no HTTP address; give the URL that is meant"
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (OK + b"Content-Length: 1000\r\n\r\n{", "the answer ended before it was complete; the server, or a proxy"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "the answer ended before it was complete; the server, or"),
        (
            OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
            "the answer cannot be unpacked: it is not in the encoding that it names",
        ),
        (OK + b"X-A: " + b"y" * 300_000 + b"\r\n\r\n", "the answer has more or longer header lines than can be read"),
        (OK + b"".join(b"X-%d: y\r\n" % i for i in range(20_000)) + b"\r\n", "the answer has more or longer header"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\nfoo\r\n",
            "the answer is damaged: its parts are not marked as HTTP wants it; look for a proxy in between",
        ),
        (b"SSH-2.0-OpenSSH_9.0\r\n", "what answers there speaks no HTTP; correct the port"),
        (b"", "the server closed the connection without an answer; see its log"),
    ],
)
async def test_what_is_wrong_with_an_answer_is_said_in_words(answer, said):
    assert (await told(answer)).startswith(said)


async def test_an_answer_that_is_damaged_later_is_named_though_the_server_keeps_the_connection(monkeypatch):
    monkeypatch.setattr(base, "LOOK_S", 0.05)
    begun = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with asyncio.timeout(5):
        said = await told(begun, b"zz\r\nhello\r\n")
    assert said == "the answer is damaged: its parts are not marked as HTTP wants it; look for a proxy in between"


async def test_an_answer_that_comes_slowly_is_waited_for(monkeypatch):
    monkeypatch.setattr(base, "LOOK_S", 0.005)
    async with serving(OK + b"Content-Length: 6\r\n\r\n1", b"23", b"456") as (session, url):
        assert (await fetch(session, url)).body == b"123456"


DONE = b"data: {}\n\ndata: [DONE]\n\n"
OPEN = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        (DONE, "[DONE]"),
        (b"data:{}\r\n\r\ndata:[DONE]\r\n\r\n", "[DONE]"),
        (b'\xef\xbb\xbf{"a": [1]}\n', "the last bracket"),
        (b"[]", "the last bracket"),
    ],
)
@pytest.mark.parametrize("head", [OPEN, OK + b"Content-Length: 1000\r\n\r\n", OK + b"\r\n"])
async def test_an_answer_that_is_whole_is_taken_though_the_server_does_not_end_it(monkeypatch, head, answer, last):
    monkeypatch.setattr(base, "LOOK_S", 0.05)
    body = b"%x\r\n%b\r\n" % (len(answer), answer) if head == OPEN else answer
    said = []
    async with asyncio.timeout(5), serving(head + body, b"") as (session, url), patiently(said.append, url):
        assert (await fetch(session, url)).body == answer
        assert (await fetch(session, url)).body == answer
    assert said == [f"{url}: still open after {last}; the answer is taken without its end"]


@pytest.mark.parametrize(
    "answer", [b'{"a": [1]', b"data: {}\n\n", b"data: [DONE] or not\n\n", b"metric 1\n", b"12", b""]
)
async def test_an_answer_that_may_go_on_is_waited_for(monkeypatch, answer):
    monkeypatch.setattr(base, "LOOK_S", 0.01)
    async with serving(OK + b"Content-Length: 1000\r\n\r\n" + answer, b"") as (session, url):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fetch(session, url), 0.1)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (None, "the server wants an API key: pass it as --api-key"),
        ({"Authorization": "Bearer k"}, "the server refused the API key (HTTP 401): pass the right one as --api-key"),
    ],
)
async def test_a_wrong_key_is_told_from_none(headers, said):
    answer = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with serving(answer) as (_, url), base.open_session(headers) as session:
        with pytest.raises(EngineError, match=re.escape(said)):
            await base.list_models(session, url.removesuffix("/v1/x"))
