"""`windtunnel diagnose`."""

import sys
from pathlib import Path

import click

from windtunnel.simulator.cli_options import GivenPath


@click.command()
@click.argument("run_dir", type=GivenPath())
@click.option(
    "--alone",
    type=GivenPath(),
    metavar="RUN",
    help="A run with --agents 1: say how much slower this is.",
)
@click.option("--limit", type=int, default=5, show_default=True, help="How many of the slowest calls to show.")
@click.option("--width", type=int, help="Columns to use (default: the terminal's).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, every call with its parts.")
def diagnose(run_dir: Path, alone: Path | None, limit: int, width: int | None, as_json: bool) -> None:
    """Say where a run's time went, what holds it back, and which flag to try.

    Each part of a call's time says whether it was measured, derived by a rule, or is not known.
    """
    from windtunnel.simulator.diagnose import show
    from windtunnel.simulator.results.eventless import with_events
    from windtunnel.simulator.results.store import RunFolder

    for run in (run_dir, *((alone,) if alone is not None else ())):
        with_events(RunFolder.open(run))
    sys.exit(show(run_dir, alone=alone, limit=limit, width=width, as_json=as_json))
