"""A run whose engine does not start leaves what the engine said and the reason, and where it said nothing, nothing."""

import os
import shlex
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

from windtunnel.simulator.opening import kind_of
from windtunnel.simulator.results.store import RunFolder
from windtunnel.traces.errors import UsageError
from windtunnel.tui.past import Shelf
from windtunnel.tui.widgets.shelf import as_text

CLI = [sys.executable, "-m", "windtunnel.simulator.cli"]
WORDLESS = "sh -c 'exit 3 # {port}'"
TOLD = "sh -c 'echo no memory; exit 3 # {port}'"


def cli(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [*CLI, *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
    )


def left(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("engine", ["no-such-engine {port}", WORDLESS])
@pytest.mark.parametrize("command", [["run", "--sessions", "1"], ["capacity"]])
def test_without_a_word_from_the_engine_no_folder_is_left(tmp_path: Path, command: list[str], engine: str) -> None:
    result = cli(tmp_path, *command, "--engine", engine, "--out", "mine")
    assert (result.returncode, result.stdout) == (2, "")
    last = result.stderr.splitlines()[-1]
    assert last in (
        "windtunnel: engine command 'no-such-engine': No such file or directory; install it or give its full path",
        "windtunnel: the engine exited before it served: exit code 3, nothing in its log",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert cli(tmp_path, "run", "--engine", WORDLESS, "--out", "mine").returncode == 2
    assert [p.name for p in tmp_path.rglob("*")] == ["mine"]


REASON = "the engine exited before it served: exit code 3, its last words: no memory; its log is runs/mine/{log}"


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (["run", "--sessions", "1"], ["engine.log", "start-failed.txt"]),
        (["capacity"], ["capacity.json", "engines/001-as-asked-*.log", "lock", "start-failed.txt"]),
    ],
)
def test_what_the_engine_said_stays_with_the_reason(tmp_path: Path, command: list[str], files: list[str]) -> None:
    place = tmp_path / "runs" / "mine"
    assert cli(tmp_path, *command, "--engine", TOLD, "--out", "runs/mine").returncode == 2
    found = left(place)
    assert len(found) == len(files)
    assert all(map(fnmatch, found, files)), found
    log = next(name for name in found if name.endswith(".log"))
    assert (place / log).read_text() == "no memory\n"
    reason = REASON.format(log=log)
    assert (place / "start-failed.txt").read_text() == f"{reason}\n"

    asked = cli(tmp_path, "view", "runs/mine")
    said = f"the run in runs/mine did not start: {reason}"
    assert (asked.returncode, asked.stderr) == (2, f"windtunnel: {said}\n")
    with pytest.raises(UsageError) as refused:
        RunFolder.open(place)
    assert str(refused.value) == said.replace("runs/mine did", f"{place} did")
    assert kind_of([tmp_path / "runs"]) == "runs"
    shelf = Shelf(tmp_path / "runs", time.time, time.monotonic)
    shelf.look()
    (entry,) = shelf.poll(9.0)
    assert (entry.kind, entry.reason) == ("unstarted", reason)
    line = as_text([entry], time.time(), "utf-8").splitlines()[1]
    assert "✗ start failed" in line
    assert "mine  the engine exited before it served: exit code 3" in line


def test_the_next_start_in_the_same_folder_takes_the_reason_away(tmp_path: Path) -> None:
    assert cli(tmp_path, "run", "--engine", TOLD, "--out", "mine").returncode == 2
    program = Path(__file__).with_name("tiny_engine.py")
    engine = f"{sys.executable} {shlex.quote(str(program))} {{port}}"
    flags = ["--agents", "1", "--calls", "1", "--ramp", "0", "--pace", "none", "--max-context", "4k", "--fit", "scale"]
    result = cli(tmp_path, "run", "--engine", engine, "--out", "mine", *flags)
    assert "results: mine" in result.stderr
    assert "start-failed.txt" not in left(tmp_path / "mine")
    assert "run.json" in left(tmp_path / "mine")
