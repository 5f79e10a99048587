"""A recording taken up again: what was written about its first part moves aside, its traces go on."""

import contextlib
import time
from pathlib import Path

from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import EVENTS_FILE, RUN_FILE, SUMMARY_FILE, TEXT_FILE, TRACES, RunFolder
from windtunnel.simulator.results.validity import RECORDING
from windtunnel.traces.errors import UsageError

EARLIER = "earlier"
KIND = RECORDING
FILES = (SUMMARY_FILE, EVENTS_FILE, TEXT_FILE, RUN_FILE)
"""In the order in which they move: the last one makes it a run folder."""


def set_aside(folder: Path) -> Path | None:
    """Move the run folder of a recording that is over to `earlier/N` in it; a folder of anything else is left alone.

    Returns where to.
    """
    if not (folder / RUN_FILE).exists():
        return None
    run = RunFolder.open(folder)
    if run.run.get("kind") != KIND:
        return None
    if state(run, time.time()) == "running":
        raise UsageError(f"{folder} is being recorded to: give --out another folder, or end that recording")
    earlier = folder / EARLIER
    number = 1 + max((int(p.name) for p in earlier.glob("*") if p.name.isdigit()), default=0)
    place = earlier / str(number)
    place.mkdir(parents=True)
    _move(folder, place)
    return place


def undo(folder: Path, earlier: Path | None, log: str) -> None:
    """As if a recording that did not come to be had never begun: its files go, those in `earlier` come back."""
    for name in (*FILES, log):
        (folder / name).unlink(missing_ok=True)
    if earlier is not None:
        _move(earlier, folder)
    places = () if earlier is None else (earlier, earlier.parent)
    for place in (*places, folder / TRACES, folder):
        with contextlib.suppress(OSError):  # it holds something
            place.rmdir()


def _move(source: Path, place: Path) -> None:
    for name in FILES:
        if (source / name).exists():
            (source / name).rename(place / name)
