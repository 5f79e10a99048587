"""What must not be opened, numbers that no run has, and lines without an end: told in a sentence, and read over."""

import os
from pathlib import Path

import pytest

from windtunnel.simulator.diagnose import diagnose
from windtunnel.simulator.experiments.claim import log_of
from windtunnel.simulator.experiments.kept import at_work, name_of
from windtunnel.simulator.experiments.runs import setting_differences
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.tail import Tail
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Problem


@pytest.mark.parametrize("name", ["events.jsonl", "text.jsonl", "run.json"])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is a folder and not a file"),
        (os.mkfifo, "is a FIFO and not a file"),
        (lambda path: path.symlink_to(path.name), r"cannot be read \(Too many levels of symbolic links\)"),
    ],
)
def test_what_is_no_regular_file_is_never_opened(tmp_path, name, make, said):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    with pytest.raises(UsageError, match=said):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"wait_end","t":1,"agent":-1,"session":"s","thread":0,"call":0,"cause":"tool"}',
        b'{"type":"wait_end","t":1,"agent":1999999999,"session":"s","thread":0,"call":0,"cause":"tool"}',
        b'{"type":"wait_end","t":1,"agent":4,"session":"s","thread":0,"call":0,"cause":"tool"}',
        b'{"type":"wait_end","t":1,"agent":%d,"session":"s","thread":0,"call":0,"cause":"tool"}' % 2**70,
        b'{"type":"run_start","t":0,"agents":1000000000,"wall_clock":0.0}',
        b'{"type":"heartbeat","t":-1}',
        b'{"type":"heartbeat","t":%d}' % 10**18,
        b'{"type":"progress","t":1,"output_tokens":0,"prompt_tokens":0,"in_flight":0,"in_tool":0,"waiting":0%s}'
        % b',"agents":[[4,0,0,"decode",1]]',
        b'{"type":"progress","t":1,"output_tokens":-5,"prompt_tokens":0,"in_flight":0,"in_tool":0,"waiting":0}',
        b'{"type":"client_sample","t":1,"lag_us":[%d]}' % 2**70,
        b'{"type":"engine_sample","t":1,"scrape_ms":1.0,"running":1e308}',
        b'{"type":"call_end","t":1,"agent":0,"session":"s","thread":0,"call":0,"request_id":"r","t_intended":0,'
        b'"chunks":{"us":[%d],"n":[1]}}' % 2**70,
    ],
)
def test_numbers_out_of_range_cost_their_line_only(tmp_path, line):
    (tmp_path / "run.json").write_text('{"agents": 4}')
    good = b'{"type":"wait_end","t":5,"agent":3,"session":"s","thread":0,"call":0,"cause":"tool"}'
    (tmp_path / "events.jsonl").write_bytes(b"\n".join([good, line, good, b""]))
    problems: list[Problem] = []
    events = list(RunFolder.open(tmp_path).events(problems))
    assert [event.t for event in events] == [5, 5]
    assert [problem.line for problem in problems] == [2]
    fold = Fold({"agents": 4})
    fold.apply_all(events)
    assert len(fold.agents) == 4


def test_a_recording_grows_by_agents_that_nobody_counted_before(tmp_path):
    (tmp_path / "run.json").write_text('{"kind": "recording", "agents": 1}')
    line = b'{"type":"wait_end","t":5,"agent":700,"session":"s","thread":0,"call":0,"cause":"tool"}\n'
    (tmp_path / "events.jsonl").write_bytes(line)
    assert len(list(RunFolder.open(tmp_path).events())) == 1


def test_a_long_line_is_read_in_steps_of_the_asked_length(tmp_path):
    path = tmp_path / "events.jsonl"
    note = b'{"type":"note","t":7,"level":"info","text":"' + b"x" * 6_000_000 + b'"}\n'
    path.write_bytes(note)
    tail = Tail(path)
    steps, got = 0, []
    while (events := tail.step(1 << 16)) or not tail.ended:
        assert tail.read <= (steps + 1) << 16
        steps, got = steps + 1, got + events
    assert (steps, [event.t for event in got], tail.line) == (-(-len(note) // (1 << 16)), [7], 2)
    assert tail.problems == []
    assert not tail.partial
    tail.close()


def test_a_line_that_never_ends_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("windtunnel.simulator.results.tail.LONGEST_LINE", 1 << 20)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"x" * (5 << 20) + b'\n{"type":"heartbeat","t":1}\n')
    tail = Tail(path)
    most, got = 0, []
    while (events := tail.step(1 << 16)) or not tail.ended:
        most, got = max(most, len(tail.partial)), got + events
    tail.close()
    assert most <= 1 << 20
    assert [event.t for event in got] == [1]
    assert [(problem.line, problem.reason) for problem in tail.problems] == [(1, "longer than 1 MiB")]


def test_an_experiments_files_are_not_opened_either(tmp_path):
    for name in ("experiment.json", "log.jsonl", "lock", "outcome.json"):
        os.mkfifo(tmp_path / name)
    assert name_of(tmp_path) == tmp_path.name
    assert log_of(tmp_path) == []
    assert at_work(tmp_path) is False


@pytest.mark.parametrize("damaged", [5, "x", [1], True, {"resolved": 5}, {"resolved": [1]}, {"resolved": "x"}, None])
def test_an_engine_of_another_type_tells_no_settings(damaged):
    assert setting_differences({"engine": damaged}, {"engine": {"resolved": {"a": 1}}}) == ["a: 1"]


def test_traces_named_by_what_is_no_name_are_left_out(tmp_path):
    (tmp_path / "run.json").write_text('{"traces": [{"id": [1], "path": 5}, {"id": {}}, 7]}')
    (tmp_path / "events.jsonl").write_bytes(b"")
    assert diagnose(tmp_path)[1].calls == 0
