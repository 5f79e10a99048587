import json
import time

import pytest

from windtunnel.traces.calibration import cut_places
from windtunnel.traces.inventory import pieces
from windtunnel.traces.model import KINDS, Block, digest_of
from windtunnel.traces.seeded import u16, u16_few
from windtunnel.traces.text import (
    calibrate,
    estimate_tokens,
    fit_text,
    kind_of,
    regenerate,
    regenerate_escaped,
    regenerate_inline,
    sample,
    stored,
    token_ids,
)

CAL = stored()


@pytest.mark.parametrize("kind", KINDS)
def test_stock_starts_in_the_first_column_and_ends_lines(kind):
    stock = pieces(kind)
    assert len(set(stock)) == len(stock) > 200
    assert all(p.isascii() and not p[0].isspace() and p.endswith("\n") and not p.endswith("\n\n") for p in stock)
    assert all("$" not in p or kind != "prose" for p in stock)
    assert 45_000 < len(sample(kind)) < 55_000
    text = sample(kind)
    assert all(p in text for p in stock)


def test_prose_stands_inside_a_json_string_as_it_is():
    text = regenerate_inline("d", 500, CAL)
    assert json.dumps(text) == f'"{text}"'
    assert "\n" not in text
    assert text.startswith(regenerate_inline("d", 400, CAL)[:1000])


def test_the_same_text_on_every_machine():
    """Written down once: any change of the stock or the draws would change recorded runs."""
    found = {kind: digest_of(regenerate("0123", kind, 300, CAL)) for kind in KINDS}
    assert found == EXPECTED
    assert token_ids("0123", 6, CAL) == EXPECTED_IDS


EXPECTED = {
    "code": "d7b7220c61da04ec393d4f7c0d0583c6",
    "prose": "2d61666f1e379bff721a6f7642b55d1d",
    "json": "439368f50427ebe1815e35ce638e948a",
    "log": "6a2b815a326302be6fa8bb258187835b",
}
EXPECTED_IDS = [897, 781, 1828, 1515, 990, 1972]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [21, 50, 400, 5000])
def test_fewer_tokens_are_a_prefix_of_more(kind, more):
    short, long = regenerate("ab", kind, 20, CAL), regenerate("ab", kind, more, CAL)
    common = next(
        i for i, (a, b) in enumerate(zip(short, long + "\0" * 99, strict=False)) if a != b or i == len(short) - 1
    )
    assert len(short) - common < 30
    a, b = token_ids("ab", 20, CAL), token_ids("ab", more, CAL)
    assert b[:20] == a
    assert len(b) == more


def test_counts_by_the_stored_ratio_are_near():
    for kind in KINDS:
        text = regenerate("x", kind, 10_000, CAL)
        assert len(text) / CAL.ratio[kind] == pytest.approx(10_000, rel=0.05)


def test_small_counts():
    for kind in KINDS:
        assert regenerate("x", kind, 0, CAL) == ""
        for n in range(1, 40):
            text = regenerate("x", kind, n, CAL)
            assert text
            assert text.endswith("\n") == (n >= 8)
    assert token_ids("x", 0, CAL) == []


def test_different_digests_and_kinds_differ():
    texts = {regenerate(d, k, 200, CAL) for d in ("a", "b", "c") for k in KINDS}
    assert len(texts) == 12


def test_looks_like_its_kind():
    for kind in ("code", "json", "log"):
        guesses = [kind_of(regenerate(str(i), kind, 600, CAL)) for i in range(20)]
        assert guesses.count(kind) >= 15, (kind, guesses)
    assert all(kind_of(regenerate(str(i), "prose", 600, CAL)) == "prose" for i in range(20))
    assert kind_of('{"a": 1}') == "json"
    assert kind_of("") == "prose"
    assert kind_of("I will now look at the file and then fix it.") == "prose"


def test_a_session_is_regenerated_in_well_under_a_second():
    CAL.tables  # noqa: B018
    start = time.perf_counter()
    size = sum(len(regenerate(f"block{i}", KINDS[i % 4], 150, CAL)) for i in range(1000))
    text_s = time.perf_counter() - start
    start = time.perf_counter()
    ids = sum(len(token_ids(f"block{i}", 150, CAL)) for i in range(1000))
    ids_s = time.perf_counter() - start
    assert size > 400_000
    assert ids == 150_000
    assert text_s < 0.5
    assert ids_s < 0.5


def test_without_token_strings_the_ratio_is_learnt():
    tokenised = {kind: (list(range(len(sample(kind)) // 5)), None) for kind in KINDS}
    cal = calibrate("five", tokenised)
    assert cal.measured
    assert not cal.exact
    assert all(cal.ratio[k] == pytest.approx(5, rel=0.001) for k in KINDS)
    assert len(regenerate("x", "code", 4000, cal)) == pytest.approx(20_000, rel=0.03)
    assert cal.ids
    assert set(token_ids("x", 1000, cal)) <= set(cal.ids)


def test_strings_that_do_not_fit_the_text_fall_back_to_the_ratio():
    tokenised = {kind: ([1] * 12_000, ["zzz"] * 12_000) for kind in KINDS}
    cal = calibrate("odd", tokenised)
    assert cal.measured
    assert not cal.exact


def test_one_token_per_character():
    """The coarsest tokenizer there is, with special tokens at both ends."""
    tokenised = {k: ([1, *map(ord, sample(k)), 2], ["<s>", *sample(k), "</s>"]) for k in KINDS}
    cal = calibrate("characters", tokenised)
    assert cal.exact
    assert 1 not in cal.ids
    for kind in KINDS:
        for n in (9, 40, 41, 42, 1000, 20_000):
            assert abs(len(regenerate("q", kind, n, cal)) - n) <= max(2, 0.02 * n)


def test_recorded_text_is_cut_continued_or_left():
    block = Block(0, "d", "prose", 100)
    text = regenerate("other", "prose", 100, CAL)
    assert fit_text(text, 100, block, 100, CAL) == (text, None)
    assert fit_text(text, 101, block, 100, CAL) == (text, None)
    cut, how = fit_text(text, 100, block, 50, CAL)
    assert how == "cut"
    assert text.startswith(cut)
    assert len(cut) == pytest.approx(len(text) / 2, rel=0.1)
    longer, how = fit_text(text, 100, block, 200, CAL)
    assert how == "padded"
    assert longer.startswith(text)
    assert len(longer) == pytest.approx(2 * len(text), rel=0.15)
    assert fit_text(text, 100, block, 0, CAL) == ("", "cut")
    assert fit_text("", 0, block, 20, CAL)[1] == "padded"


def test_estimates():
    assert estimate_tokens("") == 0
    assert estimate_tokens("a") == 1
    assert estimate_tokens("word " * 100, "prose") == pytest.approx(500 / CAL.ratio["prose"], abs=1)
    assert estimate_tokens("\u4e2d\u6587" * 30) == 40


def test_cuts_are_behind_words():
    for piece in pieces("code")[:50]:
        assert all(piece[p - 1].isalnum() and not piece[p].isalnum() for p in cut_places(piece))


@pytest.mark.parametrize("kind", KINDS)
def test_escaped_text_is_the_text_inside_a_json_string(kind):
    for tokens in (0, 1, 2, 7, 8, 40, 900, 9_000):
        text = regenerate("0a" * 16, kind, tokens, CAL)
        assert json.loads(b'"%b"' % regenerate_escaped("0a" * 16, kind, tokens, CAL)) == text


def test_few_numbers_are_the_first_of_many():
    assert u16_few("key", 300) == tuple(u16("key", 900)[:300].tolist())
    assert u16_few("key", 5) == tuple(u16("key", 300)[:5].tolist())


@pytest.mark.parametrize("tokens", [3, 200, 1_500, 2_500])
def test_short_and_long_ways_to_the_same_text(tokens, monkeypatch):
    texts = [regenerate(f"{n:032x}", "code", tokens, CAL) for n in range(50)]
    monkeypatch.setattr("windtunnel.traces.text._FEW", 0)
    assert [regenerate(f"{n:032x}", "code", tokens, CAL) for n in range(50)] == texts
