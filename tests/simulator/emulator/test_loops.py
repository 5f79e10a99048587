"""The compiled loops against numpy and against the tokenizer: the same results, to the bit."""

import random

import numpy as np
import pytest

from windtunnel.simulator.emulator import blocks, loops
from windtunnel.simulator.emulator.blocks import chain_hashes, numpy_hashes, salt_seed
from windtunnel.simulator.emulator.script import Inventory, Words, builtin_inventory
from windtunnel.simulator.emulator.tokenizer import builtin
from windtunnel.simulator.run import spoken
from windtunnel.simulator.run.spoken import Speech

needs_compiler = pytest.mark.skipif(loops.LOOPS is None, reason="installed without a C compiler")


@needs_compiler
@pytest.mark.parametrize("size", [1, 16, 48, 784])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 700, 70_000])
def test_hashes_are_those_of_numpy(size, count):
    tokens = np.random.default_rng(count).integers(0, 1 << 32, count, dtype=np.uint32)
    for salt in (None, "a salt"):
        assert chain_hashes(tokens, size, salt_seed(salt)) == numpy_hashes(tokens, size, salt_seed(salt))


@needs_compiler
def test_hashes_of_a_prompt_that_lies_scattered():
    tokens = np.broadcast_to(np.uint32(7), (100,))
    assert chain_hashes(tokens, 16, 5) == numpy_hashes(np.full(100, 7, dtype=np.uint32), 16, 5)


@needs_compiler
def test_blocks_longer_than_there_are_factors_are_refused():
    with pytest.raises(ValueError, match="a factor is needed"):
        chain_hashes(np.zeros(1 << 17, dtype=np.uint32), len(blocks._MIX) + 1, 1)


@needs_compiler
def test_words_are_those_of_numpy():
    draw = random.Random(5)
    inventory = builtin_inventory()
    silent = Inventory(inventory.words, inventory.shares, inventory.signs[:0], inventory.stop)
    for known in (inventory, silent):
        for first, count in ((0, 1), (0, 9), (3, 2), (1 << 20, 1)):
            key, chunks = draw.getrandbits(128), range(first, first + count)
            assert np.array_equal(known.chunks(key, chunks), known.numpy_chunks(key, chunks))


def test_an_inventory_of_very_rare_words_does_without_the_guide():
    rare = np.array([0.5, 0.5 + 1e-9, 1.0])
    inventory = Inventory(np.array([10, 11, 12]), rare, np.array([5]), 2)
    assert not len(inventory._guide)
    assert set(inventory.chunks(1, range(2)).tolist()) == {5, 10, 12}


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_compiler), False])
def test_an_answer_says_what_its_tokens_say(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(spoken, "LOOPS", None)
    tokenizer, speech = builtin(), Speech(builtin())
    for seed in range(3):
        ids = Words(np.arange(50, dtype=np.uint32), seed).first(700)
        ids[5], ids[9] = 3_000_000 if seed else 4, tokenizer.stop
        said = speech.spoken(ids)
        for count in (0, 1, 5, 6, 10, 699, 700):
            text = tokenizer.decode(ids[:count].tolist())
            assert said.text(count) == text
            assert said.tail(count) == text[-spoken.TAIL_CHARS :]
    assert speech.spoken(ids[:0]).text(0) == ""
