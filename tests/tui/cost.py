"""What the viewer costs beside a run: its CPU, its terminal, its loop, its memory. Linux only.

    python tests/tui/cost.py RUN [--speed 1] [--at S] [--seconds 20] [--size 160x48] [--keys "t"] [--loop]

The viewer runs in a pseudo terminal that counts what is written and throws it away. CPU is user and system time of the
viewer's process, so that a busy machine changes nothing. With --loop every callback of its event loop is timed, in CPU
time of the loop's thread, which itself costs something: take CPU and loop from two goes.
"""

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SETTLE_S = 4.0
"""Importing, the first screen and catching up are not what goes on."""
TIMED = """
import asyncio, atexit, json, sys, time
from asyncio import events

out, began, seen = sys.argv.pop(1), float(sys.argv.pop(1)), []
plain = events.Handle._run

def run(self):
    t = time.thread_time()
    plain(self)
    spent = time.thread_time() - t
    if spent > 0.001:
        seen.append((time.monotonic() - started, round(spent * 1000, 2)))

started = time.monotonic()
events.Handle._run = run


def told():
    # The last second is that of leaving.
    end = time.monotonic() - started - 1.0
    open(out, "w").write(json.dumps(sorted(ms for t, ms in seen if began < t < end)))


atexit.register(told)
from windtunnel.tui.start import main
sys.exit(main(sys.argv[1:]))
"""


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


class Screen:
    """A viewer in a terminal that nobody looks at."""

    def __init__(self, command: list[str], size: tuple[int, int], environ: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, environ)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.bytes = 0
        self.writes: list[tuple[float, int]] = []
        self.open = True

    def watch(self, seconds: float) -> None:
        """Counts what is written for so long."""
        end = time.monotonic() + seconds
        while self.open and (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                try:
                    data = os.read(self.fd, 1 << 16)
                except OSError:
                    self.open = False
                    return
                self.bytes += len(data)

    def press(self, keys: str) -> None:
        for key in keys.split():
            os.write(self.fd, {"enter": b"\r", "escape": b"\x1b", "space": b" "}.get(key, key.encode()))
            self.watch(0.3)

    def close(self) -> None:
        if self.open:
            os.kill(self.pid, signal.SIGTERM)
            self.watch(10.0)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def measure(
    run: Path,
    *,
    flags: list[str],
    seconds: float = 20.0,
    size: tuple[int, int] = (160, 48),
    keys: str = "",
    loop: bool = False,
    settle: float = SETTLE_S,
) -> dict[str, Any]:
    """The figures: `cpu` in shares of a core, `bytes_per_s`, `rss_mb` at the beginning and the end, `loop_ms`."""
    environ = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        start = ["-c", TIMED, str(times), f"{settle:g}"] if loop else ["-m", "windtunnel.tui"]
        screen = Screen([sys.executable, *start, str(run), *flags], size, environ)
        try:
            screen.watch(settle)
            if not screen.open:
                raise RuntimeError(f"the viewer of {run} has ended")
            screen.press(keys)
            told: dict[str, Any] = {"run": run.name, "size": "{}x{}".format(*size), "seconds": seconds}
            told["rss_mb"] = [rss_mb(screen.pid)]
            began, cpu, sent = time.monotonic(), cpu_s(screen.pid), screen.bytes
            for _ in range(4):
                screen.watch(seconds / 4)
                told["rss_mb"].append(rss_mb(screen.pid))
            passed = time.monotonic() - began
            told["cpu"] = round((cpu_s(screen.pid) - cpu) / passed, 4)
            told["bytes_per_s"] = round((screen.bytes - sent) / passed)
        finally:
            screen.close()
        if loop:
            longest = json.loads(times.read_text())
            told["loop_ms"] = {"over_1_ms": len(longest), "longest": longest[-8:][::-1]}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--speed", default="1", help="0: follow it as it is written")
    parser.add_argument("--at", default="0")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--keys", default="")
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--settle", type=float, default=SETTLE_S)
    args = parser.parse_args()
    columns, rows = map(int, args.size.split("x"))
    flags = [] if args.speed == "0" else ["--speed", args.speed, "--at", args.at]
    told = measure(
        args.run,
        flags=flags,
        seconds=args.seconds,
        size=(columns, rows),
        keys=args.keys,
        loop=args.loop,
        settle=args.settle,
    )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
