"""Every recorded opencode session against its independent answer and what crossed the wire."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path, opencode
from windtunnel.traces.model import Call, Trace

RUN = "opencode/local-run-1.18.33-subagents"
DATABASE = f"{RUN}/opencode.db"
EXPORTS = (
    f"{RUN}/export_ses_dd8ab55d7ffeHNC6rCJgoAkBZS.json",
    f"{RUN}/export_ses_dd8abb9e6ffepQUs4ehu2b3hSJ.json",
    f"{RUN}/export_ses_dd8abbd03ffeXNzQPrkk5ozmjZ.json",
    f"{RUN}/export_ses_dd8ac13f4ffeS0cTHjJ5S3OQIR.json",
)
MAIN = "ses_dd8ac13f4ffeS0cTHjJ5S3OQIR"
NAMES = {
    None: MAIN,
    "Investigate A": "ses_dd8abbd03ffeXNzQPrkk5ozmjZ",
    "Investigate B": "ses_dd8abb9e6ffepQUs4ehu2b3hSJ",
    "Investigate C": "ses_dd8ab55d7ffeHNC6rCJgoAkBZS",
}
FIRST_EARLY_S = 11.0
"""The session's first message was created 10.9 s before its request: the title's request and the first snapshot came
between."""
EARLY_S = 8.0
"""Later messages are created up to 8 s early (here up to 4.5 s)."""
LATE_S = 1.5
"""The first tool or the end of the last text is written a little after the response."""


def check_counts(calls: list[Call], trace: Trace, answer: dict[str, Any]) -> None:
    assert len(calls) == answer["llm_requests"] == answer["assistant"]
    prompts = [c.usage.prompt or 0 for c in calls]
    cached = sum(c.usage.cached or 0 for c in calls)
    assert sum(prompts) - cached == answer["sum_input_uncached"] + answer["sum_cache_write"]
    assert cached == answer["sum_cache_read"]
    assert max(prompts) == answer["max_prompt_incl_cache"]
    assert sum((c.usage.completion or 0) - (c.usage.reasoning or 0) for c in calls) == answer["sum_output"]
    assert sum(c.usage.reasoning or 0 for c in calls) == answer["sum_reasoning"]
    assert sum(c.kind == "compaction" for c in calls) == answer["compaction_messages"]
    ids = {c.id for c in calls}
    runs = [r for r in trace.tool_runs if r.call in ids]
    assert len(runs) == answer["tool_parts"]
    assert {n: sum(r.name == n for r in runs) for n in answer["tools"]} == answer["tools"]
    assert sum(not r.error for r in runs) == answer["tool_status"]["completed"]
    times = sorted((r.end_s or 0) - (r.start_s or 0) for r in runs)
    assert times[-1] == pytest.approx(answer["tool_time_s"]["max"], abs=0.001)


def test_the_database_equals_the_answer(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    (trace,) = import_path(recorded / DATABASE).traces
    answer = answers[DATABASE]
    assert len(trace.threads) == len(answer)
    for thread in trace.threads:
        check_counts(trace.calls_of(thread.id), trace, answer[NAMES[thread.name]])
        parent = None if thread.parent is None else trace.threads[thread.parent].name
        assert (None if thread.id == 0 else NAMES[parent]) == answer[NAMES[thread.name]]["parent"]
    assert trace.header.id == MAIN
    assert trace.header.agent_version == "1.18.33"


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_equals_the_answer(name: str, recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    result = opencode.read(recorded / name)
    assert result.problems == ()
    (trace,) = result.traces
    check_counts(list(trace.calls), trace, answers[name])


@pytest.mark.parametrize("name", [DATABASE, *EXPORTS])
def test_prompts_add_up_to_the_recorded_tokens(name: str, recorded: Path) -> None:
    (trace,) = import_path(recorded / name).traces
    assert faults(trace) == []
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls)


def test_the_session_equals_the_wire(recorded: Path, answers: dict[str, dict[str, Any]]) -> None:
    (trace,) = import_path(recorded / DATABASE).traces
    zero = trace.header.started_at or 0.0
    wire = [json.loads(line) for line in (recorded / RUN / "wire.jsonl").read_text().splitlines()]
    # the first request without tools asked for a title: opencode stores none
    title = next(w for w in wire if w["kind"] == "SIDE")
    stored = [w for w in wire if w is not title]
    answer = answers[f"{RUN}/wire.jsonl"]
    assert len(stored) == answer["requests_with_tools"] + answer["tool_less_requests"] - 1 == len(trace.calls)
    assert sum(c.usage.prompt or 0 for c in trace.calls) == answer["sum_in"] + answer["side_in"] - title["usage"]["in"]
    assert sum(c.usage.completion or 0 for c in trace.calls) == (
        answer["sum_out"] + answer["side_out"] - title["usage"]["out"]
    )
    for thread in trace.threads:
        sub = None if thread.name is None else thread.name[-1]
        sent = [w for w in stored if w["sub"] == sub]
        calls = trace.calls_of(thread.id)
        for call, request in zip(calls, sent, strict=True):
            used = request["usage"]
            assert (call.usage.prompt, call.usage.cached) == (used["in"], used["cached"])
            assert (call.usage.completion, call.usage.reasoning) == (used["out"], used["reasoning"])
            assert (call.kind == "compaction") == (request["kind"] == "SIDE")
            early = request["t"] - zero - (call.start_s or 0)
            assert 0 < early < (FIRST_EARLY_S if call.id == 0 else EARLY_S)
            assert 0 < (call.end_s or 0) - (request["t_end"] - zero) < LATE_S
            assert call.marks == {"start": "derived", "end": "derived"}
            asked = [r.name for r in trace.tool_runs if r.call == call.id]
            assert asked == [name for _, name in request["calls"]]


def test_sub_agents_are_waited_for(recorded: Path) -> None:
    (trace,) = import_path(recorded / DATABASE).traces
    joins = [c.joins for c in trace.calls_of(0)]
    assert joins == [(), (1, 2), (), (), (), (), (3,)]
    waited = [w for w in trace.waits if w.cause == "subagent"]
    # from the first task's start to the last task's end
    assert [w.seconds for w in waited] == pytest.approx([18.029, 6.484], abs=0.001)
    assert {r.thread for r in trace.tool_runs if r.name == "task"} == {1, 2, 3}


def test_the_compaction_keeps_the_system_prompt_of_the_conversation(recorded: Path) -> None:
    (trace,) = import_path(recorded / DATABASE).traces
    prompts = {c.id: ids for c, ids in trace.prompts()}
    fronts = {c.id: trace.blocks[trace.messages[prompts[c.id][0]].blocks[0]].digest for c in trace.calls_of(0)}
    compaction = next(c.id for c in trace.calls if c.kind == "compaction")
    assert len({d for i, d in fronts.items() if i != compaction}) == 1
    assert fronts[compaction] not in {d for i, d in fronts.items() if i != compaction}


def test_the_whole_folder_holds_one_session(recorded: Path) -> None:
    """The database and its exports are the same sessions."""
    result = import_path(recorded / RUN)
    assert [len(t.calls) for t in result.traces] == [16]
    told = [p for p in result.problems if p.file != str(recorded / RUN)]
    assert sorted(Path(p.file).name for p in told) == sorted(Path(e).name for e in EXPORTS)
    assert len(result.problems) == len(told) + 1  # the folder's other files are of no format


def test_a_cut_off_database_gives_what_can_be_had(recorded: Path, tmp_path: Path) -> None:
    data = (recorded / DATABASE).read_bytes()
    kept: list[int] = []
    for share in (0.3, 0.6, 0.9, 0.99):
        path = tmp_path / f"opencode-{share}.db"
        path.write_bytes(data[: int(len(data) * share)])
        result = import_path(path)
        there = f"{int(len(data) * share):,} of {len(data):,} bytes are there"
        assert result.problems[0].reason == f"the database is cut off: {there}"
        assert [f for t in result.traces for f in faults(t) if "is started by no call" not in f] == []
        kept.append(sum(len(t.calls) for t in result.traces))
    assert kept == [0, 0, 4, 16]
