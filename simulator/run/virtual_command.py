"""`windtunnel run --virtual`: the run itself, what is told while it goes on, and how Ctrl-C ends it.

Signals and the collector's settings are the process's own; they are touched here and not by `virtual_run`.
"""

import gc
import signal
import sys
from time import perf_counter
from types import FrameType

from windtunnel.agents import events as ev
from windtunnel.simulator.results import full_disk
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.viewer import PlainProgress, again, become, say
from windtunnel.simulator.run.virtual import VirtualRun
from windtunnel.traces.errors import RunError
from windtunnel.traces.outlet import to_json
from windtunnel.traces.sources import load

FAILED, INTERRUPTED = 1, 130
TELL_S = 1.0
"""Real time between two lines of progress."""


class Now(PlainProgress):
    """A progress line every second of real time, with the virtual time that has passed."""

    def __init__(self, agents: int) -> None:
        super().__init__(sys.stderr, agents, 0.0, clock="virtual ")
        self._due = perf_counter() + TELL_S

    def __call__(self, event: ev.Event) -> None:
        kind = type(event)
        if kind is ev.Progress:
            now = perf_counter()
            if now < self._due:
                return
            self._due = now + TELL_S
        if kind in _TOLD:
            super().__call__(event)


_TOLD = frozenset((ev.Progress, ev.Phase, ev.SessionEnd, ev.CallEnd, ev.Note))
"""What lines are made of; most events are none of these."""


def execute_virtual(config: RunConfig, *, as_json: bool, screen: bool) -> int:
    """Do the run and print its summary on stdout; returns the exit code. `screen`: open its folder afterwards."""
    loaded = load(config.traces)
    for problem in loaded.problems[:10]:
        say(str(problem))
    if len(loaded.problems) > 10:
        say(f"... and {len(loaded.problems) - 10} more problems in the traces")
    run = VirtualRun(config, loaded, talk=say, receivers=(Now(config.agents),))
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping or not run.stop():
            raise KeyboardInterrupt
        stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    gc.disable()  # a run makes few circles, and walking over what it remembers takes longer than it does
    try:
        summary = run.run()
    except KeyboardInterrupt:
        kept = "before the run began" if run.folder is None else f"at once: what was written is in {run.folder}"
        say(f"interrupted {kept}")
        return INTERRUPTED
    except RunError as error:
        if run.folder is not None and full_disk.is_full(error):
            full_disk.conclude(run.folder)
        raise
    finally:
        gc.enable()
    print(to_json(summary).decode() if as_json else render_summary(summary), flush=True)
    if run.folder is not None and not as_json:
        say(f"see it again: {again(run.folder)}")
    if screen and run.folder is not None:
        command = [sys.executable, "-m", "windtunnel.tui", str(run.folder), "--mode", "view"]
        become(command)
    if run.moved is not None:
        say(run.moved)
        return FAILED
    if summary.status == "interrupted":
        return INTERRUPTED
    return FAILED if summary.status == "failed" else 0
