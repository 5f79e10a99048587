"""Curves in one picture, and ratios with their intervals as bars."""

from math import log

import numpy as np
import pytest

from windtunnel.simulator.experiments.outcome import Comparison
from windtunnel.simulator.results.curves import Curves
from windtunnel.tui.theme import ASCII, UNICODE, Theme, plain
from windtunnel.tui.widgets.curves import Curve, drawn, reach, rising
from windtunnel.tui.widgets.interval import ends, ratio_bar, scale, scale_line
from windtunnel.tui.widgets.overlay import latencies, throughput


def comparison(
    ratio: float | None, low: float | None = None, high: float | None = None, verdict: str = "better"
) -> Comparison:
    return Comparison(ratio=ratio, low=low, high=high, verdict=verdict)  # type: ignore[arg-type]


def text(found: Comparison, reach: float, width: int = 21) -> str:
    return plain(ratio_bar(found, reach, width, UNICODE))


def test_a_ratio_stands_where_its_factor_is_and_one_in_the_middle() -> None:
    two = log(2)
    assert text(comparison(2.0, 2.0, 2.0), two) == "          │         ●"
    assert text(comparison(0.5), two) == "●         │          "
    assert text(comparison(1.0), two) == "          ●          "
    assert text(comparison(2**0.5, 2**0.2, 2**0.8), two) == "          │ ━━━●━━━  "


def test_an_interval_that_holds_one_crosses_the_middle() -> None:
    assert text(comparison(1.05, 0.9, 1.2), log(1.3)) == "      ━━━━│━●━━━━━   "


def test_without_a_ratio_only_the_middle_is_drawn_and_ascii_needs_no_other_letters() -> None:
    assert text(comparison(None), log(2)) == "          │          "
    assert plain(ratio_bar(comparison(1.5, 1.2, 1.8), log(2), 21, ASCII)).isascii()


def test_the_tone_is_the_verdicts() -> None:
    for verdict, tone in (("better", "good"), ("worse", "bad"), ("no_difference", "text"), ("too_noisy", "dim")):
        pieces = ratio_bar(comparison(1.5, 1.2, 1.8, verdict), log(2), 21, UNICODE)
        assert {of.split()[0] for piece, of in pieces if "●" in piece or "━" in piece} == {tone}


@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        ([], "-9%", "+10%"),
        ([comparison(1.02, 1.0, 1.04)], "-9%", "+10%"),
        ([comparison(0.8, 0.7, 0.9)], "-33%", "+50%"),
        ([comparison(1.9)], "-50%", "+100%"),
        ([comparison(2.5)], "/3", "x3"),
        ([comparison(400.0)], "/20", "x20"),
    ],
)
def test_the_scale_is_round_and_holds_every_interval(found: list[Comparison], low: str, high: str) -> None:
    assert ends(scale(found)) == (low, high)
    line = scale_line(scale(found), 23)
    assert len(line) == 23
    assert line.startswith(low)
    assert line.endswith(high)
    assert line[10:13] == "1.0"


def test_a_curve_is_drawn_from_left_to_right_with_its_letter_on_it() -> None:
    up = Curve("A", "tool", tuple(x / 19 for x in range(20)))
    rows = [plain(row) for row in drawn([up], 10, 4, UNICODE, colour=True, upright=False)]
    assert [len(row) for row in rows] == [10] * 4
    assert sum("A" in row for row in rows) == 1
    assert rows[0][-1] != " "
    assert rows[3][0] != " "
    assert rows[0][:6].strip() == ""
    assert rows[3][6:].strip() == ""


def test_the_first_curve_lies_on_top_and_each_has_its_tone() -> None:
    flat = tuple([0.5] * 20)
    pieces = [
        p
        for row in drawn(
            [Curve("A", "tool", flat), Curve("B", "wait", flat)], 10, 3, UNICODE, colour=True, upright=False
        )
        for p in row
    ]
    assert {tone for text, tone in pieces if text.strip(" AB")} == {"tool"}
    letters = {char: tone for text, tone in pieces for char in text if char in "AB"}
    assert letters == {"A": "tool bold", "B": "wait bold"}


def test_gaps_stay_gaps_and_without_braille_the_letters_are_the_curve() -> None:
    half = Curve("A", "tool", tuple([0.5] * 10 + [None] * 10))
    rows = [plain(row) for row in drawn([half], 10, 3, ASCII, colour=False, upright=False)]
    assert rows == [" " * 10, "AAAAA     ", " " * 10]


def test_without_colours_the_letters_come_again_and_again() -> None:
    flat = Curve("A", "tool", tuple([0.5] * 200))
    once = "".join(plain(r) for r in drawn([flat], 100, 3, UNICODE, colour=True, upright=False))
    often = "".join(plain(r) for r in drawn([flat], 100, 3, UNICODE, colour=False, upright=False))
    assert (once.count("A"), often.count("A")) == (1, 8)


def test_a_distribution_rises_from_its_first_value_to_its_last() -> None:
    shown = rising([1.0, 2.0, 3.0, 4.0], 0.0, 5.0, 5, logarithmic=False)
    assert shown == (None, None, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, None)
    assert rising([], 0.0, 1.0, 3, logarithmic=False) == (None,) * 6
    assert rising([5.0], 0.0, 5.0, 3, logarithmic=False) == (None,) * 5 + (1.0,)


def test_an_axis_is_logarithmic_where_values_lie_far_apart() -> None:
    assert reach([np.linspace(0.1, 10.0, 100)])[2]
    assert reach([np.linspace(0.9, 1.1, 100)])[2] is False
    assert reach([]) == (0.0, 1.0, False)
    assert reach([np.array([3.0])]) == (0.0, 3.0, False)


def run(rate: float, latency: float) -> Curves:
    values = {name: np.sort(np.linspace(latency, latency * 9, 50)) for name in ("ttft_s", "tpot_s", "e2e_s")}
    return Curves(1.0, np.full(100, rate), (10.0, 90.0), {**values, "makespan_s": np.empty(0)})


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("look", [Theme(), Theme(ASCII, colour=False)], ids=["unicode", "ascii"])
def test_runs_laid_over_one_another_fill_their_place(width: int, look: Theme) -> None:
    runs = [("A", "tool", [run(400.0, 0.1)]), ("B", "wait", [run(200.0, 0.2), run(220.0, 0.2)])]
    above = [plain(line) for line in throughput(runs, width, 8, look)]
    assert len(above) == 8
    assert above[0].strip().startswith("400")
    assert above[-1].split()[-1] == "01:40"
    below = [plain(line) for line in latencies(runs, width, 7, look)]
    assert len(below) == 7
    assert [w for w in below[0].split() if w != "(log)"] == ["TTFT", "TPOT", "whole", "call"]
    assert max(len(line) for line in (*above, *below)) <= width
    for letter in "AB":
        assert any(letter in line[8:] for line in above[:-1])


def test_a_run_without_a_measured_window_says_so() -> None:
    empty = Curves(
        1.0, np.full(10, 5.0), None, {name: np.empty(0) for name in ("ttft_s", "tpot_s", "e2e_s", "makespan_s")}
    )
    assert "no call of a measured window" in plain(latencies([("A", "tool", [empty])], 80, 6, Theme())[0])
