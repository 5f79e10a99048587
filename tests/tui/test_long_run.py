"""A long run that is over: its figures and the state of every agent at once, its past step by step."""

from collections.abc import Callable
from pathlib import Path

import long_run
import pytest
from fake_clocks import Clocks
from fake_run import Fake
from msgspec.structs import replace

from windtunnel.simulator.results import first_look as looking
from windtunnel.simulator.results.first_look import first_look
from windtunnel.simulator.results.fold import AMOUNTS, STATES, Fold
from windtunnel.simulator.results.fold_long import LongFold
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.tui import follow as follow_module
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.theme import Theme

EVENTS = 8_000


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    short = Fake(12, 60.0, failures=0.02).write(folder / "short")
    assert long_run.make(short, folder / "long", EVENTS) >= EVENTS
    return folder / "long"


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this run were as long as a million events."""
    monkeypatch.setattr(looking, "LONG_BYTES", 1 << 18)
    monkeypatch.setattr(looking, "TAIL_BYTES", 1 << 17)
    monkeypatch.setattr(looking, "PLACE_BYTES", 1 << 13)
    monkeypatch.setattr(follow_module, "OUTLINE_BYTES", 1 << 18)


def slow(follower: Follower, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes a while, so that each go of reading ends."""

    def late() -> float:
        clocks.monotonic += follow_module.READ_S * 0.6
        return clocks.monotonic

    monkeypatch.setattr(follower, "monotonic", late)


def whole(folder: Path) -> Fold:
    run = RunFolder.open(folder)
    fold = Fold(run.run)
    fold.apply_all(run.events())
    return fold


def test_a_lengthened_run_is_a_run(long: Path) -> None:
    folder = RunFolder.open(long)
    events = list(folder.events())
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert [e.t for e in events] == sorted(e.t for e in events)
    summary = folder.summary()
    assert summary is not None
    assert summary == recompute(long)
    assert summary.status == "completed"
    assert summary.window_s > 60.0
    assert summary.calls > 500


@pytest.mark.usefixtures("small_looks")
def test_the_outline_is_the_past_in_coarse(long: Path) -> None:
    seen, _ = first_look(RunFolder.open(long))
    fold = whole(long)
    assert seen.t == fold.t
    assert seen.status == "completed"
    assert seen.series.step_ns == fold.series.step_ns
    assert len(seen.series) == len(fold.series)
    n = len(fold.series)
    for name in ("output", "prompt"):
        # Every token is counted, at most a few places away from where it was.
        mine, exact = seen.series.rates(name), fold.series.rates(name)
        assert sum(mine) == pytest.approx(sum(exact), rel=0.01)
        for part in range(4):
            cut = slice(n * part // 4, n * (part + 1) // 4)
            assert sum(mine[cut]) == pytest.approx(sum(exact[cut]), rel=0.1), (name, part)
    for name in ("in_flight", "in_tool", "kv", "running", "decode", "tool", "held"):
        assert sum(seen.series.rates(name)) == pytest.approx(sum(fold.series.rates(name)), rel=0.2), name
    shares = []
    for series in (seen.series, fold.series):
        end = [0.0, float(fold.t)]
        shares.append(series.amounts("cached", end)[0] / series.amounts("known_prompt", end)[0])
    assert shares[0] == pytest.approx(shares[1], abs=0.03)


@pytest.mark.usefixtures("small_looks")
def test_every_agent_is_as_it_ended(long: Path) -> None:
    seen, _ = first_look(RunFolder.open(long))
    for mine, exact in zip(seen.rows, whole(long).rows, strict=True):
        assert (mine.state, mine.title, mine.session, mine.trace) == (
            exact.state,
            exact.title,
            exact.session,
            exact.trace,
        )
        assert (mine.turn, mine.turns, mine.context_tokens, mine.ttft_s) == (
            exact.turn,
            exact.turns,
            exact.context_tokens,
            exact.ttft_s,
        )


@pytest.mark.usefixtures("small_looks")
def test_figures_at_once_and_the_whole_after_a_while(
    long: Path, follow: Callable[..., Follower], clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = follow(long)
    slow(follower, clocks, monkeypatch)
    first = follower.poll()
    summary = follower.summary
    assert summary is not None
    assert first.ending == "completed"
    assert first.unread is not None
    assert first.unread > 0.5
    assert not first.reading
    goes = 0
    while follower.read_on():
        goes += 1
    assert goes > 10
    last = follower.poll()
    assert last.unread is None
    for view in (first, last):
        assert view.out_rate == summary.output_tokens_per_s
        assert view.cached == summary.cache_hit_ratio
        assert view.calls == summary.calls
        assert (view.done, view.failed, view.cut) == (
            summary.sessions_completed,
            summary.sessions_failed,
            summary.sessions_cut,
        )
        assert view.valid == summary.valid
        assert view.elapsed_s == summary.duration_s
        assert len(view.rows) == 12
    exact, read = whole(long), follower.fold
    assert isinstance(read, LongFold)
    for name in AMOUNTS:
        assert read.series.rates(name) == pytest.approx(exact.series.rates(name)), name
    for name in ("in_flight", "in_tool", "waiting", "running", "queued", "kv"):
        assert read.series.rates(name) == pytest.approx(exact.series.rates(name), rel=0.01, abs=0.2), name
    for state in (*STATES, "held"):
        mine, theirs = (sum(fold.series.rates(state)) for fold in (read, exact))
        assert mine == pytest.approx(theirs, rel=0.08, abs=2.0), state
    assert (read.calls, read.sessions, read.states) == (exact.calls, exact.sessions, exact.states)
    assert (read.in_flight, read.in_tool, read.waiting) == (exact.in_flight, exact.in_tool, exact.waiting)
    for mine_, theirs_ in zip(read.rows, exact.rows, strict=True):
        assert replace(mine_, version=0, since_t=0) == replace(theirs_, version=0, since_t=0)
    assert len(follower.story(3).turns) > 0


@pytest.mark.usefixtures("small_looks")
async def test_the_screen_says_that_it_reads_on(
    long: Path, follow: Callable[..., Follower], clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = follow(long)
    slow(follower, clocks, monkeypatch)
    app = Viewer(follower, Theme(), "view", tick_s=0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "reading the past" in shown
        assert "completed" in shown
        app.read_on()
        while app.reads_on:
            await pilot.pause(0.01)
        shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "reading the past" not in shown


@pytest.mark.usefixtures("small_looks")
def test_a_long_run_without_a_summary_is_read_from_its_start(
    long: Path, tmp_path: Path, follow: Callable[..., Follower], clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run.json", "events.jsonl"):
        (tmp_path / name).symlink_to(long / name)
    follower = follow(tmp_path)
    slow(follower, clocks, monkeypatch)
    view = follower.poll()
    assert view.reading
    assert view.unread is None


@pytest.mark.usefixtures("small_looks")
def test_damage_is_survived(long: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").symlink_to(long / "run.json")
    data = bytearray((long / "events.jsonl").read_bytes())
    for at in range(0, len(data), len(data) // 300):
        data[at] = 0xFF
    (tmp_path / "events.jsonl").write_bytes(data)
    seen, _ = first_look(RunFolder.open(tmp_path))
    assert len(seen.rows) == 12
    assert sum(seen.series.rates("output")) > 0
    (tmp_path / "events.jsonl").write_bytes(b"x" * (2 << 20))
    seen, tail = first_look(RunFolder.open(tmp_path))
    assert (seen.rows, tail) == ([], [])
