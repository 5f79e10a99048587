"""Opening the files of a run folder: only regular ones, for a FIFO would hold the reader for ever."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from windtunnel.traces.errors import UsageError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_regular(path: Path) -> None:
    """UsageError where something lies there that is no regular file; nothing where there is none, or one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
        raise UsageError(f"{path} is {kind} and not a file: the run is damaged")


def open_regular(path: Path, buffering: int = 0) -> BinaryIO:
    """As `open` for reading bytes; FileNotFoundError where there is nothing, UsageError where it is no file."""
    check_regular(path)
    try:
        # What has become a FIFO since then opens at once, and reads as empty.
        return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering)  # noqa: PTH123
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error


def read_regular(path: Path) -> bytes:
    """The whole file, with the errors of `open_regular`."""
    with open_regular(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read ({error.strerror}): the run is damaged")
