"""What the commands say of a run whose events are gone, and of one in which some cannot be read."""

import json
import os
import shutil
from pathlib import Path

import pytest

from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.view import print_run

from .test_cli import one_sentence, windtunnel

GOLDEN = Path(__file__).parent / "results" / "golden"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("run.json", "events.jsonl"):
        shutil.copy(GOLDEN / name, folder)
    (folder / "summary.json").write_bytes(encode_summary(recompute(folder)))
    for file in folder.iterdir():
        os.utime(file, (1, 1))  # nobody writes it any more
    return folder


@pytest.mark.parametrize("command", ["why", "diagnose", "cost"])
def test_what_needs_the_events_says_that_they_are_gone(run: Path, command: str) -> None:
    (run / "events.jsonl").unlink()
    said = one_sentence(windtunnel(command, str(run)), 2)
    assert f"{run} has lost its events.jsonl, which says what happened" in said
    assert "its summary.json is still there" in said
    assert f"`windtunnel view --plain {run}` prints its summary" in said


def test_plain_says_so_before_the_summary(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "events.jsonl").unlink()
    print_run(RunFolder.open(run), as_json=False)
    out, err = capsys.readouterr()
    assert err.startswith(f"{run} has lost its events.jsonl")
    assert "NOT VALID" in out
    assert "damaged" in out


def test_without_a_summary_nothing_is_summed_up(run: Path) -> None:
    for name in ("events.jsonl", "summary.json"):
        (run / name).unlink()
    said = one_sentence(windtunnel("view", "--plain", str(run)), 2)
    assert "has lost its events.jsonl" in said
    assert "still there" not in said


def test_the_page_says_so(run: Path, tmp_path: Path) -> None:
    (run / "events.jsonl").unlink()
    windtunnel("report", str(run), "--out", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "has lost its events.jsonl" in page
    assert "damaged" in page


@pytest.mark.parametrize("as_json", [False, True])
def test_a_finished_run_with_unreadable_lines_is_not_valid(
    run: Path, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (run / "events.jsonl").read_text().splitlines()
    lines[3] = "{broken"
    (run / "events.jsonl").write_text("\n".join(lines) + "\n")
    print_run(RunFolder.open(run), as_json=as_json)
    out, err = capsys.readouterr()
    assert "1 line of events.jsonl could not be read (line 4;" in err
    if as_json:
        assert "damaged" in json.loads(out)["invalid_reasons"]
    else:
        assert "damaged" in out
