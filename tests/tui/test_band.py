"""The pictures above the table: what they show of the past, how tall they are, and what is drawn of the states."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from windtunnel.tui.screens.board import CALM, calm
from windtunnel.tui.theme import ASCII, UNICODE, plain
from windtunnel.tui.view import STACK, History, View
from windtunnel.tui.widgets.band import GRID_ROWS, shape
from windtunnel.tui.widgets.digits import huge, read, tall
from windtunnel.tui.widgets.plot import AXIS, fitted, marked, spans
from windtunnel.tui.widgets.stack import cell, edges, stack


def states(**counts: float) -> tuple[float, ...]:
    return tuple(counts.get(state, 0.0) for state in STACK)


def test_a_graph_grows_then_moves_on_and_then_shows_twice_as_much() -> None:
    assert spans(3, 10, whole=False) == [(0, 1), (1, 2), (2, 3)]
    assert spans(19, 10, whole=False) == [(i, i + 1) for i in range(9, 19)]
    assert spans(20, 10, whole=False) == [(2 * i, 2 * i + 2) for i in range(10)]
    assert spans(21, 10, whole=False)[-1] == (20, 21)
    for n in range(1, 400):
        shown = spans(n, 10, whole=False)
        # About half of the past is seen at least, up to now, and nothing twice.
        assert shown[-1][1] == n
        assert len(shown) == min(n, 10)
        assert sum(last - first for first, last in shown) >= 0.45 * n
        assert all(a[1] == b[0] for a, b in pairwise(shown))


@pytest.mark.parametrize("n", [1, 5, 10, 17, 240])
def test_a_run_that_is_over_fills_the_graph_with_all_of_it(n: int) -> None:
    shown = spans(n, 10, whole=True)
    assert len(shown) == 10
    assert {i for first, last in shown for i in range(first, last)} == set(range(n))


def test_a_dot_is_the_mean_of_its_values_and_a_gap_where_there_are_none() -> None:
    assert fitted([1.0, 3.0, 5.0, 7.0], 1, whole=False) == [2.0, 6.0]
    assert fitted([1.0, None, None, None], 1, whole=False) == [1.0, None]
    assert fitted([4.0], 2, whole=False) == [4.0, 4.0]


def test_a_cell_of_the_stack_holds_the_end_of_a_state_and_what_lies_above_it() -> None:
    ends = edges(states(decode=5, prefill=1, tool=2), 8, 16)
    assert ends[:4] == [10, 12, 12, 16]
    assert cell(ends, 0) == (0, 8, 0)
    decode, tool = STACK.index("decode"), STACK.index("tool")
    lower, eighths, upper = cell(ends, 8)
    assert (lower, eighths) == (decode, 2)
    assert upper == tool
    # Agents that have not begun lie above all, and are no state.
    assert cell(edges(states(decode=2), 8, 16), 8)[0] == len(STACK)


def test_the_stack_is_drawn_in_colours_or_else_in_glyphs() -> None:
    history = History(states=(states(decode=4), states(decode=2, tool=2)))
    coloured = stack(history, 4, AXIS + 1 + 4, 2, UNICODE, True)
    assert coloured[0][2:4] == ((" ", "on-decode"), (" ", "on-tool"))
    assert coloured[1][2] == ("  ", "on-decode")
    assert [plain(line)[AXIS + 1 :] for line in stack(history, 4, AXIS + 1 + 4, 2, UNICODE, False)] == ["▶◆  ", "▶▶  "]
    assert [plain(line)[AXIS + 1 :] for line in stack(history, 4, AXIS + 1 + 4, 2, ASCII, True)] == ["DT  ", "DD  "]


@pytest.mark.parametrize("text", ["1,834", "0", "97", "12,345", "~802", "102k", "1.24M"])
def test_tall_digits_can_be_read(text: str) -> None:
    for glyphs in (UNICODE, ASCII):
        rows = tall(text, glyphs)
        assert len({len(row) for row in rows}) == 1
        assert read(rows, glyphs) == text.replace(",", "")


def test_huge_digits_are_the_tall_ones_twice_as_large() -> None:
    rows = huge("47", UNICODE)
    assert len(rows) == 6
    assert [len(row) for row in rows] == [2 * len(tall("47", UNICODE)[0])] * 6
    assert rows[:2] == ("██  ██  ██████", "██  ██      ██")


def test_every_agent_has_its_row_before_the_pictures_grow() -> None:
    for width, height in ((80, 24), (120, 40), (160, 48), (200, 60), (250, 70)):
        for agents in (8, 16, 32, 48):
            form = shape(width, height, agents, 6)
            if height - 6 - agents >= 3:
                assert form.rows <= height - 6 - agents
            assert (form.kind == "grid") == (form.rows >= GRID_ROWS and width >= 104)
    assert shape(120, 40, 32, 5).rows == 3
    assert shape(200, 60, 32, 5).kind == "grid"
    assert shape(50, 24, 32, 6).kind == "line"


def test_a_second_mark_stands_in_the_gauge_and_at_its_end_points_out_of_it() -> None:
    line = marked(0.5, 0.75, 8, UNICODE, "prefill")
    assert plain(line) == "████  │ "
    inside = marked(0.5, 0.25, 8, UNICODE, "prefill")
    assert plain(inside) == "██│█    "
    assert inside[1] == ("│", "strong on-prefill")
    assert marked(0.9, 1.3, 8, UNICODE, "tool")[1][0] == ">"
    assert plain(marked(0.5, None, 8, ASCII, "prefill")) == "####    "


def test_figures_of_all_agents_stand_for_a_second_unless_time_leaps_or_the_run_ends() -> None:
    old = View(phase="steady", elapsed_s=10.0, out_rate=100.0, in_flight=5.0)
    new = replace(old, elapsed_s=10.25, out_rate=120.0, in_flight=6.0, done=3)
    held = calm(new, old, beat=1)
    assert (held.out_rate, held.in_flight, held.done, held.elapsed_s) == (100.0, 5.0, 3, 10.25)
    assert calm(new, old, beat=CALM) is new
    assert calm(replace(new, elapsed_s=40.0), old, beat=1).out_rate == 120.0
    assert calm(replace(new, ending="completed"), old, beat=1).out_rate == 120.0
    assert calm(replace(new, phase="draining"), old, beat=1).out_rate == 120.0
