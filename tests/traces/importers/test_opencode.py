"""opencode sessions made up for the purpose, in all three forms."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, detect, import_path
from windtunnel.traces.model import Trace

from .opencode_logs import Json, answer, fill, said, session, shop, tool, user, write_database, write_export, write_tree

Writer = Callable[[Path, list[Json]], Path]


def as_database(folder: Path, sessions: list[Json]) -> Path:
    return write_database(folder / "opencode.db", sessions)


def as_tree(folder: Path, sessions: list[Json]) -> Path:
    return write_tree(folder / "storage", sessions)[0]


def as_exports(folder: Path, sessions: list[Json]) -> Path:
    write_export(folder, sessions)
    return folder


FORMS = (as_database, as_tree, as_exports)


def only(result: Imported, problems: tuple[str, ...] = ()) -> Trace:
    assert tuple(p.reason for p in result.problems) == problems
    (trace,) = result.traces
    assert faults(trace) == []
    return trace


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_session(form: Writer, tmp_path: Path) -> None:
    trace = only(import_path(form(tmp_path, shop())))
    assert (trace.header.id, trace.header.agent, trace.header.agent_version) == ("ses_a", "opencode", "1.18.33")
    assert trace.header.title == "Please fix the adder in the shop, it"
    main, child = trace.calls_of(0), trace.calls_of(1)
    assert [c.usage.prompt for c in main] == [9_000, 9_300, 500, 9_000, None]
    assert [c.usage.cached for c in main] == [0, 9_000, 0, 8_800, None]
    assert [c.usage.completion for c in main] == [80, 30, 25, 12, None]
    assert [c.usage.reasoning for c in main] == [20, 0, 0, 0, None]
    assert [c.kind for c in main] == ["turn", "turn", "compaction", "turn", "turn"]
    assert [c.aborted for c in main] == [False, False, False, False, True]
    assert [c.stop for c in main][:2] == ["tool_use", "end_turn"]
    assert [c.usage.prompt for c in child] == [5_000, 5_040]


@pytest.mark.parametrize("form", FORMS)
def test_times_are_of_the_parts_and_marked(form: Writer, tmp_path: Path) -> None:
    trace = only(import_path(form(tmp_path, shop())))
    main = trace.calls_of(0)
    # ends: the first tool's start, the last text's end, and for a stopped one what the message says
    assert [(c.start_s, c.end_s) for c in main] == [(1, 3), (9, 10), (12.5, 14), (14.2, 16), (40, 43)]
    assert all(c.marks["start"] == "derived" for c in trace.calls)
    runs = {(r.name, r.start_s, r.end_s, r.error, r.mark) for r in trace.tool_runs}
    assert ("read", 3, 4, False, "recorded") in runs
    assert ("bash", 10, 12, True, "recorded") in runs
    waits = [(w.before, w.cause, w.seconds) for w in trace.waits if trace.calls[w.before].thread == 0]
    first = main[1].id
    assert waits[:3] == [(first, "tool", 1), (first, "subagent", 4), (first, "client", 1)]
    assert [(w[1], w[2]) for w in waits if w[0] == main[4].id] == [("human", 23), ("client", 1)]


@pytest.mark.parametrize("form", FORMS)
def test_a_sub_agent_is_a_thread_of_its_task(form: Writer, tmp_path: Path) -> None:
    trace = only(import_path(form(tmp_path, shop())))
    assert [(t.parent, t.spawn_call, t.name, t.background) for t in trace.threads[1:]] == [(0, 0, "Look at it", False)]
    assert [c.joins for c in trace.calls_of(0)] == [(), (1,), (), (), ()]
    (task,) = [r for r in trace.tool_runs if r.thread == 1]
    assert task.tool_call_id == trace.threads[1].tool_call_id == "c2"
    # both sessions have a call c1: a trace's ids differ
    assert sorted(r.tool_call_id for r in trace.tool_runs) == ["c1", "c1#2", "c2", "c3"]


def test_a_compaction_is_an_aside_and_the_next_prompt_begins_anew(tmp_path: Path) -> None:
    trace = only(import_path(as_database(tmp_path, shop())))
    compaction, after = trace.calls_of(0)[2:4]
    assert compaction.keep == 0
    prompts = {c.id: ids for c, ids in trace.prompts()}
    fronts = [trace.blocks[trace.messages[prompts[i][0]].blocks[0]].digest for i in (0, compaction.id, after.id)]
    # the system prompt of the conversation is not the one of the agent that writes summaries
    assert fronts[2] == fronts[0] != fronts[1]
    texts = [trace.blocks[b].text for m in prompts[after.id] for b in trace.messages[m].blocks]
    assert "Summary: the adder subtracts." in texts
    assert not any(t and t.startswith("Please fix") for t in texts)


def test_a_compaction_that_failed_changes_nothing(tmp_path: Path) -> None:
    (main, child) = shop()
    main["messages"][3]["info"]["error"] = {"name": "APIError"}
    main["messages"][5]["info"]["tokens"]["input"] = 700
    trace = only(import_path(as_database(tmp_path, [main, child])))
    failed, after = trace.calls_of(0)[2:4]
    assert (failed.kind, failed.aborted) == ("compaction", True)
    texts = [
        trace.blocks[b].text
        for c, ids in trace.prompts()
        if c.id == after.id
        for m in ids
        for b in trace.messages[m].blocks
    ]
    assert "Please fix the adder in the shop, it subtracts" in texts
    assert "no such file" in texts


def shown(trace: Trace, call: int) -> list[str]:
    prompt = next(ids for c, ids in trace.prompts() if c.id == call)
    return [trace.blocks[b].text or "" for m in prompt for b in trace.messages[m].blocks]


def test_a_compaction_may_keep_the_end_of_the_history(tmp_path: Path) -> None:
    (main, child) = shop()
    request = user(35, 13.2, "")
    request["parts"] = [{"id": "prt_35", "type": "compaction", "auto": True, "tail_start_id": "msg_0030"}]
    main["messages"].insert(3, request)
    trace = only(import_path(as_database(tmp_path, [main, child])))
    after = trace.calls_of(0)[3]
    texts = [t for t in shown(trace, after.id) if t]
    assert texts == ["Summary: the adder subtracts.", "no such file", "Continue if you have next steps."]
    sent = next(ids for c, ids in trace.prompts() if c.id == after.id)
    assert [c.id for m in sent for c in trace.messages[m].tool_calls] == ["c3"]


def test_a_result_that_was_cleared_is_not_sent_again(tmp_path: Path) -> None:
    (main, child) = shop()
    long = "def add(a, b):\n    return a - b\n" * 40
    read = main["messages"][1]["parts"][2]["state"]
    read.update(output=long, time={**read["time"], "compacted": read["time"]["end"] + 6_000})
    del main["messages"][3:5]
    trace = only(import_path(as_database(tmp_path, [main, child])))
    calls = trace.calls_of(0)
    assert any(t.startswith("def add") for t in shown(trace, calls[1].id))
    later = shown(trace, calls[2].id)
    assert "[Old tool result content cleared]" in later
    assert not any(t.startswith("def add") for t in later)
    assert later[1].startswith("Please fix the adder")
    assert [(w.cause, w.seconds) for w in trace.waits if w.before == calls[2].id] == [("tool", 2), ("client", 2.2)]


def test_one_session_in_two_places_is_read_once(tmp_path: Path) -> None:
    sessions = shop()
    write_database(tmp_path / "opencode.db", sessions)
    shorter = {**sessions[0], "messages": sessions[0]["messages"][:2]}
    (export,) = write_export(tmp_path, [shorter])
    result = import_path(tmp_path)
    assert [len(t.calls) for t in result.traces] == [7]
    (problem,) = result.problems
    assert problem.file == str(export)
    assert problem.reason.endswith("opencode.db, which has it too")


def test_roots_of_one_database_are_sessions_of_their_own(tmp_path: Path) -> None:
    other = session("ses_c", [user(1, 1, "Hello there"), answer(2, 2, 3, (50, 0, 0, 5, 0), [said("Hi", 2.5, 3)])])
    result = import_path(as_database(tmp_path, [*shop(), other]))
    assert [(t.header.id, len(t.calls)) for t in result.traces] == [("ses_a", 7), ("ses_c", 1)]


@pytest.mark.parametrize("begun", [True, False])
def test_a_live_database_is_read_with_its_log_and_left_alone(begun: bool, tmp_path: Path) -> None:
    """In one that was never tidied up, everything stands in the log, the tables too."""
    path = tmp_path / "opencode.db"
    if begun:
        write_database(path, shop())
    with closing(sqlite3.connect(path)) as live:
        live.execute("PRAGMA journal_mode=WAL")
        live.execute("PRAGMA wal_autocheckpoint=0")
        if not begun:
            fill(live, shop())
        text = json.dumps(answer(90, 50, 52, (10, 9_000, 0, 4, 0), [said("Late.", 51, 52)])["info"])
        live.execute("INSERT INTO message VALUES ('msg_0090', 'ses_a', ?)", (text,))
        live.commit()
        before = sorted((p.name, p.stat().st_size) for p in tmp_path.iterdir())
        (trace,) = import_path(tmp_path).traces
        assert sorted((p.name, p.stat().st_size) for p in tmp_path.iterdir()) == before
    assert trace.calls_of(0)[-1].usage.prompt == 9_010


def test_another_database_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE session (id text)")
        db.commit()
    assert detect(path) is None


def test_an_exported_sub_agent_alone_is_a_session(tmp_path: Path) -> None:
    paths = write_export(tmp_path, shop())
    trace = only(import_path(paths[1]))
    assert (trace.header.id, len(trace.threads), len(trace.calls)) == ("ses_b", 1, 2)


def test_without_times_waits_are_unknown(tmp_path: Path) -> None:
    sessions = [session("ses_a", shop()[0]["messages"][:3])]
    for message in sessions[0]["messages"]:
        del message["info"]["time"]
        for part in message["parts"]:
            part.pop("time", None)
            part.get("state", {}).pop("time", None)
    reason = "has no usable time: waits around it are not known"
    trace = only(
        import_path(as_database(tmp_path, sessions)), (f"message msg_0020 {reason}", f"message msg_0030 {reason}")
    )
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(None, None), (None, None)]
    assert [(w.cause, w.seconds, w.mark) for w in trace.waits] == [("tool", None, "estimated")]


def test_a_message_without_usage_is_estimated_and_said(tmp_path: Path) -> None:
    main = shop()[0]
    del main["messages"][1]["info"]["tokens"]
    trace = only(
        import_path(as_database(tmp_path, [main])), ("message msg_0020 has no usage: its prompt size is estimated",)
    )
    assert trace.calls[0].usage.prompt is None
    assert trace.calls[0].marks["completion"] == "estimated"


def test_usage_may_stand_on_the_step_only(tmp_path: Path) -> None:
    main = shop()[0]
    tokens = main["messages"][1]["info"].pop("tokens")
    main["messages"][1]["parts"].append({"id": "prt_z", "type": "step-finish", "tokens": tokens})
    trace = only(import_path(as_database(tmp_path, [main])))
    assert trace.calls[0].usage.prompt == 9_000


def test_an_attached_image_is_a_stand_in(tmp_path: Path) -> None:
    main = session(
        "ses_a",
        [
            user(1, 1, "What is on it?"),
            answer(2, 2, 3, (3_000, 0, 0, 5, 0), [tool("t", "read", 2.5, 3, "a picture", attachments=[{"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}])]),
            answer(3, 4, 5, (5_000, 0, 0, 5, 0), [said("A cat", 4, 5)]),
        ],
    )  # fmt: skip
    trace = only(import_path(as_database(tmp_path, [main])))
    assert [b.media for b in trace.blocks if b.media] == ["image/png"]


def broken(result: Imported) -> list[tuple[str, int | None, str]]:
    return [(Path(p.file).name, p.line, p.reason) for p in result.problems]


def test_a_cut_off_export_keeps_its_first_messages(tmp_path: Path) -> None:
    (path, _) = write_export(tmp_path, shop())
    data = path.read_text()
    cut = data.index('"msg_0060"')
    path.write_text(data[:cut])
    result = import_path(path)
    line = data.count("\n", 0, data.rindex('{\n      "info"', 0, cut)) + 1
    assert broken(result) == [(path.name, line, "the file is cut off or damaged here: what follows is lost")]
    assert [len(t.calls) for t in result.traces] == [3]


def test_damage_inside_an_export_costs_one_message(tmp_path: Path) -> None:
    (path, _) = write_export(tmp_path, shop())
    path.write_text(path.read_text().replace('"Looking."', '"Looking.'))
    result = import_path(path)
    assert [len(t.calls) for t in result.traces] == [4]
    assert [r for _, _, r in broken(result)] == ["the file is damaged here: what could not be read was left out"]


def test_a_damaged_file_of_the_tree_costs_itself(tmp_path: Path) -> None:
    path = as_tree(tmp_path, shop())
    root = tmp_path / "storage"
    (root / "message" / "ses_a" / "msg_0030.json").write_text('{"id": "msg_0030", "role": ')
    (root / "part" / "msg_0020" / "prt_0020_1.json").write_text("")
    result = import_path(path)
    found = [(f, r.partition(" (")[0]) for f, _, r in broken(result)]
    assert found == [
        ("prt_0020_1.json", "the file is empty"),
        ("msg_0030.json", "is not valid JSON and was left out"),
    ]
    assert [len(t.calls) for t in result.traces] == [6]


def test_damaged_databases_say_what_is_lost(tmp_path: Path) -> None:
    path = as_database(tmp_path, shop())
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE message SET data = '{\"role\"' WHERE id = 'msg_0060'")
        db.execute("UPDATE part SET data = 'null' WHERE id = 'prt_0080'")
        db.execute("DELETE FROM session WHERE id = 'ses_b'")
        db.commit()
    reasons = [r for _, _, r in broken(import_path(path))]
    assert "message msg_0060 is not a JSON object and was left out" in reasons
    assert "message msg_0022 is of a session that is not in the database: a session was made for it" in reasons
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    result = import_path(path)
    assert any("database" in r for _, _, r in broken(result))


@pytest.mark.parametrize("name", ["opencode.db", "export_ses_a.json"])
def test_an_empty_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    assert broken(import_path(tmp_path / name)) == [(name, None, "the file is empty")]


def test_a_session_without_messages(tmp_path: Path) -> None:
    path = as_tree(tmp_path, [session("ses_a", [])])
    result = import_path(path)
    assert result.traces == ()
    assert [r.partition(" in ")[0] for _, _, r in broken(result)] == [
        "the session has no messages",
        "session ses_a holds no request to a model",
    ]
