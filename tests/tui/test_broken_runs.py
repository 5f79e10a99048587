"""Folders that are no runs any more: one sentence, at the beginning and while they are shown."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_run import Fake

from windtunnel.traces.errors import UsageError
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import READ_BYTES, Follower
from windtunnel.tui.start import main
from windtunnel.tui.theme import Theme, plain

Open = Callable[..., Follower]


@pytest.fixture
def folder(tmp_path: Path, running: Fake) -> Path:
    return running.write(tmp_path / "run")


@pytest.mark.parametrize("name", ["events.jsonl", "text.jsonl", "run.json"])
def test_a_fifo_is_not_waited_for(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert main([str(folder), "--svg", str(folder / "x.svg")]) == 2
    assert capsys.readouterr().err == (f"windtunnel: {folder / name} is a FIFO and not a file: the run is damaged\n")


def test_an_empty_path_is_not_the_current_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["", "--svg", "x.svg"])
    assert ended.value.code == 2
    assert "the path is empty" in capsys.readouterr().err


async def broken(app: Viewer, follower: Follower, keys: list[str]) -> None:
    """Shows a run, presses keys, and takes its files away."""
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press(*keys)
        for name in ("events.jsonl", "text.jsonl"):
            (follower.folder.path / name).unlink(missing_ok=True)
            (follower.folder.path / name).mkdir()
        follower.seek(-1)
        app.call_later(app.tick)
        await pilot.pause()


@pytest.mark.parametrize("keys", [[], ["enter"], ["t"]])
async def test_what_breaks_while_it_is_shown_ends_it_with_its_sentence(
    folder: Path, follow: Open, keys: list[str]
) -> None:
    follower = follow(folder, at_s=40.0)
    app = Viewer(follower, Theme(), "view", tick_s=0)
    with pytest.raises(UsageError, match=r"events.jsonl is a folder and not a file: the run is damaged"):
        await broken(app, follower, keys)
    assert isinstance(app.fault, UsageError)


def test_the_picture_of_such_a_run_exits_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(_: Follower) -> None:
        raise UsageError("the run is damaged: make another")

    monkeypatch.setattr(Follower, "poll", breaks)
    assert main([str(folder), "--svg", str(folder / "x.svg")]) == 2
    assert capsys.readouterr().err == "windtunnel: the run is damaged: make another\n"
    assert not (folder / "x.svg").exists()


def test_agents_that_the_run_does_not_have_make_no_lanes(folder: Path, follow: Open) -> None:
    whole = follow(folder).poll()
    events = folder / "events.jsonl"
    line = '{"type":"wait_end","t":1,"agent":%d,"session":"s","thread":0,"call":0,"cause":"tool"}\n'
    told = [line % agent for agent in (-1, 32, 1_999_999_999, 2**70)]
    events.write_text("".join(told) + events.read_text())
    follower = follow(folder)
    assert len(follower.poll().rows) == len(whole.rows) == 32
    assert [problem.line for problem in follower.tail.problems] == [1, 2, 3, 4]


def test_a_long_line_does_not_hold_up_the_keys(folder: Path, follow: Open) -> None:
    events = folder / "events.jsonl"
    text = "x" * 8_000_000
    events.write_text(f'{{"type":"note","t":1,"level":"info","text":"{text}"}}\n' + events.read_text())
    follower = follow(folder, whole=False)
    clock = iter(range(10**6))
    follower.monotonic = lambda: float(next(clock))
    follower.poll()
    assert 0 < follower.tail.read <= 2 * READ_BYTES
    while follower.read_on():
        pass
    assert len(follower.fold.agents) == 32


async def test_lines_that_could_not_be_read_are_told_on_the_screen(folder: Path, follow: Open) -> None:
    events = folder / "events.jsonl"
    events.write_text("garbage\n" + events.read_text())
    follower = follow(folder)
    app = Viewer(follower, Theme(), "view", tick_s=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "damaged lines: v" in plain(app.fleet.frame.lines[-1])
        await pilot.press("v")
        await pilot.pause()
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "1 line of events.jsonl could not be read (line 1;" in shown
        assert "what stood there" in shown
