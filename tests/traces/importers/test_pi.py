"""pi sessions made up for the purpose."""

import json
from pathlib import Path

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import detect, import_path
from windtunnel.traces.model import Trace

from .pi_logs import Json, answer, called, entry, head, ms, result, said, shop, stamp, user


def write(path: Path, log: list[Json]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in log))
    return path


def load(path: Path, log: list[Json], problems: tuple[str, ...] = ()) -> Trace:
    found = import_path(write(path, log))
    assert tuple(p.reason for p in found.problems) == problems
    (trace,) = found.traces
    assert faults(trace) == []
    return trace


def texts(trace: Trace, call: int) -> list[str]:
    prompt = next(ids for c, ids in trace.prompts() if c.id == call)
    return [trace.blocks[b].text or "" for m in prompt for b in trace.messages[m].blocks]


def test_a_session(tmp_path: Path) -> None:
    trace = load(tmp_path / "s.jsonl", shop())
    assert (trace.header.id, trace.header.agent, trace.header.title) == (
        "p-1",
        "pi",
        "Please fix the adder in the shop",
    )
    assert [c.usage.prompt for c in trace.calls] == [2_003, 2_151, None]
    assert [c.usage.cached for c in trace.calls] == [0, 2_000, None]
    assert [c.usage.completion for c in trace.calls] == [90, 20, None]
    assert [c.aborted for c in trace.calls] == [False, False, True]
    assert [c.stop for c in trace.calls] == ["tool_use", "end_turn", "aborted"]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0, 3), (6, 8), (29, 30)]
    assert [(r.name, r.start_s, r.end_s, r.error) for r in trace.tool_runs] == [
        ("bash", 3, 4, False),
        ("bash", 3, 6, True),
    ]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [(1, "tool", 3), (2, "human", 21)]
    assert trace.calls[0].params.reasoning_effort == "high"


def test_the_layout_before_entries_had_ids(tmp_path: Path) -> None:
    log = [{k: v for k, v in r.items() if k not in ("id", "parentId", "version")} for r in shop()]
    log[0]["id"] = "p-1"
    trace = load(tmp_path / "s.jsonl", log)
    assert [c.usage.prompt for c in trace.calls] == [2_003, 2_151, None]


def test_another_branch_starts_from_its_own_way(tmp_path: Path) -> None:
    log = [
        *shop(),
        user("f1", "e3", 40, "Look at the tests instead, they are older than the code"),
        answer("f2", "f1", (40, 42), (3, 0, 2_140, 9), [said("They are.")]),
    ]
    trace = load(tmp_path / "s.jsonl", log)
    shown = texts(trace, 3)
    assert "Look at the tests instead, they are older than the code" in shown
    assert "Please fix the adder in the shop" in shown
    assert "Looking." in shown
    assert "It subtracts where it should add." not in shown
    assert "1 calls go on from an earlier point of the session (another branch)" in trace.header.notes


def test_a_fork_names_where_it_came_from(tmp_path: Path) -> None:
    log = [head(parentSession="/home/me/.pi/agent/sessions/shop/first.jsonl"), *shop()[1:]]
    assert "begins as a copy of first.jsonl" in load(tmp_path / "s.jsonl", log).header.notes


def test_a_compaction_keeps_what_it_names(tmp_path: Path) -> None:
    log = [
        *shop()[:-2],
        entry("k", "e6", 20, "compaction", summary="The adder subtracts.", firstKeptEntryId="e6", tokensBefore=2_151),
        user("e7", "k", 30, "Then change it"),
        answer("e8", "e7", (30, 31), (3, 1_500, 100, 4), [said("Done")]),
        user("g", "e7", 40, "Rather not"),
        answer("h", "g", (40, 41), (3, 1_500, 110, 4), [said("Fine")]),
    ]
    trace = load(tmp_path / "s.jsonl", log)
    shown = [t for t in texts(trace, 2) if t]
    assert shown == ["The adder subtracts.", "It subtracts where it should add.", "Then change it"]
    assert [t for t in texts(trace, 3) if t] == [*shown, "Rather not"]
    assert "1 requests that wrote a summary are not in the log" in trace.header.notes


def test_commands_and_notes_of_the_client_are_no_prompts_of_a_person(tmp_path: Path) -> None:
    ran = {"role": "bashExecution", "command": "ls", "output": "adder.py\n", "timestamp": ms(12)}
    hidden = {**ran, "output": "secret", "excludeFromContext": True}
    log = [
        *shop()[:-2],
        entry("x", "e6", 12, "message", message=ran),
        entry("y", "x", 13, "message", message=hidden),
        entry("z", "y", 14, "custom_message", content="A reminder", customType="c", display=True),
        answer("w", "z", (15, 16), (3, 2_000, 190, 4), [said("Yes")]),
    ]
    trace = load(tmp_path / "s.jsonl", log)
    assert [w.cause for w in trace.waits if w.before == 2] == ["client"]
    shown = texts(trace, 2)
    assert {"ls\nadder.py\n", "A reminder"} < set(shown)
    assert not any("secret" in t for t in shown)


def test_a_stopped_answer_is_sent_again_without_its_tool_calls(tmp_path: Path) -> None:
    log = [
        *shop()[:-1],
        answer("e8", "e7", (30, 31), (3, 2_150, 10, 30), [said("I will"), called("c9", "rm adder.py")], "aborted"),
        user("e9", "e8", 40, "No"),
        answer("e10", "e9", (40, 41), (3, 2_160, 20, 4), [said("Fine")]),
    ]
    trace = load(tmp_path / "s.jsonl", log)
    assert [(r.tool_call_id, r.start_s, r.end_s) for r in trace.tool_runs][2:] == [("c9", None, None)]
    assert "I will" in texts(trace, 3)
    sent = next(ids for c, ids in trace.prompts() if c.id == 3)
    assert [c.id for m in sent for c in trace.messages[m].tool_calls] == ["c1", "c2"]


def test_an_image_is_a_stand_in(tmp_path: Path) -> None:
    log = shop()
    log[4]["message"]["content"].append({"type": "image", "mimeType": "image/png", "data": "AAAA"})
    log[6]["message"]["usage"]["cacheWrite"] = 1_900
    trace = load(tmp_path / "s.jsonl", log)
    assert [b.media for b in trace.blocks if b.media] == ["image/png"]


def test_without_times_waits_are_unknown(tmp_path: Path) -> None:
    log = shop()[:7]
    for record in log:
        record["timestamp"] = "yesterday"
        record.get("message", {}).pop("timestamp", None)
    reason = "the entry has no usable timestamp: waits around it are not known"
    trace = load(tmp_path / "s.jsonl", log, (reason,) * 5)
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(None, None), (None, None)]
    assert [(w.cause, w.seconds, w.mark) for w in trace.waits] == [("tool", None, "estimated")]


def test_what_could_not_be_used_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", shop())
    lines = path.read_text().splitlines()
    lines[5] = lines[5][:40]
    lines.insert(3, json.dumps(entry("q", "nowhere", 1, "message", message={"role": "ghost", "timestamp": 1})))
    path.write_text("\n".join(lines))
    found = import_path(path)
    assert [(p.line, p.reason) for p in found.problems] == [
        (4, "the entry's parent is not in the log: it was read as following the line before"),
        (4, "a message of the unknown role 'ghost' was left out"),
        (7, "the line is not valid JSON and was left out"),
        (8, "the entry's parent is not in the log: it was read as following the line before"),
    ]


def test_a_response_without_usage_is_estimated(tmp_path: Path) -> None:
    log = shop()[:7]
    del log[6]["message"]["usage"]
    trace = load(tmp_path / "s.jsonl", log, ("the response has no usage: its prompt size is estimated",))
    assert trace.calls[1].usage.prompt is None
    assert trace.calls[1].marks["completion"] == "estimated"


def test_prompts_that_were_never_sent_are_said(tmp_path: Path) -> None:
    log = [*shop()[:7], user("e9", "e6", 50, "Anybody there?")]
    load(tmp_path / "s.jsonl", log, ("the log ends with 1 messages that no request carried",))


def test_the_same_tool_id_twice(tmp_path: Path) -> None:
    log = [
        *shop()[:-2],
        user("e7", "e6", 30, "Again"),
        answer("e8", "e7", (30, 31), (3, 2_100, 100, 14), [called("c1", "cat adder.py")], "toolUse"),
        result("e9", "e8", 33, "c1", "def add(a, b):\n"),
        answer("e10", "e9", (33, 34), (3, 2_200, 100, 4), [said("Done")]),
    ]
    trace = load(tmp_path / "s.jsonl", log)
    assert [r.tool_call_id for r in trace.tool_runs] == ["c1", "c2", "c1#2"]
    assert [(r.start_s, r.end_s) for r in trace.tool_runs if r.tool_call_id == "c1#2"] == [(30, 32)]


@pytest.mark.parametrize(
    "first", [head(), shop()[2], {"type": "message", "timestamp": stamp(1), "message": shop()[2]["message"]}]
)
def test_it_is_known_by_its_content(first: Json, tmp_path: Path) -> None:
    assert detect(write(tmp_path / "any.jsonl", [first])) == "pi"


def test_empty_and_without_requests(tmp_path: Path) -> None:
    found = import_path(write(tmp_path / "s.jsonl", [head()]))
    assert (found.traces, [p.reason for p in found.problems]) == (
        (),
        ["holds no request to a model: nothing to replay"],
    )
