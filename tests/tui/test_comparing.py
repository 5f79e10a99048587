"""What a comparison has to show, read beside the screen: experiments and runs, over and going on."""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import fake_shelf
import pytest
import snapshots
from fake_clocks import Clocks
from fake_run import Fake
from fake_shelf import WALL
from msgspec.structs import replace

from windtunnel.simulator.experiments.folders import group
from windtunnel.simulator.experiments.outcome import Comparison, Figure
from windtunnel.simulator.results.tail import Tail
from windtunnel.tui.comparing import Comparing, Contrast
from windtunnel.tui.screens.compare_frame import compose_compare
from windtunnel.tui.screens.compare_parts import Looked, Versus, verdict
from windtunnel.tui.theme import ASCII, Theme, plain


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
    assert (found.title, found.experiment, found.blocks, len(found.columns)) == (
        "a made-up ladder",
        True,
        "4 blocks, all count",
        4,
    )
    assert [c.letter for c in found.columns] == ["A", "B", "C", "D"]
    outcome = json.loads((ladder / "outcome.json").read_bytes())
    half = found.columns[1].step.versus_previous["output_tokens_per_s"]
    said = outcome["steps"][1]["versus_previous"]["output_tokens_per_s"]
    assert (half.ratio, half.low, half.high, half.verdict) == (said["ratio"], said["low"], said["high"], "worse")
    assert found.columns[3].step.failure == "did not start: exit 1: no such model"
    assert [len(c.curves) for c in found.columns] == [3, 3, 3, 0]
    assert found.differences == (("a.step", ("0", "1", "2", "")),)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize(
    ("variants", "versus", "head", "table", "ratio"),
    [
        (False, "previous", "against the previous", " C against B", "+99.7%"),
        (False, "base", "against the base", " C against A", "+0.5%"),
        (True, "previous", "against A", " C against A", "+0.5%"),
        (True, "base", "against A", " C against A", "+0.5%"),
    ],
)
def test_what_the_head_says_is_what_the_figures_are_against(
    small: Fake, tmp_path: Path, width: int, variants: bool, versus: Versus, head: str, table: str, ratio: str
) -> None:
    folder = fake_shelf.experiment(small, tmp_path / "e", blocks=3, variants=variants)
    found = read(folder).poll()
    frame = compose_compare(found, Looked(cursor=2, versus=versus), width, 40, Theme())
    lines = [plain(line) for line in frame.lines]
    assert head in lines[frame.first - 1]
    assert ("the previous" in "".join(lines)) == (not variants and (versus == "previous" or width == 200))
    assert any(line.startswith(table) for line in lines)
    assert ratio in lines[frame.first + 2]
    if width > 60 or variants:
        assert (" b " in lines[-1]) == (not variants)
    assert lines[frame.first + 2].count("%") == (2 if width == 200 and not variants else 1)


def test_the_figures_and_the_settings_are_there_before_the_curves(
    ladder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, seen, order = read(ladder), [], []
    outline = Comparing._outline

    def looked(self: Comparing, path: Path) -> object:
        latest = self._latest
        seen.append((len(latest.columns), len(latest.differences), sum(len(c.curves) for c in latest.columns)))
        order.append(path.name)
        return outline(self, path)

    monkeypatch.setattr(Comparing, "_outline", looked)
    source.wanted = (2, 0)
    source.poll()
    # what is looked at comes first
    assert order[:4] == ["base", "same", "half", "base"]
    # a run of each configuration after the other, and always what is known by then
    assert seen == [(4, 1, n) for n in range(9)]


def test_a_thread_reads_beside_the_screen(ladder: Path) -> None:
    clocks = Clocks()
    source = Comparing([ladder], lambda: clocks.wall, lambda: clocks.monotonic)
    last, here = list(polled(source))[-1], read(ladder).poll()
    source.close()
    assert [(c.name, c.step, len(c.curves)) for c in last.columns] == [
        (c.name, c.step, len(c.curves)) for c in here.columns
    ]
    assert (last.differences, last.progress) == (here.differences, "")


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
    assert "live is still going on: its figures so far, and no verdict" in found.notices
    assert not any("still going on" in note for note in found.columns[1].step.notes)
    assert "died" not in " ".join(found.columns[1].step.invalid_runs)
    length = len(found.columns[1].curves[0].rates)
    small.write(live, until=36.0)
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    clocks.monotonic += 6.0
    assert len(source.poll().columns[1].curves[0].rates) > length
    source.close()


def test_of_a_run_that_goes_on_only_what_was_added_is_read(
    small: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = fake_shelf.write(small, tmp_path / "over", rate=100.0)
    live = small.write(tmp_path / "live", until=20.0)
    size = (live / "events.jsonl").stat().st_size
    clocks, poll, followers, taken, looked = Clocks(), Tail.poll, set[Tail](), [], []

    def polled_(self: Tail, limit: int = 1 << 26) -> object:
        before = self.read
        events = poll(self, limit)
        (taken if self in followers else looked).append(self.read - before)
        followers.update([] if followed else [self])
        return events

    followed = False
    monkeypatch.setattr(Tail, "poll", polled_)
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    source = read(over, live, clocks=clocks)
    source.poll()
    followed = True
    taken.clear()
    looked.clear()
    small.write(tmp_path / "more", until=36.0)
    added = (tmp_path / "more" / "events.jsonl").read_bytes()[size:]
    with (live / "events.jsonl").open("ab") as file:
        file.write(added)
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    clocks.monotonic += 6.0
    found = source.poll()
    assert sum(taken) == len(added) > 0
    # What the calls have got that have not ended is looked up from near the first of them on.
    assert 0 < sum(looked) < size + len(added) - 20_000
    other = read(over, tmp_path / "more", clocks=clocks)
    whole = other.poll().columns[1]
    other.close()
    assert found.columns[1].step.metrics == whole.step.metrics
    assert list(found.columns[1].curves[0].rates) == list(whole.curves[0].rates)
    source.close()


def test_a_comparison_with_a_live_run_says_so_and_gives_its_ratio(small: Fake, tmp_path: Path) -> None:
    over = fake_shelf.write(small, tmp_path / "over")
    live = fake_shelf.write(small, tmp_path / "live", summary=False)
    with (live / "events.jsonl").open("rb") as file:
        lines = file.readlines()
    (live / "events.jsonl").write_bytes(b"".join(lines[: len(lines) * 3 // 4]))
    clocks = Clocks()
    clocks.wall = (live / "events.jsonl").stat().st_mtime
    source = read(over, live, clocks=clocks)
    found = source.poll()
    source.close()
    for width in (60, 80, 120):
        lines_ = [plain(line) for line in compose_compare(found, Looked(cursor=1), width, 24, Theme()).lines]
        table = next(i for i, line in enumerate(lines_) if line.startswith(" B against A"))
        assert re.fullmatch(r"  output tokens/s +[\d,.]+ +[\d,.]+[ │●]+x\d\.\d\d  live: so far *", lines_[table + 1])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_base_that_does_not_count_is_named_beside_both_figures(small: Fake, tmp_path: Path, width: int) -> None:
    bad = fake_shelf.write(small, tmp_path / "bad", rate=100.0, valid=False)
    good = fake_shelf.write(small, tmp_path / "good", rate=200.0)
    found = read(bad, good).poll()
    frame = compose_compare(found, Looked(cursor=1), width, 24, Theme())
    lines = [plain(line) for line in frame.lines]
    table = next(i for i, line in enumerate(lines) if line.startswith(" B against A"))
    words = lines[table + 1].split()
    assert words[:4] == ["output", "tokens/s", "100", "200"]
    assert words[-4:] == ["x2.00", "A", "not", "valid"]
    assert "+100.0% A not valid" in lines[frame.first + 1]
    assert any("not counted: bad: the client was late" in line for line in lines)
    # what nobody reports has no line, and no raw name is left
    assert not any("makespan" in line or "_s" in line for line in lines)


def test_what_is_held_against_a_live_run_so_far_does_not_make_it_one_that_does_not_count(
    small: Fake, tmp_path: Path
) -> None:
    bad = fake_shelf.write(small, tmp_path / "bad", rate=100.0, valid=False)
    good = fake_shelf.write(small, tmp_path / "good", rate=200.0)
    found = read(bad, good).poll()
    live = replace(found, columns=(replace(found.columns[0], live=True), found.columns[1]))
    lines = [plain(line).rstrip() for line in compose_compare(live, Looked(cursor=1), 80, 24, Theme()).lines]
    assert any(line.endswith("x2.00  live: so far") for line in lines)
    assert any("not counted so far: bad: the client was late" in line for line in lines)
    assert not any("not valid" in line for line in lines)


def test_other_work_is_not_comparable_and_the_shown_run_is_named(small: Fake, tmp_path: Path) -> None:
    paths = [fake_shelf.write(small, tmp_path / "a", rate=100.0), fake_shelf.write(small, tmp_path / "b", agents=12)]
    clocks = Clocks()
    found = Comparing(paths, lambda: clocks.wall, lambda: clocks.monotonic, whole=True, this=paths[1]).poll()
    lines = [plain(line).rstrip() for line in compose_compare(found, Looked(cursor=1), 80, 24, Theme()).lines]
    assert "B is this run" in lines[0]
    assert sum(line.endswith("not comparable") for line in lines) >= 3
    unpaired = Comparison(ratio=None, low=None, high=None, verdict="too_noisy")
    column, other = found.columns[1], found.columns[0]
    assert verdict(column, other, found.metrics[0], unpaired)[0] == "not comparable", "both figures are there"
    assert verdict(replace(column, other_work=False), other, found.metrics[0], unpaired)[0] == "not comparable"


@pytest.mark.parametrize(("width", "brief"), [(60, True), (80, True), (120, True), (200, False)])
def test_a_verdict_fits_the_interval_beside_it(ladder: Path, width: int, brief: bool) -> None:
    found = read(ladder).poll()
    metric = found.metrics[0]
    cases = (
        ("too_noisy", 14, "clear alone" if brief else "clear alone, not among all 14"),
        ("too_noisy", 0, "no verdict" if brief else "no verdict, see its note"),
        ("no_difference", 14, "too small" if width < 100 else "too small to matter"),
    )
    for word, table, says in cases:
        made = Comparison(ratio=1.03, low=1.02, high=1.04, verdict=word, blocks=4, table=table)
        step = found.columns[1].step
        step = replace(step, versus_previous=step.versus_previous | {metric: made})
        shown = replace(found, columns=(found.columns[0], replace(found.columns[1], step=step), *found.columns[2:]))
        frame = compose_compare(shown, Looked(cursor=1), width, 40, Theme())
        lines = [plain(line).rstrip() for line in frame.lines]
        row = next(line for line in lines[frame.first + 4 :] if line.startswith("  output tokens/s"))
        assert says in row
        assert f"+3.0% {says[:9]}" in lines[frame.first + 1]
        assert not any("too noisy to say" in line for line in lines)


@pytest.mark.parametrize(("width", "rung"), [(80, "750.0 ms"), (120, "750.0 ms against 1.50 s")])
def test_the_figures_beside_a_ratio_are_those_it_is_made_of(ladder: Path, width: int, rung: str) -> None:
    found = read(ladder).poll()
    metric = "e2e_s.paired"
    made = Comparison(ratio=0.5, low=0.4, high=0.6, verdict="better", blocks=4, base=1.5, other=0.75)
    step = found.columns[1].step
    own = step.metrics | {metric: Figure(33.8, 30.0, 37.0)}
    step = replace(step, metrics=own, versus_previous=step.versus_previous | {metric: made})
    shown = replace(found, columns=(found.columns[0], replace(found.columns[1], step=step), *found.columns[2:]))
    looked = Looked(cursor=1, metric=found.metrics.index(metric))
    frame = compose_compare(shown, looked, width, 40, Theme())
    lines = [plain(line) for line in frame.lines]
    assert rung in lines[frame.first + 1]
    assert "33.8" not in "".join(lines)
    table = next(i for i, line in enumerate(lines) if line.startswith(" B against A"))
    row = next(line for line in lines[table:] if line.startswith("  whole call mean"))
    assert row.split()[3:7] == ["1.50", "s", "750.0", "ms"]
    assert "x0.50" in row


@pytest.mark.parametrize("width", [60, 80, 120])
def test_an_old_outcome_whose_ratio_is_over_other_calls_than_its_figures_says_so(ladder: Path, width: int) -> None:
    found = read(ladder).poll()
    metric = "e2e_s.paired"
    old = Comparison(ratio=0.225, low=0.2, high=0.25, verdict="better", blocks=4)
    step = found.columns[1].step
    step = replace(
        step,
        metrics=step.metrics | {metric: Figure(16.0, 15.0, 17.0)},
        versus_previous=step.versus_previous | {metric: old},
    )
    shown = replace(found, columns=(found.columns[0], replace(found.columns[1], step=step), *found.columns[2:]))
    for metric_shown in (metric, "output_tokens_per_s"):
        looked = Looked(cursor=1, metric=found.metrics.index(metric_shown))
        lines = [plain(line) for line in compose_compare(shown, looked, width, 40, Theme()).lines]
        text = " ".join(" ".join(lines).split())
        said = "whole call mean: the ratio is over the calls that both completed, the figures over all"
        assert text.count(said) == 1, metric_shown
    # Above the other rows' figures nothing of the kind is said.
    other = compose_compare(found, Looked(cursor=1, metric=found.metrics.index(metric)), width, 40, Theme())
    assert "the ratio is over" not in "".join(plain(line) for line in other.lines)


def test_a_finished_run_is_read_once(small: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [fake_shelf.write(small, tmp_path / name, began=WALL + i) for i, name in enumerate("ab")]
    clocks = Clocks()
    source = read(*paths, clocks=clocks)
    first = source.poll()
    monkeypatch.setattr("windtunnel.tui.comparing.Reading", lambda path: pytest.fail(f"read again: {path}"))
    clocks.monotonic += 60.0
    assert source.poll() is first


def test_what_cannot_be_read_is_said(small: Fake, tmp_path: Path) -> None:
    good = fake_shelf.write(small, tmp_path / "good")
    found = read(good, tmp_path / "gone").poll()
    assert found.columns == ()
    assert str(tmp_path / "gone") in found.problem


@pytest.mark.parametrize("size", snapshots.SIZES[:2], ids=str)
def test_pictures(ladder: Path, size: tuple[int, int]) -> None:
    width, height = size
    found = read(ladder).poll()
    live = replace(found, live=True, progress="block 5, half is running")
    shown = compose_compare(live, Looked(cursor=2, versus="base"), width, height, Theme())
    snapshots.same(f"compare-live-{width}x{height}", snapshots.picture(shown.lines, width, marked=shown.marked))
    empty = Contrast(title="a made-up ladder", experiment=True, live=True, progress="block 1, base is running")
    shown = compose_compare(empty, Looked(), width, height, Theme())
    snapshots.same(f"compare-empty-{width}x{height}", snapshots.picture(shown.lines, width, marked=shown.marked))


@pytest.mark.parametrize("width", [60, 80, 100, 112, 120, 170, 200, 250])
@pytest.mark.parametrize("look", [Theme(), Theme(ASCII, colour=False)], ids=["unicode", "ascii"])
def test_no_line_is_wider_than_the_screen_and_the_verdict_is_always_there(
    ladder: Path, width: int, look: Theme, everything: dict[str, Contrast]
) -> None:
    found = everything.setdefault("found", read(ladder).poll())
    for height in (24, 40, 60):
        for page in range(3):
            frame = compose_compare(found, Looked(cursor=1, page=page), width, height, look)
            lines = [plain(line) for line in frame.lines]
            assert len(lines) == height
            assert max(len(line.rstrip()) for line in lines) <= width
            assert "WORSE" in lines[frame.first + 1]


@pytest.fixture(scope="module")
def everything() -> dict[str, Contrast]:
    """What was read once."""
    return {}


def test_recordings_are_compared_with_what_is_known_of_them(small: Fake, tmp_path: Path) -> None:
    paths = [fake_shelf.write(small, tmp_path / name) for name in "ab"]
    for path in paths:
        run = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(run | {"kind": "recording"}))
    found = read(*paths).poll()
    assert any("real traffic" in notice for notice in found.notices)
    assert [len(c.curves[0].latencies["makespan_s"]) for c in found.columns] == [0, 0]
    assert len(found.columns[0].curves[0].latencies["ttft_s"]) > 10


def test_the_command_tells_a_live_run_from_one_that_died(small: Fake, tmp_path: Path) -> None:
    paths = [fake_shelf.write(small, tmp_path / "over"), fake_shelf.write(small, tmp_path / "live", summary=False)]
    (paths[1] / "events.jsonl").write_bytes(
        b"".join((paths[1] / "events.jsonl").read_bytes().splitlines(keepends=True)[:-40])
    )
    now = (paths[1] / "events.jsonl").stat().st_mtime
    over, live = group(paths, now)[0].runs.values()
    assert (over.live, live.live, live.summary.valid, live.summary.invalid_reasons) == (False, True, True, ())
    dead = group(paths, now + 60)[0].runs[1]
    assert (dead.live, dead.summary.invalid_reasons) == (False, ("died",))
