"""A run whose events cannot all be read is not valid, whoever tells of it."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.simulator.cli import cli
from windtunnel.simulator.diagnose import diagnose
from windtunnel.simulator.report.gather import gather
from windtunnel.simulator.results.damage import lost
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.results.validity import REASONS
from windtunnel.tui.follow import Follower

GOLDEN = Path(__file__).parent / "golden"


def copied(folder: Path, change, *, kept=(), kind=None) -> Path:
    """The golden run with its lines changed one by one."""
    folder.mkdir()
    for name in ("run.json", *kept):
        shutil.copy(GOLDEN / name, folder)
    if kind is not None:
        (folder / "run.json").write_text(json.dumps({**json.loads((folder / "run.json").read_bytes()), "kind": kind}))
    lines = (GOLDEN / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(map(change, lines)))
    for file in folder.iterdir():
        os.utime(file, (1, 1))  # nobody writes it any more
    return folder


def broken(line: bytes) -> bytes:
    """Every end of a call as something that cannot be read."""
    event = json.loads(line)
    return json.dumps({**event, "prompt_tokens": "many"}).encode() + b"\n" if event["type"] == "call_end" else line


@pytest.fixture
def damaged(tmp_path):
    return copied(tmp_path / "run", broken)


def test_without_the_ends_of_its_calls_a_run_is_not_valid(damaged):
    before = recompute(copied(damaged.parent / "whole", lambda line: line))
    summary = recompute(damaged)
    assert "damaged" not in before.invalid_reasons
    assert (summary.valid, "damaged" in summary.invalid_reasons, summary.status) == (False, True, "completed")
    said = " ".join(render_summary(summary).split())
    assert "completed; NOT VALID:" in said
    assert f"- damaged: {REASONS['damaged']}" in said


def test_view_its_json_the_page_and_diagnose_say_so(damaged):
    run = CliRunner().invoke
    assert "completed; NOT VALID:" in run(cli, ["view", str(damaged)]).stdout
    told = json.loads(run(cli, ["view", str(damaged), "--json"]).stdout)
    assert (told["valid"], "damaged" in told["invalid_reasons"]) == (False, True)
    page = run(cli, ["report", str(damaged)])
    assert page.exit_code == 0, page.output
    assert REASONS["damaged"] in (damaged / "report.html").read_text()
    assert diagnose(damaged)[0].valid is False


def test_figures_made_beside_a_summary_from_before_are_not_valid_either(tmp_path):
    folder = copied(tmp_path / "run", broken, kept=("summary.json",))
    assert "damaged" in diagnose(folder)[1].invalid_reasons
    assert "damaged" in gather(folder).summary.invalid_reasons


def test_a_recording_is_not_whole(tmp_path):
    folder = copied(tmp_path / "run", broken, kind="recording")
    assert recompute(folder).invalid_reasons == ("damaged",)
    assert "completed; NOT WHOLE:" in render_summary(recompute(folder))


def test_a_last_line_that_was_cut_off_is_no_damage(tmp_path):
    """As a run leaves it that was killed: that says enough."""
    folder = copied(tmp_path / "run", lambda line: b"" if json.loads(line)["type"] == "run_end" else line)
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b'{"type":"heartb')
    problems = []
    summary = recompute(folder, problems)
    assert [problem.reason for problem in problems] == ["the last line is incomplete"]
    assert not lost(problems)
    assert ("damaged" in summary.invalid_reasons, "died" in summary.invalid_reasons) == (False, True)


def test_the_screen_of_a_run_that_goes_on_counts_it_as_not_valid(damaged):
    follower = Follower(RunFolder.open(damaged), time.time, time.monotonic)
    follower.poll()
    while follower.read_on():
        pass
    view = follower.poll()
    follower.close()
    assert (view.valid, "damaged" in view.invalid) == (False, True)
