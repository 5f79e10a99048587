"""A recording taken up again: what was written about its first part moves aside, its traces go on."""

import time
from pathlib import Path

from windtunnel.simulator.results.facts import RECORDING
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import EVENTS_FILE, RUN_FILE, SUMMARY_FILE, TEXT_FILE, RunFolder
from windtunnel.traces.errors import UsageError

EARLIER = "earlier"
KIND = RECORDING


def set_aside(folder: Path) -> None:
    """Move the run folder of a recording that is over to `earlier/N` in it; a folder of anything else is left alone."""
    if not (folder / RUN_FILE).exists():
        return
    run = RunFolder.open(folder)
    if run.run.get("kind") != KIND:
        return
    if state(run, time.time()) == "running":
        raise UsageError(f"{folder} is being recorded to: give --out another folder, or end that recording")
    earlier = folder / EARLIER
    number = 1 + max((int(p.name) for p in earlier.glob("*") if p.name.isdigit()), default=0)
    place = earlier / str(number)
    place.mkdir(parents=True)
    for name in (SUMMARY_FILE, EVENTS_FILE, TEXT_FILE, RUN_FILE):  # the last one makes it a run folder
        if (folder / name).exists():
            (folder / name).rename(place / name)
