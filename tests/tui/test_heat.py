"""The map: cells that fit, colours that mean something, agents that keep their places."""

import pytest

from windtunnel.tui.screens.board import Table, compose_frame
from windtunnel.tui.screens.heat import CARD, MEASURES, SHOWN, level, limits, plan
from windtunnel.tui.theme import ASCII, UNICODE, Theme, plain
from windtunnel.tui.view import Row, View


def test_every_agent_is_seen_in_the_roomiest_cells_that_fit() -> None:
    for agents in (1, 6, 32, 100, 256, 400):
        for width, height in ((80, 16), (120, 28), (200, 46)):
            form = plan(agents, width, height)
            assert form.rows * form.high <= height
            assert form.columns * form.rows >= agents
            assert form.label + form.columns * form.wide <= width
    assert (plan(32, 120, 28).wide, plan(32, 120, 28).high) == CARD
    assert plan(256, 80, 16).columns == 16
    assert plan(256, 200, 46).high > 1


def test_where_not_all_fit_the_map_scrolls_with_the_cursor() -> None:
    view = View(agents=4000, rows=tuple(Row(agent=a, state="decode") for a in range(4000)))
    frame = compose_frame(view, Table(map="state", cursor=3900), 80, 24, Theme())
    assert 3900 in frame.shown
    assert 0 not in frame.shown
    assert "of 4000" in "\n".join(plain(line) for line in frame.lines)


def test_a_cell_of_the_screen_is_the_agent_that_is_drawn_there() -> None:
    view = View(agents=300, rows=tuple(Row(agent=a, state="tool") for a in range(300)))
    frame = compose_frame(view, Table(map="state"), 80, 24, Theme())
    form = frame.cells
    assert form is not None
    for agent in (0, 1, form.columns, 57, 299):
        x = form.label + agent % form.columns * form.wide
        y = frame.first + agent // form.columns * form.high
        assert frame.agent_at(x, y) == agent
    assert frame.agent_at(0, frame.first) is None
    assert frame.agent_at(form.label, frame.first - 1) is None


def test_fixed_limits_do_not_move_and_others_are_parts_of_a_round_number() -> None:
    assert limits(MEASURES["TTFT"], [0.1, 30.0]) == limits(MEASURES["TTFT"], [])
    steps = limits(MEASURES["tok/s"], [73.0, 12.0])
    assert steps == (10, 20, 30, 40, 50, 60, 70)
    assert [level(v, steps) for v in (0.0, 9.9, 10.0, 73.0)] == [0, 0, 1, 7]


@pytest.mark.parametrize("shown", SHOWN)
def test_totals_are_of_all_agents_and_what_is_filtered_keeps_its_place(views: dict[str, View], shown: str) -> None:
    view = views["many"]
    whole = compose_frame(view, Table(map=shown), 120, 40, Theme())
    part = compose_frame(view, Table(map=shown, pattern="codex"), 120, 40, Theme())
    assert f"all 256 agents {view.out_rate:,.0f} tok/s" in plain(part.lines[-2])
    assert part.lines[-2] == whole.lines[-2]
    assert part.shown == whole.shown
    assert part.cells == whole.cells
    assert set(part.order) == {r.agent for r in view.rows if "codex" in r.title}
    assert f"/codex/ {len(part.order)} of 256" in "\n".join(plain(line) for line in part.lines)


def test_the_cells_say_the_state_in_letters_and_the_figures_as_numbers(views: dict[str, View]) -> None:
    view = views["many"]
    frame = compose_frame(view, Table(map="state"), 80, 24, Theme(ASCII))
    drawn = "".join(plain(line)[6:] for line in frame.lines[frame.first : frame.first + 16])
    for state, letter in ASCII.states.items():
        assert drawn.count(letter) == view.states().get(state, 0), state
    form = compose_frame(view, Table(map="TTFT"), 200, 60, Theme(UNICODE))
    row = view.rows[5]
    assert form.cells is not None
    line = plain(form.lines[form.first])
    at = form.cells.label + 5 * form.cells.wide
    assert line[at : at + form.cells.wide].strip() == f"{row.ttft_s:.2f}"
