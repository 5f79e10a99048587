"""Starts an engine and ends it, with all that it started, as soon as its own stdin closes, however that came about.

A process of its own, run as a plain file with nothing but the standard library, because it must do its work after the
run was killed with SIGKILL. It adopts orphans of the engine (sub-reaper), so that workers which left the process group
are found as well.

    python -I keeper.py LOG GRACE_S COMMAND ...      prints the engine's pid, or "error TEXT"; exits as the engine did
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
KILL_ROUNDS = 100


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the process group has to do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def children() -> list[int]:
    """Processes whose parent is this one, adopted ones included."""
    me, found = str(os.getpid()), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if fields[1] == me:
                found.append(int(folder.name))
    return found


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def sweep() -> None:
    """Kill and reap whatever is left below this process."""
    for _ in range(KILL_ROUNDS):
        left = children()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def main(argv: list[str]) -> int:
    log, grace_s, command = argv[0], float(argv[1]), argv[2:]
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    with Path(log).open("ab", buffering=0) as out:
        try:
            engine = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - one thread
            )
        except OSError as error:
            print(f"error {error.strerror or error}", flush=True)
            return 127
    print(engine.pid, flush=True)
    stop = False
    signal.signal(signal.SIGTERM, lambda *_: None)
    while engine.poll() is None and not stop:
        ready, _, _ = select.select([sys.stdin], [], [], POLL_S)
        stop = bool(ready) and not os.read(sys.stdin.fileno(), 1024)
    if engine.poll() is None:
        signal_group(engine.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while engine.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
    signal_group(engine.pid, signal.SIGKILL)
    code = engine.wait()
    sweep()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
