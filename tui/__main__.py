"""`python -m windtunnel.tui RUN_DIR`: the viewer as a process of its own."""

import contextlib
import os
import signal
import sys
from typing import NoReturn

SILENT = frozenset({"--svg", "--list", "--web", "-h", "--help"})
STARTING = "opening the screen ..."
"""Said before everything is loaded, and erased when the screen comes."""


def begin(words: list[str]) -> bool:
    """Tells a person at a terminal at once that something will come; whether it was told."""
    if os.environ.get("TERM", "dumb") == "dumb":  # it could not erase what was said
        return False
    if not sys.stderr.isatty() or SILENT.intersection(word.partition("=")[0] for word in words):
        return False
    print(STARTING, end="", file=sys.stderr, flush=True)
    return True


def leave(code: int) -> NoReturn:
    """At once: taking everything down takes a tenth of a second, in which keys meant for the screen reach the shell."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main() -> int:
    """An interrupt while everything is being loaded, or before the screen hears it, ends with exit code 130."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # who became this process has held it back
        told = begin(sys.argv[1:])
        from windtunnel.simulator.run.viewer import keys_kept

        # Who has opened the screen beside a run keeps the keys itself, and may be gone when the screen goes.
        alone = told and not any(word.startswith("--parent") for word in sys.argv)
        with keys_kept() if alone else contextlib.nullcontext():
            from windtunnel.tui.start import main as start

            if told:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            code = start(sys.argv[1:])
        return leave(code) if told else code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to interrupt
        with contextlib.suppress(OSError):
            os.write(2, b"\nwindtunnel: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
