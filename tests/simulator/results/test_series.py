"""The steps of a history, of which the last is not over yet."""

from windtunnel.simulator.results.series import Series

NS = 1_000_000_000


def test_what_comes_at_once_is_no_spike_in_a_short_last_step() -> None:
    """A prompt of 100k tokens each second, and one a quarter into the last: not 400k a second."""
    series = Series(("prompt",))
    for second in range(5):
        series.add("prompt", second * NS + NS // 5, second * NS + NS // 5, 100_000)
    series.add("prompt", 5 * NS + NS // 4, 5 * NS + NS // 4, 100_000)
    assert series.rates("prompt") == [100_000.0] * 5 + [175_000.0]


def test_series_spread_and_halve():
    series = Series(("x",), limit=4)
    series.add("x", 0, 2 * NS, 10)
    series.add("x", NS // 2, NS // 2, 1)
    assert series.rates("x")[:2] == [6.0, 5.0]
    series.add("x", 5 * NS, 6 * NS, 8)
    assert series.step_s == 2.0
    assert series.rates("x")[:3] == [5.5, 0.0, 4.0]
    series.add("x", 0, 0, 2)  # the past can still be added to
    assert series.rates("x")[0] == 6.5


def test_the_last_step_of_a_series_counts_the_time_it_has_reached():
    series = Series(("x",))
    series.add("x", 0, NS, 10)
    series.add("x", NS, NS + NS // 2, 5)
    assert series.rates("x") == [10.0, 10.0]
