"""What an experiment's folder says without its plan: what it came to last, and where its runs lie."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.simulator.experiments.claim import LOCK_FILE
from windtunnel.simulator.experiments.experiment import OUTCOME_FILE, PLAN_FILE
from windtunnel.simulator.experiments.outcome import Outcome
from windtunnel.simulator.results import searched
from windtunnel.simulator.results.files import read_regular
from windtunnel.simulator.results.lines import UNREADABLE
from windtunnel.simulator.results.liveness import process_alive
from windtunnel.simulator.results.store import RUN_FILE, SUMMARY_FILE, without_description
from windtunnel.simulator.results.unstarted import UNSTARTED_FILE
from windtunnel.traces.errors import UsageError

BLOCKS = "block-*"


def is_experiment(folder: Path) -> bool:
    """Whether `compare` works or worked in it."""
    return (folder / PLAN_FILE).exists() or (folder / OUTCOME_FILE).exists()


def read_outcome(folder: Path) -> Outcome:
    """What an experiment last came to."""
    path = folder / OUTCOME_FILE
    try:
        return msgspec.json.decode(read_regular(path), type=Outcome)
    except FileNotFoundError:
        if (said := without_description(folder) or searched.instead(folder)) is not None:
            raise UsageError(said) from None
        raise UsageError(f"{folder} is neither a run nor an experiment with results: give such a folder") from None
    except UNREADABLE as error:
        raise UsageError(f"{path} cannot be read ({error}); run the experiment again") from error


def holds_runs(folder: Path) -> bool:
    """Whether there are runs or experiments in it, ones that did not start too, or in the folders in it."""
    marks = (f"*/{RUN_FILE}", f"*/{UNSTARTED_FILE}", f"*/{PLAN_FILE}", f"*/*/{RUN_FILE}")
    return any(next(folder.glob(mark), None) is not None for mark in marks)


def at_work(folder: Path) -> bool:
    """Whether a `compare` is at it now, on this machine."""
    lock = folder / LOCK_FILE
    try:
        pid, since = int(read_regular(lock)), lock.stat().st_mtime
    except (OSError, UsageError, ValueError):
        return False
    return process_alive(pid, since) is True


def name_of(folder: Path) -> str:
    """The experiment's name; the folder's where it is not told."""
    try:
        plan: Any = msgspec.json.decode(read_regular(folder / PLAN_FILE))
    except (OSError, UsageError, *UNREADABLE):
        return folder.name
    return str(plan.get("name") or folder.name) if isinstance(plan, dict) else folder.name


def run_of(experiment: Path, run: str) -> Path:
    """A run of an experiment, also after its folder was moved, or from another working directory."""
    path = Path(run)
    here = experiment / path.parent.name / path.name
    return here if here.exists() else path


def run_folders(experiment: Path) -> Iterator[tuple[Path, bool]]:
    """The runs in an experiment's folder, block by block, and whether each is over; what was set aside is left out."""
    for block in sorted(experiment.glob(BLOCKS)):
        try:
            inside = sorted(entry for entry in block.iterdir() if ".left-" not in entry.name)
        except OSError:
            continue
        yield from ((run, (run / SUMMARY_FILE).exists()) for run in inside if (run / RUN_FILE).exists())
