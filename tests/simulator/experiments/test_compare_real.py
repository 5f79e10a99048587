"""`compare` with engines that are processes: started, kept for the next run, stopped, and gone when it is killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

FILE = """
name = "three"
[workload]
traces = "library:small"
agents = 2
calls = 4
pace = "none"
ramp = 0
max_context = "4k"
fit = "scale"
[engine]
command = "emulator --gpu B200 --max-model-len 4096"
virtual = false
[blocks]
least = 3
most = 3
time = "0.1s"
[[variants]]
name = "two"
set = { "--max-num-seqs" = 8 }
[[variants]]
name = "three"
set = { "--max-num-seqs" = 16 }
[[variants]]
name = "wrong"
set = { "--no-such-flag" = 1 }
"""


def command(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "windtunnel.simulator.cli", "compare", str(folder / "e.toml")),
        *("--out", str(folder / "out"), "--json"),
    ]


def engines(folder: Path) -> list[int]:
    """Processes that write a log of this experiment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"engine" in words and str(folder).encode() in words + _open_files(entry):
                found.append(int(entry.name))
    return found


def _open_files(entry: Path) -> bytes:
    try:
        return b"\0".join(str(fd.readlink()).encode() for fd in (entry / "fd").iterdir())
    except OSError:
        return b""


def until(condition, seconds: float = 40.0) -> bool:
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        Event().wait(0.05)  # another process tells nothing when it changes
    return bool(met)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for processes in /proc")
def test_killed_in_the_third_step_it_leaves_no_engine_and_goes_on(tmp_path):
    (tmp_path / "e.toml").write_text(FILE)
    out = tmp_path / "out" / "block-01"
    with subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        assert until((out / "three" / "run.json").exists), "the third step did not begin"
        assert engines(tmp_path)
        first.send_signal(signal.SIGKILL)
    assert until(lambda: not engines(tmp_path)), "an engine was left"
    done = {name: (out / name / "summary.json").stat().st_mtime_ns for name in ("base", "two")}
    second = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 0, second.stderr
    assert {name: (out / name / "summary.json").stat().st_mtime_ns for name in done} == done
    outcome = json.loads(second.stdout)
    assert [len(step["runs"]) for step in outcome["steps"]] == [1, 1, 1, 0]
    assert "does not know the flag" in outcome["steps"][3]["failed"] or "no-such-flag" in outcome["steps"][3]["failed"]
    assert {step["resolved"]["resolved"]["scheduler_config.max_num_seqs"] for step in outcome["steps"][:3]} == {
        *(8, 16, 1024)
    }
    assert all(step["runs"][0].endswith(step["name"]) for step in outcome["steps"][:3])
    assert not engines(tmp_path)
