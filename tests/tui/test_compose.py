from windtunnel.tui.theme import Line, plain, strip
from windtunnel.tui.widgets.compose import cells, clip, cut, filled, first_seen, pad, spread
from windtunnel.tui.widgets.lines import changed, spans


def words(*texts: str) -> Line:
    return tuple((t, "") for t in texts)


def test_cut_and_pad_count_cells_not_characters() -> None:
    assert cut("日本語セッション", 7) == "日本語…"
    assert pad("日本", 6) == "日本  "
    assert pad("12", 5, right=True) == "   12"
    assert cells(words("日本", "ab")) == 6


def test_rows_scroll_no_farther_than_the_cursor_and_the_end_ask_for() -> None:
    assert first_seen(3, 5, 4, 20) == 3
    assert first_seen(3, 2, 4, 20) == 2
    assert first_seen(3, 7, 4, 20) == 4
    assert first_seen(18, 19, 4, 20) == 16
    assert first_seen(3, 1, 4, 2) == 0
    assert first_seen(0, 0, 4, 0) == 0


def test_the_least_important_parts_go_first() -> None:
    left = [(9, words("phase")), (1, words("nice to have")), (5, words("rate"))]
    assert plain(spread(left, [(8, words("where"))], 60)).strip() == "phase  nice to have  rate" + " " * 28 + "where"
    assert plain(spread(left, [(8, words("where"))], 24)) == " phase  rate     where  "[:17] + " where "
    assert len(plain(spread(left, [(8, words("where"))], 24))) == 24


def test_what_must_stay_is_clipped_at_the_end() -> None:
    line = spread([(0, words("x" * 40))], [(0, words("end"))], 20)
    assert plain(line) == " " + "x" * 13 + "  end "


def test_clip_and_fill_give_exact_widths() -> None:
    assert plain(clip(words("abc", "def"), 4)) == "abcd"
    assert plain(filled(words("abc"), 5)) == "abc  "


def test_a_strip_is_exactly_as_wide_as_asked() -> None:
    for line in (words("short"), words("日本語" * 10), words("a" * 50, "b" * 50), ()):
        drawn = strip(line, 33)
        assert drawn.cell_length == 33
        assert sum(s.cell_length for s in drawn) == 33


def test_control_characters_never_reach_the_terminal() -> None:
    drawn = strip(words("a\x1b[31mb\r\n\tc\u202ed"), 20)
    assert drawn.text == "a [31mb   c d" + " " * 7
    assert drawn.cell_length == 20


def test_changed_columns_cover_what_differs() -> None:
    old = (("01 ", "dim"), ("decode ", "decode"), ("62.1", ""), (" end", ""))
    new = (("01 ", "dim"), ("decode ", "decode"), ("62.2", ""), (" end", ""))
    assert changed(old, new, 40) == (10, 14)
    assert changed(old, (*new, ("!", "")), 40) == (10, 40)
    assert changed(old, (("01 ", "dim"), ("tool ", "tool"), ("62.1", ""), (" end", "")), 40) == (3, 40)


def test_what_changed_far_apart_is_drawn_apart() -> None:
    old = (
        ("01", "dim"),
        (" decode ", "decode"),
        ("same " * 4, ""),
        ("62.1", ""),
        ("text", ""),
        (" " * 30, ""),
        ("a", ""),
    )
    new = (
        ("01", "dim"),
        (" tool   ", "tool"),
        ("same " * 4, ""),
        ("61.9", ""),
        ("text", ""),
        (" " * 30, ""),
        ("b", ""),
    )
    assert spans(old, old, 80) == []
    assert spans(old, new, 80) == [(2, 10), (30, 34), (68, 69)]
    assert spans(old, new, 60) == [(2, 10), (30, 34)]
    assert spans(old, new, 32) == [(2, 10), (30, 32)]
    near = (*new[:4], ("more", ""), *new[5:])
    assert spans(old, near, 80) == [(2, 10), (30, 38), (68, 69)]
    # Of other pieces, or pieces of other widths, nothing is known but where the first difference is.
    assert spans(old, (*old, ("!", "")), 80) == [changed(old, (*old, ("!", "")), 80)]
    wider = (*old[:3], ("162.1", ""), *old[4:])
    assert spans(old, wider, 80) == [changed(old, wider, 80)]


def test_drawing_the_stretches_makes_the_line() -> None:
    import random

    rng = random.Random(5)
    for _ in range(300):
        widths = [rng.randint(1, 9) for _ in range(rng.randint(1, 12))]
        old, new = (
            tuple(
                (rng.choice("ab▶") * w, rng.choice(("", "dim"))) if rng.random() < 0.4 else ("." * w, "")
                for w in widths
            )
            for _ in range(2)
        )
        shown = list(plain(old).ljust(100))
        for first, last in spans(old, new, 100):
            shown[first:last] = plain(new).ljust(100)[first:last]
        assert "".join(shown) == plain(new).ljust(100)
