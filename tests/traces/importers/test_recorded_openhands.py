"""The recorded OpenHands conversations against the index's figures (they have no entry among the answers) and the wire."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

RUN = "openhands/local-run-sdk-1.58.2"
FOLDER = f"{RUN}/eb17ac200cb74f1f9ecb0a4e92823922"
OLD = "openhands/v1.11.5-base_state.json"
EVENTS, ACTIONS, RESPONSES = 30, 14, 10
LATENCIES_S, SPAN_S = 4.905, 21.512
TOOL_P50_S, TOOL_MAX_S = 0.631, 3.957


@pytest.fixture(scope="module")
def trace(recorded: Path) -> Trace:
    result = import_path(recorded / FOLDER)
    assert result.problems == ()
    return result.traces[0]


def test_counts_equal_the_answer(trace: Trace, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers[f"{RUN}/wire.jsonl"]
    assert len(trace.calls) == answer["requests_with_tools"] == RESPONSES
    assert sum(c.usage.prompt or 0 for c in trace.calls) == answer["sum_in"]
    assert sum(c.usage.cached or 0 for c in trace.calls) == answer["sum_cached"]
    assert sum(c.usage.completion or 0 for c in trace.calls) == answer["sum_out"]
    assert sum(c.usage.reasoning or 0 for c in trace.calls) == answer["sum_reasoning"]
    assert max(c.usage.prompt or 0 for c in trace.calls) == answer["max_in"]
    assert len(trace.tool_runs) == answer["tool_calls"] == ACTIONS
    assert len(trace.threads) == 1
    assert sum((c.end_s or 0) - (c.start_s or 0) for c in trace.calls) == pytest.approx(LATENCIES_S, abs=1e-3)
    runs = sorted((r.end_s or 0) - (r.start_s or 0) for r in trace.tool_runs)
    assert runs[-1] == pytest.approx(TOOL_MAX_S, abs=1e-3)
    assert any(abs(r - TOOL_P50_S) < 1e-3 for r in runs[5:8])
    assert max(r.end_s or 0 for r in trace.tool_runs) == pytest.approx(SPAN_S, abs=1e-3)


def test_the_tools_are_those_of_the_wire(recorded: Path, trace: Trace) -> None:
    first = json.loads((recorded / RUN / "wire.jsonl").read_text().partition("\n")[0])
    assert list(trace.toolsets[0].names) == first["tools"]


def test_prompts_add_up(trace: Trace) -> None:
    assert faults(trace) == []
    assert {c.tools for c in trace.calls} == {0}
    system = trace.messages[trace.calls[0].append[0]]
    assert system.role == "system"
    assert any((trace.blocks[b].text or "").startswith("<SOUL>") for b in system.blocks)


def test_parallel_actions_are_one_answer(trace: Trace) -> None:
    sizes = [sum(r.call == c.id for r in trace.tool_runs) for c in trace.calls]
    assert sizes == [3, 1, 1, 1, 1, 2, 1, 1, 2, 1]
    output = trace.messages[trace.calls[1].append[0]]
    assert [c.name for c in output.tool_calls] == ["terminal"] * 3


def test_any_file_of_it_stands_for_the_conversation(recorded: Path, trace: Trace) -> None:
    event = sorted((recorded / FOLDER / "events").glob("*.json"))[7]
    assert import_path(event).traces[0].calls == trace.calls


def test_a_state_without_responses(recorded: Path) -> None:
    result = import_path(recorded / OLD)
    assert result.traces == ()
    assert [p.reason for p in result.problems] == ["holds no request to a model: nothing to replay"]


def copied(recorded: Path, to: Path) -> Path:
    shutil.copytree(recorded / FOLDER, to, copy_function=shutil.copyfile)
    for place in (to, *to.rglob("*")):
        place.chmod(0o755)
    return to


def test_without_its_state_the_text_remains(recorded: Path, tmp_path: Path, trace: Trace) -> None:
    folder = copied(recorded, tmp_path / "c")
    (folder / "base_state.json").unlink()
    result = import_path(folder)
    (without,) = result.traces
    assert len(without.calls) == RESPONSES
    assert {c.marks.get("prompt") for c in without.calls} == {"estimated"}
    assert [r.end_s for r in without.tool_runs] == pytest.approx([r.end_s for r in trace.tool_runs])
    assert without.header.notes == ("the log's times have no zone: taken as UTC",)
    assert sum("its prompt size is estimated" in p.reason for p in result.problems) == RESPONSES
    assert faults(without) == []


def test_without_its_events_the_figures_remain(recorded: Path, tmp_path: Path, trace: Trace) -> None:
    folder = copied(recorded, tmp_path / "c")
    shutil.rmtree(folder / "events")
    result = import_path(folder)
    (without,) = result.traces
    assert [c.usage for c in without.calls] == [c.usage for c in trace.calls]
    assert sum("its text is lost" in p.reason for p in result.problems) == RESPONSES
    assert faults(without) == []


def test_a_damaged_event_costs_itself(recorded: Path, tmp_path: Path, trace: Trace) -> None:
    folder = copied(recorded, tmp_path / "c")
    event = sorted((folder / "events").glob("*.json"))[8]
    event.write_bytes(event.read_bytes()[:40])
    result = import_path(folder)
    (damaged,) = result.traces
    assert [c.usage for c in damaged.calls] == [c.usage for c in trace.calls]
    assert any(p.file == str(event) and p.line == 1 for p in result.problems)
    assert any("no event tells of response" in p.reason for p in result.problems)
