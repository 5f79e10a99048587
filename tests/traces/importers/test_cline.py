"""Cline sessions made up for the purpose."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, detect, import_path
from windtunnel.traces.model import Trace

from .cline_logs import heard, helper, history, session, shop, task, text, write_sessions, write_task, written


def only(result: Imported, problems: tuple[str, ...] = ()) -> Trace:
    assert tuple(p.reason for p in result.problems) == problems
    (trace,) = result.traces
    assert faults(trace) == []
    return trace


def texts(trace: Trace, call: int) -> list[str]:
    prompt = next(ids for c, ids in trace.prompts() if c.id == call)
    return [trace.blocks[b].text or "" for m in prompt for b in trace.messages[m].blocks]


def test_a_session_of_the_command_line(tmp_path: Path) -> None:
    trace = only(import_path(write_sessions(tmp_path, with_helper=False)))
    assert (trace.header.id, trace.header.agent, trace.header.agent_version) == ("s1", "cline", "3.0.65")
    assert trace.header.title == "Please fix the adder in the shop"
    assert [c.usage.prompt for c in trace.calls] == [9_000, 9_300, 9_400, 9_450]
    assert [c.usage.cached for c in trace.calls] == [0, 8_900, 9_200, 9_300]
    assert [c.usage.completion for c in trace.calls] == [80, 30, 12, 7]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0, 3), (11, 13), (14, 16), (39, 42)]
    assert all(c.marks == {"start": "derived"} for c in trace.calls)
    assert [(r.tool_call_id, r.start_s, r.end_s, r.error) for r in trace.tool_runs] == [
        ("c1", 3, 4, False),
        ("c2", 3, 11, False),
        ("c3", 13, 14, True),
    ]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [(1, "tool", 8), (2, "tool", 1), (3, "human", 23)]
    assert texts(trace, 0)[1].startswith("Be brief and careful.")


def test_a_sub_agent_is_found_by_its_prompt(tmp_path: Path) -> None:
    write_sessions(tmp_path)
    trace = only(import_path(tmp_path))
    (thread,) = trace.threads[1:]
    assert (thread.name, thread.parent, thread.spawn_call, thread.tool_call_id) == ("agent7", 0, 0, "c2")
    assert [c.joins for c in trace.calls_of(0)] == [(), (1,), (), ()]
    assert [r.thread for r in trace.tool_runs if r.tool_call_id == "c2"] == [1]
    assert [(w.cause, w.seconds) for w in trace.waits if w.before == trace.calls_of(0)[1].id] == [
        ("tool", 1),
        ("subagent", 7),
    ]
    assert len({r.tool_call_id for r in trace.tool_runs}) == 4


def test_one_file_and_its_folder_give_the_same(tmp_path: Path) -> None:
    main = write_sessions(tmp_path)
    assert [len(t.threads) for t in import_path(main).traces] == [2]
    assert [len(t.threads) for t in import_path(tmp_path).traces] == [2]
    alone = only(import_path(main.with_name("agent7.messages.json")))
    assert (alone.header.id, len(alone.calls)) == ("s1__agent7", 2)


def test_the_index_names_the_folder_of_sessions(tmp_path: Path) -> None:
    write_sessions(tmp_path)
    (tmp_path / "db").mkdir()
    path = tmp_path / "db" / "sessions.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE sessions (session_id TEXT PRIMARY KEY, messages_path TEXT)")
        db.commit()
    assert detect(path) == "cline"
    assert [len(t.calls) for t in import_path(path).traces] == [6]
    assert [len(t.calls) for t in import_path(tmp_path).traces] == [6]
    (tmp_path / "sessions").rename(tmp_path / "elsewhere")
    result = import_path(path)
    assert result.traces == ()
    assert result.problems[0].reason.startswith("is an index: there are no sessions in ")


def test_a_compaction_beside_the_session_replaces_the_first_messages(tmp_path: Path) -> None:
    main = write_sessions(tmp_path, with_helper=False)
    kept = {
        "role": "user",
        "content": [text("Context summary: the adder subtracts")],
        "metadata": {"kind": "compaction_summary"},
    }
    said = written(17, None, text("It subtracts where it should add."), metadata={"compaction": "preserved"})
    state = {"version": 1, "updated_at": "2026-02-03T04:06:30Z", "source_message_count": 7, "messages": [kept, said]}
    (main.parent / "s1.compaction.json").write_text(json.dumps(state))
    changed = shop()
    changed["messages"][-1]["metrics"] = {"inputTokens": 8_950, "cacheReadTokens": 0, "outputTokens": 7}
    main.write_text(json.dumps(changed))
    for path in (main, tmp_path):
        trace = only(import_path(path))
        assert [c.usage.prompt for c in trace.calls] == [9_000, 9_300, 9_400, 8_950]
        shown = [t for t in texts(trace, 3) if t and not t.startswith("Be brief")]
        assert shown[:2] == ["Context summary: the adder subtracts", "It subtracts where it should add."]
        assert not any("Please fix" in t for t in shown)


def test_kept_answers_of_a_compaction_are_no_requests(tmp_path: Path) -> None:
    kept = written(17, None, text("It subtracts."), metadata={"compaction": "preserved"})
    path = tmp_path / "x.compaction.json"
    path.write_text(json.dumps(session("s1", [heard(1, text("Fix it")), kept])))
    result = import_path(path)
    assert result.traces == ()
    assert [p.reason for p in result.problems] == ["holds no request to a model: nothing to replay"]


def test_a_task_by_what_was_shown(tmp_path: Path) -> None:
    folder = write_task(tmp_path, texts=False)
    trace = only(import_path(folder / "ui_messages.json"))
    assert (trace.header.id, trace.header.title) == ("1770091500000", "Please fix the adder in the shop")
    assert [c.usage.prompt for c in trace.calls] == [9_003, 9_303, None, 9_093]
    assert [c.usage.cached for c in trace.calls] == [0, 9_000, None, 9_000]
    assert [c.usage.completion for c in trace.calls] == [90, 20, None, 5]
    assert [c.aborted for c in trace.calls] == [False, False, True, False]
    # ends: a command's own time, what was shown after the last block, and the last block where it runs
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(1, 5.1), (9, 13), (41, 44), (61, 64)]
    assert all(c.marks["start"] == c.marks["end"] == "derived" for c in trace.calls)
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [
        ("readFile", 4.5, 5),
        ("command", 5.1, 8),
        ("completion_result", 12, 13),
    ]
    waits = [(w.before, w.cause, w.seconds) for w in trace.waits]
    assert waits == [
        (1, "tool", 2.9),
        (1, "client", 1.0),
        (2, "tool", 0.0),
        (2, "human", 27.0),
        (2, "client", 1.0),
        (3, "human", 16.0),
        (3, "client", 1.0),
    ]


def test_a_shortened_history_begins_anew_with_its_first_messages(tmp_path: Path) -> None:
    folder = write_task(tmp_path, texts=False)
    trace = only(import_path(folder / "ui_messages.json"))
    shown = texts(trace, 3)
    assert any("Please fix the adder" in t for t in shown)
    assert "Looking." in shown
    assert not any("def add" in t for t in shown)
    assert any("Go on" in t for t in shown)


def test_a_task_with_its_texts(tmp_path: Path) -> None:
    folder = write_task(tmp_path, texts=True)
    for path in (folder, folder / "ui_messages.json", folder / "api_conversation_history.json"):
        trace = only(import_path(path))
        assert [c.usage.prompt for c in trace.calls] == [9_003, 9_303, None, 9_093]
        assert [(r.tool_call_id, r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [
            ("t1", "read_file", 4.5, 5),
            ("t2", "execute_command", 5.1, 8),
            ("t3", "attempt_completion", 12, 13),
        ]
        assert "<environment_details>\nshop\n</environment_details>" in texts(trace, 0)
        answers = [m for m in trace.messages if m.tool_call_id == "t1"]
        assert answers
        assert {m.name for m in answers} == {"read_file"}


def test_texts_alone_are_estimated(tmp_path: Path) -> None:
    path = tmp_path / "api_conversation_history.json"
    path.write_text(json.dumps(history()))
    trace = only(import_path(path), ("4 responses, the first here, have no usage",))
    assert [c.usage.prompt for c in trace.calls] == [None] * 4
    assert {c.marks["completion"] for c in trace.calls} == {"estimated"}
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [
        (1, "tool", None),
        (2, "tool", None),
        (3, "human", None),
    ]


def test_newer_texts_have_usage_and_times(tmp_path: Path) -> None:
    log = [heard(1, text("<task>\nFix it\n</task>")), written(3, None, text("Done."))]
    log[1]["metrics"] = {"tokens": {"prompt": 5_000, "completion": 40, "cached": 1_000}, "cost": 0.1}
    log[1]["modelInfo"] = {"modelId": "big-model", "providerId": "x", "mode": "act"}
    path = tmp_path / "api_conversation_history.json"
    path.write_text(json.dumps(log))
    trace = only(import_path(path))
    (call,) = trace.calls
    assert (call.usage.prompt, call.usage.cached, call.usage.completion) == (5_000, 1_000, 40)
    assert (call.start_s, call.end_s, call.model) == (0, 2, "big-model")


def test_missing_times_leave_waits_unknown(tmp_path: Path) -> None:
    value = shop()
    for message in value["messages"]:
        del message["ts"]
    path = tmp_path / "s.messages.json"
    path.write_text(json.dumps(value))
    trace = only(import_path(path))
    assert {(c.start_s, c.end_s) for c in trace.calls} == {(None, None)}
    assert [(w.cause, w.seconds) for w in trace.waits] == [("tool", None), ("tool", None), ("human", None)]


def test_files_and_images_of_a_prompt(tmp_path: Path) -> None:
    picture = {"type": "image", "mediaType": "image/png", "data": "AAAA"}
    file = {"type": "file", "path": "a.py", "content": "print(1)\n"}
    value = session("s1", [heard(1, text("Look"), file, picture), written(3, (9_000, 0, 5), text("Seen."))])
    path = tmp_path / "s.messages.json"
    path.write_text(json.dumps(value))
    trace = only(import_path(path))
    assert "print(1)\n" in texts(trace, 0)
    assert [b.media for b in trace.blocks if b.media] == ["image/png"]


def test_damage_costs_one_message_and_is_said_with_its_line(tmp_path: Path) -> None:
    main = write_sessions(tmp_path, with_helper=False)
    data = main.read_text()
    at = data.index('"It subtracts where')
    main.write_text(data[:at] + data[at + 1 :])
    result = import_path(main)
    line = data.count("\n", 0, data.rindex('{\n      "role"', 0, at)) + 1
    assert [(p.line, p.reason) for p in result.problems] == [
        (line, "the file is damaged here: what could not be read was left out")
    ]
    assert [len(t.calls) for t in result.traces] == [3]
    main.write_text(data[:at])
    result = import_path(main)
    assert [(p.line, p.reason) for p in result.problems] == [
        (line, "the file is cut off or damaged here: what follows is lost")
    ]
    assert [len(t.calls) for t in result.traces] == [2]
    assert result.traces[0].header.id == "s1"


def test_a_count_that_cannot_be_is_said_with_its_line(tmp_path: Path) -> None:
    main = write_sessions(tmp_path, with_helper=False)
    data = main.read_text()
    main.write_text(data.replace('"inputTokens": 9300', '"inputTokens": -3'))
    result = import_path(main)
    line = data.count("\n", 0, data.rindex('{\n      "role"', 0, data.index('"inputTokens": 9300'))) + 1
    assert [(p.line, p.reason) for p in result.problems] == [
        (line, "inputTokens is not a credible count and was left out"),
        (line, "1 responses, the first here, have no usage"),
    ]


def test_a_cut_off_task_keeps_its_first_requests(tmp_path: Path) -> None:
    folder = write_task(tmp_path, texts=False)
    path = folder / "ui_messages.json"
    data = path.read_text()
    path.write_text(data[: data.index("Then change it")])
    result = import_path(path)
    assert [(p.line, p.reason) for p in result.problems] == [
        (1, "the file is cut off or damaged here: what follows is lost")
    ]
    assert [c.usage.prompt for t in result.traces for c in t.calls] == [9_003, 9_303]


def test_a_request_without_usage_is_said(tmp_path: Path) -> None:
    folder = write_task(tmp_path, texts=False)
    log = task()
    log[17]["text"] = '{"request": "x"}'
    (folder / "ui_messages.json").write_text(json.dumps(log))
    result = import_path(folder / "ui_messages.json")
    assert [p.reason for p in result.problems] == [
        "the request has no usage: it was still under way or its figures are lost"
    ]


@pytest.mark.parametrize("name", ["s1.messages.json", "ui_messages.json", "api_conversation_history.json"])
def test_an_empty_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    result = import_path(tmp_path / name)
    assert (result.traces, [p.reason for p in result.problems]) == ((), ["the file is empty"])
    (tmp_path / name).write_bytes(b"[]")
    assert import_path(tmp_path / name, "cline").traces == ()


def test_a_helper_that_was_never_asked_for_runs_from_the_start(tmp_path: Path) -> None:
    main = write_sessions(tmp_path)
    other = helper()
    other["messages"][0]["content"][0]["text"] = "Something else entirely"
    (main.parent / "agent7.messages.json").write_text(json.dumps(other))
    (trace,) = import_path(main).traces
    assert (trace.threads[1].spawn_call, trace.threads[1].background) == (None, True)
