"""`windtunnel record`: start the writer and the proxy, then the agent, and wait for it."""

import asyncio
import contextlib
import gc
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from time import perf_counter_ns
from urllib.parse import quote

from windtunnel.agents.client import parse_target
from windtunnel.agents.recorder.proxy import Proxy
from windtunnel.simulator.record.clients import agent_name, config_lines, environment, filled, needs_file
from windtunnel.simulator.record.frames import Begin, Done
from windtunnel.simulator.record.link import WriterLink
from windtunnel.simulator.results.text import count
from windtunnel.simulator.run.loop import loop_factory
from windtunnel.simulator.run.viewer import say
from windtunnel.traces.errors import UsageError
from windtunnel.traces.outlet import readable

FAILED, INTERRUPTED = 1, 130
PORT = 8484
"""Where agents with a config file find the proxy from one recording to the next."""
HUP = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
FORWARDED = (signal.SIGINT, signal.SIGTERM, *HUP)
"""Under nohup a recording goes on when its terminal is closed."""


def execute(upstream: str, out: Path | None, port: int | None, tag: str, command: tuple[str, ...]) -> int:
    """Returns the agent's exit code; without one, 0 after an interrupt. 1 instead of 0 where something is missing."""
    recording = Record(upstream, out, port, tag, command)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(recording.main())


class Record:
    def __init__(self, upstream: str, out: Path | None, port: int | None, tag: str, command: tuple[str, ...]) -> None:
        self._target = parse_target(upstream)
        self._out = out
        self._port = port
        self._tag = tag
        self._command = command
        self._file = needs_file(command)
        """The agent that is started needs lines in a file."""
        self._agent: asyncio.subprocess.Process | None = None
        self._stopped: asyncio.Event | None = None

    async def main(self) -> int:
        if self._command and shutil.which(self._command[0]) is None:
            raise UsageError(f"{self._command[0]} cannot be started (there is no such command): check the name")
        loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        for number in FORWARDED:
            loop.add_signal_handler(number, self._signalled, number)
        await self._resolve()
        link = WriterLink(lambda reason: say(f"{reason}: nothing is recorded any more, the agents go on"))
        proxy = Proxy(self._target, link)
        begin = self._begin()
        await self._listen(proxy)  # before there is a folder: a port that is taken leaves nothing behind
        parts = asyncio.create_task(link.parts(proxy.shared.live))
        came = False
        try:
            folder = await link.start(begin)
            gc.collect()
            gc.freeze()
            base = f"http://127.0.0.1:{proxy.port}" + (f"/tag/{quote(self._tag)}" if self._tag else "")
            code = await self._record(base, folder)
            came = True
        finally:
            await proxy.close()
            parts.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await parts
            done = await link.end(failed=not came)
        if done is None:
            say(missing(link, folder))
            return code or FAILED
        say(told(done, folder))
        return code

    async def _resolve(self) -> None:
        """A server that is not there yet may come; a name that nobody knows is a typing error."""
        try:
            await asyncio.get_running_loop().getaddrinfo(self._target.host, self._target.port)
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                raise UsageError(f"{self._target.url()}: the host name is not known; check the URL") from error

    def _begin(self) -> Begin:
        given = sys.argv[1 : len(sys.argv) - max(0, len(self._command) - 1)]  # an agent's words may be secret
        return Begin(
            out=None if self._out is None else os.fsencode(self._out),
            name=secrets.token_hex(4),
            client=readable(agent_name(self._command)),
            upstream=self._target.url(),
            argv=tuple(map(readable, given)),
            origin_ns=perf_counter_ns(),
            wall_clock=time.time(),
            proxy_pid=os.getpid(),
        )

    async def _listen(self, proxy: Proxy) -> None:
        """The port asked for; else a lasting one for agents that have it in a file, any for others."""
        if self._port is not None or (self._command and self._file is None):
            await proxy.start(self._port or 0)
            return
        try:
            await proxy.start(PORT)
        except UsageError:
            await proxy.start(0)

    async def _record(self, base: str, folder: str) -> int:
        assert self._stopped is not None
        say(f"recording {self._target.url()} at {base} into {folder} (watch: windtunnel view {folder})")
        if not self._command:
            print(config_lines(base), flush=True)
            await self._stopped.wait()
            return 0
        if self._file is not None:
            say(config_lines(base, self._file))
        if self._stopped.is_set():
            return INTERRUPTED
        words = filled(self._command, base)
        env = environment(base, self._target.host, os.environ)
        try:
            self._agent = await asyncio.create_subprocess_exec(*words, env=env)
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be started ({error.strerror}): check the command") from error
        code = await self._agent.wait()
        return code if code >= 0 else 128 - code

    def _signalled(self, number: signal.Signals) -> None:
        """With an agent the signal is the agent's: it decides. Ctrl-C has reached it already."""
        if self._agent is None:
            assert self._stopped is not None
            self._stopped.set()
        elif not (number == signal.SIGINT and _in_front()):
            with contextlib.suppress(ProcessLookupError):
                self._agent.send_signal(number)


def told(done: Done, folder: str) -> str:
    why = ""
    if done.why:
        why = f" ({done.why})" if done.alike == done.failed else f" ({done.alike} of them {done.why})"
    if not done.calls and not done.failed:
        return (
            f"recorded nothing in {folder}: no call to a model came through the proxy; "
            "check that the agent sends its requests to its address"
        )
    if not done.calls:
        return f"recorded no session in {folder}: {_all_failed(done.failed)}{why}"
    failed = f"; {count(done.failed, 'further call')} failed{why}" if done.failed else ""
    aborted = f", {done.aborted} of them aborted" if done.aborted else ""
    return f"recorded {count(done.calls, 'call')} of {count(done.sessions, 'session')} in {folder}{aborted}{failed}"


def _all_failed(failed: int) -> str:
    return "its only call failed" if failed == 1 else f"all {failed} calls failed"


def missing(link: WriterLink, folder: str) -> str:
    """What the end of a recording says that could not be written to its end."""
    missed = "calls are missing" if link.missed is None else f"{count(link.missed, 'call')} not recorded"
    lost = link.lost or "the process that wrote the recording did not end"
    where = folder if link.kept is None else link.kept
    return f"{missed}: {lost}; the others are {f'in {where}' if where else 'gone with it'}"


def _in_front() -> bool:
    """Whether the terminal sends its signals to our process group, the agent included."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
