"""OpenHands conversations made up for the purpose: V1 folders, V0 trajectories."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

from .agent_logs import UNIX, Json
from .openhands_logs import (
    action,
    answered,
    event,
    metrics,
    observed,
    state,
    text_part,
    typed,
    v0_action,
    v0_log,
    v0_observed,
    v0_response,
    v1_log,
    write_v1,
)


def load(path: Path) -> Trace:
    result = import_path(path)
    assert result.problems == ()
    (trace,) = result.traces
    assert faults(trace) == []
    return trace


def texts(trace: Trace, call: int) -> list[str | None]:
    return [trace.blocks[b].text for m in trace.calls[call].append for b in trace.messages[m].blocks]


def v0(path: Path, log: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(log))
    return path


def test_a_conversation(tmp_path: Path) -> None:
    trace = load(write_v1(tmp_path / "o-1", v1_log()))
    assert (trace.header.agent, trace.header.id, trace.header.title) == (
        "openhands",
        "o-1",
        "Fix the adder in the shop",
    )
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_200, 5_260]
    assert [(c.usage.completion, c.usage.reasoning) for c in trace.calls] == [(90, 30), (40, 0), (12, 0)]
    assert [trace.messages[c.output or 0].role for c in trace.calls] == ["assistant"] * 3
    assert [len(trace.messages[c.output or 0].tool_calls) for c in trace.calls] == [2, 0, 0]
    assert trace.toolsets[0].names == ("terminal", "finish")


def test_the_costs_tell_the_zone_of_the_events(tmp_path: Path) -> None:
    """Events are in local time without a zone, two hours ahead here; costs are in Unix time."""
    trace = load(write_v1(tmp_path / "o-1", v1_log()))
    assert trace.header.started_at == UNIX + 0.5
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(1.0, 3.5), (7.0, 8.5), (30.5, 32.5)]
    assert [(r.start_s, r.end_s) for r in trace.tool_runs] == [(3.6, 4.6), (3.7, 6.7)]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [
        (1, "tool", 3.1),
        (1, "client", 0.4),
        (2, "human", 21.0),
        (2, "client", 1.0),
    ]
    assert trace.header.notes == ()


def test_a_condensation(tmp_path: Path) -> None:
    log = v1_log()
    log[0]["stats"]["usage_to_metrics"]["condenser"] = metrics([("c1", 20.0, 4.0, (5_600, 0, 200, 0))])
    condensation = event(
        20.1,
        20,
        "Condensation",
        forgotten_event_ids=["e2", "e3", "e4", "e5"],
        summary="The adder was read. " * 10,
        summary_offset=2,
        llm_response_id="c1",
    )
    trace = load(write_v1(tmp_path / "o-1", [*log[:8], condensation, *log[8:]]))
    assert [(c.kind, c.thread, c.usage.prompt) for c in trace.calls] == [
        ("turn", 0, 5_000),
        ("turn", 0, 5_200),
        ("compaction", 0, 5_600),
        ("turn", 0, 5_260),
    ]
    assert trace.calls[2].start_s == 15.5
    said = [t for t in texts(trace, 3) if t]
    assert said == [
        "Be brief. " * 40,
        "Fix the adder in the shop",
        "The adder was read. " * 10,
        "It subtracts where it should add.",
        "Then change it",
    ]


def test_other_requests_of_the_statistics_are_auxiliary(tmp_path: Path) -> None:
    log = v1_log()
    log[0]["stats"]["usage_to_metrics"]["title-gen-llm"] = metrics([("x1", 10.0, 1.0, (300, 0, 5, 0))])
    trace = load(write_v1(tmp_path / "o-1", log))
    assert [(c.kind, c.usage.prompt, c.start_s) for c in trace.calls][2] == ("auxiliary", 300, 8.5)


def delegating(folder: Path) -> list[Json]:
    """A conversation whose first action is a task for a sub-agent, from second 4.1 to 8."""
    log = v1_log()
    log[3] = action(4.1, 2, "r1", "t1", "Looking.", "task")
    log[0]["stats"]["usage_to_metrics"]["task:task_1"] = metrics([("s1", 6.0, 1.5, (3_000, 0, 20, 0))])
    log[5] = observed(6.8, 4, "t1", "In adder.py.")
    write_v1(folder, log)
    return log


def test_a_sub_agent_by_its_counts_alone(tmp_path: Path) -> None:
    delegating(tmp_path / "o-1")
    trace = load(tmp_path / "o-1")
    assert [(t.name, t.parent, t.spawn_call) for t in trace.threads[1:]] == [("task_1", 0, 0)]
    assert [(c.thread, c.usage.prompt) for c in trace.calls] == [(0, 5_000), (1, 3_000), (0, 5_200), (0, 5_260)]
    assert trace.calls[2].joins == (1,)


def test_a_sub_agent_with_its_conversation(tmp_path: Path) -> None:
    delegating(tmp_path / "o-1")
    inner = [
        state("o-2", agent=metrics([("s1", 6.0, 1.5, (3_000, 0, 20, 0))])),
        typed(4.3, 1, "Find the adder"),
        answered(6.05, 2, "s1", "In adder.py."),
    ]
    write_v1(tmp_path / "o-1" / "subagents" / "o-2", inner)
    trace = load(tmp_path)
    assert [(t.name, t.parent, t.spawn_call) for t in trace.threads[1:]] == [("agent", 0, 0)]
    assert [c.usage.prompt for c in trace.calls_of(1)] == [3_000]
    assert "Find the adder" in texts(trace, trace.calls_of(1)[0].id)
    assert trace.header.title == "Fix the adder in the shop"


def test_a_conversation_without_its_counts(tmp_path: Path) -> None:
    folder = write_v1(tmp_path / "o-1", v1_log())
    (folder / "base_state.json").write_text("{")
    result = import_path(folder / "events" / "event-00000-x.json")
    (trace,) = result.traces
    assert {(c.marks["prompt"], c.marks["completion"]) for c in trace.calls} == {("estimated", "estimated")}
    assert trace.header.notes == ("the log's times have no zone: taken as UTC",)
    assert faults(trace) == []
    assert result.problems[0].file.endswith("base_state.json")


def test_a_rejected_action_is_an_error(tmp_path: Path) -> None:
    log = v1_log()
    log[5] = event(5.1, 4, "UserRejectObservation", "user", tool_call_id="t1", rejection_reason="No.")
    trace = load(write_v1(tmp_path / "o-1", log))
    assert [r.error for r in trace.tool_runs] == [True, False]


def test_an_old_trajectory(tmp_path: Path) -> None:
    trace = load(v0(tmp_path / "run.json", v0_log()))
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_200]
    assert [(c.usage.cached, c.usage.completion, c.usage.reasoning) for c in trace.calls] == [
        (0, 90, 30),
        (4_096, 40, 0),
    ]
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [
        ("execute_bash", 3.5, 4.5),
        ("execute_bash", 4.6, 6.5),
        ("finish", 8.5, None),
    ]
    assert (trace.calls[1].start_s, trace.calls[1].marks) == (7.0, {})
    assert trace.header.notes == ("the log's times have no zone: taken as UTC",)


def test_old_events_one_by_one(tmp_path: Path) -> None:
    for item in v0_log():
        v0(tmp_path / "s-1" / "events" / f"{item['id']}.json", item)
    trace = load(tmp_path)
    assert (trace.header.id, len(trace.calls), len(trace.tool_runs)) == ("s-1", 2, 3)


def test_an_evaluation_holds_many_sessions(tmp_path: Path) -> None:
    lines = [{"instance_id": f"shop-{i}", "history": v0_log()} for i in (1, 2)]
    path = tmp_path / "output.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"instance_id": "shop-3", "histo')
    result = import_path(path)
    assert [t.header.id for t in result.traces] == ["shop-1", "shop-2"]
    assert [(p.line, p.reason) for p in result.problems] == [(3, "the last line is cut off")]


def test_what_running_totals_grew_by_is_a_call(tmp_path: Path) -> None:
    """Without function calling an action names no response; the totals beside it count on."""

    def totals(prompt: int, cached: int, completion: int) -> Json:
        names = ("prompt_tokens", "cache_read_tokens", "completion_tokens")
        return {"accumulated_token_usage": dict(zip(names, (prompt, cached, completion), strict=True))}

    log = [
        *v0_log()[:2],
        v0_action(4, 2, "run", args={"command": "ls", "thought": "Looking."}, llm_metrics=totals(2_000, 0, 50)),
        v0_observed(5, 3, "run", 2, "", "adder.py"),
        v0_action(9, 4, "message", args={"content": "Done."}, llm_metrics=totals(4_100, 1_900, 60)),
    ]
    trace = load(v0(tmp_path / "run.json", log))
    assert [(c.usage.prompt, c.usage.cached, c.usage.completion) for c in trace.calls] == [
        (2_000, 0, 50),
        (2_100, 1_900, 10),
    ]
    assert {c.marks["prompt"] for c in trace.calls} == {"derived"}
    assert [(w.cause, w.seconds) for w in trace.waits] == [("tool", 1.0)]


def test_an_old_delegate_is_a_sub_agent(tmp_path: Path) -> None:
    task = v0_response("r1", (5_000, 0, 90, 0), "Ask.", [])
    inner = v0_response("d1", (3_000, 0, 20, 0), "In adder.py.", [])
    last = v0_response("r2", (5_200, 0, 40, 0), "Done.", [])

    def named(tool: str, name: str, response: Json) -> Json:
        return {"function_name": name, "tool_call_id": tool, "model_response": response}

    log = [
        *v0_log()[:2],
        v0_action(4, 2, "delegate", args={"agent": "Browser"}, tool_call_metadata=named("t1", "delegate_to", task)),
        v0_action(4.1, 3, "message", "user", args={"content": "Find the adder"}),
        v0_action(6, 4, "finish", args={}, tool_call_metadata=named("t2", "finish", inner)),
        v0_observed(7, 5, "delegate", 2, "t1", "In adder.py."),
        v0_action(9, 6, "finish", args={}, tool_call_metadata=named("t3", "finish", last)),
    ]
    trace = load(v0(tmp_path / "run.json", log))
    assert [(t.name, t.parent, t.spawn_call) for t in trace.threads[1:]] == [("Browser", 0, 0)]
    assert [(c.thread, c.usage.prompt) for c in trace.calls] == [(0, 5_000), (1, 3_000), (0, 5_200)]
    assert trace.calls[2].joins == (1,)


@pytest.mark.parametrize(
    "args", [{"forgotten_event_ids": [2, 3, 4, 5]}, {"forgotten_events_start_id": 2, "forgotten_events_end_id": 5}]
)
def test_an_old_condensation(args: Json, tmp_path: Path) -> None:
    log = v0_log()
    log.insert(6, v0_action(8, 9, "condensation", args={**args, "summary": "It was read.", "summary_offset": 2}))
    trace = load(v0(tmp_path / "run.json", log))
    assert trace.calls[1].keep == 1
    assert [t for t in texts(trace, 1) if t] == ["Fix the adder in the shop", "It was read."]


def test_extended_content_is_part_of_the_prompt(tmp_path: Path) -> None:
    log = v1_log()
    log[2]["extended_content"] = text_part("<reminder>Use tests.</reminder>")
    assert "<reminder>Use tests.</reminder>" in texts(load(write_v1(tmp_path / "o-1", log)), 0)
