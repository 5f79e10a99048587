"""Aider's history, made up for the purpose."""

from pathlib import Path

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path

from .workload_logs import AIDER


def test_turns_with_and_without_counts(tmp_path: Path) -> None:
    (tmp_path / ".aider.chat.history.md").write_text(AIDER)
    result = import_path(tmp_path)
    assert result.problems == ()
    (trace,) = result.traces
    assert faults(trace) == []
    assert trace.header.title == "Fix the adder in the shop"
    assert (trace.header.agent_version, trace.header.models) == ("0.86.1", ("big/model",))
    assert [(c.usage.prompt, c.usage.cached) for c in trace.calls] == [(4_600, 1_500), (None, None)]
    assert [c.marks.get("completion") for c in trace.calls] == ["estimated", "estimated"]
    assert trace.calls[0].usage.completion == 210
    assert [c.start_s for c in trace.calls] == [None, None]
    assert [(w.before, w.cause, w.seconds, w.mark) for w in trace.waits] == [(1, "human", None, "estimated")]
    assert trace.header.notes[0].startswith("weak source")
    said = trace.messages[trace.calls[0].output or 0]
    assert "return a + b" in (trace.blocks[said.blocks[-1]].text or "")


def test_runs_without_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "x.aider.chat.history.md"
    path.write_text(AIDER[: AIDER.index("I will change")])
    result = import_path(path)
    assert result.traces == ()
    assert [p.reason for p in result.problems] == [
        "1 runs with 3 typed lines hold no answer of a model: nothing to replay"
    ]
