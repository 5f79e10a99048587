"""A run folder that is moved or deleted while the run writes into it."""

import shutil

import pytest

from windtunnel.agents.events import Heartbeat, RunEnd, RunStart
from windtunnel.simulator.results.store import RunFolder, RunWriter
from windtunnel.simulator.results.summary import recompute
from windtunnel.traces.errors import RunError

NS = 1_000_000_000


@pytest.fixture
def writer(tmp_path):
    writer = RunWriter.create(tmp_path / "run", "abc", no_text=True)
    writer.write_run({"run_id": "abc", "agents": 1})
    writer.emit(RunStart(t=0, agents=1, wall_clock=5.0))
    yield writer
    writer.close()


def test_a_folder_that_stays_is_nothing_to_tell(writer):
    assert writer.follow() is None


def test_results_are_complete_in_a_folder_that_was_moved(writer, tmp_path):
    was, now = tmp_path / "run", tmp_path / "elsewhere"
    was.rename(now)
    was.mkdir()  # somebody else's
    told = writer.follow()
    assert str(was) in told
    assert str(now) in told
    assert writer.follow() is None
    writer.emit(Heartbeat(t=NS))
    writer.emit(RunEnd(t=2 * NS, status="completed"))
    writer.flush()
    writer.write_summary(recompute(writer.path))
    folder = RunFolder.open(now)
    assert [event.seq for event in folder.events()] == [1, 2, 3]
    assert folder.summary().status == "completed"
    assert folder.run["run_dir"] == str(now)
    assert list(was.iterdir()) == []


def test_a_move_that_nobody_noticed_writes_into_the_moved_folder(writer, tmp_path):
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    writer.write_run({"run_id": "abc", "agents": 7})
    assert RunFolder.open(tmp_path / "elsewhere").run["agents"] == 7


def test_a_deleted_folder_is_one_sentence(writer, tmp_path):
    shutil.rmtree(tmp_path / "run")
    for act in (writer.follow, lambda: writer.write_run({})):
        with pytest.raises(RunError) as error:
            act()
        assert f"{tmp_path / 'run'} was deleted or moved away" in str(error.value)
        assert "\n" not in str(error.value)
