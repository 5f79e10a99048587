"""One process at a time in a folder, and no folder for two works."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.simulator.experiments.claim import LOCK_FILE, held, mark, taken
from windtunnel.traces.errors import UsageError

HOLD = """
import sys, time
from pathlib import Path
from windtunnel.simulator.experiments.claim import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_worked_in_by_one_process_and_free_again_when_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "new")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=f"worked in by process {other.pid}: "), held(tmp_path / "new"):
            pass
        other.send_signal(signal.SIGKILL)
    with held(tmp_path / "new"):
        assert (tmp_path / "new" / LOCK_FILE).read_text() == f"{os.getpid()}\n"
    with held(tmp_path / "new"):
        pass


def test_a_folder_says_what_is_done_in_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "work.json"
    assert mark(path, {"work": "a", "name": "x"}, by="work")
    assert mark(path, {"work": "a", "name": "y"}, by="work")
    assert mark(path, {"work": "b"}, by="work")  # nothing was done there yet: the command that made it had failed
    assert mark(path, {"work": "a"}, by="work")
    (tmp_path / "new" / "one").mkdir()
    (tmp_path / "new" / "one" / "run.json").write_text("{}")
    assert not mark(path, {"work": "b"}, by="work")
    assert mark(path, {"work": "a"}, by="work")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="is not empty and holds no work"):
        mark(tmp_path / "full" / "work.json", {"work": "a"}, by="work")


DID_NOT_START = '{"type":"failed","step":"base","reason":"the engine does not know the flag --no-such"}\n'


@pytest.mark.parametrize(
    ("log", "free"),
    [
        (DID_NOT_START, True),
        (DID_NOT_START + '{"type":"fail', True),
        (DID_NOT_START + '{"type":"run","step":"two","block":0,"folder":"block-01/two"}\n', False),
        ('{"type":"twin","step":"two","of":"base"}\n', False),
        ("{}\n", False),
    ],
)
def test_engines_that_did_not_start_are_no_work_and_go_with_their_command(tmp_path: Path, log: str, free: bool) -> None:
    path = tmp_path / "new" / "experiment.json"
    assert mark(path, {"work": "a"}, by="work")
    for name, text in (("log.jsonl", log), ("outcome.json", "{}"), ("001-base.log", "unrecognized arguments")):
        (path.parent / name).write_text(text)
    assert mark(path, {"work": "a"}, by="work")
    assert (path.parent / "log.jsonl").read_text() == log
    assert mark(path, {"work": "b"}, by="work") == free
    left = {"001-base.log", "lock", "experiment.json"} | (set() if free else {"log.jsonl", "outcome.json"})
    assert {entry.name for entry in path.parent.iterdir()} == left


def test_runs_of_a_folder_with_a_mark_of_its_own_do_not_bind_the_one_above(tmp_path: Path) -> None:
    path = tmp_path / "new" / "work.json"
    assert mark(path, {"work": "a"}, by="work")
    inner = path.parent / "emulated" / path.name
    assert mark(inner, {"work": "m"}, by="work")
    (inner.parent / "agents-0001").mkdir()
    (inner.parent / "agents-0001" / "run.json").write_text("{}")
    assert mark(path, {"work": "b"}, by="work")
    assert not mark(inner, {"work": "n"}, by="work")
    (path.parent / "agents-0001").mkdir()
    (path.parent / "agents-0001" / "run.json").write_text("{}")
    assert not mark(path, {"work": "a"}, by="work")


def test_the_mark_of_a_command_that_waits_for_its_engine_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "new" / "work.json"
    assert mark(path, {"work": "a"}, by="work")
    with held(path.parent), pytest.raises(UsageError, match=f"worked in by process {os.getpid()}: "):
        mark(path, {"work": "b"}, by="work")
    assert mark(path, {"work": "a"}, by="work")
    assert b'"a"' in path.read_bytes()


def test_what_a_kill_left_of_the_mark_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".work.json.partial").write_text('{"wor')
    assert mark(tmp_path / "work.json", {"work": "a"}, by="work")
    assert mark(tmp_path / "work.json", {"work": "a"}, by="work")


@pytest.mark.parametrize(
    ("failed", "next_one"), [("experiment.json", "capacity.json"), ("capacity.json", "experiment.json")]
)
def test_a_folder_in_which_no_engine_started_is_free_for_the_other_command(
    tmp_path: Path, failed: str, next_one: str
) -> None:
    folder = tmp_path / "new"
    assert mark(folder / failed, {"work": "a"}, by="work")
    (folder / "engines").mkdir()
    said = {"experiment.json": "outcome.json", "capacity.json": "answer.json"}[failed]
    for name, text in (("log.jsonl", DID_NOT_START), (said, "{}"), ("engines/001-base.log", "no such flag")):
        (folder / name).write_text(text)
    assert mark(folder / next_one, {"work": "b"}, by="work")
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == {"engines/001-base.log", "lock", next_one}


@pytest.mark.parametrize(
    ("worked", "other", "command"),
    [("experiment.json", "capacity.json", "compare"), ("capacity.json", "experiment.json", "capacity")],
)
def test_a_folder_with_runs_of_the_other_command_is_refused_with_its_name(
    tmp_path: Path, worked: str, other: str, command: str
) -> None:
    folder = tmp_path / "new"
    assert mark(folder / worked, {"work": "a"}, by="work")
    (folder / "one").mkdir()
    (folder / "one" / "run.json").write_text("{}")
    with pytest.raises(UsageError, match=f"belongs to `windtunnel {command}`; give --out another folder"):
        mark(folder / other, {"work": "a"}, by="work")
    assert {path.name for path in folder.iterdir()} == {"lock", "one", worked}


def test_nobody_takes_a_folder_between_its_mark_and_the_work_in_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "work.json"
    with taken(path, {"work": "a"}, by="work") as mine:
        assert mine
        with pytest.raises(UsageError, match=f"worked in by process {os.getpid()}: "):
            mark(path, {"work": "b"}, by="work")
        (path.parent / "one").mkdir()
        (path.parent / "one" / "run.json").write_text("{}")
    with taken(path, {"work": "b"}, by="work") as mine:
        assert not mine
    assert b'"a"' in path.read_bytes()
