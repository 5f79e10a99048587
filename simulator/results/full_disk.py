"""The last word of a run whose disk is full: without one, its folder would look as if the run had been killed.

What can be spared makes room for it: a file that was not written to its end, the line that broke off, and, where that
is not enough, the end of the generated text and then of the events.
"""

import contextlib
import errno
import os
from pathlib import Path

import msgspec

from windtunnel.agents.events import Event, RunEnd
from windtunnel.simulator.results.place import PARTIAL, Place
from windtunnel.simulator.results.store import EVENTS_FILE, RUN_FILE, SUMMARY_FILE, TEXT_FILE
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.results.tail import Tail
from windtunnel.traces.errors import WindtunnelError

REASON = "disk_full"
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_BLOCK = 1 << 12
"""Bytes that files are given at once by most file systems: less is no room for another file."""
_SPARES = 4
"""A file gives room of its own where it has so many times as much."""
_LOOK = 1 << 20


def is_full(error: BaseException) -> bool:
    """Whether this error, or what it came from, says that the disk has no room."""
    found = error if isinstance(error, OSError) else error.__cause__
    return isinstance(found, OSError) and found.errno in _FULL


def conclude(path: Path) -> None:
    """End the run in this folder, which nobody writes to any more, as failed. Never fails: it does what it can."""
    with contextlib.suppress(OSError):
        for partial in path.glob(PARTIAL.format("*")):
            partial.unlink()
        if (path / RUN_FILE).exists() and not (path / SUMMARY_FILE).exists():
            _end(path / EVENTS_FILE)
            _sum_up(path)


def _end(events: Path) -> None:
    """The event of the run's end behind the last whole line; earlier lines go until it fits."""
    t, last = _last_event(events)
    seq = 1 if last is None else last.seq + 1
    line = msgspec.json.encode(RunEnd(t=t, seq=seq, status="failed", reason=REASON)) + b"\n"
    size = _cut(events, 0)
    while size and not isinstance(last, RunEnd):
        try:
            with events.open("ab", buffering=0) as file:
                if file.write(line) == len(line):
                    return
        except OSError as error:
            if error.errno not in _FULL:
                raise
        os.truncate(events, size)
        size = _cut(events, len(line))


def _sum_up(path: Path) -> None:
    for spare in (None, TEXT_FILE, EVENTS_FILE):
        with contextlib.suppress(WindtunnelError):
            summary = encode_summary(recompute(path))
            room = len(summary) + _BLOCK
            if spare is not None:
                if not (path / spare).exists() or (path / spare).stat().st_size < _SPARES * room:
                    continue
                _cut(path / spare, room)
            if spare == EVENTS_FILE:
                _end(path / EVENTS_FILE)
                summary = encode_summary(recompute(path))
            if _put(path, summary):
                return


def _put(path: Path, summary: bytes) -> bool:
    place = Place(path)
    try:
        place.put(SUMMARY_FILE, summary)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return False
    finally:
        place.close()
    return True


def _last_event(events: Path) -> tuple[int, Event | None]:
    """The latest time, and the event in the last line that can be read."""
    tail, t, last = Tail(events), 0, None
    try:
        while found := tail.poll(_LOOK):
            t, last = max(t, *(event.t for event in found)), found[-1]
    finally:
        tail.close()
    return t, last


def _cut(path: Path, least: int) -> int:
    """Cut whole lines of at least so many bytes off a file's end, and what follows the last of them: its new size."""
    end = path.stat().st_size - least
    with path.open("rb") as file:
        while end > 0:
            begin = max(0, end - _LOOK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
    os.truncate(path, max(0, end))
    return max(0, end)
