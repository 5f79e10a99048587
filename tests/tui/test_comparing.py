"""What a comparison has to show, read beside the screen: experiments and runs, over and going on."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import fake_shelf
import pytest
from fake_clocks import Clocks
from fake_run import Fake
from fake_shelf import WALL

from windtunnel.tui.comparing import Comparing, Contrast


@pytest.fixture(scope="module")
def small() -> Fake:
    return Fake(6, 40.0)


@pytest.fixture(scope="module")
def ladder(small: Fake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_shelf.experiment(small, tmp_path_factory.mktemp("compare") / "ladder")


def read(*paths: Path, clocks: Clocks | None = None) -> Comparing:
    clocks = clocks or Clocks()
    return Comparing(paths, lambda: clocks.wall, lambda: clocks.monotonic, whole=True)


def polled(source: Comparing) -> Iterator[Contrast]:
    """What a source says until it has read everything; at most some seconds."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = source.poll()
        yield found
        if found.columns and not found.progress:
            return
        time.sleep(0.01)
    raise AssertionError("it is still reading")


def test_an_experiment_is_shown_with_its_own_verdicts(ladder: Path) -> None:
    found = read(ladder).poll()
    assert (found.title, found.experiment, found.blocks, len(found.columns)) == ("a made-up ladder", True, 4, 4)
    assert [c.letter for c in found.columns] == ["A", "B", "C", "D"]
    outcome = json.loads((ladder / "outcome.json").read_bytes())
    half = found.columns[1].step.versus_previous["output_tokens_per_s"]
    said = outcome["steps"][1]["versus_previous"]["output_tokens_per_s"]
    assert (half.ratio, half.low, half.high, half.verdict) == (said["ratio"], said["low"], said["high"], "worse")
    assert found.columns[3].step.failure == "did not start: exit 1: no such model"
    assert [len(c.curves) for c in found.columns] == [3, 3, 3, 0]
    assert found.differences == (("a.step", ("0", "1", "2", "")),)


def test_the_figures_and_the_settings_are_there_before_the_curves(ladder: Path) -> None:
    clocks = Clocks()
    source = Comparing([ladder], lambda: clocks.wall, lambda: clocks.monotonic)
    seen = list(polled(source))
    source.close()
    assert seen[0].columns == ()
    assert seen[-1].progress == ""
    assert [len(c.curves) for c in seen[-1].columns] == [3, 3, 3, 0]


def test_an_experiment_in_its_first_block_is_shown_as_far_as_it_is(small: Fake, tmp_path: Path) -> None:
    folder = fake_shelf.experiment(small, tmp_path / "young", blocks=1, outcome=False)
    found = read(folder).poll()
    assert found.notices == ("its first block is not whole yet: what the runs so far say",)
    assert [c.name for c in found.columns] == ["base", "half", "same"]
    half = found.columns[1].step.versus_previous["output_tokens_per_s"]
    assert (round(half.ratio or 0, 3), half.verdict) == (0.5, "too_noisy")


def test_an_experiment_that_goes_on_is_followed(small: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "going-on"
    folder.mkdir()
    (folder / "experiment.json").write_text('{"name": "going on"}')
    (folder / "lock").write_text(str(os.getpid()))
    clocks = Clocks()
    source = read(folder, clocks=clocks)
    found = source.poll()
    assert (found.live, found.columns, found.problem) == (True, (), "no run of going-on is complete yet")
    fake_shelf.write(small, folder / "block-01" / "base", rate=100.0)
    (folder / "log.jsonl").write_text('{"type":"run","step":"base","block":0,"folder":"block-01/base"}\n')
    fake_shelf.write(small, folder / "block-01" / "fast", summary=False)
    assert source.poll().columns == ()
    clocks.monotonic += 1.0
    found = source.poll()
    assert [c.name for c in found.columns] == ["base"]
    assert found.progress == "block 1, fast is running"


def test_a_run_that_goes_on_is_read_again_and_is_not_held_against_itself(small: Fake, tmp_path: Path) -> None:
    over = fake_shelf.write(small, tmp_path / "over", rate=100.0)
    live = small.write(tmp_path / "live", until=20.0)
    clocks = Clocks()
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    source = read(over, live, clocks=clocks)
    found = source.poll()
    assert (found.live, found.columns[1].live) == (True, True)
    assert "live is still going on: its figures so far" in found.notices
    assert "died" not in " ".join(found.columns[1].step.invalid_runs)
    length = len(found.columns[1].curves[0].rates)
    small.write(live, until=36.0)
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    clocks.monotonic += 6.0
    assert len(source.poll().columns[1].curves[0].rates) > length


def test_a_finished_run_is_read_once(small: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [fake_shelf.write(small, tmp_path / name, began=WALL + i) for i, name in enumerate("ab")]
    clocks = Clocks()
    source = read(*paths, clocks=clocks)
    first = source.poll()
    monkeypatch.setattr("windtunnel.tui.comparing.runs.read_whole", lambda path: pytest.fail(f"read again: {path}"))
    clocks.monotonic += 60.0
    assert source.poll() is first


def test_what_cannot_be_read_is_said(small: Fake, tmp_path: Path) -> None:
    good = fake_shelf.write(small, tmp_path / "good")
    found = read(good, tmp_path / "gone").poll()
    assert found.columns == ()
    assert str(tmp_path / "gone") in found.problem
