"""Every recorded SWE-agent and mini-swe-agent trajectory against its independent answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

REPLAY = "swe-agent/replay__marshmallow-code__marshmallow-1867__function_calling"
TIMED = (
    f"{REPLAY}__install-1__marshmallow-code__marshmallow-1867.traj",
    f"{REPLAY}_replace_from_source__marshmallow-code__marshmallow-1867.traj",
)
SIMPLE = "swe-agent/function_calling_simple.traj"
RUN = "mini-swe-agent/local-run-2.4.6"
MINI = f"{RUN}/run.traj.json"
BARE = "mini-swe-agent/local.traj.json"
ALL = (*TIMED, SIMPLE, MINI, BARE)
WIRE_S = 0.1
FIRST_START_S = 0.4
"""The first request's start is known in whole seconds only."""


def load(path: Path) -> Trace:
    result = import_path(path)
    assert result.problems == ()
    return result.traces[0]


@pytest.mark.parametrize("name", ALL)
def test_prompts_add_up(name: str, recorded: Path) -> None:
    trace = load(recorded / name)
    assert faults(trace) == []
    assert trace.header.notes == ()


@pytest.mark.parametrize("name", [*TIMED, SIMPLE])
def test_swe_agent_counts_equal_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[name], load(recorded / name)
    assert len(trace.calls) == answer["assistant_history"]
    assert len(trace.calls) == answer["model_stats"].get("api_calls", answer["assistant_history"])
    assert len(trace.tool_runs) == answer["history_tool_calls"]
    messages = {m for c in trace.calls for m in c.append} | {c.output for c in trace.calls}
    # the last result came after the last answer: no prompt holds it
    assert len(messages) == answer["history"] - 1
    # the source counts no tokens
    assert {c.marks.get("prompt") for c in trace.calls} == {"estimated"}
    assert {c.marks.get("completion") for c in trace.calls} == {"estimated"}
    assert {(c.start_s, c.end_s, c.usage.cached) for c in trace.calls} == {(None, None, None)}


@pytest.mark.parametrize("name", TIMED)
def test_actions_take_what_the_steps_say(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    trace = load(recorded / name)
    steps = json.loads((recorded / name).read_text())["trajectory"]
    waits = [w.seconds for w in trace.waits]
    assert {(w.cause, w.mark) for w in trace.waits} == {("tool", "recorded")}
    assert waits == pytest.approx([s["execution_time"] for s in steps[:-1]], abs=1e-6)
    total = sum(w or 0 for w in waits) + steps[-1]["execution_time"]
    assert total == pytest.approx(answers[name]["execution_time_sum"], abs=1e-3)


def test_a_history_alone_has_no_times(recorded: Path) -> None:
    trace = load(recorded / SIMPLE)
    assert {(w.cause, w.seconds, w.mark) for w in trace.waits} == {("tool", None, "estimated")}


def test_mini_counts_equal_the_answer(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[MINI], load(recorded / MINI)
    assert len(trace.calls) == answer["llm_requests_api_calls"] == answer["with_usage"]
    assert sum(c.usage.prompt or 0 for c in trace.calls) == answer["sum_prompt"]
    assert sum(c.usage.completion or 0 for c in trace.calls) == answer["sum_completion"]
    assert max(c.usage.prompt or 0 for c in trace.calls) == answer["max_prompt_tokens"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    assert trace.header.agent_version == "2.4.6"


def test_mini_equals_the_wire(recorded: Path) -> None:
    trace = load(recorded / MINI)
    lines = [json.loads(line) for line in (recorded / RUN / "wire.jsonl").read_text().splitlines()]
    wire = [w for w in lines if w["kind"] == "LLM"]
    ours = [c.usage for c in trace.calls]
    assert [(u.prompt, u.cached, u.completion, u.reasoning) for u in ours] == [
        tuple(w["usage"][k] for k in ("in", "cached", "out", "reasoning")) for w in wire
    ]
    zero = trace.header.started_at or 0.0
    assert [c.end_s for c in trace.calls] == pytest.approx([w["t_end"] - zero for w in wire], abs=WIRE_S)
    starts = [w["t"] - zero for w in wire]
    starts[5] = next(w["t"] for w in lines if w["kind"] == "ERR") - zero
    assert trace.calls[0].start_s == pytest.approx(starts[0], abs=FIRST_START_S)
    assert trace.calls[0].marks["start"] == "estimated"
    gaps = [(c.start_s or 0) - s for c, s in zip(trace.calls[1:], starts[1:], strict=True)]
    # not stored: derived from the last result; the client prepared one request (with 4,000 lines of it) for 0.82 s
    assert min(gaps) == pytest.approx(-0.82, abs=0.01)
    assert sorted(gaps)[1:] == pytest.approx([0.0] * 8, abs=WIRE_S)


def test_a_bare_list_of_messages(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[BARE], load(recorded / BARE)
    assert len(trace.calls) == answer["assistant_messages"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    assert {c.marks["prompt"] for c in trace.calls} == {"estimated"}
    assert trace.waits == ()
