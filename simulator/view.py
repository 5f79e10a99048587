"""`view` without a screen: what a run folder says, line by line while its run goes on."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from windtunnel.agents.events import Event, Phase
from windtunnel.simulator.experiments.kept import holds_runs, is_experiment, read_outcome
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RUN_FILE, RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.run.viewer import PlainProgress, say
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Problem

LINE_S = 1.0
LOOK_S = 0.25
FASTEST = 10_000.0
"""Times real time that a run is played again; faster, nobody sees anything."""
LATEST_S = 10_000_000.0
"""Moment of a run that may be asked for: months after its start."""


class _Lines(PlainProgress):
    """A line a second, and one for each phase."""

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, Phase) and self.enabled:
            say(f"{event.t / 1e9:7.1f} s  {event.phase}{': ' if event.note else ''}{event.note or ''}", self._stream)


def factor(text: str) -> float:
    """`--speed`: how many times as fast; ValueError says what is expected."""
    value = _number(text.removesuffix("x"))
    if not 0.0 < value <= FASTEST:
        raise ValueError(f"{text}: give a factor greater than zero and up to {FASTEST:,.0f}, such as 10")
    return value


def moment(text: str) -> float:
    """`--at`: seconds after the run's start; ValueError says what is expected."""
    value = _number(text)
    if not 0.0 <= value <= LATEST_S:
        raise ValueError(f"{text}: give seconds after the run's start, from 0 to {LATEST_S:,.0f}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def kind_of(paths: Sequence[Path]) -> Literal["run", "comparison", "runs"]:
    """What these paths ask for; UsageError for what is neither a run, nor an experiment, nor a folder."""
    if not paths:
        return "runs"
    if len(paths) == 1 and paths[0].is_dir() and not (paths[0] / RUN_FILE).exists():
        if is_experiment(paths[0]):
            return "comparison"
        if holds_runs(paths[0]):
            return "runs"
        raise UsageError(f"{paths[0]} is no run folder: it has no {RUN_FILE}, and there are no runs in it")
    for path in paths:
        RunFolder.open(path)
    return "run" if len(paths) == 1 else "comparison"


def print_comparison(paths: Sequence[Path], *, as_json: bool) -> None:
    """What an experiment came to, or what `compare` says of the runs."""
    from windtunnel.simulator.experiments import table
    from windtunnel.simulator.experiments.folders import group
    from windtunnel.simulator.experiments.metrics import chosen
    from windtunnel.simulator.experiments.outcome import assess

    outcome = (
        read_outcome(paths[0])
        if len(paths) == 1
        else assess(group(paths, time.time()), chosen(()), name="comparison of run folders")
    )
    print(msgspec.json.encode(outcome).decode() if as_json else table.render(outcome).rstrip("\n"))


def follow_run(
    folder: RunFolder, wall: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Lines on stderr, for logs and screen readers, until the run ends; nothing of one that has ended."""
    agents = folder.run.get("agents")
    lines = _Lines(sys.stderr, agents if isinstance(agents, int) else 0, LINE_S)
    lines.enabled = False
    tail = folder.tail()
    try:
        while (now := state(folder, wall())) == "running":
            while events := tail.poll():
                for event in events:
                    lines(event)
            if not lines.enabled:
                # What was before somebody looked is counted and not told.
                lines.enabled = True
                say(f"following {folder.path}; ^C ends the following, not the run", sys.stderr)
            sleep(LOOK_S)
        if lines.enabled:
            for event in tail.poll():
                lines(event)
            say(f"the run has {'ended' if now == 'finished' else 'died'}", sys.stderr)
    finally:
        tail.close()


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
