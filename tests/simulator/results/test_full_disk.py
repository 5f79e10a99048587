"""A run whose disk was full says so itself, as far as there is room for it."""

import contextlib
import errno
import resource

import pytest

from windtunnel.agents.events import Heartbeat, RunEnd, RunStart
from windtunnel.simulator.results import full_disk
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.place import Place
from windtunnel.simulator.results.store import RunFolder, RunWriter, TextLine
from windtunnel.simulator.results.summary import recompute
from windtunnel.traces.errors import RunError

NS = 1_000_000_000


@contextlib.contextmanager
def no_file_beyond(size):
    """As on a full disk, but that a new file may still be begun."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def folder(tmp_path):
    """A run folder of so many heartbeats a second apart, which nobody has ended."""

    def make(beats, text=0, run=None):
        path = tmp_path / "run"
        writer = RunWriter.create(path, "r", no_text=False)
        writer.write_run(run or {"agents": 1})
        writer.emit(RunStart(t=0, agents=1, wall_clock=1.0))
        for beat in range(1, beats + 1):
            writer.emit(Heartbeat(t=beat * NS))
        for call in range(text):
            writer.text(TextLine("q", 0, "s", 0, call, text="x" * 1000))
        writer.close()
        return path

    return make


def events(path):
    problems = []
    found = list(RunFolder.open(path).events(problems))
    assert problems == []
    return found


def test_the_line_that_broke_off_makes_room_for_the_run_s_end(folder):
    path = folder(100)
    size = (path / "events.jsonl").stat().st_size
    with (path / "events.jsonl").open("ab") as file:
        file.write(b'{"type":"heartbeat","t":101000000')
    (path / ".summary.json.partial").write_bytes(b"{")
    full_disk.conclude(path)
    *before, last = events(path)
    assert (len(before), last) == (101, RunEnd(t=100 * NS, seq=102, status="failed", reason="disk_full"))
    assert (path / "events.jsonl").read_bytes()[:size].endswith(b'"seq":101}\n')
    summary = RunFolder.open(path).summary()
    assert (summary.status, summary.status_reason, summary.duration_s) == ("failed", "disk_full", 100.0)
    assert {"disk_full", "run_failed"} <= set(summary.invalid_reasons)
    assert "died" not in summary.invalid_reasons
    assert sorted(p.name for p in path.iterdir()) == ["events.jsonl", "run.json", "summary.json", "text.jsonl"]
    assert state(RunFolder.open(path), 1e12) == "finished"


def test_events_go_until_the_run_s_end_fits(folder):
    path = folder(2000)
    size = (path / "events.jsonl").stat().st_size
    with no_file_beyond(size):
        full_disk.conclude(path)
    assert (path / "events.jsonl").stat().st_size <= size
    *before, last = events(path)
    assert (len(before), last.t, last.reason) == (1999, 2000 * NS, "disk_full")
    assert recompute(path).status_reason == "disk_full"


def test_generated_text_and_then_events_give_room_to_the_summary(folder, monkeypatch):
    """No file may be put until the text, and in the end the events too, are shorter by as much as it is long."""
    path = folder(3000, text=100)
    text, size = ((path / name).stat().st_size for name in ("text.jsonl", "events.jsonl"))
    put, tries = Place.put, []

    def full(self, name, data):
        tries.append(name)
        if (path / "events.jsonl").stat().st_size > size - len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        put(self, name, data)

    monkeypatch.setattr(Place, "put", full)
    full_disk.conclude(path)
    assert tries == ["summary.json"] * 3
    written = (path / "summary.json").stat().st_size
    assert text - 4096 - written - 2000 < (path / "text.jsonl").stat().st_size < text - written
    assert sum(1 for _ in RunFolder.open(path).texts()) > 80
    *before, last = events(path)
    assert 2600 < len(before) < 3000
    assert last == RunEnd(t=before[-1].t, seq=before[-1].seq + 1, status="failed", reason="disk_full")
    assert RunFolder.open(path).summary().status_reason == "disk_full"


def test_a_finished_run_and_one_that_is_none_are_left_alone(folder, tmp_path):
    path = folder(5)
    full_disk.conclude(path)
    kept = {p.name: p.read_bytes() for p in path.iterdir()}
    full_disk.conclude(path)
    assert {p.name: p.read_bytes() for p in path.iterdir()} == kept
    full_disk.conclude(tmp_path)
    full_disk.conclude(tmp_path / "nowhere")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_which_errors_say_that_there_is_no_room():
    def wrapped(number):
        error = RunError("cannot write")
        error.__cause__ = OSError(number, "x")
        return error

    assert full_disk.is_full(wrapped(errno.ENOSPC))
    assert full_disk.is_full(OSError(errno.EDQUOT, "x"))
    assert not full_disk.is_full(wrapped(errno.EIO))
    assert not full_disk.is_full(RunError("x"))


def test_what_could_not_be_put_leaves_no_part_behind(tmp_path):
    place = Place(tmp_path)
    place.put("run.json", b"{}")
    with no_file_beyond(10_000), pytest.raises(OSError, match="File too large"):
        place.put("run.json", b"x" * 20_000)
    place.close()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("run.json", b"{}")]
