"""A folder that a command works in and goes on with: what the work is, and that nobody else is at it now."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.simulator.results.files import read_regular
from windtunnel.simulator.results.lines import UNREADABLE
from windtunnel.simulator.results.searched import ANSWER_FILE, PLAN_FILE
from windtunnel.simulator.results.store import RUN_FILE
from windtunnel.simulator.results.unstarted import UNSTARTED_FILE
from windtunnel.traces.errors import UsageError, WindtunnelError
from windtunnel.traces.outlet import to_json

LOCK_FILE, LOG_FILE = "lock", "log.jsonl"
EXPERIMENT_FILE, OUTCOME_FILE = "experiment.json", "outcome.json"
MARKS = {EXPERIMENT_FILE: (OUTCOME_FILE,), PLAN_FILE: (ANSWER_FILE,)}
"""Files that say what is done in a folder, each with what its command says at the end."""
COMMANDS = {EXPERIMENT_FILE: "compare", PLAN_FILE: "capacity"}
PLACED = "emulated"
"""Folder inside a capacity search where the emulator places its bracket: what is run there is not its work."""
FAILED = "failed"
"""Type of the log's lines about an engine that did not start: nothing was done."""


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
        (folder / UNSTARTED_FILE).unlink(missing_ok=True)
        yield
    finally:
        os.close(lock)


@contextmanager
def taken(path: Path, work: Mapping[str, Any], *, by: str) -> Iterator[bool]:
    """Work in the folder of `path` alone, which says from now on what is done there; whether by its key `by` that is
    the same work: what is there is gone on with, or another's and left as it is.

    A folder in which nothing was done is a new one: the command that made it had failed, of whatever kind it was, and
    what it said of itself goes with it. Raises UsageError for a folder that holds something else, that another process
    works in, or that cannot be written.
    """
    folder = path.parent
    partial = path.with_name(f".{path.name}.partial")
    try:
        inside = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise _unusable(folder, error) from error
    if not inside.intersection(MARKS) and path.name not in inside and inside - {LOCK_FILE, partial.name}:
        raise UsageError(f"{folder} is not empty and holds no {path.name}; give --out another folder")
    with held(folder):
        try:
            if path.exists():
                found = msgspec.json.decode(path.read_bytes())
                same = isinstance(found, dict) and found.get(by) == work[by]
            else:
                same = False
            fresh = not same and _freed(folder, path.name)
            if fresh:
                # Whole or not at all: what a kill left of it would lock the work out of its own folder.
                partial.write_bytes(msgspec.json.format(to_json(work), indent=2) + b"\n")
                partial.replace(path)
        except OSError as error:
            raise _unusable(folder, error) from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{path} is damaged ({error}); give --out another folder") from error
        yield same or fresh


def mark(path: Path, work: Mapping[str, Any], *, by: str) -> bool:
    """`taken` for a moment: a later command for other work may have the folder until anything was done in it."""
    with taken(path, work, by=by) as mine:
        return mine


def _freed(folder: Path, name: str) -> bool:
    """Whether nothing was done in it; then what earlier commands said of themselves is gone, but for engines' logs.

    UsageError for work of another kind than that of the mark `name`.
    """
    for made, says in {name: (), **MARKS}.items():
        if not (folder / made).exists():
            continue
        if worked_in(folder, made):
            if made == name:
                return False
            raise UsageError(f"{folder} belongs to `windtunnel {COMMANDS[made]}`; give --out another folder")
        for left in (*({made} - {name}), LOG_FILE, *says):
            (folder / left).unlink(missing_ok=True)
    return True


@contextmanager
def given_up(folder: Path, mark_name: str) -> Iterator[None]:
    """Work in `folder` that ends with an error before anything was done leaves what an engine said, and the reason.

    Where no engine has said anything the folder goes.
    """
    try:
        yield
    except WindtunnelError as error:
        with suppress(OSError):  # the error that ended it is told, not this one
            if not worked_in(folder, mark_name):
                _clear(folder, mark_name, str(error))
        raise


def _clear(folder: Path, mark_name: str, reason: str) -> None:
    for path in folder.rglob("*.log"):
        if not path.stat().st_size:
            path.unlink()
    for inside in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        with suppress(OSError):  # it holds something
            inside.rmdir()
    own = {LOCK_FILE, mark_name}
    if {path.name for path in folder.iterdir()} - own:
        (folder / UNSTARTED_FILE).write_text(f"{reason}\n", encoding="utf-8")
        return
    for name in own:
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _unusable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot use {folder} ({error.strerror}); give --out another folder")


def worked_in(folder: Path, mark_name: str) -> bool:
    """Whether a run was begun in it, or anything logged but engines that did not start.

    Runs in its folder `PLACED` are no work, where that has a mark of its own.
    """
    if any(entry.get("type") != FAILED for entry in log_of(folder)):
        return True
    placed = folder / PLACED
    but = placed if (placed / mark_name).exists() else None
    return any(but is None or but not in run.parents for run in folder.rglob(RUN_FILE))


def log_of(folder: Path) -> list[dict[str, Any]]:
    """What has happened in it, line by line; one that was cut off by a kill is left out."""
    try:
        lines = read_regular(folder / LOG_FILE).split(b"\n")
    except (OSError, UsageError):
        return []
    found = []
    for line in lines:
        try:
            entry = msgspec.json.decode(line)
        except UNREADABLE:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def set_aside(place: Path) -> Path | None:
    """What an ended command left half done is kept under another name, and not used; None where there is nothing."""
    if not place.exists():
        return None
    number = 1
    while (aside := place.with_name(f"{place.name}.left-{number}")).exists():
        number += 1
    return place.rename(aside)
