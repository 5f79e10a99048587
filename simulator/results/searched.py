"""A folder of `windtunnel capacity`, for those who take it for a run: what it is, and where its answer stands.

The plan says what was asked, the answer what came of it; the runs lie in folders beside them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.simulator.results.files import read_regular
from windtunnel.simulator.results.lines import UNREADABLE
from windtunnel.simulator.results.unstarted import reason_of
from windtunnel.traces.errors import UsageError

PLAN_FILE = "capacity.json"
"""`workload`, `command`, `target`: the question."""
SUMMARY_FILE = "summary.json"
"""Of a run in it."""
ANSWER_FILE = "answer.json"
"""`capacity --json` of the search that ended last."""


def is_search(folder: Path) -> bool:
    return (folder / PLAN_FILE).is_file()


def instead(folder: Path) -> str | None:
    """What to do with it in place of a run; None where it is no capacity search."""
    if not is_search(folder):
        return None
    answer = _answer(folder)
    how = f"`windtunnel report {folder}` prints its answer" if answer else unanswered(folder)
    runs = sorted(path.parent.relative_to(folder) for path in runs_in(folder))
    told = answer.get("beyond")
    run = next((run for run in runs if run.name == told), runs[-1] if runs else None)
    one = f"; for a run give one of those in it, such as {folder / run}" if run else ""
    return f"{folder} is a capacity search and no run: {how}{one}"


def runs_in(folder: Path) -> Iterator[Path]:
    """`run.json` of its runs; of several configurations those of each one's search."""
    for mark in ("agents-*/run.json", "search-*/agents-*/run.json"):
        yield from folder.glob(mark)


def unanswered(folder: Path) -> str:
    return (
        f"it has no {ANSWER_FILE} yet, and the command that began it prints its answer when given --out {folder} "
        f"(runs that are done are not made again)"
    )


def why_unanswered(folder: Path) -> str:
    """`no answer: no steady state in the last run, agents-0022-seed-2`, as far as its files tell."""
    if (reason := reason_of(folder)) is not None:
        return f"no answer: {reason}"
    last = max(runs_in(folder), key=lambda run: (run.stat().st_mtime_ns, run), default=None)
    if last is None:
        return "no answer: no run of it began"
    try:
        found = msgspec.json.decode(read_regular(last.parent / SUMMARY_FILE))
    except FileNotFoundError:
        return f"no answer: it ended in the middle of {last.parent.name}"
    except (OSError, UsageError, *UNREADABLE):
        found = None
    invalid = found.get("invalid_reasons") if isinstance(found, dict) else None
    if not isinstance(invalid, list) or not invalid:
        return f"no answer: it ended after {last.parent.name}"
    said = ", ".join(str(name).replace("_", " ") for name in invalid)
    return f"no answer: {said} in the last run, {last.parent.name}"


def in_short(folder: Path) -> str:
    """`12 agents (12 to 15), next limit KV capacity; 17 with --kv-cache-dtype fp8`, the most of several; empty where it
    has no answer.
    """
    found = _answer(folder)
    agents, low, high, limit = (found.get(name) for name in ("agents", "low", "high", "limit"))
    if not isinstance(agents, int):
        return ""
    said = f"{'at least ' if found.get('capped') is True else ''}{agents:,} agent{'' if agents == 1 else 's'}"
    said += f" ({low} to {high})" if (low, high) != (agents, agents) else ""
    said += f", next limit {limit}" if isinstance(limit, str) else ""
    most, name = max(((row["agents"], row["name"]) for row in _others(found)), default=(0, ""))
    if most <= agents:
        return said
    return f"{said}; {most:,} {name}" if name.startswith("with ") else f"{said}; {name}: {most:,}"


def _others(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Its configurations but for the first."""
    rows = found.get("configurations")
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [row for row in known if row.get("versus_first") and isinstance(row.get("agents"), int) and "name" in row]


def _answer(folder: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(read_regular(folder / ANSWER_FILE))
    except (OSError, UsageError, *UNREADABLE):
        return {}
    return found if isinstance(found, dict) else {}
