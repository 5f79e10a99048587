"""`windtunnel view` without a terminal: past runs as a list, several runs and experiments as `compare` prints them."""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CLI = (sys.executable, "-m", "windtunnel.simulator.cli")


def windtunnel(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two short runs were made with `runs` as where they went."""
    here = tmp_path_factory.mktemp("made")
    for agents in (2, 3):
        flags = ("library", "--virtual", "--agents", agents, "--calls", 12, "--out", f"runs/with-{agents}")
        done = windtunnel("run", *flags, "--pace", "none", cwd=here)
        assert done.returncode in (0, 1), done.stderr
    (here / "runs" / "torn").mkdir()
    (here / "runs" / "torn" / "run.json").write_text("{")
    return here


def test_without_a_folder_it_lists_past_runs_newest_first(made: Path) -> None:
    done = windtunnel("view", cwd=made)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[0].startswith("date")
    assert len(lines) == 4
    assert sum("emulated" in line for line in lines) == 2
    assert "run.json is damaged" in next(line for line in lines if "damaged" in line)


def test_the_list_as_json_says_what_was_run(made: Path) -> None:
    found = json.loads(windtunnel("view", "runs", "--json", cwd=made).stdout)
    known = {Path(entry["path"]).name: entry for entry in found}
    assert known["with-2"]["agents"] == 2
    assert known["with-2"]["emulated"] is True
    assert known["with-3"]["kind"] == "run"
    assert known["torn"]["kind"] == "damaged"


def test_runs_of_other_work_stand_side_by_side_without_a_verdict(made: Path) -> None:
    done = windtunnel("view", "runs/with-2", "runs/with-3", "--plain", cwd=made)
    assert done.returncode == 0, done.stderr
    assert "note: other work than with-2, so no verdict: agents 2 against 3" in done.stdout
    assert "too few" not in done.stdout
    told = json.loads(windtunnel("view", "runs/with-2", "runs/with-3", "--json", cwd=made).stdout)
    assert [step["name"] for step in told["steps"]] == ["with-2", "with-3"]
    assert {found["table"] for found in told["steps"][1]["versus_base"].values()} == {0}


def test_several_runs_print_what_compare_prints(made: Path) -> None:
    paths = ("runs/with-2", "runs/with-2")
    assert windtunnel("view", *paths, cwd=made).stderr == windtunnel("compare", *paths, cwd=made).stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--speed", "10"), "one run"),
        (("runs", "--at", "5"), "one run"),
        (("runs/with-2", "--speed", "0"), "greater than zero"),
        (("runs/with-2", "--speed", "5"), "need a terminal"),
        (("runs/torn",), "damaged"),
        (("runs/nothing",), "does not exist"),
        (("",), "the path is empty"),
        (("empty",), "no runs in it"),
    ],
)
def test_wrong_use_is_one_sentence(made: Path, args: tuple[str, ...], says: str) -> None:
    (made / "empty").mkdir(exist_ok=True)
    done = windtunnel("view", *args, cwd=made)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_no_runs_yet_says_where_they_would_be(tmp_path: Path) -> None:
    done = windtunnel("view", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no folder runs yet" in done.stderr


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_folder_whose_name_is_no_text_is_shown_with_a_mark_in_it(made: Path, tmp_path: Path, locale: str) -> None:
    """The list of all runs too; and what is written in the folder."""
    odd = os.fsdecode(b"runs/caf\xe9")
    shutil.copytree(made / "runs" / "with-2", tmp_path / odd)
    shutil.copytree(made / "runs" / "with-2", tmp_path / "runs" / "other")

    def told(*args: str) -> bytes:
        environ = {**os.environ, "LC_ALL": locale}
        done = subprocess.run([*CLI, *args], cwd=tmp_path, env=environ, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    known = "runs/caf\ufffd"
    assert json.loads(told("view", "--json", odd))["run_dir"] == known
    assert {entry["path"] for entry in json.loads(told("view", "--json", "runs"))} == {known, "runs/other"}
    assert json.loads(told("why", "--json", odd))["run_dir"] == known
    compared = json.loads(told("compare", "--json", odd, "runs/other"))
    assert any(known in step["name"] for step in compared["steps"]), compared["steps"]
    assert json.loads(told("diagnose", "--json", odd))["run_dir"] == known
    told("report", odd)
    assert "caf\ufffd" in (tmp_path / odd / "report.html").read_text()


def test_a_run_into_such_a_folder_prints_its_summary(tmp_path: Path) -> None:
    flags = ("library", "--virtual", "--agents", "1", "--calls", "3", "--pace", "none", "--json")
    done = windtunnel("run", *flags, "--out", os.fsdecode(b"caf\xe9"), cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["run_dir"] == f"{tmp_path}/caf\ufffd"


def test_a_virtual_run_on_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    flags = ("library", "--virtual", "--agents", "2", "--calls", "200", "--pace", "none", "--out", "run")
    done = subprocess.run(
        [*CLI, "run", *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("windtunnel: cannot write to run (File too large): free some space")
    assert "Traceback" not in done.stderr
    assert "unhandled" not in done.stderr
    shown = windtunnel("view", "--json", "run", cwd=tmp_path)
    summary = json.loads(shown.stdout)
    assert summary["calls"] > 5
    assert (summary["status"], summary["status_reason"]) == ("failed", "disk_full")
    assert "died" not in summary["invalid_reasons"]
    assert shown.stderr == ""
    listed = windtunnel("view", "--plain", ".", cwd=tmp_path).stdout
    assert "failed" in listed
    assert "died" not in listed
    kept = {path.name for path in (tmp_path / "run").iterdir()}
    assert kept == {"run.json", "events.jsonl", "text.jsonl", "summary.json"}


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
@pytest.mark.parametrize("command", ["diagnose runs/with-2", "traces list", "view runs", "view --plain runs/with-2"])
def test_streams_that_the_caller_closed_are_nobodys_error(made: Path, closed: str, command: str) -> None:
    words = f"{' '.join(CLI)} {command} {closed}"
    done = subprocess.run(["sh", "-c", words], cwd=made, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["traces list", "view --plain runs/with-2", "diagnose --json runs/with-2"])
def test_a_reader_that_goes_early_is_no_failure(made: Path, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*CLI, *command.split()], cwd=made, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_run_that_goes_on_is_not_called_dead_by_diagnose(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "live"
    shutil.copytree(made / "runs" / "with-2", folder)
    (folder / "summary.json").unlink()
    events = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(events[:-1]))  # without its end
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "host": socket.gethostname(), "pid": os.getpid()}))
    done = windtunnel("diagnose", "live", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "died" not in done.stdout
    assert "the run in live is still running" in done.stderr
    (folder / "run.json").write_text(json.dumps({**run, "host": "another", "pid": 1}))
    os.utime(folder / "run.json", (1e9, 1e9))
    os.utime(folder / "events.jsonl", (1e9, 1e9))
    assert "died" in windtunnel("diagnose", "live", cwd=tmp_path).stdout
