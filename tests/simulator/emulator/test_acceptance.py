"""Which drafts are accepted: as often as the table says, and the same on every ask."""

import numpy as np
import pytest

from windtunnel.simulator.emulator.acceptance import Acceptance, Drawn


def lengths(drawn: Drawn, drafts: int, tokens: int) -> list[int]:
    """Tokens of each verification on the way through an output."""
    at, each = 1, []
    while at < tokens:
        each.append(1 + drawn.accepted(at, drafts))
        at += each[-1]
    return each


@pytest.mark.parametrize(
    "conditional", [(0.93,), (0.9, 0.8, 0.7), (1.0, 1.0, 0.4, 0.0), (0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85)]
)
def test_the_mean_length_is_the_tables(conditional: tuple[float, ...]) -> None:
    table = Acceptance(conditional, seed=3)
    expected = 1 + sum(np.cumprod(conditional))
    assert table.length == pytest.approx(expected)
    each = [n for i in range(40) for n in lengths(table.of(b"request %d" % i), len(conditional), 2000)]
    assert np.mean(each) == pytest.approx(expected, rel=0.02)
    accepted = np.array(each) - 1
    for position, share in enumerate(np.cumprod(conditional)):
        assert np.mean(accepted > position) == pytest.approx(share, abs=0.02)


def test_a_length_between_two_whole_ones_varies_by_one_only() -> None:
    # vLLM's synthetic acceptance of length 2.6 with 4 drafts: one always, the second in 60% of the steps, no other.
    each = lengths(Acceptance((1.0, 0.6, 0.0, 0.0), seed=1).of(b"r"), 4, 5000)
    assert set(each) == {2, 3}
    assert np.mean(each) == pytest.approx(2.6, abs=0.05)


def test_draws_are_the_same_for_a_seed_and_a_key_and_in_any_order() -> None:
    table = Acceptance((0.8, 0.7, 0.6), seed=5)
    one, two = table.of(b"a"), table.of(b"a")
    forward = [one.accepted(at, 3) for at in range(1000)]
    assert [two.accepted(at, 3) for at in reversed(range(1000))] == forward[::-1]
    assert [Acceptance((0.8, 0.7, 0.6), seed=6).of(b"a").accepted(at, 3) for at in range(50)] != forward[:50]
    assert [table.of(b"b").accepted(at, 3) for at in range(50)] != forward[:50]


def test_no_more_is_accepted_than_was_drafted() -> None:
    drawn = Acceptance((1.0, 1.0, 1.0), seed=0).of(b"a")
    assert [drawn.accepted(7, drafted) for drafted in range(5)] == [0, 1, 2, 3, 3]


def test_draws_are_the_same_on_every_machine() -> None:
    drawn = Acceptance((0.8, 0.7, 0.6), seed=0).of(b"golden")
    assert [drawn.accepted(at, 3) for at in range(250, 262)] == [3, 0, 2, 3, 3, 3, 0, 2, 2, 3, 3, 1]
