"""Claude Code transcripts made up for the purpose."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import contradictions
from windtunnel.traces.importers import Imported, detect, import_path
from windtunnel.traces.model import Trace

from . import claude_logs

Log = list[dict[str, Any]]


def write(path: Path, log: Log) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in log))
    return path


def load(path: Path, log: Log) -> Trace:
    result = import_path(write(path, log))
    assert result.problems == ()
    (trace,) = result.traces
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls if c.usage.prompt is not None)
    return trace


def test_a_session(tmp_path: Path, claude_log: Log) -> None:
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    assert (trace.header.agent, trace.header.agent_version) == ("claude-code", "2.1.29")
    assert trace.header.title == "Please fix the adder in the shop, it"
    assert [c.usage.prompt for c in trace.calls] == [10_003, 10_181, 10_221]
    assert [c.usage.cached for c in trace.calls] == [1_000, 10_000, 10_180]
    assert [c.usage.completion for c in trace.calls] == [90, 20, 4]
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [("Read", 4.0, 4.2), ("Bash", 5.0, 7.0)]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [(1, "tool", 2.0), (2, "human", 30.0)]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0.0, 5.0), (7.0, 9.0), (39.0, 42.0)]


def test_prompts_extend_each_other_through_the_output(tmp_path: Path, claude_log: Log) -> None:
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    first, second, third = trace.calls
    assert (first.base, second.base, third.base) == (None, 0, 1)
    assert second.keep == len(first.append)
    assert second.append[0] == first.output
    assert third.append[0] == second.output
    output = trace.messages[second.append[0]]
    assert [c.name for c in output.tool_calls] == ["Read", "Bash"]
    assert [trace.messages[m].tool_call_id for m in second.append[1:]] == ["t1", "t2"]
    assert trace.blocks[trace.messages[second.append[1]].blocks[0]].text == "def add(a, b):\n    return a - b\n"


def test_the_missing_front_is_shared_as_far_as_the_cache_proves(tmp_path: Path, claude_log: Log) -> None:
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    other = [r | {"sessionId": "s-2"} for r in claude_log]
    again = load(tmp_path / "s-2.jsonl", other)
    fronts = [t.blocks[t.messages[t.calls[0].append[0]].blocks[0]] for t in (trace, again)]
    assert [(b.filler, b.tokens) for b in fronts] == [(True, 1_000)] * 2
    assert fronts[0].digest == fronts[1].digest
    rest = [t.blocks[t.messages[t.calls[0].append[1]].blocks[0]] for t in (trace, again)]
    assert all(b.filler for b in rest)
    assert rest[0].digest != rest[1].digest


def test_fronts_of_one_client_are_the_same_text_as_far_as_the_shorter_goes(tmp_path: Path, claude_log: Log) -> None:
    """However much of it a session's cache had proven; another client version has another front."""

    def front(name: str, cached: int, **fields: Any) -> Any:
        log = json.loads(json.dumps([record | {"sessionId": name} | fields for record in claude_log]))
        for record in log:
            if record["type"] == "assistant" and record["message"]["id"] == "m1":
                usage = record["message"]["usage"]
                usage.update(cache_creation_input_tokens=10_000 - cached, cache_read_input_tokens=cached)
        trace = load(tmp_path / f"{name}.jsonl", log)
        assert trace.prompt_tokens()[0] == 10_003
        return trace.blocks[trace.messages[trace.calls[0].append[0]].blocks[0]]

    short, long, newer = front("s-1", 1_000), front("s-2", 4_000), front("s-3", 4_000, version="9.9.9")
    assert (short.tokens, long.tokens, newer.tokens) == (1_000, 4_000, 4_000)
    assert short.digest == long.digest != newer.digest
    assert short.filler
    assert long.filler


def test_a_placeholder_count_is_replaced(tmp_path: Path, claude_log: Log) -> None:
    long = "The adder takes two numbers and gives back their difference, which is not a sum. " * 20
    claude_log[6]["message"]["content"][0]["text"] = long
    claude_log[6]["message"].update(stop_reason=None)
    claude_log[6]["message"]["usage"]["output_tokens"] = 3
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    assert trace.calls[1].marks["completion"] == "estimated"
    assert trace.calls[1].usage.completion == pytest.approx(len(long) / 4.5, rel=0.3)


def test_synthetic_and_error_lines_are_no_calls(tmp_path: Path, claude_log: Log) -> None:
    error = json.loads(json.dumps(claude_log[6]))
    error["isApiErrorMessage"] = True
    error["message"].update(id="m9", model="<synthetic>")
    trace = load(tmp_path / "s-1.jsonl", [*claude_log[:6], error, *claude_log[6:]])
    assert len(trace.calls) == 3


def test_a_lower_cached_count_marks_where_the_text_differs(tmp_path: Path, claude_log: Log) -> None:
    claude_log[6]["message"]["usage"].update(cache_creation_input_tokens=5_180, cache_read_input_tokens=5_000)
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    assert trace.calls[1].keep < len(trace.calls[0].append)
    assert shared(trace, 0, 1) == 5_000
    assert any("cached count" in n for n in trace.header.notes)
    rewritten = trace.blocks[trace.messages[trace.calls[1].append[0]].blocks[0]]
    assert (rewritten.filler, rewritten.text) == (True, None)


def test_an_expired_cache_is_no_change_of_text(tmp_path: Path, claude_log: Log) -> None:
    claude_log[8]["message"]["usage"].update(cache_creation_input_tokens=5_220, cache_read_input_tokens=5_000)
    claude_log[8]["timestamp"] = "2026-02-03T04:15:43.000Z"
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    assert shared(trace, 1, 2) == 10_181


def test_a_shorter_prompt_keeps_the_longest_prefix(tmp_path: Path, claude_log: Log) -> None:
    claude_log[8]["message"]["usage"].update(cache_creation_input_tokens=0, cache_read_input_tokens=10_039)
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    assert trace.calls[2].usage.prompt == 10_040
    assert 10_000 < shared(trace, 1, 2) < 10_040


def read(path: Path, log: Log) -> Imported:
    result = import_path(write(path, log))
    (trace,) = result.traces
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls if c.usage.prompt is not None)
    return result


def pauses(trace: Trace, call: int) -> list[tuple[str, float | None]]:
    return [(w.cause, w.seconds) for w in trace.waits if w.before == call]


def test_a_compaction_starts_a_new_context(tmp_path: Path, claude_log: Log) -> None:
    result = read(tmp_path / "s-1.jsonl", claude_logs.with_compaction(claude_log))
    (trace,) = result.traces
    assert [c.kind for c in trace.calls] == ["turn", "turn", "compaction", "turn"]
    assert trace.calls[3].usage.prompt == 2_001
    assert shared(trace, 1, 3) == 1_000
    assert any("compacted" in n for n in trace.header.notes)
    assert ["rebuilt" in p.reason for p in result.problems] == [True]


def test_the_request_for_a_summary_is_rebuilt(tmp_path: Path, claude_log: Log) -> None:
    """A result came, the client asked for a summary of it all at once: what it waited for was the model."""
    log = claude_logs.with_auto_compaction(claude_log)
    result = read(tmp_path / "s-1.jsonl", log)
    (trace,) = result.traces
    call = trace.calls[1]
    assert (call.kind, call.start_s, call.end_s) == ("compaction", 7.0, 31.0)
    assert (call.usage.prompt or 0) >= 11_000
    assert call.usage.completion == trace.message_tokens(call.output or 0) > 100
    assert {call.marks[k] for k in ("prompt", "completion")} == {"estimated"}
    assert pauses(trace, 1) == [("tool", 2.0)]
    assert pauses(trace, 2) == []
    assert ["11000 tokens of history" in p.reason for p in result.problems] == [True]


@pytest.mark.parametrize("typed", ["before", "after", "nowhere"])
def test_a_compaction_that_a_person_asked_for(tmp_path: Path, claude_log: Log, typed: str) -> None:
    """The command's line may stand on either side of the boundary, with the time when it was typed."""
    (trace,) = read(tmp_path / "s-1.jsonl", claude_logs.with_manual_compaction(claude_log, typed)).traces
    call = trace.calls[2]
    assert (call.kind, call.end_s) == ("compaction", 32.0)
    assert call.start_s == (None if typed == "nowhere" else 19.0)
    assert pauses(trace, 2) == [("human", None if typed == "nowhere" else 10.0)]
    assert pauses(trace, 3) == [("human", 7.0)]


def test_a_compaction_with_a_file_of_its_own_is_not_rebuilt(tmp_path: Path, claude_log: Log) -> None:
    own = json.loads(json.dumps(claude_log[7:]))
    own[1]["message"].update(id="m9", usage={"input_tokens": 1, "cache_read_input_tokens": 10_300, "output_tokens": 90})
    own[0]["timestamp"], own[1]["timestamp"] = "2026-02-03T04:05:20.000Z", "2026-02-03T04:05:39.500Z"
    write(tmp_path / "s-1/subagents/agent-acompact-1.jsonl", own)
    result = read(tmp_path / "s-1.jsonl", claude_logs.with_compaction(claude_log))
    assert result.problems == ()
    assert [(c.kind, c.usage.prompt) for c in result.traces[0].calls if c.kind != "turn"] == [("compaction", 10_301)]


def test_a_person_who_is_asked_is_no_tool(tmp_path: Path, claude_log: Log) -> None:
    claude_log[4]["message"]["content"][0]["name"] = "AskUserQuestion"
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    assert pauses(trace, 1) == [("tool", 0.0), ("human", 2.0)]
    # nobody answers in 0.1 s: the client refused the question
    claude_log[5]["timestamp"] = "2026-02-03T04:05:06.100Z"
    trace = load(tmp_path / "s-2.jsonl", claude_log)
    assert pauses(trace, 1) == [("tool", 0.1)]


def test_a_clock_that_goes_back(tmp_path: Path, claude_log: Log) -> None:
    for record in claude_log[6:]:
        record["timestamp"] = record["timestamp"].replace("T04:05", "T03:05")
    result = read(tmp_path / "s-1.jsonl", claude_log)
    (trace,) = result.traces
    assert [p.reason.partition(":")[0] for p in result.problems] == [
        "the clock went back while the session was recorded"
    ]
    assert contradictions(trace) == []
    assert [(c.start_s is None, c.end_s is None) for c in trace.calls] == [(False, False), (True, True), (True, True)]
    assert pauses(trace, 1) == [("tool", None)]
    # the call across the step has no end that could be believed
    assert pauses(trace, 2) == [("human", None)]


@pytest.mark.parametrize("place", ["s-1/subagents/agent-a7.jsonl", "agent-a7.jsonl"])
def test_sub_agent_files(tmp_path: Path, claude_log: Log, place: str) -> None:
    write(tmp_path / place, claude_logs.sub_agent(claude_log, "a7"))
    trace = load(tmp_path / "s-1.jsonl", claude_logs.with_task(claude_log))
    check_sub_agent(trace, 2)


def test_inline_sidechains(tmp_path: Path, claude_log: Log) -> None:
    trace = load(tmp_path / "s-1.jsonl", claude_logs.with_sidechain(claude_log))
    check_sub_agent(trace, 2)


def test_progress_records(tmp_path: Path, claude_log: Log) -> None:
    trace = load(tmp_path / "s-1.jsonl", claude_logs.with_progress(claude_log))
    check_sub_agent(trace, 2)
    last = trace.calls_of(1)[-1]
    assert (last.usage.prompt, last.marks["prompt"]) == (10_105, "derived")


def check_sub_agent(trace: Trace, calls: int) -> None:
    assert len(trace.calls_of(1)) == calls
    thread = trace.threads[1]
    assert (thread.parent, trace.calls[thread.spawn_call or 0].thread, thread.background) == (0, 0, False)
    assert trace.calls_of(0)[1].joins == (1,)
    assert [r.thread for r in trace.tool_runs if r.name == "Task"] == [1]
    assert "subagent" in {w.cause for w in trace.waits if w.before == trace.calls_of(0)[1].id}


def test_a_notification_joins_a_background_agent(tmp_path: Path, claude_log: Log) -> None:
    write(tmp_path / "s-1/subagents/agent-a7.jsonl", claude_logs.sub_agent(claude_log, "a7"))
    main = claude_logs.with_task(claude_log)
    main[5]["toolUseResult"] = {"agentId": "a7", "isAsync": True, "status": "async_launched"}
    main[7]["message"]["content"] = "<task-notification>\n<task-id>a7</task-id>\n<status>completed</status>"
    trace = load(tmp_path / "s-1.jsonl", main)
    assert trace.threads[1].background
    assert [c.joins for c in trace.calls_of(0)] == [(), (), (1,)]
    assert [w.cause for w in trace.waits if w.before == trace.calls_of(0)[2].id] == ["subagent"]


def test_request_records_give_start_parameters_and_tools(tmp_path: Path, claude_log: Log) -> None:
    trace = load(tmp_path / "s-1.jsonl", claude_logs.with_requests(claude_log))
    first = trace.calls[0]
    assert (first.start_s, first.params.max_tokens, first.marks.get("start")) == (0.5, 99, None)
    assert trace.toolsets[first.tools or 0].names == ("Read", "Bash")
    sent = [trace.messages[m] for m in first.append]
    texts = [(m.role, [trace.blocks[b].text for b in m.blocks if not trace.blocks[b].filler]) for m in sent]
    assert [t for t in texts if t[1]] == [
        ("system", ["Be kind."]),
        ("user", ["Today is Tuesday.", "Please fix the adder in the shop, it subtracts"]),
        ("system", ["Skills: none."]),
    ]
    assert trace.calls[1].marks["start"] == "derived"


def test_images_are_stand_ins(tmp_path: Path, claude_log: Log) -> None:
    image: dict[str, Any] = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"},
    }
    claude_log[0]["message"]["content"] = [{"type": "text", "text": "See"}, image]
    trace = load(tmp_path / "s-1.jsonl", claude_log)
    assert [(b.media, b.text, b.tokens) for b in trace.blocks if b.media] == [("image/jpeg", None, 1_500)]


def test_damage_costs_only_itself(tmp_path: Path, claude_log: Log) -> None:
    path = write(tmp_path / "s-1.jsonl", claude_log)
    path.write_bytes(path.read_bytes().replace(b'{"sessionId"', b'{"sess\xff\xfeionId"', 1)[:-40] + b"\xff")
    result: Imported = import_path(path)
    assert [(p.line, p.reason) for p in result.problems] == [
        (1, "the line is not valid JSON and was left out"),
        (9, "the last line is cut off"),
    ]
    assert [c.usage.prompt for c in result.traces[0].calls] == [10_003, 10_181]


def test_what_is_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    assert import_path(empty).problems[0].reason == "the file is empty"
    other = tmp_path / "other.jsonl"
    other.write_text('{"a":1}\n')
    assert detect(other) is None
    assert "none of the formats" in import_path(other).problems[0].reason
    assert import_path(tmp_path / "absent.jsonl").problems[0].reason == "there is no such file"
    assert import_path(other, "claude-code").traces == ()
    assert import_path(other, "claude-code").problems[-1].reason.startswith("holds no request")


def shared(trace: Trace, a: int, b: int) -> int:
    """Tokens of the common prefix of two calls' prompts."""
    prompts = {c.id: list(ids) for c, ids in trace.prompts()}
    left, right = (
        [
            (trace.blocks[i].digest, trace.blocks[i].tokens)
            for m in prompts[c]
            for i in trace.message_blocks(trace.messages[m])
        ]
        for c in (a, b)
    )
    total = 0
    for (one, n), (two, m) in zip(left, right, strict=False):
        if one != two:
            break
        total += min(n, m)
        if n != m:
            break
    return total
