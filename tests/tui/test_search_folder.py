"""A capacity search among past runs: what it is and what it came to."""

import os
from pathlib import Path

import pytest

from windtunnel.simulator.opening import kind_of
from windtunnel.traces.errors import UsageError
from windtunnel.tui.past import Past, Shelf
from windtunnel.tui.screens.runs_frame import Choice, compose_runs
from windtunnel.tui.theme import Theme, plain
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


def begun(folder: Path, ago: float = 0.0) -> Path:
    """A run that is being prepared: its events' file is there, and no `run.json`."""
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("")
    for path in (folder / "events.jsonl", folder):
        os.utime(path, (NOW - ago, NOW - ago))
    return folder


NOW = 1_764_000_000.0


@pytest.mark.parametrize(
    ("ago", "alive", "name", "kind"),
    [
        (5.0, False, "agents-0012-seed-0", "starting"),
        (500.0, False, "agents-0012-seed-0", "damaged"),
        (500.0, True, "agents-0012-seed-0", "starting"),
        (500.0, True, "agents-0012-seed-0.left-1", "damaged"),
    ],
)
def test_a_run_that_is_being_begun_is_not_damaged(
    tmp_path: Path, ago: float, alive: bool, name: str, kind: str
) -> None:
    search = tmp_path / "search"
    begun(search / name, ago)
    (search / "capacity.json").write_text("{}")
    if alive:
        (search / "lock").write_text(f"{os.getpid()}\n")
    shelf = Shelf(search, lambda: NOW, lambda: 0.0)
    shelf.look()
    (past,) = shelf.poll(1.0)
    assert (past.kind, past.live) == (kind, kind == "starting")
    assert ("starting" in as_text([past], NOW, "utf-8")) == (kind == "starting")


def test_one_that_has_lost_its_description_is_damaged_however_young(tmp_path: Path) -> None:
    folder = begun(tmp_path / "runs" / "lost")
    (folder / "events.jsonl").write_text('{"type":"run_start","t":0}\n')
    os.utime(folder / "events.jsonl", (NOW, NOW))
    shelf = Shelf(tmp_path / "runs", lambda: NOW, lambda: 0.0)
    shelf.look()
    assert shelf.poll(1.0)[0].kind == "damaged"


def test_one_that_is_being_begun_is_opened_with_its_sentence(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    with pytest.raises(UsageError, match=r"holds a run that has not begun \(no run\.json\): wait"):
        kind_of([folder])


def test_a_search_before_its_first_run_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "capacity.json").write_text("{}")
    assert kind_of([tmp_path]) == "runs"


@pytest.mark.parametrize(
    ("alive", "answer", "told"),
    [
        (
            False,
            '{"agents": 12, "low": 12, "high": 15, "limit": "KV capacity"}',
            (
                "capacity search with 2 runs in it: 12 agents (12 to 15), next limit KV capacity; "
                "`windtunnel report search` says more"
            ),
        ),
        (
            True,
            None,
            "capacity search, still going on: 2 runs begun (12 and 16 agents), the latest agents-0012-seed-0",
        ),
        (
            False,
            None,
            "capacity search with 2 runs in it: no answer: it ended in the middle of agents-0012-seed-0",
        ),
    ],
)
def test_the_list_of_a_searchs_runs_has_its_answer_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool, answer: str | None, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    search = Path("search")
    written(search / "agents-0016-seed-0", 1)
    written(search / "agents-0012-seed-0", 2)
    (search / "capacity.json").write_text("{}")
    if answer:
        (search / "answer.json").write_text(answer)
    if alive:
        (search / "lock").write_text(f"{os.getpid()}\n")
    shelf = Shelf(search, lambda: 0.0, lambda: 0.0)
    shelf.look()
    assert shelf.about == told
    frame = compose_runs(shelf.poll(1.0), Choice(), "search", 140, 24, 0.0, Theme(colour=False), about=shelf.about)
    lines = [plain(line).rstrip() for line in frame.lines]
    assert lines[1].strip() == told
    assert "▶ live" in lines[frame.first]
    assert len(lines) == 24
    assert frame.marked == frame.first


def test_a_list_of_other_runs_has_no_such_line(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, lambda: 0.0, lambda: 0.0)
    shelf.look()
    assert shelf.about == ""
