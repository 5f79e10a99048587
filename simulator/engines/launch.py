"""Starting an engine as a process, watching it until it serves, and stopping it so that nothing of it stays behind.

Between the run and the engine stands a keeper process (keeper.py): whatever ends the run, SIGKILL included, closes the
keeper's stdin, and the keeper ends the engine with all its workers.
"""

import asyncio
import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.simulator.engines import keeper, signatures
from windtunnel.simulator.engines.base import fetch, list_models
from windtunnel.simulator.engines.coldstart import ColdStart, Watch
from windtunnel.traces.errors import EngineError, UsageError

if TYPE_CHECKING:
    import aiohttp

EMULATOR = "emulator"
"""`--engine "emulator --gpu H100"` stands for this program's own `engine` command."""
GRACE_S = 30.0
"""From SIGTERM to SIGKILL. vLLM needs about three seconds."""
READY_S = 3600.0
"""A first start may compile and tune for many minutes."""
POLL_S = 0.2
GPU_FREE_S = 60.0
"""After its last process is gone an engine's GPU memory is free within seconds; then the next one may start."""
GPU_SLACK = 512 << 20
"""Bytes more than before the start that still count as free: a driver keeps some."""
TAIL_BYTES = 400_000
"""How much of the log's end is searched for the reason of a failure."""
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def take_environment(words: list[str]) -> dict[str, str]:
    """The NAME=VALUE words that a command begins with, taken out of it."""
    env: dict[str, str] = {}
    while words and ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    return env


def expand(engine: str | None) -> str:
    """The command line to start: the short form of the emulator written out, `{port}` required."""
    words = _split(engine) if engine else [EMULATOR]
    at = next((i for i, word in enumerate(words) if not ASSIGNMENT.match(word)), len(words))
    if words[at : at + 1] == [EMULATOR]:
        own = [*words[:at], sys.executable, "-m", "windtunnel.simulator.cli", "engine", *words[at + 1 :]]
        words = own if "--port" in words else [*own, "--port", "{port}"]
    if not any("{port}" in word for word in words):
        raise UsageError(f"--engine {engine}: the command needs {{port}} where its port goes, such as --port {{port}}")
    return shlex.join(words)


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--engine {command}: the quotes do not match") from error
    if not words:
        raise UsageError("--engine: the command is empty")
    return words


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Launched:
    """A started engine: `start` returns at once, `wait_ready` when it serves, `stop` when nothing of it is left."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pid: int,
        command: tuple[str, ...],
        port: int,
        log: Path,
        gpu_memory: Callable[[], int | None] | None = None,
        gpu_before: int | None = None,
    ) -> None:
        self._keeper = process
        self._began = time.monotonic()
        self._gpu_memory = gpu_memory
        self._gpu_before = gpu_before
        self.cold_start: ColdStart | None = None
        """Known once `wait_ready` is through."""
        self.pid = pid
        """Process id and process group of the engine."""
        self.command = command
        """What was started, port filled in."""
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = log

    @classmethod
    def start(
        cls,
        command: str,
        log_path: Path,
        *,
        grace_s: float = GRACE_S,
        gpu_memory: Callable[[], int | None] | None = None,
    ) -> "Launched":
        """Start `command` (with `{port}`; leading NAME=VALUE words set its environment); output goes to `log_path`.

        `gpu_memory` tells the bytes in use on all GPUs, None without a GPU; with it `stop` waits until no more are in
        use than now.
        """
        port = free_port()
        before = gpu_memory() if gpu_memory is not None else None
        words = [word.replace("{port}", str(port)) for word in _split(command)]
        env = {**os.environ, **take_environment(words)}
        if not words:
            raise UsageError(f"--engine {command}: there is no command after the environment")
        log_path.parent.mkdir(parents=True, exist_ok=True)
        guard = subprocess.Popen(
            [sys.executable, "-I", keeper.__file__, str(log_path), str(grace_s), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
        assert guard.stdout is not None
        said = guard.stdout.readline().decode("utf-8", "replace").strip()
        if not said.isdigit():
            guard.communicate()
            why = said.removeprefix("error ") or "it could not be started"
            raise EngineError(f"engine command {words[0]!r}: {why}; install it or give its full path")
        return cls(guard, int(said), tuple(words), port, log_path, gpu_memory, before)

    def exited(self) -> int | None:
        """Exit code of the engine, None while it runs."""
        return self._keeper.poll()

    async def wait_exit(self) -> int:
        """Returns when the engine has exited, for racing it against the work."""
        while (code := self.exited()) is None:  # noqa: ASYNC110 - an exit sets no event
            await asyncio.sleep(POLL_S)
        return code

    async def wait_ready(
        self,
        session: "aiohttp.ClientSession",
        *,
        timeout_s: float = READY_S,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Until `/health` is 200 (or the server has no such route) and `/v1/models` lists something.

        `progress` gets the log's newest line whenever it changed. Raises EngineError with the true reason when the
        engine exits or takes longer than `timeout_s`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        told, mark, watch = "", 0, Watch()
        while not await self._serves(session):
            upto = self.log_mark()
            watch.look(self._between(mark, upto), time.monotonic() - self._began)
            mark = upto
            if self.exited() is not None:
                log = f"; its log is {self.log_path}" if self.log_mark() else ""
                raise EngineError(f"the engine exited before it served: {self.failure()}{log}")
            if loop.time() > deadline:
                raise EngineError(
                    f"the engine did not serve within {timeout_s:.0f} s; its log is {self.log_path}, its last line: "
                    f"{self.last_line() or 'empty'}"
                )
            newest = self.last_line()
            if progress is not None and newest and newest != told:
                told = newest
                progress(newest)
            await asyncio.sleep(POLL_S)
        now = time.monotonic() - self._began
        watch.look(self._between(mark, self.log_mark()), now)
        self.cold_start = watch.done(now)

    async def _serves(self, session: "aiohttp.ClientSession") -> bool:
        try:
            if (await fetch(session, f"{self.url}/health")).status not in (200, 404):
                return False
            await list_models(session, self.url)
        except EngineError:
            return False
        return self.exited() is None

    async def stop(self) -> int:
        """SIGTERM, grace time, SIGKILL to the group and to what left it; returns the exit code once all are gone."""
        if self._keeper.stdin is not None:
            with contextlib.suppress(OSError):
                self._keeper.stdin.close()
        code = await asyncio.to_thread(self._keeper.wait)
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()
        if group_alive(self.pid):
            raise EngineError(f"process group {self.pid} of the engine is still there; kill it before the next start")
        await self._gpu_freed()
        return code

    async def _gpu_freed(self) -> None:
        """Until the GPUs hold no more than before the start: the next engine sizes its KV cache by what is free."""
        if self._gpu_memory is None or self._gpu_before is None:
            return
        deadline = time.monotonic() + GPU_FREE_S
        while (used := await asyncio.to_thread(self._gpu_memory)) is not None:
            left = used - self._gpu_before
            if left <= GPU_SLACK:
                return
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the GPU holds {left / (1 << 30):.1f} GiB more than before the engine's start, {GPU_FREE_S:.0f} s "
                    "after its last process ended; see nvidia-smi for who has them"
                )
            await asyncio.sleep(POLL_S)

    def failure(self) -> str:
        """Why the engine is gone, from its log: one clause."""
        return signatures.reason(self._tail(), self.exited())

    def last_line(self) -> str:
        """The newest line of the log."""
        lines = self._tail(4096).strip().splitlines()
        return lines[-1].strip() if lines else ""

    def log_mark(self) -> int:
        """A place in the log, now: bytes written so far."""
        with contextlib.suppress(OSError):
            return self.log_path.stat().st_size
        return 0

    def log_lines_since(self, mark: int) -> list[str]:
        """Lines written since `log_mark()` was `mark`; `signatures.compiling` picks those that tell of compilation."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(mark)
            return log.read().decode("utf-8", "replace").splitlines()
        return []

    def _between(self, mark: int, upto: int) -> list[str]:
        """Lines of the log between two of its marks."""
        if upto <= mark:
            return []
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(mark)
            return log.read(upto - mark).decode("utf-8", "replace").replace("\r", "\n").splitlines()
        return []

    def _tail(self, limit: int = TAIL_BYTES) -> str:
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - limit))
            return log.read().decode("utf-8", "replace")
        return ""


def group_alive(pid: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
