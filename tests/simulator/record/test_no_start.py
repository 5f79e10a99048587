"""A recording that could not begin says why in one sentence and leaves nothing behind."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windtunnel.simulator.record.frames import Done
from windtunnel.simulator.record.record import told
from windtunnel.simulator.results.store import RunFolder

RECORD = [sys.executable, "-m", "windtunnel.simulator.cli", "record"]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def record(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RECORD, *args], capture_output=True, text=True, timeout=30, check=False, cwd=folder, stdin=subprocess.DEVNULL
    )


def test_a_port_in_use_leaves_no_folder(taken: int, tmp_path: Path) -> None:
    result = record(tmp_path, "--upstream", NOBODY, "--port", f"{taken}")
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"windtunnel: port {taken} cannot be used (")
    assert line.endswith("give another --port")
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_nobody_knows_is_told_at_once(tmp_path: Path) -> None:
    result = record(tmp_path, "--upstream", "http://no-such-host.invalid", "--", "true")
    assert result.returncode == 2
    assert result.stderr == "windtunnel: http://no-such-host.invalid: the host name is not known; check the URL\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("out", "why"), [("a" * 300, "File name too long"), ("file/b", "Not a directory")])
def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, out: str, why: str) -> None:
    (tmp_path / "file").touch()
    result = record(tmp_path, "--upstream", NOBODY, "--out", out, "--", "true")
    assert result.returncode == 2
    assert result.stderr == f"windtunnel: cannot create the run folder {out} ({why}): choose another --out\n"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def broken(folder: Path) -> str:
    """A command that is there and cannot be started: nobody has its interpreter."""
    path = folder / "agent"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    return str(path)


def test_an_agent_that_cannot_be_started_leaves_no_recording(tmp_path: Path) -> None:
    agent, out = broken(tmp_path), tmp_path / "rec"
    result = record(tmp_path, "--upstream", NOBODY, "--out", str(out), "--", agent)
    assert result.returncode == 2
    assert f"windtunnel: {agent} cannot be started (" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["agent"]


def test_a_recording_that_was_to_go_on_stays_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "rec"
    assert record(tmp_path, "--upstream", NOBODY, "--out", str(out), "--", "true").returncode == 0
    before = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert record(tmp_path, "--upstream", NOBODY, "--out", str(out), "--", broken(tmp_path)).returncode == 2
    assert {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert not (out / "earlier").exists()
    assert RunFolder.open(out).summary() is not None


def test_the_last_line_says_what_failed() -> None:
    assert told(Done(2, 3, 0), "rec") == "recorded 3 calls of 2 sessions in rec"
    assert told(Done(1, 1, 1), "rec") == "recorded 1 call of 1 session in rec; 1 further call failed"
    assert told(Done(1, 1, 2), "rec") == "recorded 1 call of 1 session in rec; 2 further calls failed"
    assert told(Done(2, 3, 1, 1), "rec") == (
        "recorded 3 calls of 2 sessions in rec, 1 of them aborted; 1 further call failed"
    )


def test_the_last_line_says_why_and_that_nothing_was_kept() -> None:
    why = "http_400: too long"
    assert told(Done(1, 1, 3, 0, why, 2), "rec") == (
        "recorded 1 call of 1 session in rec; 3 further calls failed (2 of them http_400: too long)"
    )
    assert told(Done(0, 0, 3, 0, why, 3), "rec") == (
        "recorded no session in rec: all 3 calls failed (http_400: too long)"
    )
    assert told(Done(0, 0, 1, 0, why, 1), "rec") == (
        "recorded no session in rec: its only call failed (http_400: too long)"
    )
    assert told(Done(0, 0, 0), "rec").startswith("recorded nothing in rec: no call to a model came through the proxy; ")
