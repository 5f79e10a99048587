"""What a finished run came to stands on its screen, and what is said beside it pushes nothing off."""

import pytest
from msgspec.structs import replace

from windtunnel.tui.screens.board import Table, compose_frame
from windtunnel.tui.theme import Theme, plain
from windtunnel.tui.view import View

HEADLINE = (
    ("TTFT p50 / p90", "0.06 / 0.14 s"),
    ("TPOT p50 / p90", "13.01 / 20.64 ms"),
    ("left out", "21 of 132 (long ones)"),
    ("session equiv./h", "302.2"),
    ("calls", "253 (0 failed, 22 cut)"),
    ("output tokens", "96,990"),
    ("prompt tokens", "10,682,177"),
    ("window", "00:45"),
)
LEAST = ("TTFT p50 / p90 0.06 / 0.14 s", "TPOT p50 / p90 13.01 / 20.64 ms", "left out 21 of 132 (long ones)")


@pytest.fixture
def finished(views: dict[str, View]) -> View:
    return replace(views["finished"], headline=HEADLINE, valid=True, invalid=(), why=(), failures=())


@pytest.fixture
def invalid(finished: View) -> View:
    return replace(finished, valid=False, invalid=("client_lag",), why=("the client was late: p99 12 ms",))


def screen(view: View, width: int, height: int) -> tuple[list[str], int]:
    """Its lines, and of how many agents it has a row."""
    frame = compose_frame(view, Table(), width, height, Theme())
    return [plain(line).rstrip() for line in frame.lines], len(frame.shown)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (118, 30), (120, 30), (160, 48)])
def test_every_figure_is_there(finished: View, width: int, height: int) -> None:
    text = "\n".join(screen(finished, width, height)[0])
    assert all(f"{name} {value}" in text for name, value in HEADLINE)


def test_where_not_all_fit_what_matters_most_stays(finished: View) -> None:
    text = "\n".join(screen(finished, 60, 20)[0])
    assert all(said in text for said in LEAST)
    assert "window" not in text


@pytest.mark.parametrize("width", [118, 120, 149])
def test_every_agent_has_a_row_where_the_height_allows_it(finished: View, invalid: View, width: int) -> None:
    for view in (finished, invalid):
        rows = [screen(view, width, height)[1] for height in range(36, 56)]
        assert rows == sorted(rows)
        assert rows[4:] == [32] * 16


def test_beside_the_curve_stand_the_figures_and_the_reasons(finished: View, invalid: View) -> None:
    lines, rows = screen(finished, 120, 40)
    assert rows == 32
    assert "32 agents, " in lines[1]
    assert "in flight" in lines[1]
    assert "2.0k┤" in lines[2]
    assert lines[2].endswith("TTFT p50 / p90 0.06 / 0.14 s   TPOT p50 / p90 13.01 / 20.64 ms")
    assert lines[3].endswith("left out 21 of 132 (long ones)   session equiv./h 302.2")
    assert lines[4].endswith("calls 253 (0 failed, 22 cut)   output tokens 96,990")
    lines, rows = screen(invalid, 120, 40)
    assert rows == 32
    assert lines[2].endswith("✗ the client was late: p99 12 ms")
    assert lines[4].endswith("left out 21 of 132 (long ones)   session equiv./h 302.2")
    # A row more, and the reasons have a line of their own; two more, and so have all figures.
    lines, _ = screen(invalid, 120, 41)
    assert lines[2] == " ✗ the client was late: p99 12 ms"
    lines, _ = screen(invalid, 120, 42)
    assert lines[6].endswith("prompt tokens 10,682,177   window 00:45")


def test_of_a_run_that_measured_nothing_no_mean_is_told(finished: View) -> None:
    nothing = replace(finished, unmeasured=True, in_flight_mean=None, headline=HEADLINE[4:7], why=("no window",))
    lines, rows = screen(nothing, 120, 40)
    assert rows == 32
    assert "nothing was measured" in lines[1]
    assert "in flight" not in lines[1]
