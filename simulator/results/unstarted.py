"""A folder of a run that ended before it began: what its engine said, and a file with the reason.

There is no `run.json` in it: nothing was run, and no tool takes it for a run.
"""

from pathlib import Path

from windtunnel.simulator.results.files import read_regular
from windtunnel.traces.errors import UsageError

UNSTARTED_FILE = "start-failed.txt"
"""One sentence."""
MOST_BYTES = 4096


def reason_of(folder: Path) -> str | None:
    """Why the run did not start; None where that is not told."""
    try:
        said = read_regular(folder / UNSTARTED_FILE)[:MOST_BYTES].decode("utf-8", "replace")
    except (OSError, UsageError):
        return None
    return " ".join(said.split()) or "nobody knows why"
