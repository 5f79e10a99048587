"""Draws that a run's figures hang on: the same numbers in every version, on every machine."""

import math
from hashlib import blake2b

import msgspec
import pytest

from windtunnel.traces.calibration import stored
from windtunnel.traces.seeded import Stream


def by_hand(key, count):
    """Blocks of BLAKE2b, keyed by the hash of the name; eight numbers each."""
    name = blake2b(key.encode(), digest_size=32).digest()
    blocks = [blake2b(n.to_bytes(8, "little"), key=name).digest() for n in range(count // 8 + 1)]
    return [int.from_bytes(block[at : at + 8], "little") for block in blocks for at in range(0, 64, 8)][:count]


def test_a_stream_is_its_hash_in_counter_mode():
    draw = Stream("a", 1)
    numbers = [draw.u64() for _ in range(21)]
    assert numbers == by_hand("a\0001", 21)
    assert [number % 1000 for number in numbers[:5]] == [635, 693, 411, 574, 636]


def test_every_way_to_draw_takes_the_numbers_in_their_order():
    numbers = iter(by_hand("x", 40))
    draw = Stream("x")
    assert draw.uniform() == (next(numbers) >> 11) * 2.0**-53
    assert draw.below(10) == next(numbers) * 10 >> 64
    deck = list(range(12))
    for i in range(11, 0, -1):
        j = next(numbers) * (i + 1) >> 64
        deck[i], deck[j] = deck[j], deck[i]
    assert draw.shuffled(range(12)) == deck
    assert sorted(deck) == list(range(12))
    one, two = ((next(numbers) >> 11) * 2.0**-53 for _ in range(2))
    assert draw.normal() == math.sqrt(-2.0 * math.log(1.0 - one)) * math.cos(2.0 * math.pi * two)
    assert draw.u64() == next(numbers)


def test_the_stored_calibration_is_the_one_that_earlier_runs_used():
    """Its costs decide how many tokens a regenerated text is meant to have: another digest makes other prompts."""
    said = msgspec.json.encode(stored())
    assert blake2b(said, digest_size=8).hexdigest() == "2e51895f28dfbc2b"
    code = stored().costs["code"]
    assert len(code.pieces) == len(code.cuts)
    assert sum(code.pieces) / len(code.pieces) == pytest.approx(29.8018018179416, rel=1e-12)
