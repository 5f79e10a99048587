"""What a folder of runs holds: nothing is hidden, nothing is read twice, and much of it is read little by little."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import fake_shelf
import pytest
import snapshots
from fake_run import Fake
from fake_shelf import HOUR, WALL
from msgspec.structs import replace

from windtunnel.simulator.experiments import kept
from windtunnel.tui.past import Past, Shelf, as_data, words
from windtunnel.tui.screens.runs_frame import Choice, compose_runs
from windtunnel.tui.theme import ASCII, UNICODE, Theme, plain
from windtunnel.tui.widgets.shelf import SORTS, about_lines, arranged, as_text, columns, condition, date


@pytest.fixture(scope="module")
def root(small: Fake, root: Path) -> Path:
    """With a folder that has a run in it."""
    (root / "search").mkdir()
    fake_shelf.write(small, root / "search" / "agents-0004")
    return root


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def opened(root: Path, **options: object) -> Shelf:
    return Shelf(root, lambda: WALL + 100, lambda: 0.0, **options)


def known(root: Path) -> dict[str, Past]:
    shelf = opened(root)
    shelf.look()
    return {past.path.name: past for past in shelf.poll(1.0)}


def test_a_run_is_listed_with_what_was_run_and_what_it_came_to(root: Path) -> None:
    past = known(root)["newest"]
    assert (past.kind, past.began, past.condition, past.valid) == ("run", WALL - HOUR, "finished", True)
    assert (past.model, past.engine, past.emulated, past.agents, past.pace) == (
        "qwen3-coder-30b-a3b",
        "emulator",
        True,
        6,
        "busy",
    )
    assert past.rate == 500.0
    assert past.ttft_p90 is not None
    assert past.ttft_p90 > (past.ttft_p50 or 0) > 0


def test_nothing_is_hidden_and_each_says_why_it_cannot_be_opened(root: Path) -> None:
    found = known(root)
    assert found["damaged"].kind == "damaged"
    assert "truncated" in found["damaged"].reason
    assert found["no-head"].reason == "it has no run.json: what was run is not known"
    assert (found["notes"].kind, found["notes"].about) == ("other", "no run, and no runs in it")
    assert (found["search"].kind, found["search"].about) == ("folder", "folder with 1 run in it")
    killed = found["killed"]
    assert (killed.condition, killed.status, killed.rate) == ("ended", "completed", None), "its events hold its end"
    assert found["late-client"].invalid == ("client_lag",)


def test_an_experiment_says_what_it_came_to(root: Path) -> None:
    past = known(root)["ladder"]
    assert (past.kind, past.name) == ("experiment", "a made-up ladder")
    assert past.about == "4 configurations, 3 blocks, all count; worse: half; 1 did not start"
    assert not past.live


def test_hundreds_are_read_little_by_little_those_that_are_seen_first(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"run-{number:03}").mkdir()
        (tmp_path / f"run-{number:03}" / "run.json").write_text("{}")
    ticks = iter(range(10_000))
    shelf = Shelf(tmp_path, lambda: WALL, lambda: next(ticks) * 0.001)
    shelf.look()
    wanted = [tmp_path / "run-007", tmp_path / "run-123"]
    first = {past.path: past for past in shelf.poll(0.01, wanted)}
    assert len(first) == 300
    assert [first[path].kind for path in wanted] == ["run", "run"]
    assert 280 < shelf.unread < 300
    for _ in range(40):
        found = shelf.poll(0.01)
    assert shelf.unread == 0
    assert {past.kind for past in found} == {"run"}


def test_a_finished_run_is_read_once_and_a_new_one_appears(
    small: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_shelf.write(small, tmp_path / "one")
    shelf = opened(tmp_path)
    shelf.look()
    shelf.poll(1.0)
    read: list[Path] = []
    monkeypatch.setattr("windtunnel.tui.past.read", lambda path, *_: read.append(path) or Past(path=path))
    shelf.look()
    shelf.poll(1.0)
    assert read == []
    fake_shelf.write(small, tmp_path / "two")
    shelf.look()
    assert len(shelf.poll(1.0)) == 2
    assert read == [tmp_path / "two"]


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    shelf = opened(tmp_path / "runs")
    shelf.look()
    assert shelf.poll(1.0) == ()
    assert "there is no folder" in shelf.problem


def test_sorting_puts_the_best_first_and_what_has_no_figure_last(root: Path) -> None:
    entries = list(known(root).values())
    for sort, name in (("date", "ladder"), ("tok/s", "more-agents"), ("agents", "more-agents")):
        if sort != "date":
            assert arranged(entries, sort, backwards=False)[0].path.name == name
            assert arranged(entries, sort, backwards=True)[-1].rate is None
    newest = [p.began for p in arranged(entries, "date", backwards=False)]
    assert newest == sorted(newest, reverse=True)
    assert {sort for sort in SORTS if arranged(entries, sort, backwards=False)} == set(SORTS)


def test_the_filter_sees_model_kind_and_state(root: Path) -> None:
    found = known(root)
    assert "emulated" in words(found["newest"])
    assert "invalid not valid client_lag client lag" in words(found["late-client"])
    assert "died" not in words(found["killed"])
    assert "no summary" in words(found["killed"])
    assert "experiment" in words(found["ladder"])


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("valid", {"good", "valid-flags"}),
        ("VALID", {"good", "valid-flags"}),
        ("!valid", {"late", "valid-2", "tape", "killed"}),
        ("not valid", {"late", "valid-2"}),
        ("invalid", {"late", "valid-2"}),
        ("!invalid", {"good", "valid-flags", "tape", "killed"}),
        ("valid|died", {"good", "valid-flags", "killed"}),
        ("not valid|died", {"late", "valid-2", "killed"}),
        ("valid-", {"valid-flags", "valid-2"}),
        ("client lag", {"late"}),
        ("client_lag", {"late"}),
        ("", {"good", "valid-flags", "late", "valid-2", "tape", "killed"}),
    ],
)
def test_valid_finds_valid_runs_only(pattern: str, shown: set[str]) -> None:
    entries = [
        Past(path=Path("good"), kind="run", valid=True),
        Past(path=Path("valid-flags"), kind="run", valid=True),
        Past(path=Path("late"), kind="run", valid=False, invalid=("client_lag",)),
        Past(path=Path("valid-2"), kind="run", valid=False, invalid=("trend",)),
        Past(path=Path("tape"), kind="recording", valid=True),
        Past(path=Path("killed"), kind="run", condition="died"),
    ]
    frame = compose_runs(entries, Choice(pattern=pattern), "runs", 120, 40, WALL, Theme())
    assert {path.name for path in frame.order} == shown


@pytest.mark.parametrize(
    ("ago", "shown"),
    [(60.0, "today 15:59"), (20 * HOUR, "yest. 20:00"), (100 * HOUR, "20 Nov 12:00"), (9000 * HOUR, "14 Nov 2024")],
)
def test_dates_are_told_from_today(ago: float, shown: str) -> None:
    assert date(WALL - ago, WALL) == shown


def test_a_state_is_told_by_glyph_and_word() -> None:
    run = Past(path=Path("x"), kind="run", began=WALL - 161, valid=True)
    said = {
        "valid": run,
        "live 02:41": Past(path=Path("x"), kind="run", began=WALL - 161, condition="running"),
        "died": Past(path=Path("x"), kind="run", condition="died"),
        "client lag": Past(path=Path("x"), kind="run", valid=False, invalid=("client_lag",)),
        "client lag +1": Past(path=Path("x"), kind="run", valid=False, invalid=("client_lag", "trend")),
        "damaged": Past(path=Path("x"), kind="damaged"),
        "recorded": Past(path=Path("x"), kind="recording"),
        "no summary": Past(path=Path("x"), kind="run", condition="ended", status="completed"),
        "starting": Past(path=Path("x"), kind="starting", condition="running"),
    }
    for word, past in said.items():
        for glyphs in (UNICODE, ASCII):
            text, _ = condition(past, WALL, glyphs, 17)
            assert text[2:] == word
            assert text[1] == " "


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200, 250])
@pytest.mark.parametrize("picking", [False, True])
def test_no_line_is_wider_than_the_screen(root: Path, width: int, picking: bool) -> None:
    entries = tuple(known(root).values())
    subject = "newest" if picking else ""
    frame = compose_runs(entries, Choice(), "runs", width, 30, WALL, Theme(), subject=subject)
    assert len(frame.lines) == 30
    assert max(len(plain(line).rstrip()) for line in frame.lines) <= width
    assert [c.name for c in columns(width, against=False)][-1] in {
        "work/h",
        "folder",
        "cached",
        "TTFT p50/p90",
        "tok/s",
    }


def test_the_list_as_text_and_as_data(root: Path) -> None:
    entries = tuple(known(root).values())
    text = as_text(entries, WALL, "utf-8").splitlines()
    assert len(text) == len(entries) + 1
    assert text[0].split()[:2] == ["date▾", "state"]
    assert any("damaged" in line and "truncated" in line for line in text)
    assert as_text(entries, WALL, "ascii").isascii()
    assert f'"path":"{root / "newest"}"' in as_data(entries)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_an_emulated_run_says_so_at_every_width(root: Path, width: int) -> None:
    frame = compose_runs(tuple(known(root).values()), Choice(), "runs", width, 30, WALL, Theme())
    rows = [plain(line) for line in frame.lines[2:12]]
    assert all("emu" in row for row in rows if "● valid" in row)
    assert sum("● valid" in row for row in rows) == 4


def test_an_experiment_is_at_work_while_its_process_is_there(tmp_path: Path) -> None:
    import os

    (tmp_path / "experiment.json").write_text("{}")
    assert not kept.at_work(tmp_path)
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    assert kept.at_work(tmp_path)
    os.utime(tmp_path / "lock", (1.0, 1.0))
    assert not kept.at_work(tmp_path)


@pytest.mark.parametrize("size", snapshots.SIZES[:2], ids=str)
def test_pictures(root: Path, size: tuple[int, int]) -> None:
    width, height = size
    full = tuple(_live(past) if past.path.name == "other-seqs" else _dated(past, root) for past in known(root).values())
    root = Path("runs")
    marked = (root / "newest", root / "yesterday")
    shown = compose_runs(full, Choice(marked=marked, cursor=root / "yesterday"), "runs", width, height, WALL, Theme())
    snapshots.same(f"runs-{width}x{height}", snapshots.picture(shown.lines, width, marked=shown.marked))
    against = {root / name: ("same work", "good") for name in ("yesterday", "other-seqs")}
    shown = compose_runs(full, Choice(), "runs", width, height, WALL, Theme(), subject="newest", against=against)
    snapshots.same(f"runs-choose-{width}x{height}", snapshots.picture(shown.lines, width, marked=shown.marked))
    shown = compose_runs((), Choice(), "runs", width, height, WALL, Theme(), problem="there is no folder runs yet")
    snapshots.same(f"runs-empty-{width}x{height}", snapshots.picture(shown.lines, width, marked=shown.marked))


def _dated(past: Past, root: Path) -> Past:
    """What takes its date from a file, at a fixed one; and below a folder of a fixed name."""
    began = past.began if past.kind == "run" else WALL - 50 * HOUR
    return replace(past, path=Path("runs") / past.path.relative_to(root), began=began)


def _live(past: Past) -> Past:
    return Past(
        path=Path("runs") / past.path.name,
        kind="run",
        began=WALL - 161,
        condition="running",
        model="qwen3-coder-30b-a3b",
        engine="vllm 0.32.0",
        hardware="H200",
        agents=32,
        pace="busy",
    )


@pytest.mark.parametrize(("width", "shown"), [(14, "✗ client lag+1"), (17, "✗ client lag +1")])
def test_how_many_more_reasons_there_are_takes_nothing_from_the_first_one(width: int, shown: str) -> None:
    past = Past(path=Path("run"), kind="run", valid=False, invalid=("client_lag", "trend"))
    assert condition(past, WALL, UNICODE, width) == (shown, "warn")


def test_one_entry_is_one(root: Path) -> None:
    entries = tuple(known(root).values())
    for some, said in ((entries[:1], "1 entry"), (entries[:2], "2 entries")):
        frame = compose_runs(some, Choice(), "runs", 100, 30, WALL, Theme())
        assert plain(frame.lines[0]).rstrip().endswith(f" {said}")


def test_a_run_that_was_killed_died_and_one_with_an_end_ended(small: Fake, tmp_path: Path) -> None:
    """Neither has a summary."""
    fake_shelf.write(small, tmp_path / "ended", summary=False)
    fake_shelf.write(small, tmp_path / "killed", summary=False)
    events = tmp_path / "killed" / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"type":"run_end"')))
    for name in ("ended", "killed"):
        os.utime(tmp_path / name / "events.jsonl", (WALL, WALL))
    found = known(tmp_path)
    assert (found["ended"].condition, found["killed"].condition) == ("ended", "died")
    assert "it ended, but has no summary" in "".join(
        plain(line) for line in about_lines(found["ended"], 120, 4, WALL, UNICODE)
    )
