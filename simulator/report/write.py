"""From folders to a page, to Markdown, or to a table of calls."""

import csv
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.experiments.kept import read_outcome, run_of
from windtunnel.simulator.experiments.table import markdown
from windtunnel.simulator.report import page
from windtunnel.simulator.report.gather import gather
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.damage import in_words
from windtunnel.simulator.results.eventless import doubted, with_events, without_events
from windtunnel.simulator.results.full_disk import is_full
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RUN_FILE, RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.text import count, render_summary
from windtunnel.simulator.view import opened, so_far
from windtunnel.traces.errors import RunError, UsageError, WindtunnelError
from windtunnel.traces.model import Problem
from windtunnel.traces.outlet import readable, to_json

PAGE = "report.html"
_TIMES = ("t_intended", "t_sent", "t_first", "t_first_visible", "t_first_tool", "t_last", "t_end")
_COUNTS = (
    "prompt_tokens",
    "cached_tokens",
    "expected_cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "pinned_tokens",
)
COLUMNS = (
    *("agent", "session", "thread", "call", "request_id"),
    *(f"{name}_s" for name in _TIMES),
    *("ttft_s", "tpot_s", "e2e_s"),
    *_COUNTS,
    *("finish", "failure", "cut", "warmup"),
)
"""Of the table of calls: times are seconds since the run's start."""


def write_page(folders: Sequence[Path], out: Path | None) -> Path:
    """Write the page and say where; UsageError where the folders hold nothing of the kind."""
    target = out or folders[0] / PAGE
    text = _page(folders)
    try:
        target.write_text(readable(text), encoding="utf-8")
    except OSError as error:
        raise _unwritten(target, error, "give --out another file") from error
    return target


def _unwritten(target: Path, error: OSError, then: str) -> WindtunnelError:
    """A place that cannot be used is a mistake in the command; a full disk is none."""
    kind = RunError if is_full(error) else UsageError
    return kind(f"{target} cannot be written ({error.strerror or error}); {then}")


def _page(folders: Sequence[Path]) -> str:
    if len(folders) == 1 and (folders[0] / RUN_FILE).exists():
        return page.of_run(gather(folders[0]))
    for folder in folders:
        if (folder / RUN_FILE).exists():
            raise UsageError(f"{folder} is a run: report takes one run, or experiments; `compare` takes several runs")
    outcomes = [read_outcome(folder) for folder in folders]
    runs = {
        step.runs[0]: RunFolder.open(run_of(folder, step.runs[0])).run
        for folder, outcome in zip(folders, outcomes, strict=True)
        for step in outcome.steps
        if step.runs
    }
    return page.of_experiments(outcomes, runs)


def printed(folders: Sequence[Path]) -> str:
    """Markdown of experiments; the plain summary of a run."""
    return "\n".join(
        _of_run(RunFolder.open(folder)) if (folder / RUN_FILE).exists() else markdown(read_outcome(folder))
        for folder in folders
    )


def _of_run(folder: RunFolder) -> str:
    going_on = state(folder, time.time()) == "running"
    if gone := without_events(folder):
        print(gone, file=sys.stderr)
    summary = folder.summary() or recompute(with_events(folder).path)
    summary = doubted(summary) if gone else summary
    summary = opened(summary, folder)
    return render_summary(so_far(summary) if going_on else summary, running=going_on)


def write_calls(folders: Sequence[Path], target: Path) -> str:
    """Every call of the runs as rows of a table; returns what was written."""
    problems: list[Problem] = []
    rows = [row for folder in folders for row in call_rows(folder, problems)]
    try:
        match target.suffix:
            case ".csv":
                with target.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, ("run", *COLUMNS))
                    writer.writeheader()
                    writer.writerows(rows)
            case ".json":
                target.write_bytes(msgspec.json.format(to_json(rows), indent=1) + b"\n")
            case ".parquet":
                _parquet(rows, target)
            case _:
                raise UsageError(f"--calls {target}: its ending says the format; use .csv, .json or .parquet")
    except OSError as error:
        raise _unwritten(target, error, "give --calls another file") from error
    damage = in_words(problems)
    return f"{target}: {count(len(rows), 'call')} of {count(len(folders), 'run')}" + (f"; {damage}" if damage else "")


def call_rows(folder: Path, problems: list[Problem] | None = None) -> Iterator[dict[str, Any]]:
    """One row a call, failed and cut ones too; what was not reported is empty."""
    for event in with_events(RunFolder.open(folder)).events(problems):
        if isinstance(event, CallEnd):
            row: dict[str, Any] = {"run": str(folder)}
            for name in COLUMNS:
                row[name] = getattr(event, name, None)
            for name in _TIMES:
                value = getattr(event, name)
                row[f"{name}_s"] = None if value is None else value / of_call.NS
            row |= {"ttft_s": of_call.ttft_s(event), "tpot_s": of_call.tpot_s(event), "e2e_s": of_call.e2e_s(event)}
            yield row


def _parquet(rows: Sequence[dict[str, Any]], target: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            f"--calls {target}: Parquet needs the package pyarrow: pip install 'windtunnel[parquet]'"
        ) from None
    pq.write_table(pa.Table.from_pylist(list(rows)), target)
