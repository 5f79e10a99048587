"""A capacity search among past runs: what it is and what it came to."""

import os
from pathlib import Path

import pytest

from windtunnel.simulator.opening import kind_of
from windtunnel.tui.past import Past, Shelf
from windtunnel.tui.widgets.shelf import as_text


def only(root: Path) -> Past:
    shelf = Shelf(root, lambda: 0.0, lambda: 0.0)
    shelf.look()
    (past,) = shelf.poll(1.0)
    return past


def written(run: Path, at: int) -> None:
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    os.utime(run / "run.json", (at, at))


@pytest.mark.parametrize(
    ("answer", "about"),
    [
        (
            '{"agents": 12, "low": 12, "high": 15, "limit": "KV capacity"}',
            "capacity search with 2 runs in it: 12 agents (12 to 15), next limit KV capacity",
        ),
        (
            '{"agents": 1, "low": 1, "high": 1, "limit": null, "capped": true}',
            "capacity search with 2 runs in it: at least 1 agent",
        ),
        ("{", "capacity search with 2 runs in it: no answer: it ended in the middle of agents-0013-seed-0"),
        (None, "capacity search with 2 runs in it: no answer: it ended in the middle of agents-0013-seed-0"),
    ],
)
def test_a_capacity_search_says_its_answer_where_it_has_one(tmp_path: Path, answer: str | None, about: str) -> None:
    folder = tmp_path / "runs" / "search"
    for run in ("agents-0012-seed-0", "agents-0013-seed-0"):
        written(folder / run, int(run[7:11]))
    (folder / "capacity.json").write_text("{}")
    if answer is not None:
        (folder / "answer.json").write_text(answer)
    past = only(tmp_path / "runs")
    assert (past.kind, past.name, past.about) == ("folder", "search", about)


def test_a_search_of_several_configurations_says_its_answer_too(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "several"
    for at, run in enumerate(("search-16-bit/agents-0012-seed-0", "search-8-bit/agents-0017-seed-0")):
        written(folder / run, at)
        (folder / run).parent.joinpath("capacity.json").write_text("{}")
    (folder / "engines").mkdir()
    (folder / "capacity.json").write_text('{"several": true}')
    (folder / "answer.json").write_text(
        '{"agents": 12, "low": 12, "high": 15, "limit": "KV capacity", "configurations": '
        '[{"name": "16 bit", "agents": 12}, {"name": "8 bit", "agents": 17, "versus_first": {"ratio": 1.4}}]}'
    )
    past = only(tmp_path / "runs")
    told = "capacity search with 2 runs in it: 12 agents (12 to 15), next limit KV capacity; 8 bit: 17"
    assert (past.kind, past.about) == ("folder", told)
    assert "no run" not in as_text([past], 0.0, "utf-8")
    assert kind_of([tmp_path / "runs"]) == "runs", "a folder that holds nothing else can be looked at"


@pytest.mark.parametrize(
    ("summary", "reason", "said"),
    [
        (
            '{"invalid_reasons": ["no_steady_state"]}',
            None,
            "no steady state in the last run, agents-0002-seed-1",
        ),
        ('{"invalid_reasons": []}', None, "it ended after agents-0002-seed-1"),
        ("{", None, "it ended after agents-0002-seed-1"),
        (None, None, "it ended in the middle of agents-0002-seed-1"),
        (None, "the engine exited\nwith code 1", "the engine exited with code 1"),
    ],
)
def test_a_search_that_ended_without_an_answer_says_why(
    tmp_path: Path, summary: str | None, reason: str | None, said: str
) -> None:
    folder = tmp_path / "runs" / "died"
    written(folder / "agents-0004-seed-0", 1)
    written(folder / "agents-0002-seed-1", 2)
    (folder / "capacity.json").write_text("{}")
    if summary is not None:
        (folder / "agents-0002-seed-1" / "summary.json").write_text(summary)
    if reason is not None:
        (folder / "start-failed.txt").write_text(reason)
    assert only(tmp_path / "runs").about == f"capacity search with 2 runs in it: no answer: {said}"


def test_a_search_that_goes_on_is_live(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "live"
    written(folder / "agents-0004-seed-0", 1)
    (folder / "capacity.json").write_text("{}")
    (folder / "lock").write_text(f"{os.getpid()}\n")
    past = only(tmp_path / "runs")
    assert (past.live, past.about) == (True, "capacity search with 1 run in it")


def test_a_search_of_which_no_run_began_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "none"
    folder.mkdir(parents=True)
    (folder / "capacity.json").write_text("{}")
    assert only(tmp_path / "runs").about == "capacity search with 0 runs in it: no answer: no run of it began"
