"""`view` without a screen: what a run folder says."""

import sys
import time

import msgspec

from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.text import render_summary


def print_run(folder: RunFolder, *, as_json: bool) -> None:
    """The stored summary, or one computed from the events of a run that has none (yet)."""
    now = state(folder, time.time())
    if now != "finished":
        word = {"running": "is still running", "died": "died before it ended"}[now]
        print(f"the run in {folder.path} {word}; what follows is computed from its events", file=sys.stderr)
    summary = folder.summary() or recompute(folder.path)
    print(msgspec.json.encode(summary).decode() if as_json else render_summary(summary))
