from windtunnel.tui.theme import ASCII, UNICODE, plain
from windtunnel.tui.widgets.plot import AXIS, bar, braille_rows, gauge, graph, trend


def dots(rows: list[str]) -> int:
    return sum((ord(c) - 0x2800).bit_count() for row in rows for c in row if c != " ")


def test_the_axis_starts_at_zero() -> None:
    steady = tuple([800.0] * 40)
    lines = graph(steady, 40, 4, UNICODE)
    assert plain(lines[0]).startswith(f"{'800':>{AXIS}}┤")
    assert plain(lines[-1]).startswith(f"{'0':>{AXIS}}┤")
    # Half of the top fills half of the height: not all of it, as a graph from minimum to maximum would.
    rows = braille_rows([500.0] * 20, 10, 4, top=1000.0)
    assert rows == [" " * 10, " " * 10, "⣿" * 10, "⣿" * 10]


def test_a_value_above_zero_always_shows() -> None:
    assert dots(braille_rows([0.0, 1.0], 1, 2, top=1e6)) == 1
    assert dots(braille_rows([0.0, None], 1, 2, top=1e6)) == 0


def test_dots_are_proportional_to_the_values() -> None:
    values = [i * 10.0 for i in range(17)]
    assert dots(braille_rows([*values, 0.0], 9, 4, top=160.0)) == sum(range(17))


def test_newest_value_is_at_the_right_and_old_ones_leave() -> None:
    rows = braille_rows([1.0] * 10 + [0.0] * 4, 2, 1, top=1.0)
    assert rows == ["  "]


def test_the_graph_grows_from_the_left_then_scrolls() -> None:
    width = AXIS + 1 + 10
    short = plain(graph((4.0, 4.0, 4.0), width, 1, UNICODE)[0])
    assert short.endswith("┤⣿⣿⣿       ")
    full = plain(graph(tuple([4.0] * 20), width, 1, UNICODE)[0])
    assert full.endswith("┤" + "⣿" * 10)
    scrolled = plain(graph(tuple([4.0] * 20 + [0.0] * 4), width, 1, UNICODE)[0])
    assert scrolled.endswith("┤" + "⣿" * 8 + "  ")


def test_ascii_graph_holds_no_other_characters() -> None:
    assert all(plain(line).isascii() for line in graph(tuple(float(i) for i in range(30)), 40, 3, ASCII))


def test_bars_are_full_only_when_everything_is_done() -> None:
    assert bar(1.0, 8, UNICODE) == ("━" * 8, "")
    assert bar(0.999, 8, UNICODE) == ("━" * 7, "─")
    assert bar(0.0, 8, UNICODE) == ("", "─" * 8)
    assert gauge(0.5, 3, UNICODE) == ("█▌", " ")
    assert gauge(1.0, 3, UNICODE) == ("███", "")


def test_trend_is_right_aligned_and_zero_based() -> None:
    assert trend((70.0, 35.0, 70.0), 5, UNICODE.levels) == "  █▅█"
    assert trend((), 3, UNICODE.levels) == "   "
