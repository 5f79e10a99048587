"""The last step of a history, which is not over yet."""

from windtunnel.simulator.results.series import Series

NS = 1_000_000_000


def test_what_comes_at_once_is_no_spike_in_a_short_last_step() -> None:
    """A prompt of 100k tokens each second, and one a quarter into the last: not 400k a second."""
    series = Series(("prompt",))
    for second in range(5):
        series.add("prompt", second * NS + NS // 5, second * NS + NS // 5, 100_000)
    series.add("prompt", 5 * NS + NS // 4, 5 * NS + NS // 4, 100_000)
    assert series.rates("prompt") == [100_000.0] * 5 + [175_000.0]
