"""Codex rollouts that begin with another one's history: its requests are not theirs."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import Imported, import_path
from windtunnel.traces.model import Call, Trace

from . import codex_logs

Log = list[dict[str, Any]]
TOLD = "the first 3 requests are copied history of c-1 and are not counted"


def write(path: Path, log: Log) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in log))
    return path


def prompt(trace: Trace, call: Call) -> list[tuple[str, int]]:
    ids = next(ids for c, ids in trace.prompts() if c.id == call.id)
    return [
        (trace.blocks[b].digest, trace.blocks[b].tokens) for m in ids for b in trace.message_blocks(trace.messages[m])
    ]


def pair(folder: Path, parent: Log, child: Log) -> Imported:
    write(folder / "rollout-1.jsonl", parent)
    write(folder / "rollout-2.jsonl", child)
    return import_path(folder)


@pytest.mark.parametrize("stamp", ["new", "old"])
@pytest.mark.parametrize("beside", [True, False])
def test_a_fork_has_only_its_own_requests(stamp: str, beside: bool, tmp_path: Path, codex_log: Log) -> None:
    path = write(tmp_path / "rollout-2.jsonl", codex_logs.fork(codex_log, stamp))
    if beside:
        write(tmp_path / "rollout-1.jsonl", codex_log)
    result = import_path(tmp_path)
    trace = result.traces[-1]
    assert [t.header.id for t in result.traces] == ["c-1", "c-9"][not beside :]
    assert [(c.usage.prompt, c.usage.completion) for c in trace.calls] == [(5_360, 20)]
    assert trace.prompt_tokens() == {0: 5_360}
    assert (trace.tool_runs, trace.waits) == ((), ())
    assert trace.header.started_at == pytest.approx(1_770_091_562.0)
    assert [(p.file, p.line, p.reason) for p in result.problems] == [(str(path), None, TOLD)]


def test_the_history_is_the_beginning_of_its_prompt(tmp_path: Path, codex_log: Log) -> None:
    parent, child = pair(tmp_path, codex_log, codex_logs.fork(codex_log)).traces
    last = prompt(parent, parent.calls[-1])
    assert prompt(child, child.calls[0])[: len(last)] == last


def test_a_sub_agent_with_its_parents_history(tmp_path: Path, codex_log: Log) -> None:
    main, _ = codex_logs.with_sub_agent(codex_log)
    # the parent's history up to the call that starts the sub-agent, which has no usage yet
    child = codex_logs.fork(main[:8], id="c-2", parent_thread_id="c-1", agent_nickname="Ada")
    (trace,) = pair(tmp_path, main, child).traces
    assert [len(trace.calls_of(t.id)) for t in trace.threads] == [3, 1]
    assert trace.threads[1].spawn_call == 0
    assert {r.call for r in trace.tool_runs} == {0}
    (own,) = trace.calls_of(1)
    # one system prompt, up to the length of the shorter
    assert prompt(trace, own)[0][0] == prompt(trace, trace.calls[0])[0][0]
    assert trace.prompt_tokens()[own.id] == own.usage.prompt


def test_a_fork_without_a_request_of_its_own_is_no_session(tmp_path: Path, codex_log: Log) -> None:
    result = import_path(write(tmp_path / "rollout-2.jsonl", codex_logs.fork(codex_log)[:-5]))
    assert result.traces == ()
    assert [p.reason for p in result.problems] == [TOLD, "holds no request to a model: nothing to replay"]


def test_copied_turns_are_older_than_the_fork(tmp_path: Path, codex_log: Log) -> None:
    """A slow copy under new times, without the parent: the ids of its turns tell when they began."""
    child = codex_logs.fork(codex_log, id="019c8a53-a0dd-7130-bcd7-95445d84846a", forked_from_id=None)
    child[0]["payload"]["parent_thread_id"] = "c-1"
    for number, line in enumerate(child[:-5]):
        line["timestamp"] = f"2026-02-03T04:06:{number * 0.3:06.3f}Z"
        if line["type"] == "turn_context":
            line["payload"]["turn_id"] = "019c8a4c-ed82-79a1-aa28-7738fc5ab61a"
    child[-5]["payload"]["turn_id"] = "019c8a70-ebe7-7e83-0000-000000000000"
    for line in child[-5:]:
        line["timestamp"] = line["timestamp"].replace("04:06:", "04:07:")
    result = import_path(write(tmp_path / "rollout-2.jsonl", child))
    assert [len(t.calls) for t in result.traces] == [1]
    assert [p.reason for p in result.problems] == [TOLD]


def test_a_slow_copy_is_told_by_the_parents_usages(tmp_path: Path, codex_log: Log) -> None:
    child = codex_logs.fork(codex_log)
    for number, line in enumerate(child[:-5]):
        line["timestamp"] = f"2026-02-03T04:06:{number * 0.3:06.3f}Z"
    for line in child[-5:]:
        line["timestamp"] = line["timestamp"].replace("04:06:", "04:07:")
    assert [len(t.calls) for t in pair(tmp_path, codex_log, child).traces] == [3, 1]


def test_a_sub_agent_without_history_keeps_its_requests(tmp_path: Path, codex_log: Log) -> None:
    main, child = codex_logs.with_sub_agent(codex_log)
    result = pair(tmp_path, main, child)
    assert [len(result.traces[0].calls_of(t)) for t in (0, 1)] == [3, 1]
    assert result.problems == ()


def test_a_recorded_rollout_forked(tmp_path: Path, recorded: Path) -> None:
    """84 requests were made; the fork's file repeats 83 of them."""
    (path,) = (recorded / "codex/localpush").glob("*019c8a53*.jsonl")
    log = [json.loads(line) for line in path.read_text().splitlines()]
    head = json.loads(json.dumps(log[0]))
    head["payload"] |= {"id": "c-9", "forked_from_id": log[0]["payload"]["id"]}
    usage = {"input_tokens": 143_872, "cached_input_tokens": 143_232, "output_tokens": 77, "reasoning_output_tokens": 0}
    own = [
        codex_logs.codex_message(30, "user", "Now the docs"),
        codex_logs.codex_message(34, "assistant", "Written."),
        codex_logs.codex_line(
            34, "event_msg", type="token_count", info={"total_token_usage": {"x": 1}, "last_token_usage": usage}
        ),
    ]
    copied = [{**line, "timestamp": "2026-02-24T09:00:00.000Z"} for line in [head, *log]]
    own = [{**line, "timestamp": line["timestamp"].replace("02-03T04:05", "02-24T09:00")} for line in own]
    parent, child = pair(tmp_path, log, [*copied, *own]).traces
    assert (len(parent.calls), len(child.calls)) == (83, 1)
    last = prompt(parent, parent.calls[-1])
    assert prompt(child, child.calls[0])[: len(last)] == last
