"""TraceLab rows made up for the purpose."""

from pathlib import Path

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.stats import session_stats

from .workload_logs import lines, tracelab


def test_rounds_become_calls_with_tools_and_waits(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(lines(tracelab()[::-1]))
    result = import_path(path)
    assert result.problems == ()
    (trace,) = result.traces
    assert faults(trace) == []
    assert (trace.header.id, trace.header.agent, trace.header.shape_only) == ("claude:t-1", "claude-code", True)
    assert [(c.usage.prompt, c.usage.cached, c.usage.completion) for c in trace.calls] == [
        (9_000, 1_000, 80),
        (9_300, 9_000, 50),
        (9_500, 9_300, 40),
    ]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0, 3), (6, 9), (29, 32)]
    assert [(w.before, w.cause, w.seconds, w.tools) for w in trace.waits] == [
        (1, "tool", 3.0, ("Bash",)),
        (2, "human", 20.0, ()),
    ]
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [("Bash", 3, 6)]
    assert session_stats(trace).estimated_calls == 0


def test_what_a_row_lacks_is_said(tmp_path: Path) -> None:
    rows = tracelab()
    del rows[1]["input_tokens_total"], rows[2]["timing_events"]
    path = tmp_path / "r.jsonl"
    path.write_bytes(lines([*rows, {"round_id": "x", "timing_events": [], "input_tokens_total": 1}])[:-9])
    result = import_path(path)
    (trace,) = result.traces
    assert [(c.usage.prompt, c.end_s is None) for c in trace.calls] == [(9_000, False), (None, False), (9_500, True)]
    assert [(p.line, p.reason) for p in result.problems] == [
        (4, "the last line is cut off"),
        (2, "the row has no input_tokens_total: its prompt size is estimated"),
        (3, "the row has no timing events: waits around it are not known"),
    ]
