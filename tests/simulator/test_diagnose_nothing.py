"""What `diagnose` says of a run in which there is no call to look at: why, and nothing else."""

import json
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import fields, replace

from windtunnel.simulator import doubt
from windtunnel.simulator.diagnose import diagnose, lines
from windtunnel.simulator.results.summary_model import EngineSummary, Summary
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


def shortly_steady():
    """Ends the run half a second after its window opened."""
    began, over = [], []

    def keep(event):
        if event["type"] == "phase" and event["phase"] == "steady":
            began.append(event["t"])
        if over or not began or event["t"] < began[0] + 500_000_000:
            return None if over else event
        over.append(event)
        return {"type": "run_end", "t": began[0] + 500_000_000, "status": "completed", "seq": event["seq"]}

    return keep


def test_half_a_second_is_no_window(tmp_path):
    assert said(made(tmp_path / "run", shortly_steady())) == "there is no measured window: the run ended without one"


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


def summed():
    whole = {field.name: None for field in fields(Summary)}
    return Summary(**whole | {"invalid_reasons": (), "engine": EngineSummary(), "failures": {}})


def of_calls(count, *, begun=None, unended=None):
    summary = replace(summed(), calls_begun=begun, calls_unended=unended, kind="run")
    return doubt.of_calls(summary, count)


def test_a_verdict_of_few_calls_is_doubtful_as_its_percentiles_are():
    (one,) = of_calls(1)
    assert one == "the verdict is doubtful: it is of 1 call, and from 30 on one hardly turns it"
    assert "of 29 calls" in of_calls(29)[0]
    assert of_calls(30) == of_calls(0) == []


def test_calls_without_an_end_make_it_doubtful_too():
    few, open_ = of_calls(1, begun=4, unended=3)
    assert few.startswith("the verdict is doubtful")
    assert open_.startswith("3 of the 4 calls begun in the window had not ended when the run did: they are mostly")
    assert open_.endswith("; a longer --duration helps")
    assert of_calls(40, begun=42, unended=2) == []


def test_a_run_of_one_call_says_so_as_text_and_as_json(tmp_path):
    over = []

    def keep(event):
        """Of the calls that ended in the window one."""
        if event["type"] != "call_end" or event.get("warmup"):
            return event
        over.append(event)
        return event if len(over) == 1 else None

    found, summary, _ = diagnose(made(tmp_path / "run", keep))
    assert len(found.calls) == 1
    assert "the verdict is doubtful: it is of 1 call" in found.doubt
    assert "had not ended when the run did" in found.doubt
    assert "! the verdict is doubtful" in "\n".join(lines(found, summary, Paper(100, colour=False), 5))
