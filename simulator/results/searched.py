"""A folder of `windtunnel capacity`, for those who take it for a run: what it is, and where its answer stands.

The plan says what was asked, the answer what came of it; the runs lie in folders beside them.
"""

from pathlib import Path
from typing import Any

import msgspec

from windtunnel.simulator.results.files import read_regular
from windtunnel.simulator.results.lines import UNREADABLE
from windtunnel.traces.errors import UsageError

PLAN_FILE = "capacity.json"
"""`workload`, `command`, `target`: the question."""
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
    names = sorted(path.parent.name for path in folder.glob("agents-*/run.json"))
    told = str(answer.get("beyond") or "")
    run = told if told in names else names[-1] if names else None
    one = f"; for a run give one of those in it, such as {folder / run}" if run else ""
    return f"{folder} is a capacity search and no run: {how}{one}"


def unanswered(folder: Path) -> str:
    return (
        f"it has no {ANSWER_FILE} yet, and the command that began it prints its answer when given --out {folder} "
        f"(runs that are done are not made again)"
    )


def in_short(folder: Path) -> str:
    """`12 agents (12 to 15), next limit KV capacity`; empty where it has no answer."""
    found = _answer(folder)
    agents, low, high, limit = (found.get(name) for name in ("agents", "low", "high", "limit"))
    if not isinstance(agents, int):
        return ""
    said = f"{'at least ' if found.get('capped') is True else ''}{agents:,} agent{'' if agents == 1 else 's'}"
    said += f" ({low} to {high})" if (low, high) != (agents, agents) else ""
    return said + (f", next limit {limit}" if isinstance(limit, str) else "")


def _answer(folder: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(read_regular(folder / ANSWER_FILE))
    except (OSError, UsageError, *UNREADABLE):
        return {}
    return found if isinstance(found, dict) else {}
