import json
import os

import pytest
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.errors import TraceError, UsageError
from windtunnel.traces.format import encode_trace, write_trace
from windtunnel.traces.sources import load

from .importers import claude_logs


def test_nothing_named_is_the_whole_library():
    loaded = load([])
    assert len(loaded.traces) == len(library.names()) >= 16
    assert loaded.problems == ()
    assert load(["library"]) == load(["library:mixed"]) == loaded


def test_library_groups_and_sessions():
    assert [t.header.title for t in load(["library:small"]).traces] == list(library.SMALL)
    assert [t.header.title for t in load(["library:fix-importer", "library:dark-theme"]).traces] == [
        "fix-importer",
        "dark-theme",
    ]
    with pytest.raises(TraceError, match="no session or group 'nope'; choose from mixed, small, recorded, "):
        load(["library:nope"])


def test_a_file_and_a_folder(small, tmp_path):
    write_trace(small, tmp_path / "a.jsonl")
    other = replace(small, header=replace(small.header, id="s2"))
    write_trace(other, tmp_path / "deep" / "b.jsonl.zst")
    assert load([str(tmp_path / "a.jsonl")]).traces == (small,)
    assert load([str(tmp_path)]).traces == (small, other)


def test_other_files_beside_traces_are_no_problem(small, tmp_path):
    """A recording's folder has traces and a run's own files."""
    write_trace(small, tmp_path / "traces" / "a.jsonl.zst")
    (tmp_path / "events.jsonl").write_text('{"type": "heartbeat", "t": 1}\n')
    (tmp_path / "run.json").write_text("{}")
    loaded = load([f"{tmp_path}/"])
    assert (loaded.traces, loaded.problems) == ((small,), ())


def test_a_file_named_twice_counts_once(small, tmp_path):
    write_trace(small, tmp_path / "a.jsonl")
    path = str(tmp_path / "a.jsonl")
    for specs in ([path, str(tmp_path)], [path, path], [str(tmp_path), str(tmp_path)]):
        loaded = load(specs)
        assert len(loaded.traces) == 1
        assert [(p.file, p.reason) for p in loaded.problems] == [(specs[1], "it was named before and is used once")]


def test_a_log_named_twice_counts_once(tmp_path):
    log = [json.dumps(line) for line in claude_logs.shop()]
    early, late = tmp_path / "a" / "s-1.jsonl", tmp_path / "b" / "s-1.jsonl"
    for path, kept in ((early, 3), (late, len(log))):
        path.parent.mkdir()
        path.write_text("\n".join(log[:kept]) + "\n")
    twice = load([str(late), str(late), str(late.parent)])
    assert [len(t.calls) for t in twice.traces] == [3]
    assert [p.reason for p in twice.problems] == [
        "it was named before and is used once",
        "the session s-1 was read twice and is used once",
    ]
    grown = load([str(early), str(late)])
    assert grown.paths == (str(late),)
    assert [p.file for p in grown.problems] == [str(early)]
    forced = load([str(late), str(late)], "claude-code")
    assert (len(forced.traces), len(forced.problems)) == (1, 1)


def test_a_sub_agents_file_beside_its_session_counts_once(tmp_path):
    main = claude_logs.with_task(claude_logs.shop())
    agent = claude_logs.sub_agent(claude_logs.shop(), "a7")
    names = {"s-1.jsonl": main, "agent-a7.jsonl": agent}
    for name, log in names.items():
        (tmp_path / name).write_text("\n".join(json.dumps(line) for line in log) + "\n")
    whole = load([str(tmp_path)])
    globbed = load([str(tmp_path / name) for name in sorted(names)])
    assert [len(t.calls) for t in globbed.traces] == [len(t.calls) for t in whole.traces]
    assert [p.file for p in globbed.problems] == [str(tmp_path / "agent-a7.jsonl")]


def test_shapes_count_as_often_as_they_are_named():
    assert len(load(["shape:512x16", "shape:512x16"]).traces) == 2 * len(load(["shape:512x16"]).traces)


def test_how_many_were_left_out_is_told(small, tmp_path):
    for name in "abc":
        write_trace(small, tmp_path / name / "t.jsonl")
    loaded = load([str(tmp_path / name) for name in "abc"])
    assert len(loaded.traces) == 1
    assert loaded.problems[0].reason == "of 3 sessions 2 are left out, as other sessions have all of their calls"


def test_damage_is_told_and_the_rest_used(small, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(encode_trace(small)[:-30])
    loaded = load([str(tmp_path / "a.jsonl")])
    assert len(loaded.traces) == 1
    assert [p.reason[:8] for p in loaded.problems] == ["not JSON"]


def _content(name, small):
    future = replace(small, header=replace(small.header, schema="windtunnel.trace/7"))
    no_calls = replace(small, calls=(), tool_runs=(), waits=(), threads=())
    return {
        "text": b"hello\nworld\n",
        "empty": b"",
        "json": json.dumps({"a": 1}).encode(),
        "future": encode_trace(future),
        "no calls": encode_trace(no_calls),
        "deep": b'{"a":' * 200_000,
        "no UTF-8": b'{"type":"\xff"}\n',
    }[name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("text", "is no trace"),
        ("empty", "is no trace"),
        ("json", "is no trace"),
        ("future", "schema windtunnel.trace/7"),
        ("no calls", "no session with calls"),
        ("deep", "is no trace"),
        ("no UTF-8", "is no trace"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(name, said, small, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(_content(name, small))
    with pytest.raises(TraceError) as error:
        load([str(path)])
    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


def test_empty_folder_missing_file_and_folder_without_traces(tmp_path):
    with pytest.raises(TraceError, match="empty folder"):
        load([str(tmp_path)])
    with pytest.raises(TraceError, match="does not exist"):
        load([str(tmp_path / "missing")])
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(TraceError, match="holds no trace"):
        load([str(tmp_path)])


def test_a_line_nested_too_deeply_costs_only_itself(small, tmp_path):
    head, _, rest = encode_trace(small).partition(b"\n")
    (tmp_path / "a.jsonl").write_bytes(head + b"\n" + b'{"a":' * 200_000 + b"\n" + rest)
    loaded = load([str(tmp_path / "a.jsonl")])
    assert loaded.traces == (small,)
    assert [(p.line, p.reason) for p in loaded.problems] == [(2, "not a line of a trace: nested too deeply")]


def test_names_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for spec, said in (
        (str(tmp_path / "pipe"), "neither a file nor a folder"),
        (str(tmp_path / "loop"), "symbolic links"),
        ("", "empty name"),
        ("~no-such-person/x", "home directory"),
        ("x" * 5000, "name too long"),
        ("a\0b", "null (?:byte|character)"),
    ):
        with pytest.raises(TraceError, match=f"(?i){said}") as error:
            load([spec])
        assert len(str(error.value)) < 400


def test_a_place_that_cannot_be_written_is_one_sentence(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*choose another folder"):
        write_trace(small, tmp_path / "file" / "a.jsonl")


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(TraceError, match="Permission denied"):
        load([str(tmp_path)])


def test_a_runs_folder_says_that_it_is_one(tmp_path):
    run = tmp_path / "w8"
    run.mkdir()
    (run / "run.json").write_text('{"schema": "windtunnel.run/1", "agents": 8}')
    (run / "events.jsonl").write_text('{"type":"run_start","t":0,"agents":8,"wall_clock":1.0}\n')
    with pytest.raises(TraceError) as told:
        load([str(run)])
    assert str(told.value) == (
        f"{run} is a run and holds no sessions: give a recording's folder or the traces that it replayed; "
        f"`windtunnel why {run}` tells of its prompts"
    )
    (run / "run.json").write_text('{"schema": "windtunnel.run/1", "kind": "recording"}')
    with pytest.raises(TraceError, match="is a recording in which no session was kept"):
        load([str(run)])
    (run / "run.json").write_text("{}")
    with pytest.raises(TraceError, match="holds no trace and no session log that can be imported"):
        load([str(run)])
