"""A capacity search among past runs: what it is and what it came to."""

from pathlib import Path

import pytest

from windtunnel.tui.past import Shelf


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
        ("{", "capacity search with 2 runs in it"),
        (None, "capacity search with 2 runs in it"),
    ],
)
def test_a_capacity_search_says_its_answer_where_it_has_one(tmp_path: Path, answer: str | None, about: str) -> None:
    folder = tmp_path / "runs" / "search"
    for run in ("agents-0012-seed-0", "agents-0013-seed-0"):
        (folder / run).mkdir(parents=True)
        (folder / run / "run.json").write_text("{}")
    (folder / "capacity.json").write_text("{}")
    if answer is not None:
        (folder / "answer.json").write_text(answer)
    shelf = Shelf(tmp_path / "runs", lambda: 0.0, lambda: 0.0)
    shelf.look()
    (past,) = shelf.poll(1.0)
    assert (past.kind, past.name, past.about) == ("folder", "search", about)
