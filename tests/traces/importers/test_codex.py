"""Codex rollouts made up for the purpose."""

import json
from pathlib import Path
from typing import Any

from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

from . import codex_logs

Log = list[dict[str, Any]]


def write(path: Path, log: Log) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in log))
    return path


def load(path: Path, log: Log) -> Trace:
    result = import_path(write(path, log))
    assert result.problems == ()
    (trace,) = result.traces
    check_sums(trace)
    return trace


def check_sums(trace: Trace) -> None:
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls if c.usage.prompt is not None)


def test_a_session(tmp_path: Path, codex_log: Log) -> None:
    trace = load(tmp_path / "rollout-1.jsonl", codex_log)
    assert (trace.header.agent, trace.header.agent_version, trace.header.title) == ("codex", "0.114.0", "Fix the adder")
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_350, 5_150]
    assert [c.usage.reasoning for c in trace.calls] == [240, 10, 0]
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [("exec", 3.0, 4.0), ("exec", 3.1, 6.0)]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [(1, "tool", 2.8), (2, "human", 20.9)]
    assert trace.calls[0].params.reasoning_effort == "high"


def test_the_usage_may_come_before_its_items(tmp_path: Path, codex_log: Log) -> None:
    trace = load(tmp_path / "rollout-1.jsonl", codex_logs.usage_first(codex_log))
    assert [c.usage.prompt for c in trace.calls] == [5_000, 5_350, 5_150]
    assert [len(trace.messages[c.output or 0].tool_calls) for c in trace.calls] == [2, 0, 0]


def test_hidden_reasoning_is_kept_in_the_turn_and_forgotten_after_it(tmp_path: Path, codex_log: Log) -> None:
    trace = load(tmp_path / "rollout-1.jsonl", codex_log)
    output = trace.messages[trace.calls[1].append[0]]
    assert [trace.blocks[b].tokens for b in output.reasoning] == [240]
    third = trace.calls[2]
    assert third.keep == len(trace.calls[0].append)
    assert all(not trace.messages[m].reasoning for m in third.append)
    assert any("reasoning" in n for n in trace.header.notes)


def test_a_response_cut_off_by_the_user(tmp_path: Path, codex_log: Log) -> None:
    abort = {"timestamp": "2026-02-03T04:05:35Z", "type": "event_msg", "payload": {"type": "turn_aborted"}}
    trace = load(tmp_path / "rollout-1.jsonl", [*codex_log[:-1], abort])
    assert [c.aborted for c in trace.calls] == [False, False, True]
    assert trace.calls[2].usage.prompt is None


def test_a_request_in_flight_when_the_turn_was_stopped(tmp_path: Path, codex_log: Log) -> None:
    abort = {"timestamp": "2026-02-03T04:05:09Z", "type": "event_msg", "payload": {"type": "turn_aborted"}}
    trace = load(tmp_path / "rollout-1.jsonl", [*codex_log[:12], abort])
    assert [c.aborted for c in trace.calls] == [False, True]
    assert (trace.calls[1].start_s, trace.calls[1].end_s, trace.calls[1].output) == (6.0, 8.0, None)
    at_once = {**abort, "timestamp": "2026-02-03T04:05:07.010Z"}
    trace = load(tmp_path / "rollout-2.jsonl", [*codex_log[:12], at_once])
    assert [c.aborted for c in trace.calls] == [False]


def test_a_compaction_replaces_the_history(tmp_path: Path, codex_log: Log) -> None:
    trace = load(tmp_path / "rollout-1.jsonl", codex_logs.with_compaction(codex_log))
    assert trace.calls[2].keep == 1
    said = [trace.blocks[b].text for m in trace.calls[2].append for b in trace.messages[m].blocks]
    assert said[0] == "What was done: " * 50


def test_a_sub_agent_is_a_thread_of_its_parent(tmp_path: Path, codex_log: Log) -> None:
    main, child = codex_logs.with_sub_agent(codex_log)
    write(tmp_path / "2026/02/rollout-1.jsonl", main)
    write(tmp_path / "2026/02/rollout-2.jsonl", child)
    result = import_path(tmp_path)
    (trace,) = result.traces
    check_sums(trace)
    assert [(t.name, t.background) for t in trace.threads] == [(None, False), ("Ada", True)]
    assert trace.calls[trace.threads[1].spawn_call or 0].thread == 0
    assert [c.joins for c in trace.calls_of(0)] == [(), (), (1,)]
    fronts = [trace.blocks[trace.messages[trace.calls_of(t)[0].append[0]].blocks[0]] for t in (0, 1)]
    assert all(b.filler for b in fronts)


def test_an_older_log_times_tools_in_their_output(tmp_path: Path, codex_log: Log) -> None:
    codex_log[9]["timestamp"] = codex_log[6]["timestamp"]
    codex_log[9]["payload"]["output"] = '{"output":"x","metadata":{"exit_code":0,"duration_seconds":1.5}}'
    trace = load(tmp_path / "rollout-1.jsonl", codex_log)
    assert (trace.tool_runs[0].end_s, trace.tool_runs[0].mark) == (4.5, "derived")


def test_a_log_that_ends_inside_a_response(tmp_path: Path, codex_log: Log) -> None:
    result = import_path(write(tmp_path / "rollout-1.jsonl", codex_log[:8]))
    assert [p.reason for p in result.problems] == ["the log ends inside a response: its usage is not known"]
    assert [c.aborted for c in result.traces[0].calls] == [True]


def test_a_tool_that_ended_before_it_began_took_no_time(tmp_path: Path, codex_log: Log) -> None:
    codex_log[7]["timestamp"] = "2066-02-03T04:05:04Z"
    trace = load(tmp_path / "rollout-1.jsonl", codex_log)
    run = trace.tool_runs[1]
    assert (run.start_s, run.end_s, run.mark) == (6.0, 6.0, "derived")
    assert next((w.cause, w.seconds) for w in trace.waits if w.before == 1) == ("tool", 0.8)
    assert all((w.seconds or 0) >= 0 for w in trace.waits)
