"""How long calls take when their session has the engine to itself: from a run of one agent beside the one shown."""

from collections.abc import Mapping
from pathlib import Path

from windtunnel.simulator.experiments.runs import engine_identity
from windtunnel.simulator.results.slowdown import Work, is_alone, times_alone
from windtunnel.simulator.results.store import RUN_FILE, SUMMARY_FILE, RunFolder
from windtunnel.traces.errors import UsageError

LOOKED_AT = 200
"""Run folders beside this one, the latest first."""


def find(folder: RunFolder) -> RunFolder | None:
    """The latest finished run beside this one that did some of its work alone, on an engine with equal settings."""
    beside = [path for path in _folders(folder.path.resolve().parent) if path != folder.path.resolve()]
    for path in sorted(beside, key=lambda p: (p / RUN_FILE).stat().st_mtime, reverse=True)[:LOOKED_AT]:
        try:
            other = RunFolder.open(path)
        except UsageError:
            continue
        if is_alone(other.run, folder.run) and engine_identity(other.run) == engine_identity(folder.run):
            return other
    return None


def _folders(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.iterdir() if (path / RUN_FILE).is_file() and (path / SUMMARY_FILE).is_file()]
    except OSError:
        return []


def times(folder: RunFolder) -> Mapping[Work, float]:
    """Seconds by (trace, call); empty where no such run is known."""
    other = find(folder)
    return times_alone(other.events()) if other is not None else {}
