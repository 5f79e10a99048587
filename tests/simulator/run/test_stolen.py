"""What the machine's host took: a cause of lateness that nothing on the machine itself shows."""

from pathlib import Path

import pytest

from windtunnel.simulator.run.probe import Stolen


def stat(path: Path, line: str) -> Path:
    path.write_text(f"{line}\ncpu0 1 2 3\nintr 5\n", encoding="ascii")
    return path


def test_the_share_is_of_all_cores_time_since_the_last_look(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice: guests are in user already.
    file = stat(tmp_path / "stat", "cpu  100 0 50 800 0 0 10 40 7 7")
    stolen = Stolen(file)
    stat(file, "cpu  150 0 60 900 0 0 20 70 50 9")
    assert stolen.share() == pytest.approx(30 / 200)
    assert stolen.share() is None  # no tick has passed
    stat(file, "cpu  250 0 60 900 0 0 20 70 50 9")
    assert stolen.share() == 0.0


@pytest.mark.parametrize("line", ["", "cpu", "cpu 1 2 3", "cpu a b c d e f g h", "cpus 1 2 3 4 5 6 7 8"])
def test_a_system_that_does_not_say_gives_no_share(tmp_path: Path, line: str) -> None:
    file = stat(tmp_path / "stat", "cpu  100 0 50 800 0 0 10 40")
    stolen = Stolen(file)
    stat(file, line)
    assert stolen.share() is None
    assert Stolen(tmp_path / "none").share() is None


def test_this_machine_says() -> None:
    share = Stolen()._read()
    assert share is None or 0 <= share[0] <= share[1]
