"""One process at a time in a folder, and no folder for two works."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.simulator.experiments.claim import LOCK_FILE, held, mark
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
    path = tmp_path / "new" / "work.json"
    assert mark(path, {"work": "a"}, by="work")
    for name, text in (("log.jsonl", log), ("outcome.json", "{}"), ("001-base.log", "unrecognized arguments")):
        (path.parent / name).write_text(text)
    assert mark(path, {"work": "a"}, by="work", says=("outcome.json",))
    assert (path.parent / "log.jsonl").read_text() == log
    assert mark(path, {"work": "b"}, by="work", says=("outcome.json",)) == free
    left = {"001-base.log", "lock", "work.json"} | (set() if free else {"log.jsonl", "outcome.json"})
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
