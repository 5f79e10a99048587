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
    (tmp_path / "log").mkdir()
    assert mark(tmp_path / "log" / "work.json", {"work": "a"}, by="work")
    (tmp_path / "log" / "log.jsonl").write_text("{}\n")
    assert not mark(tmp_path / "log" / "work.json", {"work": "b"}, by="work")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="is not empty and holds no work"):
        mark(tmp_path / "full" / "work.json", {"work": "a"}, by="work")


def test_what_a_kill_left_of_the_mark_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".work.json.partial").write_text('{"wor')
    assert mark(tmp_path / "work.json", {"work": "a"}, by="work")
    assert mark(tmp_path / "work.json", {"work": "a"}, by="work")
