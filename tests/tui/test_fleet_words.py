"""What the fleet's screen says in words: warm-up, a run that measured nothing, reasons, narrow screens, the footer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_run import Fake
from msgspec.structs import replace

from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.validity import REASONS
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.board import Frame, Table, compose_frame, footer_line
from windtunnel.tui.screens.reasons import TO_DO, ReasonsScreen, reason_lines
from windtunnel.tui.snapshot import Plans, head_of, view_of
from windtunnel.tui.theme import UNICODE, Theme, plain
from windtunnel.tui.view import Doing, Row, View
from windtunnel.tui.widgets.agents import doing
from windtunnel.tui.widgets.engine import engine_line
from windtunnel.tui.widgets.plot import AXIS, graph


def text_of(frame: Frame) -> list[str]:
    return [plain(line).rstrip() for line in frame.lines]


def drawn(view: View, width: int, height: int, table: Table | None = None) -> list[str]:
    return text_of(compose_frame(view, table or Table(), width, height, Theme()))


def at(fake: Fake, seconds: float, warmup: dict[str, float | None]) -> View:
    run = fake.run_json()
    run["config"]["warmup"] = warmup
    fold, plans = Fold(run), Plans()
    for event in fake.until(seconds):
        fold.apply(event)
        plans.apply(event)
    return view_of(head_of(run, "r"), fold, plans, ending=None, silent_s=None, summary=None, speed="real time 1.0x")


def test_names_with_line_ends_and_without_end_stay_in_their_line(running: Fake) -> None:
    run = running.run_json()
    odd = "m\n\x1b[2J" + "x" * 10_000
    run["engine"] |= {"name": "vllm", "version": odd, "model": f"org/{odd}"}
    head = head_of(run, "r")
    assert head.model == "m \\u001b[2J" + "x" * 74 + "..."
    assert head.engine_name.startswith("vllm m \\u001b[2Jx")
    view = view_of(head, Fold(run), Plans(), ending=None, silent_s=None, summary=None, speed="")
    for width in (80, 240):
        lines = drawn(view, width, 24)
        assert not any("\n" in line or "\x1b" in line for line in lines)
        assert max(map(len, lines)) <= width


def test_a_warm_up_by_calls_says_how_many_agents_are_warm(running: Fake) -> None:
    view = at(running, 14.0, {"calls": 1, "seconds": None})
    ended: dict[int, int] = {}
    for event in running.until(14.0):
        if type(event).__name__ == "CallEnd":
            ended[event.agent] = ended.get(event.agent, 0) + 1  # type: ignore[attr-defined]
    warm = len(ended)
    assert 0 < warm < 32
    assert view.warm == (warm, 32)
    assert f"{warm:>2} of 32 agents warm" in drawn(view, 120, 40)[1]
    assert f"{warm:>2}/32 warm" in drawn(view, 80, 24)[1]
    assert at(running, 20.0, {"calls": 1, "seconds": None}).warm is None


def test_a_warm_up_by_time_says_what_is_left(running: Fake) -> None:
    view = at(running, 9.0, {"calls": None, "seconds": 13.0})
    assert view.warm is None
    assert view.left_s == pytest.approx(13.0 - (view.phase_s or 0.0))
    assert "left 00:0" in drawn(view, 80, 24)[1]


def test_a_run_stopped_in_its_warm_up_shows_what_there_is(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    folder = Fake(8, 12.0, warmup_until=99.0, end="interrupted").write(tmp_path / "run", summary=True)
    summary = json.loads((folder / "summary.json").read_text())
    view = follow(folder).poll()
    assert view.unmeasured
    for width, height in ((80, 24), (120, 40), (200, 60)):
        lines = drawn(view, width, height)
        text = "\n".join(lines)
        assert "interrupted in warm-up: nothing was measured" in lines[1]
        assert f"{summary['output_tokens']:,}" in text
        assert f"calls {summary['calls']} " in text
        assert "TTFT p50" not in text
    engine = next(line for line in drawn(view, 120, 40) if line.lstrip().startswith("KV end"))
    assert view.engine.running > 0  # type: ignore[operator]
    assert f"{view.engine.kv_usage * 100:.0f}%" in engine  # type: ignore[operator]
    assert f"set {view.engine.demand * 100:>3.0f}%" in engine  # type: ignore[operator]


def test_reasons_come_and_go_without_moving_a_row(views: dict[str, View]) -> None:
    view = views["running"]
    against = replace(
        view,
        valid=False,
        invalid=("client_lag", "trend"),
        why=tuple(REASONS[name] for name in ("client_lag", "trend")),
        failures=(("truncated_stream", 3),),
    )
    for width, height in ((80, 24), (120, 40), (200, 60)):
        before = compose_frame(view, Table(), width, height, Theme())
        after = compose_frame(against, Table(), width, height, Theme())
        assert (after.first, after.shown) == (before.first, before.shown)
        assert "not valid: client lag" in text_of(after)[0]
        assert "v why" in text_of(after)[-1]
        assert "v why" not in text_of(before)[-1]
    assert len(compose_frame(against, Table(), 120, 40, Theme()).shown) == 32


def test_the_reasons_are_told_with_what_to_do_about_them() -> None:
    assert TO_DO.keys() == REASONS.keys()
    view = View(
        invalid=("client_lag", "x_y"), why=(REASONS["client_lag"], "x y"), failures=(("timeout", 12), ("http_500", 3))
    )
    lines = [plain(line) for line in reason_lines(view, 60, UNICODE)]
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("✗ The client was late")
    assert "fewer --agents" in " ".join(lines)
    assert "✗ X y." in lines
    assert lines[-2:] == ["  12 timeout", "   3 http 500"]
    assert "Nothing speaks against" in plain(reason_lines(View(), 60, UNICODE)[0])


async def test_v_opens_the_reasons_and_closes_them(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    folder = Fake(8, 30.0).write(tmp_path / "run", until=20.0)
    app = Viewer(follow(folder), Theme(), "view", tick_s=0)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("v")
        assert isinstance(app.screen, ReasonsScreen)
        await pilot.press("v")
        assert app.screen is app.fleet


def test_a_narrow_screen_keeps_its_columns_whole(views: dict[str, View]) -> None:
    lines = drawn(views["running"], 60, 15)
    names = next(line for line in lines if "session" in line and "turn" in line)
    assert names.endswith("tok/s")
    row = next(row for row in views["running"].rows[:3] if row.rate is not None)
    (line,) = (line for line in lines if line.startswith(f" {row.agent + 1:02d} "))
    assert line.endswith(f"{row.rate:.1f}")
    assert lines[-1].endswith("of 32")
    assert "? help" in lines[-1]
    bar = next(line for line in lines if line.lstrip().startswith("agents"))
    assert {"▶", "▷", "◔", "◆", "◌"} <= set(bar)
    many = drawn(views["many"], 60, 15, Table(map="state"))
    assert any(line.startswith(" map") and line.endswith("TTFT") for line in many)


def test_the_cells_of_the_map_keep_state_and_rate_apart() -> None:
    row = Row(agent=0, state="decode", title="claude/x", turn=1, turns=2, rate=102.4)
    view = View(agents=32, rows=tuple(replace(row, agent=a) for a in range(32)))
    text = "\n".join(drawn(view, 120, 40, Table(map="state")))
    assert "▶ decode  102 tok/s" in text


def test_a_single_spike_does_not_set_the_axis() -> None:
    """It is cut off at the top, and marked there."""
    values = tuple([105_000.0] * 99 + [500_000.0])
    lines = [plain(line) for line in graph(values, AXIS + 1 + 50, 3, UNICODE, whole=True)]
    assert lines[0].lstrip().startswith("150k")
    assert lines[0].endswith("▴")
    assert lines[0].count("▴") == 1
    # What is not rare sets it.
    often = [
        plain(line) for line in graph(tuple([105_000.0] * 96 + [500_000.0] * 4), AXIS + 51, 3, UNICODE, whole=True)
    ]
    assert often[0].lstrip().startswith("500k")


def test_the_footer_says_how_to_go_on_and_how_to_replay(views: dict[str, View]) -> None:
    for width in (60, 80, 120):
        frozen = drawn(views["running"], width, 24, Table(frozen=True))
        assert "space go on" in frozen[-1]
        assert "? help" in frozen[-1]
        assert "? help" in drawn(views["many"], width, 24, Table(map="state"))[-1]
    assert "] replay" in drawn(views["finished"], 120, 40)[-1]
    assert "] replay" not in drawn(views["running"], 120, 40)[-1]


def test_the_title_drops_whole_parts(views: dict[str, View]) -> None:
    for width in range(80, 140):
        for view in (views["running"], views["invalid"]):
            title = drawn(view, width, 40)[0]
            assert "· …" not in title
            assert "·…" not in title


def test_a_working_set_that_does_not_fit_is_said_in_words(views: dict[str, View]) -> None:
    view = views["running"]
    big = replace(view, engine=replace(view.engine, held=3.8 * (view.engine.kv_tokens or 0)))
    line = next(line for line in drawn(big, 160, 48) if line.lstrip().startswith("KV"))
    assert "set 380%" in line
    assert "set does not fit" in line
    unknown = replace(view, engine=replace(view.engine, held=None))
    assert "set    –" in next(line for line in drawn(unknown, 120, 40) if line.lstrip().startswith("KV"))


def test_the_work_of_the_run_has_the_reports_name(views: dict[str, View]) -> None:
    text = "\n".join(drawn(views["finished"], 120, 40))
    assert "session equiv./h" in text
    assert "sessions/h" not in text


@pytest.mark.parametrize("width", [13, 15, 27])
def test_all_that_receive_tokens_name_their_unit(width: int) -> None:
    counts = (6, 170), (448, 810), (1113, 1745)
    rows = [Row(agent=0, state="decode", doing=Doing(tokens=n, pinned=of, tail="a b")) for n, of in counts]
    assert [plain(doing(row, width, UNICODE)) for row in rows] == [f"{n}/{of} tok" for n, of in counts]


@pytest.mark.parametrize(
    ("ignored", "said"),
    [
        (["--cpu-offload-gb 40"], "uncalibrated, flags not modelled"),
        (["--trust-remote-code"], "uncalibrated"),
    ],
)
def test_flags_that_the_emulator_does_not_model_are_told_beside_the_model(ignored: list[str], said: str) -> None:
    engine = {"emulated": True, "emulation": {"calibrated": False, "ignored_flags": ignored}}
    assert head_of({"engine": engine}, "a").sure == said


@pytest.mark.parametrize(
    ("resolved", "narrow", "wide"),
    [
        ({}, "  hit ", "  hit rate "),
        ({"cache_config.kv_offloading_size": 0}, "  hit ", "  hit rate "),
        ({"cache_config.kv_offloading_size": 40.0}, "  GPU hit ", "  GPU's own hit rate "),
    ],
)
def test_with_kv_offload_the_hit_rate_is_said_to_be_the_gpus_own(
    running: Fake, resolved: dict[str, object], narrow: str, wide: str
) -> None:
    run = running.run_json()
    run["engine"] |= {"resolved": resolved}
    fold, plans = Fold(run), Plans()
    view = view_of(head_of(run, "r"), fold, plans, ending=None, silent_s=None, summary=None, speed="")
    assert narrow in plain(engine_line(view, 150, UNICODE))
    assert wide in plain(engine_line(view, 220, UNICODE))


def test_what_failed_has_its_key_also_where_nothing_is_held_against_the_run() -> None:
    recording = View(recording=True, ending="completed", valid=True, failures=(("http_400", 2),))
    assert "v why" in plain(footer_line(recording, Table(), 80, ()))
    assert "v why" not in plain(footer_line(replace(recording, failures=()), Table(), 80, ()))


def test_who_interrupted_a_warm_up_is_not_told_to_make_it_longer() -> None:
    view = View(ending="interrupted", unmeasured=True, invalid=("no_steady_state",), why=("nothing was measured",))
    said = " ".join(plain(line) for line in reason_lines(view, 88, UNICODE))
    assert "--duration" not in said
    assert "let it run on until its window has been measured" in said
    for other in (replace(view, ending="completed"), replace(view, unmeasured=False)):
        assert "--duration" in " ".join(plain(line) for line in reason_lines(other, 88, UNICODE))
