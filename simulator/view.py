"""`view` without a screen: what a run folder says."""

import sys
import time

import msgspec

from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.text import render_summary
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Problem


def print_run(folder: RunFolder, *, as_json: bool) -> None:
    """The stored summary, or one computed from the events of a run that has none (yet)."""
    now = state(folder, time.time())
    if now != "finished":
        word = {"running": "is still running", "died": "died before it ended"}[now]
        print(f"the run in {folder.path} {word}; what follows is computed from its events", file=sys.stderr)
    try:
        summary = folder.summary()
    except UsageError as error:
        summary = None
        print(f"{error}; what follows is computed from the events", file=sys.stderr)
    if summary is None:
        problems: list[Problem] = []
        summary = recompute(folder.path, problems)
        if problems:
            print(f"{problems[0]}" + (f" (and {len(problems) - 1} more)" if problems[1:] else ""), file=sys.stderr)
    if now == "running":
        reasons = tuple(reason for reason in summary.invalid_reasons if reason != "died")
        summary = msgspec.structs.replace(
            summary, status=None, status_reason="running", valid=not reasons, invalid_reasons=reasons
        )
    print(msgspec.json.encode(summary).decode() if as_json else render_summary(summary, running=now == "running"))
