"""The run folder: written whole, read in spite of damage, and followed while it grows."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from windtunnel.agents.events import CallEnd, Chunks, Note, Phase, RunEnd
from windtunnel.simulator.cli import cli
from windtunnel.simulator.experiments.kept import read_outcome
from windtunnel.simulator.opening import kind_of
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RunFolder, without_description
from windtunnel.simulator.results.summary import recompute, summarise
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.results.tail import Tail
from windtunnel.simulator.view import print_run
from windtunnel.simulator.why import explain
from windtunnel.traces.errors import UsageError

NS = 1_000_000_000


def test_types_that_are_left_out_are_not_decoded_and_damage_keeps_its_line(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    lines = [
        '{"type":"heartbeat","t":1}',
        '{"type":"phase","t":2,"phase":"steady"}',
        '{"type":"heartbeat","t":3',
        '{"type":"heartbeat","t":"no number"}',
        '{"type":"call_end","t":4,"agent":0,"session":"s","thread":0,"call":0,"request_id":"r","t_intended":0,"chunks":{"us":[5]}}',
        '{"type":"run_end"',
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    problems = []
    events = list(RunFolder.open(tmp_path).events(problems, leave_out=("heartbeat", "chunks")))
    assert [event.t for event in events] == [2, 4]
    assert isinstance(events[1], CallEnd)
    assert events[1].chunks == Chunks()
    assert [problem.line for problem in problems] == [3, 6]
    problems.clear()
    events = list(RunFolder.open(tmp_path).events(problems))
    assert [event.t for event in events] == [1, 2, 4]
    assert events[2].chunks.us == (5,)
    assert [problem.line for problem in problems] == [3, 4, 6]


def test_what_is_no_run_folder(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        RunFolder.open(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        RunFolder.open(tmp_path / "file")
    with pytest.raises(UsageError, match=r"is no run folder: it has no run\.json"):
        RunFolder.open(tmp_path)
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "events.jsonl").write_bytes(b"")
    with pytest.raises(
        UsageError, match=r"holds a run that has not begun \(no run\.json\).* remove it if it was killed"
    ):
        RunFolder.open(tmp_path / "killed")
    begun = {
        "events.jsonl": b'{"type":"run_start","agents":8,"wall_clock":1.5,"t":0,"seq":1}\n',
        "summary.json": encode_summary(summarise({}, [])),
    }
    for name, data in begun.items():
        lost = tmp_path / f"lost-{name}"
        lost.mkdir()
        (lost / "events.jsonl").write_bytes(b"")
        (lost / name).write_bytes(data)
        for opens in (RunFolder.open, lambda path: kind_of([path]), why, read_outcome):
            with pytest.raises(UsageError, match=rf"has lost its run\.json.*\({name} still there\): copy it") as said:
                opens(lost)
            assert "remove" not in str(said.value)
    session = tmp_path / "session"
    session.mkdir()
    (session / "events.jsonl").write_text('{"type":"session.start","data":{}}\n')
    assert without_description(session) is None, "a client's log of that name"
    for text in ("{", "[]", "\xff", '{"a":' * 200_000):
        (tmp_path / "run.json").write_text(text, encoding="latin-1")
        with pytest.raises(UsageError):
            RunFolder.open(tmp_path)


def why(path):
    return explain([str(path)], limit=1, width=80, as_json=True)


def damaged(tmp_path, data):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "events.jsonl").write_bytes(data)
    problems = []
    return list(RunFolder.open(tmp_path).events(problems)), problems


def test_damage_costs_its_line_only(tmp_path):
    events, problems = damaged(
        tmp_path,
        b'{"type":"heartbeat","t":1,"seq":1}\n'
        b'{"type":"heartbeat","t":\n'
        b"\xff\xfe\n"
        b"\n"
        b'{"type":"call_end","t":3}\n'
        b'{"type":"from_the_future","t":4,"x":[1]}\n'
        b'{"type":"heartbeat","t":5,"seq":5,"new_field":{"a":1}}\n'
        b'{"type":"heartbeat","t":6',
    )
    assert [e.t for e in events] == [1, 5]
    file = str(tmp_path / "events.jsonl")
    assert [(p.file, p.line) for p in problems] == [(file, 2), (file, 3), (file, 5), (file, 8)]
    assert "missing required field" in problems[2].reason
    assert str(problems[3]) == f"{file}:8: the last line is incomplete"


def test_an_event_nested_too_deeply_costs_its_line_only(tmp_path):
    events, problems = damaged(tmp_path, b'{"type":"heartbeat","t":1}\n' + b'{"a":' * 200_000 + b"\n")
    assert [e.t for e in events] == [1]
    assert [(p.line, p.reason) for p in problems] == [(2, "not a readable event: nested too deeply")]


def test_folders_in_the_place_of_files_are_one_sentence(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    folder = RunFolder.open(tmp_path)
    (tmp_path / "events.jsonl").mkdir()
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(UsageError, match=r"events\.jsonl is a folder and not a file: the run is damaged"):
        list(folder.events())
    with pytest.raises(UsageError, match=r"summary\.json is a folder and not a file"):
        folder.summary()


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("command", [("diagnose",), ("cost",), ("view", "--plain"), ("report",)])
def test_where_the_summary_is_damaged_every_command_computes_it_and_says_so(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    said = []
    for name in ("whole", "damaged"):
        folder = tmp_path / name / "run"
        folder.mkdir(parents=True)
        for file in ("run.json", "events.jsonl", "summary.json"):
            (folder / file).write_bytes((GOLDEN / file).read_bytes())
        if name == "damaged":
            (folder / "summary.json").write_text('{"x')
        result = CliRunner().invoke(cli, [command[0], str(folder), *command[1:]])
        assert result.exit_code == 0, result.output
        said.append(result)
    whole, damaged_ = said
    told = "summary.json is not a summary that can be read"
    assert told not in whole.stderr
    assert damaged_.stderr.count(told) == 1
    assert "what follows is computed from the events" in damaged_.stderr
    assert damaged_.stdout.replace("damaged/run", "whole/run") == whole.stdout


def test_a_damaged_summary_is_computed_again_and_lost_lines_are_told(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"seed": 7, "lengths_from": 3, "config": {"slo": 5}, "engine": [1]}')
    (tmp_path / "events.jsonl").write_bytes(b'{"type":"heartbeat","t":1}\nbroken\n')
    (tmp_path / "summary.json").write_text('{"a": ' * 200_000)
    with pytest.raises(UsageError, match=r"is not a summary that can be read .*: remove it"):
        RunFolder.open(tmp_path).summary(strict=True)
    print_run(RunFolder.open(tmp_path), as_json=True)
    said = capsys.readouterr()
    assert msgspec.json.decode(said.out)["seed"] == 7
    assert "is not a summary that can be read" in said.err.splitlines()[0]
    assert said.err.splitlines()[1].startswith(f"{tmp_path / 'events.jsonl'}:2: not a readable event")


def test_unknown_types_are_no_problem(tmp_path):
    events, problems = damaged(tmp_path, b'{"type":"later","t":1}\n{"type":"heartbeat","t":2}\n')
    assert [e.t for e in events] == [2]
    assert problems == []


def test_line_numbers_hold_across_batches(tmp_path):
    good = b'{"type":"note","t":1,"level":"info","text":"' + b"x" * 1000 + b'"}\n'
    events, problems = damaged(tmp_path, good * 2000 + b"broken\n" + good * 10)
    assert len(events) == 2010
    assert [p.line for p in problems] == [2001]


def test_a_run_without_events_yet(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    folder = RunFolder.open(tmp_path)
    assert list(folder.events([])) == []
    assert folder.summary() is None


def test_tail_gives_what_is_new_and_waits_for_whole_lines(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert tail.poll() == []
    line = b'{"type":"heartbeat","t":7}\n'
    with path.open("ab", buffering=0) as file:
        file.write(line + line[:10])
        assert [e.t for e in tail.poll()] == [7]
        assert tail.poll() == []
        file.write(line[10:20])
        assert tail.poll() == []
        file.write(line[20:] + line.replace(b"7", b"8"))
        assert [e.t for e in tail.poll()] == [7, 8]
        file.write(b"rubbish\n")
        assert tail.poll() == []
    assert [p.line for p in tail.problems] == [4]
    tail.close()


def test_tail_reads_a_line_longer_than_its_limit(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(msgspec.json.encode(Note(t=1, level="info", text="x" * 5000)) + b"\n")
    tail = Tail(path)
    assert [e.t for e in tail.poll(limit=100)] == [1]
    tail.close()


def test_the_written_summary_follows_from_the_files_alone(writer, busy):
    run = {"seed": 3, "config": {"slo": "ttft_s.p90<3"}, "engine": {"name": "vllm", "resolved": {"x": [1]}}}
    writer.write_run(run)
    for event in busy.events():
        writer.emit(event)
    writer.flush()
    summary = recompute(writer.path)
    writer.write_summary(summary)
    stored = (writer.path / "summary.json").read_bytes()
    assert encode_summary(recompute(writer.path)) == stored
    folder = RunFolder.open(writer.path)
    assert encode_summary(summarise(folder.run, busy.events())) == stored
    assert folder.summary() == summary
    assert summary.run_dir == str(writer.path)


def test_a_moved_folder_gives_the_same_summary(writer, busy, tmp_path):
    writer.write_run({})
    for event in busy.events():
        writer.emit(event)
    writer.flush()
    writer.write_summary(recompute(writer.path))
    moved = writer.path.rename(tmp_path / "elsewhere")
    assert encode_summary(recompute(moved)) == (moved / "summary.json").read_bytes()


# Whether a run is alive


def run_folder(tmp_path, **run):
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "events.jsonl").write_bytes(b'{"type":"heartbeat","t":1}\n')
    return RunFolder.open(tmp_path)


def wall(folder):
    return (folder.path / "events.jsonl").stat().st_mtime


def test_a_run_on_another_machine_is_judged_by_its_last_words(tmp_path):
    folder = run_folder(tmp_path, pid=1, host="elsewhere")
    assert state(folder, wall(folder) + 1) == "running"
    assert state(folder, wall(folder) + 6) == "died"
    (tmp_path / "summary.json").write_text("{}")
    assert state(folder, wall(folder) + 600) == "finished"


def test_a_run_on_this_machine_is_judged_by_its_process(tmp_path):
    here = socket.gethostname()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = run_folder(tmp_path, pid=process.pid, host=here, wall_clock=4e9)
    assert state(folder, wall(folder) + 60) == "running"
    process.kill()
    process.wait()
    process.stdin.close()
    assert state(folder, wall(folder)) == "died"


def test_a_run_that_goes_on_has_no_status_yet(tmp_path, capsys):
    folder = run_folder(tmp_path, pid=1, host="elsewhere")
    print_run(folder, as_json=True)
    said = capsys.readouterr()
    told = msgspec.json.decode(said.out)
    assert (told["status"], told["status_reason"]) == (None, "running")
    assert "died" not in told["invalid_reasons"]
    assert "is still running; what follows is computed from its events" in said.err
    os.utime(tmp_path / "events.jsonl", (1e9, 1e9))
    os.utime(tmp_path / "run.json", (1e9, 1e9))
    print_run(folder, as_json=True)
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["status"], told["status_reason"]) == ("failed", "died")
    assert "died" in told["invalid_reasons"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_that_began_later_has_only_the_number(tmp_path):
    folder = run_folder(tmp_path, pid=os.getpid(), host=socket.gethostname(), wall_clock=1000.0)
    assert state(folder, wall(folder)) == "died"


def test_phases_and_ends_survive_the_disk(writer):
    made = [
        Phase(t=1, phase="steady"),
        RunEnd(t=2, status="completed"),
        Note(t=3, level="info", text="é", reason="trend"),
    ]
    writer.write_run({})
    for event in made:
        writer.emit(event)
    writer.flush()
    assert list(RunFolder.open(writer.path).events()) == made
    assert Chunks() == Chunks((), ())
