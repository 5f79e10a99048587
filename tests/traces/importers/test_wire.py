"""Every session that an agent wrote while a scripted model noted what crossed the wire: one request, one call.

Sizes are equal. Times are those of the session's log, which notes a response a little after its end; where it does not
say when a request started, the last input tells, and what the client did in between (preparing a request, loading its
library, waiting to try again) lies in the difference.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from windtunnel.traces.importers import Imported
from windtunnel.traces.model import Call

Import = Callable[[str], Imported]
Json = dict[str, Any]


CLOCKS_S = 0.003
"""Logs round to milliseconds."""


class Run(Struct, frozen=True):
    late_s: float
    """Most by which an end may lie after the response's own."""
    early_s: float
    """Most by which a start may lie before the request's own; between a failed request and its retry, before either."""
    behind_s: float = 0.02
    """Most by which a start may lie after the request's own."""
    first_early_s: float = 0.0
    """The same for a session's first request, where that is more."""
    missing: int = 0
    """Requests that the log has nothing of."""
    unsized: int = 0
    """Calls of which the log has no usage."""
    retries: float = 0.0
    """A request that failed and its retry are one call: seconds from the one to the other."""
    reasoning: bool = True
    """The log tells reasoning apart."""
    source: str = ""


RUNS = {
    # api-request records: the clock's reading before the connection is made
    "claude-code/local-run-2.1.332-async-subagents": Run(0.11, 0.03, reasoning=False),
    # the request in flight when the turn was stopped has inputs and no usage
    "codex/local-run-0.171.0-subagents": Run(0.06, 0.18, missing=1, unsized=1),
    "gemini/local-run-0.61.0": Run(0.29, 0.05, retries=5.3),
    "qwen-code/local-run": Run(0.08, 0.1, retries=0.51),
    "cline/local-run-3.0.65-errors": Run(0.16, 0.16, first_early_s=0.56, retries=2.2, reasoning=False),
    # a message is created while the client still takes a snapshot; titles are not stored
    "opencode/local-run-1.18.33-subagents": Run(1.4, 4.6, first_early_s=11.0, missing=1),
    "openhands/local-run-sdk-1.58.2": Run(0.14, 0.05, first_early_s=0.94),
    "mini-swe-agent/local-run-2.4.6": Run(0.09, 0.83, retries=0.83),
    "har": Run(0.06, 0.02, source="har/pi-via-mitmproxy-12.3.1.har"),
}


def test_every_run_is_here(recorded: Path) -> None:
    assert set(RUNS) == {str(p.parent.relative_to(recorded)) for p in recorded.rglob("wire.jsonl")}


@pytest.mark.parametrize("name", RUNS)
def test_the_import_equals_the_wire(name: str, recorded: Path, imported: Import) -> None:
    run = RUNS[name]
    rows = [json.loads(line) for line in (recorded / name / "wire.jsonl").read_text().splitlines()]
    sent = sorted((r for r in rows if r["kind"] != "ERR"), key=lambda r: float(r["t_end"]))
    failed = [float(r["t"]) for r in rows if r["kind"] == "ERR"]
    (trace,) = imported(run.source or name).traces
    zero = trace.header.started_at or 0.0
    left = sorted(trace.calls, key=lambda c: c.end_s or 0.0)
    assert len(left) == len(sent) - run.missing + run.unsized
    missing = 0
    for row in sent:
        call = next((c for c in left if sizes(c, row, run)), None)
        if call is None:
            missing += 1
            continue
        left.remove(call)
        assert -CLOCKS_S <= (call.end_s or 0.0) + zero - row["t_end"] <= run.late_s, row
        start = (call.start_s or 0.0) + zero
        before = max((t for t in failed if row["t"] - 6 < t < row["t"]), default=None)
        most = run.retries if before is not None and run.retries else run.early_s
        most = max(most, run.first_early_s) if call.id == 0 else most
        assert -run.behind_s <= row["t"] - start <= most, row
        asked = [r.name for r in trace.tool_runs if r.call == call.id]
        assert len(asked) == row["n_calls"], row
    assert missing == run.missing
    assert [c.usage.prompt for c in left] == [None] * run.unsized


def sizes(call: Call, row: Json, run: Run) -> bool:
    used = row["usage"]
    same = (call.usage.prompt, call.usage.cached, call.usage.completion) == (used["in"], used["cached"], used["out"])
    return same and (not run.reasoning or call.usage.reasoning == used["reasoning"])
