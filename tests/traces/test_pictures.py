import pytest

from windtunnel.traces.pictures import Pen, clock, count, duration, percent, table

PEN = Pen(80)
PLAIN = Pen(80, ascii=True)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (0, "0"), (7, "7"), (0.25, "0.2"), (999, "999"), (9_999, "9,999"), (10_000, "10.0k"),
        (12_345, "12.3k"), (99_949, "99.9k"), (99_950, "100k"), (146_200, "146k"), (999_499, "999k"),
        (999_500, "1.00M"), (-12_345, "-12.3k"), (1e300, ">999T"), (61_200_000, "61.2M"), (2.5e9, "2.50G"),
    ],
)  # fmt: skip
def test_numbers_of_things(value, shown):
    assert count(value) == shown
    assert len(count(value)) <= 6


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (0, "0s"), (0.0081, "8ms"), (0.0994, "99ms"), (0.0996, "0.10s"), (0.354, "0.35s"), (0.996, "1.0s"),
        (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"), (187, "3m07s"), (3599.4, "59m59s"),
        (3599.6, "1h00m"), (7_500, "2h05m"), (86_370, "1d00h"), (273_600, "3d04h"),
        (8_640_000, "100d"), (9e7, "1041d"), (1e300, ">3y"), (-5, "-5.0s"),
    ],
)  # fmt: skip
def test_lengths_of_time(value, shown):
    assert duration(value) == shown
    assert len(shown) <= 6


def test_points_in_time_and_shares():
    assert [clock(t) for t in (None, 0.9, 67, 3_600, 36_061.4, 1e300)] == [
        "-",
        "0:00",
        "1:07",
        "1:00:00",
        "10:01:01",
        ">3y",
    ]
    shown = [percent(s) for s in (None, 0, 0.0004, 0.0006, 0.123, 0.9996, 1)]
    assert shown == ["-", "0%", "<0.1%", "0.1%", "12.3%", "99.9%", "100%"]


def test_a_sparkline_starts_at_zero_and_shows_every_peak():
    assert PEN.sparkline([8, 8, 8], 10) == "\u2588\u2588\u2588"
    assert PEN.sparkline([1, 2, 4, 8], 4) == "\u2581\u2582\u2584\u2588"
    assert PEN.sparkline([0, 0, 100, 0, 0, 0, 0, 1], 4) == " \u2588 \u2581"
    assert PLAIN.sparkline([1, 2, 4, 8], 4) == "_.-#"
    assert PEN.sparkline([], 4) == PEN.sparkline([1], 0) == ""
    assert PEN.sparkline([0, 0], 4) == "  "


def test_a_chart_is_its_sparkline_in_several_lines():
    top, bottom = PLAIN.chart([2, 4, 8], 3, 2)
    assert (top, bottom) == ("  #", "-##")


def test_a_histogram_counts_on_a_log_scale():
    assert PLAIN.histogram([1, 1, 1, 1, 10, 100, 100], 3) == "#.-"
    assert PLAIN.histogram([0, 0, 1, 100], 2) == "#:"
    assert PLAIN.histogram([5, 5, 5], 8) == "#"
    assert PLAIN.histogram([0, 0], 8) == ""


def test_a_bar_is_as_long_as_its_share():
    assert PEN.bar(0.5, 10) == "\u2588" * 5
    assert PEN.bar(1 / 80, 10) == "\u258f"
    assert PEN.bar(2.0, 4) == "\u2588" * 4
    assert (PEN.bar(0, 10), PLAIN.bar(0.3, 10)) == ("", "###")


def test_colour_only_where_it_may_be():
    assert PEN.paint("x", "bold") == "x"
    assert Pen(80, colour=True).paint("x", "bold") == "\033[1mx\033[0m"
    assert Pen(80, colour=True).paint("  ", "bold") == "  "


def test_long_names_are_cut_and_tables_line_up():
    assert (PEN.cut("abcdef", 4), PLAIN.cut("abcdef", 4), PEN.cut("abc", 4)) == ("abc\u2026", "abc~", "abc")
    assert table(("a", "n"), [("xx", "5"), ("y", "123")]) == ["a     n", "xx    5", "y   123"]
