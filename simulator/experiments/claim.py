"""A folder that a command works in and goes on with: what the work is, and that nobody else is at it now."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.simulator.results.store import RUN_FILE
from windtunnel.traces.errors import UsageError

LOCK_FILE, LOG_FILE = "lock", "log.jsonl"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Work in `folder` alone; UsageError names the process that is at it.

    The lock is the kernel's and ends with its process, however that ends. The file only says whose it is.
    """
    path = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); give --out another folder") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            whose = os.read(lock, 32).decode("ascii", "replace").strip() or "unknown"
            raise UsageError(
                f"{folder} is being worked in by process {whose}: wait for it, or give --out another folder"
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(lock)


def mark(path: Path, work: Mapping[str, Any], *, by: str) -> bool:
    """Write into a new folder what is done there; of one that has it, whether it is the same work by its key `by`.

    A folder in which no run was begun is a new one: the command that made it had failed. Raises UsageError for a
    folder that holds something else, or cannot be written.
    """
    folder = path.parent
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.exists():
            found = msgspec.json.decode(path.read_bytes())
            if isinstance(found, dict) and found.get(by) == work[by]:
                return True
            if (folder / LOG_FILE).exists() or any(folder.rglob(RUN_FILE)):
                return False
        elif folder.exists() and any(entry.name not in (LOCK_FILE, partial.name) for entry in folder.iterdir()):
            raise UsageError(f"{folder} is not empty and holds no {path.name}; give --out another folder")
        folder.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: what a kill left of it would lock the work out of its own folder.
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(work), indent=2) + b"\n")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot use {folder} ({error.strerror}); give --out another folder") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is damaged ({error}); give --out another folder") from error
    return True


def set_aside(place: Path) -> Path | None:
    """What an ended command left half done is kept under another name, and not used; None where there is nothing."""
    if not place.exists():
        return None
    number = 1
    while (aside := place.with_name(f"{place.name}.left-{number}")).exists():
        number += 1
    return place.rename(aside)
