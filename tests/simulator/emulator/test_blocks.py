"""The block pool: order of the free queue, eviction, duplicates, the null block."""

import numpy as np
import pytest

from windtunnel.simulator.emulator.blocks import NULL_BLOCK, BlockPool, chain_hashes, salt_seed


def test_the_null_block_is_never_free() -> None:
    pool = BlockPool(4)
    assert pool.free_order() == [1, 2, 3]
    assert pool.free_count == 3
    assert pool.take(3) == [1, 2, 3]
    assert pool.usage == 1.0
    assert NULL_BLOCK not in pool.free_order()
    with pytest.raises(ValueError, match="fewer free blocks"):
        pool.take(1)


def test_freed_blocks_with_cached_tokens_go_to_the_tail_and_others_to_the_front() -> None:
    pool = BlockPool(8)
    blocks = pool.take(4)
    pool.cache(blocks[:2], [11, 12])
    pool.release(reversed(blocks))
    # Last block first: of the two without tokens block 4 comes out first; of the cached ones block 2 goes first.
    assert pool.free_order() == [4, 3, 5, 6, 7, 2, 1]


def test_eviction_happens_when_a_block_is_taken_and_hits_the_least_recently_used() -> None:
    pool = BlockPool(5)
    first = pool.take(2)
    pool.cache(first, [1, 2])
    second = pool.take(2)
    pool.cache(second, [3, 4])
    pool.release(reversed(first))
    pool.release(reversed(second))
    assert pool.free_order() == [2, 1, 4, 3]
    assert pool.usage == 0.0
    # A hit moves the first request's blocks to the back of the queue.
    hits = pool.find([1, 2], 2)
    assert hits == [1, 2]
    pool.hold(hits)
    pool.release(reversed(hits))
    assert pool.free_order() == [4, 3, 2, 1]
    assert pool.take(1) == [4]
    assert pool.find([3, 4], 2) == [3]
    assert pool.find([1, 2], 2) == [1, 2]


def test_duplicates_are_kept_and_the_oldest_is_found() -> None:
    pool = BlockPool(4)
    one, two, three = pool.take(3)
    for block in (one, two, three):
        pool.cache([block], [7])
    assert pool.cached_blocks == 3
    assert pool.find([7], 1) == [one]
    pool.release([one])
    assert pool.take(1) == [one]
    assert pool.find([7], 1) == [two]
    pool.release([three])
    assert pool.take(1) == [three]
    assert pool.find([7], 1) == [two]
    assert pool.cached_blocks == 1


def test_a_held_block_counts_each_holder() -> None:
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.hold([block])
    pool.release([block])
    assert pool.free_count == 2
    pool.release([block])
    assert pool.free_count == 3


def test_reset_is_refused_while_a_block_is_held() -> None:
    pool = BlockPool(4)
    blocks = pool.take(1)
    pool.cache(blocks, [5])
    assert not pool.reset()
    pool.release(blocks)
    assert pool.reset()
    assert pool.find([5], 1) == []


def test_hashes_chain_over_everything_before() -> None:
    tokens = np.arange(64, dtype=np.uint32)
    whole = chain_hashes(tokens, 16, 0)
    assert len(whole) == 4
    assert chain_hashes(tokens[:40], 16, 0) == whole[:2]
    assert chain_hashes(tokens[32:], 16, whole[1]) == whole[2:]
    changed = tokens.copy()
    changed[0] += 1
    assert not set(chain_hashes(changed, 16, 0)) & set(whole)
    assert not set(chain_hashes(tokens, 16, salt_seed("a"))) & set(whole)
    assert chain_hashes(tokens, 16, salt_seed("a")) == chain_hashes(tokens, 16, salt_seed("a"))


def test_hashes_are_the_same_on_every_machine() -> None:
    assert chain_hashes(np.arange(32, dtype=np.uint32), 16, 0) == [1085498127598582148, 1105152879552891512]


def test_hashes_of_many_blocks_are_those_of_one_after_the_other() -> None:
    tokens = np.random.default_rng(1).integers(0, 90_000, size=16 * 300).astype(np.uint32)
    one_by_one, parent = [], salt_seed("a")
    for block in tokens.reshape(300, 16):
        (parent,) = chain_hashes(block, 16, parent)
        one_by_one.append(parent)
    assert chain_hashes(tokens, 16, salt_seed("a")) == one_by_one


def test_tokens_in_another_order_have_another_hash() -> None:
    tokens = np.arange(16, dtype=np.uint32)
    assert chain_hashes(tokens, 16, 0) != chain_hashes(tokens[::-1].copy(), 16, 0)


def test_random_blocks_do_not_collide() -> None:
    tokens = np.random.default_rng(0).integers(0, 1000, size=16 * 200_000).astype(np.uint32)
    hashes = chain_hashes(tokens, 16, 0)
    assert len(set(hashes)) == 200_000


def test_the_pool_stays_as_large_as_it_was() -> None:
    pool = BlockPool(100)
    for i in range(2000):
        blocks = pool.take(60)
        pool.cache(blocks, [i * 100 + k for k in range(60)])
        pool.release(reversed(blocks))
    assert pool.cached_blocks == 99
    assert len(pool._first) == 99
    assert pool._twins == {}
    assert len(pool.free_order()) == 99


@pytest.mark.parametrize("salt", [None, "", "one", "another"])
@pytest.mark.parametrize("token", [0, 1, 7, 2**31])
@pytest.mark.parametrize("blocks", [3, 39, 40, 41, 5000])
def test_no_two_blocks_of_a_prompt_of_one_token_have_the_same_hash(salt: str | None, token: int, blocks: int) -> None:
    """The pool takes it that where two keys are equal all before them is."""
    prompt = np.full(16 * blocks, token, dtype=np.uint32)
    hashes = chain_hashes(prompt, 16, salt_seed(salt))
    assert len(set(hashes)) == blocks
    assert salt_seed(salt) not in hashes
    assert hashes[:2] == chain_hashes(prompt[:32], 16, salt_seed(salt))
