"""The viewer costs little beside a run. The gates are wide, for busy machines; `cost.py` measures."""

from pathlib import Path

import cost
import pytest
from fake_run import Fake

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_cpu_and_bytes_of_a_replay_at_its_own_speed(tmp_path: Path, running: Fake) -> None:
    folder = running.write(tmp_path / "run")
    told = cost.measure(folder, flags=["--speed", "1", "--at", "20"], seconds=2.0, settle=2.5)
    assert 500 < told["bytes_per_s"] < 50_000
    assert 0.0 < told["cpu"] < 0.5
    assert max(told["rss_mb"]) < 250


def test_a_viewer_that_could_not_start_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended"):
        cost.measure(tmp_path / "nothing", flags=[], seconds=0.1, settle=10.0)
