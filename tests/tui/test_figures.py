from fractions import Fraction

import pytest

from windtunnel.tui.figures import ceiling, clock, count, millis, percent, seconds, tenths, whole


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (812, "812"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (8_400, "8.4k"),
        (96_240, "96.2k"),
        (99_960, "100k"),
        (131_072, "131k"),
        (999_600, "1.0M"),
        (26_118_695, "26.1M"),
        (float("nan"), "–"),
    ],
)
def test_count_takes_at_most_five_cells(value: float | None, text: str) -> None:
    assert count(value) == text
    assert len(text) <= 5


def test_only_a_full_share_is_shown_as_full() -> None:
    assert percent(1.0) == "100%"
    assert percent(0.9999) == "99%"
    assert percent(0.9999, digits=1) == "99.9%"
    assert percent(0.0) == "0%"
    assert percent(None) == "–"


def test_seconds_and_rates_lose_decimals_before_they_lose_their_column() -> None:
    assert [seconds(v) for v in (0.314, 12.444, 99.999, 140.2)] == ["0.31", "12.44", "100", "140"]
    assert [tenths(v) for v in (62.13, 999.96, 1204.4)] == ["62.1", "1,000", "1,204"]
    assert [millis(v) for v in (0.08, 0.84, 12.4)] == ["0.08", "0.8", "12"]
    assert whole(1834.4) == "1,834"


def test_clock() -> None:
    assert [clock(v) for v in (None, 0, 161.9, 3601)] == ["--:--", "00:00", "02:41", "1:00:01"]


def test_axis_top_is_a_round_number_at_or_above_the_peak() -> None:
    assert [ceiling(v) for v in (0, 0.9, 1.2, 812, 1834, 2000, 9_100)] == [1, 1, 1.5, 1000, 2000, 2000, 10_000]
    for n in range(1, 400):
        peak = float(Fraction(n, 7))
        assert peak <= ceiling(peak) <= 2 * peak
