"""The viewer as a process of its own, and plain progress lines where there is no terminal.

The viewer's only word to the run is its exit code: 0 stop and keep, 3 detach, anything else: it broke, go on in plain.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from windtunnel.agents import events as ev
from windtunnel.traces.outlet import raw

STOP, DETACH = 0, 3
STOP_WAIT_S = 3.0
ANY_WIDTH = 10_000
WIDE = 110
"""Columns on which a whole progress line fits."""
LEAVE_SCREEN = (
    "".join(f"\x1b[?{mode}l" for mode in (1000, 1002, 1003, 1006, 1015, 1004, 2004, 1049)) + "\x1b[<u\x1b[?25h"
)
"""Mouse, focus and paste reports off, the alternate screen left, key reports as before, the cursor shown."""


SCREENLESS = "this terminal cannot show a screen (TERM=dumb, or none): use `windtunnel view --plain`"


def terminal() -> bool:
    """A person at a real terminal: the viewer draws on stderr and reads stdin."""
    return _talks() and _term() != "dumb"


def dumb() -> bool:
    """A person at a terminal that can show lines only."""
    return _talks() and _term() == "dumb"


def _talks() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _term() -> str:
    return os.environ.get("TERM") or "dumb"


def become(command: Sequence[str]) -> NoReturn:
    """The viewer takes this process's place. An interrupt meanwhile waits until the viewer can take it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(command[0], list(command))  # noqa: S606 -- the same Python


def say(text: str, stream: TextIO | None = None) -> None:
    """One line of talk, on stderr. That nobody hears it (a closed terminal, a full disk) must not end a run."""
    with contextlib.suppress(OSError):
        print(text, file=stream or sys.stderr, flush=True)


def leave_screen() -> None:
    """For a screen that could not do it itself."""
    say(LEAVE_SCREEN, raw(sys.stderr))


def again(folder: Path) -> str:
    """The command line that shows a run folder."""
    return f"windtunnel view {shlex.quote(str(folder))}"


@contextlib.contextmanager
def keys_kept() -> Iterator[None]:
    """While a screen comes and goes, what is typed is not echoed, and what nobody read does not reach the shell.

    Ctrl-C and Ctrl-Z stay what they are. A process in the background leaves the terminal alone.
    """
    fd, modes = -1, None
    with contextlib.suppress(OSError, termios.error, ValueError):
        fd = sys.stdin.fileno()
        modes = termios.tcgetattr(fd) if os.tcgetpgrp(fd) == os.getpgrp() else None
    if modes is None:
        yield
        return
    silent = [*modes]
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    try:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, silent)
        yield
    finally:
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(fd) == os.getpgrp():
                termios.tcsetattr(fd, termios.TCSAFLUSH, modes)


def fitting(parts: Sequence[tuple[str, int]], width: int) -> str:
    """Parts of (text, rank) side by side; where not all fit, those of the highest ranks are left out."""
    kept = list(parts)
    while len(kept) > 1 and len("  ".join(text for text, _ in kept)) > width:
        kept.remove(max(kept, key=lambda part: part[1]))
    return "  ".join(text for text, _ in kept)


def _columns(stream: TextIO) -> int:
    """Room for a line that does not wrap; where the stream is no terminal, any line fits."""
    with contextlib.suppress(OSError, ValueError):
        return (os.get_terminal_size(stream.fileno()).columns or ANY_WIDTH) - 1
    return ANY_WIDTH


def one_line(text: str) -> str:
    """As much of a line of talk as the terminal shows without wrapping it."""
    return text[: _columns(sys.stderr)]


class Viewer:
    """Started for `watch`; `wait()` gives its exit code."""

    def __init__(self, process: asyncio.subprocess.Process, modes: list[Any] | None) -> None:
        self._process = process
        self._modes = modes
        """The terminal's settings before the viewer changed them."""

    @classmethod
    async def start(cls, run_dir: Path, *, exit_when_done: bool) -> "Viewer":
        command = [
            sys.executable,
            "-m",
            "windtunnel.tui",
            str(run_dir),
            "--mode",
            "watch",
            "--parent",
            f"{os.getpid()}",
        ]
        if exit_when_done:
            command.append("--exit-when-done")
        modes = None
        with contextlib.suppress(OSError, termios.error, ValueError):
            modes = termios.tcgetattr(sys.stdin.fileno())
        return cls(await asyncio.create_subprocess_exec(*command), modes)

    async def wait(self) -> int:
        code = await self._process.wait()
        if code < 0:
            self._restore()
        return code

    def _restore(self) -> None:
        """Do what a killed viewer could not: without this no key, Ctrl-C neither, would reach the run any more."""
        if self._modes is not None:
            with contextlib.suppress(OSError, termios.error, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._modes)
                leave_screen()

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

    def __init__(
        self, stream: TextIO, agents: int, every_s: float = 5.0, *, clock: str = "", recording: bool = False
    ) -> None:
        """`clock` is written in front of the time, where that is not everybody's.

        A `recording` has no fleet of a known size, no phases, and sessions that end only with it: calls are counted.
        """
        self._stream = stream
        self._clock = clock
        self._agents = agents
        self._every_ns = round(every_s * 1_000_000_000)
        self._next = 0
        self._last: tuple[int, int, bool] = (0, 0, True)
        """Of the line before: when, output tokens, whether they were exact."""
        self._phase = "starting"
        self._recording = recording
        self._failed = 0
        self._done = 0
        self._told: set[str] = set()
        self.enabled = True

    def __call__(self, event: ev.Event) -> None:
        if isinstance(event, ev.Phase):
            self._phase = event.phase
            self._next = 0
        elif isinstance(event, ev.SessionEnd) and not self._recording:
            self._failed += event.status == "failed"
            self._done += event.status == "completed"
        elif isinstance(event, ev.CallEnd):
            self._call(event)
        elif isinstance(event, ev.Note) and self.enabled and event.level != "info":
            say(f"{event.level}: {event.text}", self._stream)
        elif isinstance(event, ev.Progress):
            if not self.enabled:
                # The first line's speed is of what came since, not of the whole run.
                self._last = (event.t, event.output_tokens, event.parsed)
            elif event.t >= self._next:
                self._line(event)

    def _call(self, event: ev.CallEnd) -> None:
        if self._recording:
            self._failed += event.failure is not None
            self._done += event.failure is None
        if event.failure is not None and self.enabled:
            self._failure(event, event.failure)

    def _failure(self, event: ev.CallEnd, name: str) -> None:
        """The first failure of each name, with what the server said: later ones are counted."""
        if name not in self._told:
            self._told.add(name)
            said = f" ({''.join(c for c in event.detail if c.isprintable())})" if event.detail else ""
            where = f"agent {event.agent}, session {event.session}, call {event.call}"
            say(f"failed: {name}{said}, {where}; more of these are only counted", self._stream)

    def _line(self, event: ev.Progress) -> None:
        last_t, last_tokens, last_exact = self._last
        rate = (event.output_tokens - last_tokens) / max(1e-9, (event.t - last_t) / 1e9)
        rate_text = f"{'' if event.parsed and last_exact else '~'}{rate:,.0f}"
        self._last = (event.t, event.output_tokens, event.parsed)
        self._next = event.t + self._every_ns
        room = _columns(self._stream)
        front = (
            (f"{self._clock}{event.t / 1e9:7.1f} s", 0),
            (f"{'recording' if self._recording else self._phase:<8}", 1),
            (f"{rate_text:>8} tok/s", 2),
            (f"in flight {event.in_flight:>3}", 3),
        )
        if self._recording:
            say(fitting((*front, (f"calls ended {self._done}, failed {self._failed}", 4)), room), self._stream)
            return
        fleet = (
            (f"in tool {event.in_tool:>3}", 5),
            (f"waiting {event.waiting:>3}", 6),
            (f"of {self._agents}", 7),
            (f"{'' if room < WIDE else 'sessions '}done {self._done}, failed {self._failed}", 4),
        )
        say(fitting((*front, *fleet), room), self._stream)
