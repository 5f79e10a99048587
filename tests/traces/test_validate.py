import json

import pytest
from msgspec.structs import replace

from windtunnel.traces.errors import TraceError
from windtunnel.traces.format import encode_trace, write_trace
from windtunnel.traces.model import Usage, Wait
from windtunnel.traces.validate import validate


def lines_of(trace, **marks):
    """The trace's lines, and the number of the one that holds each given piece of JSON."""
    lines = encode_trace(trace).decode().splitlines()
    numbers = {
        name: 1 + next(i for i, line in enumerate(lines) if all(part in line for part in parts))
        for name, parts in marks.items()
    }
    return lines, numbers


def test_a_sound_trace(tmp_path, small):
    write_trace(small, tmp_path / "a.jsonl.zst")
    write_trace(small, tmp_path / "b.jsonl")
    found = validate([str(tmp_path)])
    assert (found.files, found.sessions, found.calls, found.problems) == (2, 2, 8, ())


def test_each_fault_has_the_line_it_is_about(tmp_path, small):
    bad = replace(small.calls[2], usage=Usage(prompt=300, cached=400, completion=5, reasoning=9), first_s=9.0)
    runs = (replace(small.tool_runs[0], end_s=1.0), small.tool_runs[1])
    waits = (*small.waits[:3], Wait(3, "human", -2.0))
    trace = replace(small, calls=(*small.calls[:2], bad, small.calls[3]), tool_runs=runs, waits=waits)
    path = tmp_path / "t.jsonl"
    path.write_bytes(encode_trace(trace))
    places = {"run": ('"type":"tool_run"', '"t1"'), "wait": ('"type":"wait"', "-2")}
    _, at = lines_of(trace, call=('"type":"call"', '"id":2'), **places)
    found = validate([str(path)])
    unknown = "its times are taken as unknown"
    late = f"call 2 has its end at 5 s, before its first token at 9 s: {unknown}"
    assert {(p.file, p.line, p.reason) for p in found.problems} == {
        (str(path), at["call"], "call 2 has a prompt of 300 tokens, its blocks sum to 307"),
        (str(path), at["call"], late),
        (str(path), at["run"], f"tool run t1 ends at 1 s, before it starts: {unknown}"),
        (str(path), at["wait"], "the wait before call 3 is negative: its length is taken as unknown"),
    }
    mended = replace(bad, usage=replace(bad.usage, prompt=307))
    trace = replace(trace, calls=(*small.calls[:2], mended, small.calls[3]), waits=small.waits)
    path.write_bytes(encode_trace(trace))
    _, at = lines_of(trace, call=('"type":"call"', '"id":2'), run=('"type":"tool_run"', '"t1"'))
    assert {(p.line, p.reason) for p in validate([str(path)]).problems} == {
        (at["call"], "call 2 has 400 cached tokens in a prompt of 307"),
        (at["call"], "call 2 has 9 reasoning tokens in an output of 5"),
        (at["call"], late),
        (at["run"], f"tool run t1 ends at 1 s, before it starts: {unknown}"),
    }


def test_answers_nobody_asked_for_and_joins_before_the_end(tmp_path, small):
    stray = replace(small.messages[3], tool_call_id="t9")
    early = replace(small.calls[2], start_s=3.0)
    trace = replace(
        small,
        messages=(*small.messages[:3], stray, *small.messages[4:]),
        calls=(*small.calls[:2], early, small.calls[3]),
    )
    path = tmp_path / "t.jsonl"
    path.write_bytes(encode_trace(trace))
    lines, at = lines_of(trace, message=('"type":"message"', '"t9"'), call=('"type":"call"', '"id":2'))
    assert {(p.line, p.reason) for p in validate([str(path)]).problems} == {
        (at["message"], "message 3 answers the tool call t9, which nobody made"),
        (at["call"], "call 2 starts at 3 s and joins thread 1, which ends at 4 s"),
    }
    assert len(lines) > at["call"] > 1


def test_lines_hold_behind_lost_ones(tmp_path, small):
    """A block that nothing needs is lost, the ids behind it move, the lines stay."""
    spare = replace(small.blocks[9], id=10)
    trace = replace(small, blocks=(*small.blocks, spare), calls=(*small.calls[:3], replace(small.calls[3], end_s=60.0)))
    lines, at = lines_of(trace, call=('"type":"call"', '"id":3'), first=('"type":"call"', '"id":0'))
    lines[at["first"]] = "{broken"
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines))
    problems = validate([str(path)]).problems
    assert (at["first"] + 1, True) in {(p.line, p.reason.startswith("not JSON")) for p in problems}
    told = [p for p in problems if "before its start" in p.reason]
    assert [p.line for p in told] == [at["call"]]


def test_several_sessions_of_one_file_are_told_apart(tmp_path, small):
    bad = replace(small, header=replace(small.header, id="s2"), waits=(Wait(2, "tool", -1.0),))
    path = tmp_path / "two.jsonl"
    path.write_bytes(encode_trace(small) + encode_trace(bad))
    number = len(encode_trace(small).splitlines())
    _, at = lines_of(bad, wait=('"type":"wait"',))
    (problem,) = validate([str(path)]).problems
    assert problem.line == number + at["wait"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "empty"), ("hello\n", "none of the formats"), ('{"type":"trace","id":"x"}\n', "no session with calls")],
)
def test_files_that_hold_no_session(content, reason, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    (problem,) = validate([str(path)]).problems
    assert problem.file == str(path)
    assert reason in problem.reason


def test_what_is_not_there_is_an_error(tmp_path):
    with pytest.raises(TraceError, match="does not exist"):
        validate([str(tmp_path / "nowhere")])


def test_the_library_is_sound():
    found = validate([])
    assert (found.sessions, found.problems) == (24, ())


def test_recorded_logs(recorded):
    found = validate([str(recorded / "claude-code")])
    told = {(p.file.removeprefix(str(recorded) + "/"), p.line) for p in found.problems}
    assert ("claude-code/derived-truncated-tail.jsonl", 110) in told
    assert ("claude-code/entire-2.0.76-badline-2models.jsonl", 172) in told
    assert not [p for p in found.problems if "blocks sum to" in p.reason]


def test_a_spec_is_named_as_it_was_given(tmp_path, small, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    bad = replace(small, waits=(Wait(2, "tool", -1.0),))
    (tmp_path / "in" / "t.jsonl").write_bytes(encode_trace(bad))
    assert [p.file for p in validate(["in"]).problems] == ["in/t.jsonl"]
    assert [p.file for p in validate(["in/t.jsonl"]).problems] == ["in/t.jsonl"]


def test_json_line_of_every_kind_is_known(tmp_path, small):
    """Unknown kinds are a newer writer's and no fault."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(encode_trace(small) + json.dumps({"type": "weather", "sun": True}).encode() + b"\n")
    assert validate([str(path)]).problems == ()
