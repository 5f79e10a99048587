"""The timeline's lines: which stretch is shown, what its lanes and its strip say."""

import pytest

from windtunnel.simulator.results.lanes import RANK
from windtunnel.simulator.results.untold import FIRST
from windtunnel.tui.screens.timeline_frame import Scope, compose_timeline, place_of, planned
from windtunnel.tui.theme import ASCII, UNICODE, Theme, cells_of, plain
from windtunnel.tui.view import View
from windtunnel.tui.widgets.lanes import axis, cells, clock, grouped, legend, level
from windtunnel.tui.window import Moment, Place, Window, fitting, latest, steps_from


def row(states: str) -> bytes:
    """`ddtt.` as ranks, by the first letters of the states."""
    letters = {name[0]: rank for name, rank in RANK.items() if name != "done"} | {".": 0, "?": FIRST}
    return bytes(letters[c] for c in states)


def window(*lanes: str, step: int = 1000, now: int | None = None, **more: object) -> Window:
    columns = len(lanes[0]) if lanes else 40
    known = {"out": (100.0,) * (2 * columns), "kv": (0.5,) * columns, **more}
    now = step * columns if now is None else now
    return Window(Place(0, step, columns), now=now, cells=tuple(map(row, lanes)), **known)


# Which stretch


def test_a_run_that_grows_is_shown_whole_and_rescaled_seldom() -> None:
    steps = [fitting(0, t, 96, over=False) for t in range(0, 400_000, 1000)]
    assert all(step * 96 > t for step, t in zip(steps, range(0, 400_000, 1000), strict=True))
    assert sorted(set(steps)) == [50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000]
    assert all(step * 96 <= 1.7 * t for step, t in zip(steps[10:], range(10_000, 400_000, 1000), strict=True)), (
        "not half empty"
    )
    # One that is over fills the screen.
    assert fitting(0, 148_000, 96, over=True) == 1600
    assert latest(0, 148_000, 1600, 96) == 0


def test_the_window_ends_with_now_until_one_looks_back() -> None:
    following = place_of(Scope(step=1000), 0, 200_300, 60, over=False)
    assert (following.start, following.end) == (141_000, 201_000)
    assert place_of(Scope(step=1000), 0, 200_900, 60, over=False) == following, "columns do not slide"
    assert place_of(Scope(step=1000, start=12_345), 0, 200_300, 60, over=False).start == 12_000
    assert place_of(Scope(), 0, 30_000, 60, over=False) == Place(0, 700, 60)


def test_zooming_goes_along_a_ladder_from_wherever_one_is() -> None:
    assert [steps_from(1600, by) for by in (-1, 1)] == [1000, 2000]
    assert [steps_from(2000, by) for by in (-1, 1)] == [1000, 5000]
    assert (steps_from(50, -1), steps_from(3_600_000, 1)) == (50, 3_600_000)


# Lanes


def test_states_differ_in_shape_and_without_colour_in_letters() -> None:
    lane = row("pddttw.fq")
    assert plain(cells(lane, UNICODE, colour=True)) == "▇▇▇━━─ ✗╌"
    assert [tone for _, tone in cells(lane, UNICODE, colour=True)][:3] == ["prefill", "decode", "tool"]
    assert plain(cells(lane, UNICODE, colour=False)) == "PDDTTW xQ"
    assert plain(cells(lane, ASCII, colour=True)) == "PDDTTW xQ"


def test_the_legend_leaves_out_what_does_not_fit() -> None:
    assert plain(legend(UNICODE, colour=True)).endswith("✗ failed")
    assert plain(legend(UNICODE, colour=True, room=46)) == "▇ decode  ▇ prefill  ╌ queue  ━ tool  ─ wait"
    assert plain(legend(UNICODE, colour=True, room=43)) == "▇ decode  ▇ prefill  ╌ queue  ━ tool"


def test_the_cursor_stands_in_its_column() -> None:
    for column in range(9):
        drawn = plain(cells(row("pddttw.fq"), UNICODE, colour=False, cursor=column))
        assert drawn.index("│") == column
        assert len(drawn) == 9


def test_many_agents_share_rows_evenly() -> None:
    rows = grouped(256, 40)
    assert [len(r) for r in rows] == [7] * 36 + [4]
    assert [i for r in rows for i in r] == list(range(256))
    assert grouped(3, 40) == [range(1), range(1, 2), range(2, 3)]


def test_times_stand_at_round_places() -> None:
    drawn = axis(0, 1000, 60, UNICODE)
    assert [(drawn.index(t) - 1) for t in ("0:00", "0:15", "0:30", "0:45")] == [0, 15, 30, 45]
    assert axis(61_000, 1000, 30, ASCII).strip().startswith("|1:15")
    assert clock(3_725_000) == "1:02:05"
    assert clock(12_340, 200) == "0:12.3"


def test_shares_are_drawn_from_zero() -> None:
    assert level([0.0, 0.5, 1.0, None, 1.7], UNICODE) == "▁▅█ █"


# The screen


NOW = Scope()


def drawn(w: Window, scope: Scope = NOW, size: tuple[int, int] = (100, 24), **view: object) -> list[str]:
    frame = compose_timeline(View(**view), w, scope, *size, Theme(colour=False))
    assert len(frame.lines) == size[1]
    assert all(sum(cells_of(text) for text, _ in line) <= size[0] for line in frame.lines)
    return [plain(line).rstrip() for line in frame.lines]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (60, 16)])
def test_every_line_fits(size: tuple[int, int]) -> None:
    for agents in (0, 1, 8, 32, 256):
        w = window(*["pddttw" * 5] * agents, moment=Moment(out=1834.0, kv=0.78, running=17.0, waiting=2.5))
        for scope in (Scope(), Scope(cursor=3000, agent=max(0, agents - 1)), Scope(alone=True)):
            lines = drawn(w, scope, size)
            assert "tok/s" in lines[1]
            if agents:
                assert f"agent {scope.agent + 1:02d}" in lines[-2]


def test_the_strip_says_what_the_engine_did_at_the_cursor() -> None:
    m = Moment(out=1834.0, kv=0.78, running=17.0, waiting=2.5, preempted=3.0, in_flight=19.4, in_tool=8.0, idle=4.6)
    lines = drawn(window("dddd", moment=m), Scope(cursor=2000), (160, 24))
    strip = " ".join(lines[1].split())
    assert "at 0:02 1,834 tok/s KV" in strip
    assert "78% running 17 waiting 2.5 preempted +3 in flight 19.4 tool 8 wait 4.6" in strip
    assert " ".join(lines[-2].split()).startswith("agent 01 ▶ decode")


def test_of_a_server_that_is_only_listened_to_no_line_is_left_blank() -> None:
    none = window("dd", "tt", kv=(None, None), moment=Moment(out=120.0, in_flight=3.0))
    lines = drawn(none, recording=True)
    assert not [line for line in lines if "KV" in line or "running" in line]
    assert "120 tok/s" in lines[1]
    assert [line.endswith(("DD", "TT")) for line in lines].count(True) == 2
    assert any("KV" in line for line in drawn(none))
    assert any("KV" in line for line in drawn(window("dd"), recording=True)), "where it is known it is shown"


def test_at_the_end_that_is_said_and_states_are_the_agents_own() -> None:
    lines = drawn(window("dddd"), ending="completed", agents=1)
    assert " end " in lines[1]
    lines = drawn(window("dddd"))
    assert " now " in lines[1]


def test_rows_of_several_agents_are_said_to_be_that() -> None:
    w = window(*["dd"] * 5, *["tt"] * 6, *["ff", *["dd"] * 10] * 10)
    lines = drawn(w, size=(120, 23))
    assert any(line.startswith(" 9 a row: what most do") for line in lines)
    assert any(line.startswith(" 9 a row: what most of them do") for line in drawn(w, size=(160, 23)))
    assert " 9 a row" in drawn(w, size=(80, 23))
    assert any(line.lstrip().startswith("1-9 ") and line.endswith("DD") for line in lines)
    assert any(line.lstrip().startswith("10-18 ") and line.endswith("xx") for line in lines), "one failure is seen"
    shared = [line[:8] for line in drawn(window(*["dd"] * 33), size=(120, 24)) if line.endswith("DD")]
    assert (shared[0], shared[-1]) == ("   1-3 ·", " 31-33 ·")
    shared = [line[:8] for line in drawn(window(*["dd"] * 34), size=(120, 24)) if line.endswith("DD")]
    assert shared[-1] == "    34 ·", "one that is left over stands in line"


@pytest.mark.parametrize(
    ("agents", "height", "tall", "rows", "apart"),
    [
        (32, 40, 2, 32, 1),  # the main use: each agent has its lane
        (32, 39, 1, 32, 1),  # the graph makes room for the last one
        (32, 24, 2, 16, 1),  # the other half is a page away
        (33, 24, 4, 11, 1),  # three a row
        (256, 70, 12, 52, 1),  # five a row; what is left is the graph's
        (16, 24, 2, 16, 1),
        (16, 50, 10, 16, 2),
        (8, 24, 2, 8, 2),
        (1, 24, 4, 1, 2),
    ],
)
def test_lanes_come_first_then_the_graph(agents: int, height: int, tall: int, rows: int, apart: int) -> None:
    plan = planned(agents, height, None)
    assert (plan.tall, min(plan.room, len(plan.rows)), plan.apart) == (tall, rows, apart)
    assert tall + rows * apart + 6 <= height
    frame = compose_timeline(View(), window(*["dd"] * agents), Scope(), 120, height, Theme())
    assert (len(frame.rows), frame.apart, len(frame.lines)) == (rows, apart, height)


def test_a_low_graph_names_its_unit_too() -> None:
    lines = drawn(window(*["dd"] * 32), size=(120, 40))
    assert lines[2].split("|")[0].split("┤")[0].split() == ["tok/s", "100"]


def test_rows_are_shared_or_not_as_was_asked() -> None:
    assert [len(row) for row in planned(32, 24, False).rows] == [2] * 16
    assert len(planned(256, 24, True).rows) == 256
    few = window(*["dd"] * 8)
    assert "one a row" not in drawn(few)[-1] + drawn(few, Scope(alone=False))[-1], "nothing to choose"
    many = window(*["dd"] * 32)
    assert "l together" in drawn(many, size=(120, 24))[-1]
    assert "l one a row" in drawn(many, Scope(alone=False), size=(120, 24))[-1]


@pytest.mark.parametrize("size", [(80, 24), (160, 24)])
def test_what_is_drawn_before_a_first_token_is_what_the_legend_tells(size: tuple[int, int]) -> None:
    known, unknown, both = (drawn(window(lane), size=size)[-2] for lane in ("qp", "??", "q?p"))
    assert ("P prefill" in known, "? queue or prefill" in known) == (True, False)
    assert ("P prefill" in unknown, "? queue or prefill" in unknown) == (False, True)
    assert size[0] < 100 or ("P prefill" in both and "? queue or prefill" in both)


def test_a_wait_for_a_first_token_is_hollow_and_named() -> None:
    frame = compose_timeline(View(), window("d??"), Scope(cursor=1500), 100, 24, Theme())
    assert plain(frame.lines[frame.first]).split()[1] == "?"
    assert "▇│═" in plain(frame.lines[frame.first])
    assert ("═", "prefill") in frame.lines[frame.first]
    assert "agent 01  ? queue or prefill" in plain(frame.lines[-2])


def test_of_agents_that_share_a_row_most_of_those_before_their_first_token_decide() -> None:
    shared = compose_timeline(View(), window(*["p?d", "??d", "p?d"]), Scope(alone=False), 40, 9, Theme(colour=False))
    assert len(shared.rows) == 1
    assert plain(shared.lines[shared.first]).endswith("P?D")


def test_one_row_each_scrolls_with_the_cursor() -> None:
    w = window(*["dd"] * 100)
    frame = compose_timeline(View(), w, Scope(alone=True, agent=60), 120, 24, Theme(colour=False))
    shown = [i for r in frame.rows for i in r]
    assert 60 in shown
    assert all(len(r) == 1 for r in frame.rows)
    assert plain(frame.lines[frame.first - 1]).startswith(f" {shown[0] + 1}-{shown[-1] + 1} of 100")
    assert plain(frame.lines[frame.marked or 0]).split()[0] == "061"
