"""`view` without a screen: what a run folder says, line by line while its run goes on."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from windtunnel.agents.events import Event, Phase, RunEnd
from windtunnel.simulator.experiments.kept import read_outcome
from windtunnel.simulator.results.damage import in_words, judged
from windtunnel.simulator.results.eventless import doubted, with_events, without_events
from windtunnel.simulator.results.first_look import is_long
from windtunnel.simulator.results.lines import COARSE
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.results.validity import is_recording
from windtunnel.simulator.run.viewer import PlainProgress, say
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Problem
from windtunnel.traces.outlet import readable, to_json

if TYPE_CHECKING:
    from windtunnel.simulator.experiments.outcome import Outcome

LINE_S = 1.0
LOOK_S = 0.25


class _Lines(PlainProgress):
    """A line a second, and one for each phase."""

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, Phase) and self.enabled and not self._recording:
            say(f"{event.t / 1e9:7.1f} s  {event.phase}{': ' if event.note else ''}{event.note or ''}", self._stream)


def print_comparison(paths: Sequence[Path], *, as_json: bool) -> None:
    """What an experiment came to, or what `compare` says of the runs; those of other work it shows side by side."""
    from windtunnel.simulator.experiments import table

    outcome = read_outcome(paths[0]) if len(paths) == 1 else _of_runs(paths)
    print(to_json(outcome).decode() if as_json else table.render(outcome).rstrip("\n"))


def _of_runs(paths: Sequence[Path]) -> "Outcome":
    from windtunnel.simulator.experiments.beside import MOST_DIFFERENCES, OTHER, beside
    from windtunnel.simulator.experiments.folders import grouped
    from windtunnel.simulator.experiments.metrics import chosen
    from windtunnel.simulator.experiments.outcome import assess
    from windtunnel.simulator.experiments.runs import differences, read

    now, metrics = time.time(), chosen(())
    measured = [read(path, now) for path in dict.fromkeys(path.resolve() for path in paths)]
    if len(measured) < 2:
        raise UsageError("compare needs two run folders at least, or an experiment file")
    first = measured[0]
    unlike = [differences(first.run, run.run) for run in measured]
    if not any(unlike):
        return assess(grouped(measured), metrics, name="comparison of run folders")
    found, steps = beside(measured, metrics).outcome, []
    for step, other in zip(found.steps, unlike, strict=True):
        said = OTHER.format(first.path.name, "; ".join(other[:MOST_DIFFERENCES]))
        alone = {name: msgspec.structs.replace(one, table=0) for name, one in step.versus_base.items()}
        noted = msgspec.structs.replace(step, versus_previous=alone, versus_base=alone, notes=(*step.notes, said))
        steps.append(noted if other else step)
    return msgspec.structs.replace(found, steps=tuple(steps))


def follow_run(
    folder: RunFolder, wall: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Lines on stderr, for logs and screen readers, until the run ends; nothing of one that has ended."""
    agents = folder.run.get("agents")
    recorded = is_recording(folder.run)
    what = "recording" if recorded else "run"
    lines = _Lines(sys.stderr, agents if isinstance(agents, int) else 0, LINE_S, recording=recorded)
    lines.enabled = False
    tail = folder.tail()
    ended = False
    try:
        while (now := state(folder, wall())) == "running":
            while events := tail.poll():
                for event in events:
                    lines(event)
                    ended |= isinstance(event, RunEnd)
            if not lines.enabled:
                # What was before somebody looked is counted and not told.
                lines.enabled = True
                say(f"following {folder.path}; ^C ends the following, not the {what}", sys.stderr)
            sleep(LOOK_S)
        if lines.enabled:
            for event in tail.poll():
                lines(event)
                ended |= isinstance(event, RunEnd)
            say(f"the {what} has {'ended' if now == 'finished' or ended else 'died'}", sys.stderr)
    finally:
        tail.close()


def so_far(summary: Summary) -> Summary:
    """The summary of a run that goes on: that it has no end yet is no fault of it."""
    reasons = tuple(reason for reason in summary.invalid_reasons if reason != "died")
    return msgspec.structs.replace(
        summary, status=None, status_reason="running", valid=not reasons, invalid_reasons=reasons
    )


def opened(summary: Summary, folder: RunFolder) -> Summary:
    """With the folder that it was read from: `run.json` tells where the run was, and folders are copied."""
    return msgspec.structs.replace(summary, run_dir=readable(folder.path))


def print_run(folder: RunFolder, *, as_json: bool) -> None:
    """The stored summary, or one computed from the events of a run that has none (yet)."""
    now = state(folder, time.time())
    summary = folder.summary()
    problems: list[Problem] = []
    if summary is not None and (said := without_events(folder)):
        print(said, file=sys.stderr)
        summary = doubted(summary)
    elif summary is not None:
        for _ in folder.events(problems, leave_out=(COARSE,) if is_long(folder) else ()):
            pass
        summary = judged(summary, problems)
        if problems:
            print(in_words(problems), file=sys.stderr)
    else:
        with_events(folder)
        summary = recompute(folder.path, problems)
        if now != "finished":
            # Its events may hold its end: then only its summary was never written.
            died = "died before it ended" if summary.status_reason == "died" else "ended, but has no summary"
            what = "recording" if is_recording(folder.run) else "run"
            word = "is still running" if now == "running" else died
            print(f"the {what} in {folder.path} {word}; what follows is computed from its events", file=sys.stderr)
        if problems:
            print(f"{problems[0]}" + (f" (and {len(problems) - 1} more)" if problems[1:] else ""), file=sys.stderr)
    summary = opened(summary, folder)
    if now == "running":
        summary = so_far(summary)
    print(to_json(summary).decode() if as_json else render_summary(summary, running=now == "running"))
