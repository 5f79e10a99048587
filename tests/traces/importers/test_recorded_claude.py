"""Every recorded Claude Code file against its independent answer."""

import time
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import claude_code, import_path
from windtunnel.traces.importers.claude_lines import Transcript
from windtunnel.traces.importers.records import Notes, Record, read_records
from windtunnel.traces.model import Trace

LOCAL = "claude-code/local-run-2.1.332-async-subagents/projects/-home-dev-projects-claude2-proj"
SESSION = f"{LOCAL}/b03b2e51-d564-4f13-a9ca-f9d833b9a7ff"
SPOTTER = "claude-code/spotter/258c7280-ae70-4798-800f-63464d01a85d"
FLAT = "claude-code/codemie-flat/-tmp-private"
FILES = (
    "claude-code/derived-truncated-tail.jsonl",
    "claude-code/entire-2.0.64.jsonl",
    "claude-code/entire-2.0.76-badline-2models.jsonl",
    "claude-code/entire-2.0.76-compact.jsonl",
    "claude-code/entire-2.1.17-apierror.jsonl",
    "claude-code/entire-2.1.29-growing-1.jsonl",
    "claude-code/entire-2.1.29-growing-2.jsonl",
    "claude-code/entire-2.1.42-opus46.jsonl",
    "claude-code/tracelab-2026.jsonl",
    "claude-code/viewer-5c0375b4.jsonl",
    f"{SESSION}.jsonl",
    f"{SESSION}/subagents/agent-a27cc872a4204b1b2.jsonl",
    f"{SESSION}/subagents/agent-a7a58eca87ba11a3a.jsonl",
    f"{SESSION}/subagents/agent-ac018fe4594dd1cdf.jsonl",
    f"{SPOTTER}.jsonl",
    f"{SPOTTER}/subagents/agent-a881341.jsonl",
    f"{SPOTTER}/subagents/agent-acompact-fffbd0.jsonl",
    f"{FLAT}/4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl",
    f"{FLAT}/agent-36541525.jsonl",
    f"{FLAT}/agent-50243ee8.jsonl",
)
PROGRESS_CALLS = {
    # sub-agents seen only as progress records lack their last request; the parent's tool result has its answer and
    # usage, so it is added (8 of 8 in the later snapshot, one agent still ran in the earlier one)
    "claude-code/entire-2.1.29-growing-1.jsonl": 82,
    "claude-code/entire-2.1.29-growing-2.jsonl": 83,
    f"{SPOTTER}.jsonl": 3,
}
SPANS = {
    # the answer is of the main thread's lines; a sub-agent's progress goes on after the last of them
    "claude-code/entire-2.1.29-growing-1.jsonl": 8801.542,
}
ESTIMATED = {
    # calls whose recorded output count is a placeholder: no stop reason came with it (the final count comes with one)
    # and the visible text takes more than twice as many tokens. The recorded counts are compared apart.
    "claude-code/derived-truncated-tail.jsonl": 14,
    "claude-code/entire-2.0.64.jsonl": 15,
    "claude-code/entire-2.0.76-badline-2models.jsonl": 43,
    "claude-code/entire-2.0.76-compact.jsonl": 9,
    "claude-code/entire-2.1.17-apierror.jsonl": 56,
    "claude-code/entire-2.1.29-growing-1.jsonl": 129,
    "claude-code/entire-2.1.29-growing-2.jsonl": 143,
    "claude-code/entire-2.1.42-opus46.jsonl": 25,
    "claude-code/tracelab-2026.jsonl": 0,
    "claude-code/viewer-5c0375b4.jsonl": 3,
    f"{SESSION}.jsonl": 0,
    f"{SESSION}/subagents/agent-a27cc872a4204b1b2.jsonl": 0,
    f"{SPOTTER}.jsonl": 25,
    f"{SPOTTER}/subagents/agent-a881341.jsonl": 3,
    f"{SPOTTER}/subagents/agent-acompact-fffbd0.jsonl": 1,
    f"{FLAT}/4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl": 1,
    f"{FLAT}/agent-36541525.jsonl": 1,
    f"{FLAT}/agent-50243ee8.jsonl": 0,
}


def alone(path: Path) -> Trace:
    """The file by itself, without its sub-agents' files."""
    (trace,) = claude_code.read_session(path, ()).traces
    return trace


def rebuilt(trace: Trace) -> set[int]:
    """Requests for a summary that left a boundary line and nothing else."""
    return {c.id for c in trace.calls if c.kind == "compaction" and c.marks.get("prompt") == "estimated"}


def progress_threads(trace: Trace, answer: dict[str, Any]) -> set[int]:
    return set() if not answer["inline_progress_agents"] else {t.id for t in trace.threads if t.id}


@pytest.mark.parametrize("name", FILES)
def test_counts_equal_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    answer, trace = answers[name], alone(recorded / name)
    inline = progress_threads(trace, answer)
    made = rebuilt(trace)
    assert len(made) == (answer["compact_boundary"] if "compact_boundary" in answer else len(made))
    calls = [c for c in trace.calls if c.thread not in inline and c.id not in made]
    assert len(calls) == answer["llm_requests"]
    assert len(inline) == answer["inline_progress_agents"]
    assert len(trace.calls) - len(calls) - len(made) == PROGRESS_CALLS.get(name, answer["inline_progress_llm_requests"])
    assert len(trace.threads) - len(inline) - 1 == (answer["sidechain_roots"] if not is_agent(name) else 0)
    assert sorted(c.usage.prompt or 0 for c in calls) == sorted(answer["prompts"])
    assert trace.calls_of(0)[0].usage.prompt == answer["first_prompt_tokens"]
    assert max(c.usage.prompt or 0 for c in calls) == answer["max_prompt_tokens"]
    assert sum(c.usage.cached or 0 for c in calls) == answer["cache_read_sum"]
    own = {c.id for c in calls}
    assert sum(r.call in own for r in trace.tool_runs) == answer["tool_calls"]
    assert sum(r.end_s is not None for r in trace.tool_runs if r.call in own) == answer["tool_results"]
    assert set(trace.header.models) >= set(answer["models"])
    assert trace.header.agent_version in answer["versions"]
    assert sum(c.kind == "compaction" for c in trace.calls) - len(made) == ("acompact" in name)


def is_agent(name: str) -> bool:
    return Path(name).name.startswith("agent-")


@pytest.mark.parametrize("name", FILES)
def test_span_equals_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    trace = alone(recorded / name)
    last = max([c.end_s or 0 for c in trace.calls] + [r.end_s or 0 for r in trace.tool_runs])
    assert last == pytest.approx(SPANS.get(name, answers[name]["span_s"]), abs=0.002)


@pytest.mark.parametrize("name", FILES)
def test_recorded_output_counts_are_the_most_of_each_message(
    name: str, recorded: Path, answers: dict[str, dict[str, Any]]
) -> None:
    transcript, notes = Transcript(), Notes(name)
    for record in read_records(recorded / name, notes):
        own = {k: v for k, v in record.value.items() if k != "isSidechain" or not is_agent(name)}
        if own.get("type") != "progress":
            transcript.read(Record(record.line, own), notes)
    exchanges = [e for t in transcript.finish(notes) for e in t.exchanges]
    recorded_counts = [e.placeholder if e.marks.get("completion") == "estimated" else e.completion for e in exchanges]
    assert sum(n or 0 for n in recorded_counts) == answers[name]["output_tokens"]["max_per_id"]


@pytest.mark.parametrize("name", FILES)
def test_prompts_add_up_to_the_recorded_tokens(name: str, recorded: Path) -> None:
    trace = alone(recorded / name)
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls)
    assert faults(trace) == []


@pytest.mark.parametrize("name", sorted(ESTIMATED))
def test_placeholder_outputs_become_estimates(name: str, recorded: Path) -> None:
    trace = alone(recorded / name)
    assert sum(c.marks.get("completion") == "estimated" for c in trace.calls) == pytest.approx(ESTIMATED[name], abs=3)
    assert all(c.stop is None for c in trace.calls if c.marks.get("completion") == "estimated")


def test_a_session_brings_its_sub_agents(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    (trace,) = import_path(recorded / f"{SESSION}.jsonl").traces
    wire = answers["claude-code/local-run-2.1.332-async-subagents/wire.jsonl"]
    assert len(trace.calls) == wire["requests_with_tools"]
    assert sum(c.usage.prompt or 0 for c in trace.calls) == wire["sum_in"]
    assert sum(c.usage.cached or 0 for c in trace.calls) == wire["sum_cached"]
    assert len(trace.tool_runs) == wire["tool_calls"]
    assert sorted((t.name, t.background, t.spawn_call is not None) for t in trace.threads[1:]) == [
        (f"Investigate {agent}", True, True) for agent in "ABC"
    ]
    joined = {t for c in trace.calls_of(0) for t in c.joins}
    assert joined == {1, 2, 3}
    assert all(c.marks.get("start") is None for c in trace.calls)
    assert trace.toolsets[0].names[:3] == ("Agent", "Bash", "Edit")


def test_messages_stand_as_they_were_sent(recorded: Path) -> None:
    """Since 2.1.332 the log has the messages that differ from its own lines: reminders joined, the prompt behind."""
    (trace,) = import_path(recorded / f"{SESSION}.jsonl").traces
    for thread in trace.threads:
        first = trace.calls_of(thread.id)[0]
        sent = [trace.messages[m] for m in first.append]
        assert [(m.role, len(m.blocks)) for m in sent] == [("system", 2), ("user", 3), ("system", 1)]
        prompt = trace.blocks[sent[1].blocks[-1]].text or ""
        assert prompt.startswith("SUBTASK-" if thread.id else "Fix the failing test in this repo")
    notified = [trace.blocks[b].text or "" for m in trace.messages if m.role == "user" for b in m.blocks]
    assert sum(t.startswith("<system-reminder>\n[SYSTEM NOTIFICATION") for t in notified) == 3


def test_a_compaction_request_becomes_a_call_of_the_main_thread(recorded: Path) -> None:
    (trace,) = import_path(recorded / f"{SPOTTER}.jsonl").traces
    main = trace.calls_of(0)
    (at,) = [i for i, c in enumerate(main) if c.kind == "compaction"]
    assert main[at].usage.prompt == 169_248
    assert main[at].keep == len(prompt_of(trace, main[at - 1].id))
    assert main[at + 1].usage.prompt == 33_960
    assert main[at + 1].keep == 0 or main[at + 1].keep == 1
    assert len(trace.threads) == 2


def prompt_of(trace: Trace, call: int) -> tuple[int, ...]:
    return next(tuple(ids) for c, ids in trace.prompts() if c.id == call)


def test_damage_is_reported_with_its_line(recorded: Path) -> None:
    cut = import_path(recorded / "claude-code/derived-truncated-tail.jsonl")
    assert [(p.line, p.reason) for p in cut.problems] == [(110, "the last line is cut off")]
    bad = import_path(recorded / "claude-code/entire-2.0.76-badline-2models.jsonl")
    assert [p.line for p in bad.problems] == [172]
    empty = import_path(recorded / "claude-code/derived-empty.jsonl")
    assert empty.traces == ()
    assert [p.reason for p in empty.problems] == ["the file is empty"]


def test_a_folder_brings_every_session_once(recorded: Path) -> None:
    result = import_path(recorded / "claude-code")
    # 13 files with calls, two of which are earlier states of others
    assert len(result.traces) == 11
    assert sum(len(t.calls) for t in result.traces) == 758 - 132 - 19 + 1  # and a rebuilt one
    # the two warm-up agents of the flat layout were started by the client, not by a call
    assert [f for t in result.traces for f in faults(t)] == [f"thread {n} is started by no call" for n in (1, 2)]
    fronts = [t.blocks[t.messages[t.calls[0].append[0]].blocks[0]].digest for t in result.traces]
    assert len(set(fronts)) < len(fronts), "sessions of one client version and model share their front"


def test_the_largest_file_is_read_in_a_second(recorded: Path) -> None:
    began = time.perf_counter()
    alone(recorded / f"{SPOTTER}.jsonl")
    assert time.perf_counter() - began < 1.0


def test_a_compaction_that_left_no_request_is_rebuilt(recorded: Path) -> None:
    result = import_path(recorded / "claude-code" / "entire-2.0.76-compact.jsonl")
    (trace,) = result.traces
    (problem,) = result.problems
    assert problem.line == 31
    assert "rebuilt after 155250 tokens of history" in problem.reason
    (call,) = (c for c in trace.calls if c.kind == "compaction")
    assert 155_250 < (call.usage.prompt or 0) < 158_500
    assert (call.usage.prompt or 0) == max(c.usage.prompt or 0 for c in trace.calls)
    assert 2_200 < (call.usage.completion or 0) < 3_200
    assert (call.end_s or 0) - (call.start_s or 0) == pytest.approx(61.0, abs=0.01)
    assert call.marks["prompt"] == call.marks["completion"] == "estimated"
    assert [(w.cause, w.seconds) for w in trace.waits if w.before == call.id] == [("tool", pytest.approx(0.069))]
    assert [(w.cause, w.seconds) for w in trace.waits if w.before == call.id + 1] == [("client", pytest.approx(0.003))]


def test_a_compaction_with_a_request_of_its_own_is_not_rebuilt(recorded: Path) -> None:
    result = import_path(recorded / "claude-code" / "spotter" / "258c7280-ae70-4798-800f-63464d01a85d.jsonl")
    assert [rebuilt(t) for t in result.traces] == [set()]
    assert not any("rebuilt" in p.reason for p in result.problems)


def test_a_tool_behind_a_sub_agent_counts_from_its_end(recorded: Path) -> None:
    (trace,) = import_path(recorded / "claude-code" / "viewer-5c0375b4.jsonl").traces
    first = next(c for c in trace.calls if c.joins)
    waits = [(w.cause, w.seconds, w.tools) for w in trace.waits if w.before == first.id]
    assert waits == [
        ("tool", pytest.approx(0.037), ("Task",)),
        ("subagent", pytest.approx(21.2, abs=0.05), ()),
        ("tool", pytest.approx(0.018), ("TodoWrite",)),
    ]
    run = next(r for r in trace.tool_runs if r.call == trace.threads[1].spawn_call and r.name == "TodoWrite")
    assert (run.end_s or 0) - (run.start_s or 0) == pytest.approx(0.018)
