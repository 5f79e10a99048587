"""The viewer in a browser, without one: pages, the socket, who is let in, and that nothing is left behind."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from fake_run import Fake

from windtunnel.traces.errors import UsageError
from windtunnel.tui import web as web_module
from windtunnel.tui.start import main
from windtunnel.tui.web import Web, static_files

PATIENCE_S = 15.0
TALKER = """
import os, signal, sys
size = lambda *_: print("size", *os.get_terminal_size(0), flush=True)
signal.signal(signal.SIGWINCH, size)
size()
from windtunnel.tui.web import own_terminal
own_terminal()
print("pid", os.getpid(), "tty", os.isatty(0), flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
"""
"""A program on a terminal, in the viewer's place."""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not gone(pid):
            await asyncio.sleep(0.02)


class Page:
    """What a browser's page does."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.seen = ""

    async def until(self, pattern: str) -> re.Match[str]:
        async with asyncio.timeout(PATIENCE_S):
            while (found := re.search(pattern, self.seen)) is None:
                message = await self.socket.receive()
                assert message.type in {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}, self.seen
                self.seen += (
                    message.data.decode("utf-8", "replace") if isinstance(message.data, bytes) else message.data
                )
        return found

    async def say(self, *message: object) -> None:
        await self.socket.send_str(json.dumps(message))


@pytest.fixture
def static(tmp_path: Path) -> Path:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "x.css").write_text("body {}")
    return tmp_path / "static"


@asynccontextmanager
async def serving(static: Path, *command: str) -> AsyncIterator[tuple[Web, TestServer, aiohttp.ClientSession]]:
    web = Web(command or (sys.executable, "-c", TALKER), "a run", static, "secret")
    async with TestServer(web.app()) as server, aiohttp.ClientSession(headers={"Origin": origin(server)}) as session:
        yield web, server, session


def origin(server: TestServer) -> str:
    return f"http://{server.host}:{server.port}"


async def test_keys_and_size_go_in_and_the_screen_comes_out(static: Path) -> None:
    async with (
        serving(static) as (_, server, session),
        session.ws_connect(server.make_url("/secret/ws?width=101&height=31")) as socket,
    ):
        page = Page(socket)
        await page.until("size 101 31")
        await page.until(r"pid \d+ tty True")
        await page.say("stdin", "hello\r")
        await page.until("heard hello")
        await page.say("resize", {"width": 64, "height": 20})
        await page.until("size 64 20")
        await page.say("ping", "123")
        await page.until(r'\["pong","123"\]')
        for nonsense in ("{", '["resize", 3]', '["stdin", 7]', "[]", '{"a": 1}'):
            await socket.send_str(nonsense)
        await page.say("stdin", "still\r")
        await page.until("heard still")


async def test_closing_the_page_ends_its_viewer_and_no_other(static: Path) -> None:
    async with (
        serving(static) as (web, server, session),
        session.ws_connect(server.make_url("/secret/ws")) as other,
    ):
        stays = Page(other)
        kept = int((await stays.until(r"pid (\d+) "))[1])
        async with session.ws_connect(server.make_url("/secret/ws")) as socket:
            pid = int((await Page(socket).until(r"pid (\d+) "))[1])
            assert len(web.open) == 2
        await until_gone(pid)
        await stays.say("stdin", "hello\r")
        await stays.until("heard hello")
        assert not gone(kept)
    await until_gone(kept)


async def test_the_end_of_the_viewer_closes_its_page(static: Path) -> None:
    async with (
        serving(static, sys.executable, "-c", "print('bye')") as (web, server, session),
        session.ws_connect(server.make_url("/secret/ws")) as socket,
    ):
        await Page(socket).until("bye")
        async with asyncio.timeout(PATIENCE_S):
            while not socket.closed:
                await socket.receive()
            while web.open:
                await asyncio.sleep(0.02)


async def test_only_this_machines_own_page_is_let_in(static: Path) -> None:
    async with serving(static) as (_, server, session):
        for path in ("/", "/other/", "/other/ws", "/static/x.css", "/secret"):
            assert (await session.get(server.make_url(path))).status == 404, path
        assert (await session.get(server.make_url("/secret/static/x.css"))).status == 200
        assert (await session.get(server.make_url("/secret/static/../web.py"))).status == 404
        for header, value in (("Host", "evil.example"), ("Host", f"evil.example:{server.port}")):
            assert (await session.get(server.make_url("/secret/"), headers={header: value})).status == 403
        for wrong in ("http://evil.example", "null", f"https://{server.host}:{server.port}"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as error:
                await session.ws_connect(server.make_url("/secret/ws"), headers={"Origin": wrong})
            assert error.value.status == 403
        async with aiohttp.ClientSession() as nameless:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await nameless.ws_connect(server.make_url("/secret/ws"))


@pytest.mark.parametrize("host", ["[::1]:x", "127.0.0.1:99999999", "a:b:c", "[", "", "127.0.0.1:0", "[::1]:{port}"])
async def test_hosts_that_are_none_are_not_let_in(static: Path, host: str) -> None:
    async with serving(static) as (_, server, session):
        headers = {"Host": host.format(port=server.port)}
        assert (await session.get(server.make_url("/secret/"), headers=headers)).status == 403


async def test_a_size_of_thousands_of_digits_is_left_alone(static: Path) -> None:
    async with (
        serving(static) as (_, server, session),
        session.ws_connect(server.make_url(f"/secret/ws?width={'9' * 6000}&height=31")) as socket,
    ):
        page = Page(socket)
        await page.until("size 80 31")
        await page.until(r"pid \d+ ")
        await page.say("resize", {"width": 64, "height": 10**30})
        await page.until("size 64 1000")


async def test_a_message_without_a_bottom_closes_its_page_and_says_why(static: Path) -> None:
    async with (
        serving(static) as (web, server, session),
        session.ws_connect(server.make_url("/secret/ws")) as socket,
    ):
        await Page(socket).until(r"pid \d+ ")
        await socket.send_str("[" * 100_000)
        async with asyncio.timeout(PATIENCE_S):
            while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
        assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 1008, "nested too deeply")
        async with asyncio.timeout(PATIENCE_S):
            while web.open:
                await asyncio.sleep(0.02)


async def test_a_port_that_is_taken_is_one_sentence(
    static: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web_module, "static_files", lambda: static)
    async with serving(static) as (_, server, _session):
        port = server.port or 0
        with pytest.raises(UsageError) as error:
            await web_module.serve([], port, [], asyncio.Event())
    said = f"port {port} cannot be used (Address already in use): choose another with --port"
    assert str(error.value) == said
    assert capsys.readouterr().out == ""


async def test_the_page_loads_nothing_from_elsewhere(static: Path) -> None:
    async with serving(static) as (_, server, session):
        answer = await session.get(server.make_url("/secret/"))
        text, where = await answer.text(), f"{server.host}:{server.port}"
    assert re.findall(r"""(?:https?:)?//[^\s"'`)+]+""", text) == []
    assert set(re.findall(r"/secret/[a-z]+", text)) == {"/secret/static", "/secret/ws"}
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert f"connect-src ws://{where};" in policy
    assert "http" not in policy
    nonce = re.search(r"'nonce-([^']+)'", policy)
    assert nonce is not None
    assert f'<script nonce="{nonce[1]}">' in text


def test_without_the_package_one_sentence_says_what_to_do(
    tmp_path: Path, running: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(web_module, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'windtunnel\[web\]'"):
        static_files()
    assert main([str(running.write(tmp_path / "run")), "--web"]) == 2
    said = "windtunnel: --web needs the package textual-serve: pip install 'windtunnel[web]'\n"
    assert capsys.readouterr().err == said


@pytest.mark.skipif(find_spec("textual_serve") is None, reason="textual-serve is not installed (extra: web)")
class TestWithThePackage:
    def test_it_holds_what_the_page_names(self) -> None:
        for name in ("css/xterm.css", "js/textual.js", "fonts/RobotoMono-VariableFont_wght.ttf"):
            assert (static_files() / name).is_file()

    async def test_a_run_is_shown_and_ctrl_c_ends_everything(self, tmp_path: Path) -> None:
        fake = Fake(8, 30.0)
        fake.alive = True
        folder = fake.write(tmp_path / "run", until=25.0)
        env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", "windtunnel.tui", str(folder), "--web", "--theme", "light"]
        server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=env)
        assert server.stdout is not None
        url = (await asyncio.wait_for(server.stdout.readline(), PATIENCE_S)).decode().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", url)
        where = url.partition("/")[0] + "//" + url.split("/")[2]
        async with aiohttp.ClientSession(headers={"Origin": where}) as session:
            assert (await session.get(url)).status == 200
            socket = await session.ws_connect(f"{url}ws?width=90&height=24")
            page = Page(socket)
            await page.until("8 agents")
            await page.until("48;2;255;255;255")
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            assert len(children) == 1
            server.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(server.wait(), PATIENCE_S) == 0
            await until_gone(int(children[0]))
            await socket.close()
