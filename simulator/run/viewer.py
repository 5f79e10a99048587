"""The viewer as a process of its own, and plain progress lines where there is no terminal.

The viewer's only word to the run is its exit code: 0 stop and keep, 3 detach, anything else: it broke, go on in plain.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from windtunnel.agents import events as ev

STOP, DETACH = 0, 3
STOP_WAIT_S = 3.0


def terminal() -> bool:
    """A person at a real terminal: the viewer draws on stderr and reads stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Viewer:
    """Started for `watch`; `wait()` gives its exit code."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, run_dir: Path, *, exit_when_done: bool) -> "Viewer":
        command = [sys.executable, "-m", "windtunnel.tui", str(run_dir), "--mode", "watch"]
        if exit_when_done:
            command.append("--exit-when-done")
        return cls(await asyncio.create_subprocess_exec(*command))

    async def wait(self) -> int:
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask it to restore the terminal and go; used when the run itself is being stopped from outside."""
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_WAIT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class PlainProgress:
    """A line every few seconds, written to stderr."""

    def __init__(self, stream: TextIO, agents: int, every_s: float = 5.0) -> None:
        self._stream = stream
        self._agents = agents
        self._every_ns = round(every_s * 1_000_000_000)
        self._next = 0
        self._last: tuple[int, int] = (0, 0)
        self._phase = "starting"
        self._failed = 0
        self._done = 0
        self._told: set[str] = set()
        self.enabled = True

    def __call__(self, event: ev.Event) -> None:
        if isinstance(event, ev.Phase):
            self._phase = event.phase
            self._next = 0
        elif isinstance(event, ev.SessionEnd):
            self._failed += event.status == "failed"
            self._done += event.status == "completed"
        elif isinstance(event, ev.CallEnd) and event.failure is not None and self.enabled:
            self._failure(event, event.failure)
        elif isinstance(event, ev.Note) and self.enabled and event.level != "info":
            print(f"{event.level}: {event.text}", file=self._stream, flush=True)
        elif isinstance(event, ev.Progress) and self.enabled and event.t >= self._next:
            self._line(event)

    def _failure(self, event: ev.CallEnd, name: str) -> None:
        """The first failure of each name, with what the server said: later ones are counted."""
        if name not in self._told:
            self._told.add(name)
            said = f" ({''.join(c for c in event.detail if c.isprintable())})" if event.detail else ""
            where = f"agent {event.agent}, session {event.session}, call {event.call}"
            print(f"failed: {name}{said}, {where}; more of these are only counted", file=self._stream, flush=True)

    def _line(self, event: ev.Progress) -> None:
        last_t, last_tokens = self._last
        rate = (event.output_tokens - last_tokens) / max(1e-9, (event.t - last_t) / 1e9)
        self._last = (event.t, event.output_tokens)
        self._next = event.t + self._every_ns
        print(
            f"{event.t / 1e9:7.1f} s  {self._phase:<8}  {rate:8,.0f} tok/s  in flight {event.in_flight:>3}  "
            f"in tool {event.in_tool:>3}  waiting {event.waiting:>3}  of {self._agents}  "
            f"sessions done {self._done}, failed {self._failed}",
            file=self._stream,
            flush=True,
        )
