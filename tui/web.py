"""The viewer in a browser: a page with a terminal, and a viewer process of its own behind each.

Nothing here talks to the run: a browser drives a viewer through a pseudo terminal, as a person at a terminal would.
Served on this machine only, below a path that cannot be guessed; other pages of the browser get nothing.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from windtunnel.traces.errors import UsageError
from windtunnel.tui.web_page import page

HOST = "127.0.0.1"
LIVES_S = 3.0
"""How long a viewer may take to end before it is ended."""
CHUNK = 1 << 16
MOST = 1000
"""Columns and rows a browser may ask for."""
DIGITS = 9
"""Of a number in an address; Python refuses thousands of them."""


def static_files() -> Path:
    """The terminal's script, style and font; UsageError where the package is not installed."""
    found = find_spec("textual_serve")
    if found is None or found.origin is None:
        raise UsageError("--web needs the package textual-serve: pip install 'windtunnel[web]'")
    return Path(found.origin).parent / "static"


class Terminal:
    """One viewer process on a pseudo terminal of its own."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self.master = master

    @classmethod
    async def start(cls, command: Sequence[str], size: tuple[int, int], environ: Mapping[str, str]) -> "Terminal":
        master, slave = os.openpty()
        os.set_blocking(master, False)
        resize(master, size)
        env = {k: v for k, v in environ.items() if k not in {"COLUMNS", "LINES"}}
        env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUTF8": "1"}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=env,
                start_new_session=True,
            )
        except OSError:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return cls(process, master)

    async def read(self) -> bytes:
        """What the viewer wrote; empty once it has ended."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self.master, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self.master)
        try:
            return os.read(self.master, CHUNK)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        """Keys. More than the terminal's buffer takes at once (a long paste) is dropped."""
        with contextlib.suppress(OSError):
            os.write(self.master, data)

    def hang_up(self) -> None:
        """Not by the process' own method: that looks whether it has ended, and asyncio then misses the end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGHUP)

    async def close(self) -> None:
        """Ends the viewer: as a terminal does that is closed, then for good."""
        if self.process.returncode is None:
            self.hang_up()
        # It may still be writing, and waits for somebody to read.
        draining = asyncio.create_task(self._drain())
        try:
            await asyncio.wait_for(self.process.wait(), LIVES_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            await self.process.wait()
        finally:
            draining.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await draining
            os.close(self.master)

    async def _drain(self) -> None:
        while await self.read():
            pass


def own_terminal() -> None:
    """Called by a viewer: changes of size, and the end of the server, reach it as signals from now on."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def resize(master: int, size: tuple[int, int]) -> None:
    """Tells the terminal its size (columns, rows); whoever runs in it gets SIGWINCH."""
    columns, rows = (max(1, min(MOST, n)) for n in size)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Web:
    """The server's pages. `command` starts one viewer."""

    def __init__(self, command: Sequence[str], title: str, static: Path, token: str) -> None:
        self.command = tuple(command)
        self.title = title
        self.base = f"/{token}"
        self.static = static
        self.open: set[Terminal] = set()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get(f"{self.base}/", self._page)
        app.router.add_get(f"{self.base}/ws", self._socket)
        app.router.add_static(f"{self.base}/static", self.static)
        app.on_shutdown.append(self._close_all)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Other sites that a browser has open must reach neither the page nor the socket, under whatever name."""
        port = (request.transport.get_extra_info("sockname") or (HOST, 0))[1] if request.transport is not None else 0
        hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        origin = request.headers.get("Origin")
        if request.host not in hosts or (origin is not None and origin not in {f"http://{host}" for host in hosts}):
            return web.Response(status=HTTPStatus.FORBIDDEN, text="this viewer is for this machine's browser only\n")
        response: web.StreamResponse = await handler(request)
        return response

    async def _page(self, request: web.Request) -> web.Response:
        nonce = secrets.token_urlsafe(12)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}' 'self'; style-src 'self' 'unsafe-inline'; "
            f"font-src 'self'; img-src 'self' data:; connect-src ws://{request.host}; frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
        return web.Response(text=page(self.title, self.base, nonce), content_type="text/html", headers=headers)

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        """One browser page: its own viewer from when it connects until it goes."""
        if "Origin" not in request.headers:
            raise web.HTTPForbidden(text="browsers say where a page comes from\n")
        socket = web.WebSocketResponse(heartbeat=15)
        await socket.prepare(request)
        size = _number(request.query.get("width"), 80), _number(request.query.get("height"), 24)
        terminal = await Terminal.start(self.command, size, os.environ)
        self.open.add(terminal)
        writing = asyncio.create_task(_show(terminal, socket))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT and not await _obey(message.data, terminal, socket):
                    break
        finally:
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing
            self.open.discard(terminal)
            await asyncio.shield(terminal.close())
        return socket

    async def _close_all(self, _app: web.Application) -> None:
        closing, self.open = self.open, set()
        for terminal in closing:
            terminal.hang_up()


async def _show(terminal: Terminal, socket: web.WebSocketResponse) -> None:
    """Passes on what the viewer writes; a slow browser holds up its own viewer only."""
    with contextlib.suppress(ConnectionError):
        while data := await terminal.read():
            await socket.send_bytes(data)
        await socket.close()


async def _obey(text: str, terminal: Terminal, socket: web.WebSocketResponse) -> bool:
    """One message of the page: keys, the size, a ping. What is none of these is left alone.

    False, and the socket closed, for what no page of ours says: nested without an end.
    """
    try:
        message = msgspec.json.decode(text)
    except RecursionError:
        await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"nested too deeply")
        return False
    except msgspec.MsgspecError:
        return True
    match message:
        case ["stdin", str(keys)]:
            terminal.write(keys.encode("utf-8", "replace"))
        case ["resize", {"width": int(width), "height": int(height)}]:
            resize(terminal.master, (width, height))
        case ["ping", sent]:
            await socket.send_str(msgspec.json.encode(["pong", sent]).decode())
        case _:
            pass
    return True


def _number(text: str | None, otherwise: int) -> int:
    """A size asked for; `resize` holds it in its bounds."""
    known = text is not None and len(text) <= DIGITS and text.isascii() and text.isdecimal()
    return int(text) if text is not None and known else otherwise


async def serve(paths: Sequence[Path], port: int, flags: Sequence[str], stop: asyncio.Event) -> None:
    """Serves until `stop`; says on stdout where."""
    command = [sys.executable, "-m", "windtunnel.tui", *map(str, paths), "--own-terminal", *flags]
    server = Web(
        command,
        f"windtunnel: {', '.join(path.name for path in paths) or 'runs'}",
        static_files(),
        secrets.token_urlsafe(16),
    )
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=LIVES_S)
    await runner.setup()
    try:
        try:
            site = web.TCPSite(runner, HOST, port)
            await site.start()
        except OSError as error:
            # What asyncio says in its place is a sentence of its own.
            reason = os.strerror(error.errno) if error.errno else error.strerror
            raise UsageError(f"port {port} cannot be used ({reason}): choose another with --port") from error
        chosen = runner.addresses[0][1]
        print(f"http://{HOST}:{chosen}{server.base}/", flush=True)
        print("each browser page has a viewer of its own; ^C ends them all", file=sys.stderr, flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


def main(paths: Sequence[Path], port: int, flags: Sequence[str]) -> int:
    """0 after ^C or a signal that ends it."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        await serve(paths, port, flags, stop)

    asyncio.run(run())
    return 0
