"""What `diagnose` says of a run in which there is no call to look at: why, and nothing else."""

import json
import os
import shutil
from pathlib import Path

import pytest

from windtunnel.simulator.diagnose import diagnose, lines
from windtunnel.simulator.results.why_text import Paper

GOLDEN = Path(__file__).parent / "results" / "golden"


def made(folder: Path, keep) -> Path:
    """The golden run without the events that `keep` refuses, and without a summary."""
    folder.mkdir()
    shutil.copy(GOLDEN / "run.json", folder)
    events = [json.loads(line) for line in (GOLDEN / "events.jsonl").read_bytes().splitlines()]
    kept = (changed for event in events if (changed := keep(event)))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in kept))
    for file in folder.iterdir():
        os.utime(file, (1, 1))  # nobody writes it any more
    return folder


def said(folder: Path) -> str:
    found, summary, _ = diagnose(folder)
    assert found.calls == ()
    (line,) = lines(found, summary, Paper(100, colour=False), 5)
    assert line.startswith(f"{folder}: ")
    assert line.endswith("; nothing can be diagnosed")
    return line.removeprefix(f"{folder}: ").removesuffix("; nothing can be diagnosed")


def before_the_window(end=None):
    """Keeps the warm-up; `end`: how the run ended then, None where it was killed."""
    over = []

    def keep(event):
        if event["type"] == "phase" and event["phase"] == "steady":
            over.append(event)
            return None if end is None else {"type": "run_end", "t": event["t"], "status": end, "seq": event["seq"]}
        return None if over else event

    return keep


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (None, "was killed before it opened"),
        ("interrupted", "was interrupted before it opened"),
        ("failed", "failed before it opened"),
        ("completed", "ended without one"),
    ],
)
def test_without_a_measured_window_that_is_what_is_said(tmp_path, end, why):
    assert said(made(tmp_path / "run", before_the_window(end))) == f"there is no measured window: the run {why}"


def test_a_window_in_which_nothing_was_completed_is_told_from_none(tmp_path):
    folder = made(tmp_path / "run", lambda event: None if event["type"] == "call_end" else event)
    assert said(folder) == "no call that began in the run's measured window was completed"


def test_ends_of_calls_that_cannot_be_read_are_not_called_uncompleted(tmp_path):
    folder = made(tmp_path / "run", lambda e: {**e, "prompt_tokens": "many"} if e["type"] == "call_end" else e)
    assert said(folder) == "what can be read of the run holds no completed call of its measured window"


def test_calls_without_a_first_token_are_told_from_both(tmp_path):
    def keep(event):
        return (
            {**event, "t_first": None, "t_last": None, "chunks": {"us": [], "n": []}} if "t_first" in event else event
        )

    assert said(made(tmp_path / "run", keep)) == "no completed call says when its first token came"
