"""`diagnose`, `cost` and `report` of a folder that still grows: its figures so far, by its own name, and no fault of it."""

import json
import os
import socket
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.simulator.cli import cli

GOLDEN = Path(__file__).parent / "results" / "golden"


@pytest.fixture(params=["recording", "run"])
def live(request, tmp_path: Path) -> tuple[Path, str]:
    """A folder that this very process writes, and what it is."""
    run = json.loads((GOLDEN / "run.json").read_bytes())
    run |= {"pid": os.getpid(), "host": socket.gethostname(), "wall_clock": time.time(), "kind": request.param}
    (tmp_path / "run.json").write_text(json.dumps(run))
    lines = (GOLDEN / "events.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "events.jsonl").write_bytes(b"".join(line for line in lines if json.loads(line)["type"] != "run_end"))
    return tmp_path, request.param


def test_diagnose_says_what_goes_on(live):
    folder, what = live
    ran = CliRunner().invoke(cli, ["diagnose", str(folder)])
    assert ran.exit_code == 0, ran.output
    assert f"the {what} in {folder} is still running; what follows is of what it has so far" in ran.stderr
    held = {"recording": "holds the recorded calls back", "run": "holds this run back"}[what]
    assert held in ran.stdout
    assert "died" not in ran.output
    assert ("this run" in ran.stdout) == (what == "run")


def test_cost_prices_what_it_has_so_far(live):
    folder, what = live
    ran = CliRunner().invoke(cli, ["cost", str(folder), "--api", "mine=1/0.1/5"])
    assert ran.exit_code == 0, ran.output
    assert f"the {what} in {folder} is still running; what follows is of what it has so far" in ran.stderr
    assert "died" not in ran.output
    assert "NOT WHOLE" not in ran.output
    told = json.loads(CliRunner().invoke(cli, ["cost", str(folder), "--json"]).stdout)
    assert told["kind"] == what
    assert "died" not in told["invalid_reasons"]
    assert told["traffic"]["output"] > 0


def test_its_page_and_its_text_say_that_it_goes_on(live):
    folder, what = live
    ran = CliRunner().invoke(cli, ["report", str(folder)])
    assert ran.exit_code == 0, ran.output
    page = (folder / "report.html").read_text()
    head = {"recording": "<h1>recording of 4 sessions on vllm", "run": "<h1>4 agents on vllm"}[what]
    assert head in page
    assert "still going on: these are the figures so far" in page
    assert "killed before its end" not in page
    text = CliRunner().invoke(cli, ["report", str(folder), "--markdown"]).stdout
    assert "still running: these are the figures so far" in text
    assert "died" not in text


def test_one_that_was_killed_is_not_whole(live):
    folder, what = live
    run = json.loads((folder / "run.json").read_text()) | {"wall_clock": 1.0, "pid": 2**22 + 1}
    (folder / "run.json").write_text(json.dumps(run))
    os.utime(folder / "run.json", (1, 1))
    os.utime(folder / "events.jsonl", (1, 1))
    said = CliRunner().invoke(cli, ["cost", str(folder), "--api", "mine=1/0.1/5"]).output
    assert ("NOT WHOLE: died" if what == "recording" else "NOT VALID: died") in said
    CliRunner().invoke(cli, ["report", str(folder)])
    badge = f'<span class="badge invalid">not {"whole" if what == "recording" else "valid"}</span>'
    page = (folder / "report.html").read_text()
    assert badge in page
    assert "the run was killed before its end" in page
    said = CliRunner().invoke(cli, ["diagnose", str(folder)]).stdout
    assert ("the recording is not whole: died" if what == "recording" else "the run is not valid: died") in said
