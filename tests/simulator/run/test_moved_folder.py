"""The run folder is moved or deleted while the run goes on: it is said when it is noticed, and again at the end."""

import shutil
import signal

import pytest

from windtunnel.simulator.results.store import RunFolder
from windtunnel.traces.errors import RunError

from .whole_run import Rig


@pytest.fixture
def rig(tmp_path, monkeypatch, capsys):
    kept = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield Rig(tmp_path, monkeypatch, capsys, look_s=5.0)
    for signum, handler in kept.items():
        signal.signal(signum, handler)


def test_results_are_complete_where_the_folder_went(rig, tmp_path):
    new = tmp_path / "new"
    rig.at(20.0, lambda: (tmp_path / "run").rename(new))
    seen = rig.go()
    assert seen.code == 1
    told = [line for line in seen.talk.splitlines() if "was moved while the run went on" in line]
    assert len(told) == 2
    assert all(str(new) in line for line in told)
    folder = RunFolder.open(new)
    problems = []
    assert [e.seq for e in folder.events(problems)] == list(range(1, len(list(folder.events())) + 1))
    assert problems == []
    assert folder.summary().status == "completed"
    assert f"view {new}" in seen.talk
    assert not seen.folder.exists()


def test_without_its_folder_a_run_ends_at_once_with_one_sentence(rig, tmp_path):
    late = []
    rig.at(20.0, lambda: shutil.rmtree(tmp_path / "run"))
    rig.at(25.0, lambda: late.append(1))
    with pytest.raises(RunError, match="was deleted or moved away") as error:
        rig.go()
    assert error.value.exit_code == 1
    assert not late
