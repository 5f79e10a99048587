"""Runs of blocks against single blocks: whatever requests do, both pools find, hold, take and evict the same."""

import random

import pytest

from windtunnel.simulator.emulator import runs
from windtunnel.simulator.emulator.blocks import BlockPool
from windtunnel.simulator.emulator.runs import RunPool


def chained(parent, contents):
    keys = []
    for content in contents:
        parent = hash((parent, content))
        keys.append(parent)
    return keys


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """So that small runs are compared by their ends, too."""
    monkeypatch.setattr(runs, "_SHORT", 2)


class Both:
    """Each call goes to both pools, and both have to say the same."""

    def __init__(self, count, caching):
        self.pools = BlockPool(count, caching=caching), RunPool(count, caching=caching)

    def __getattr__(self, name):
        def call(*given):
            one, two = (getattr(pool, name)(*given) for pool in self.pools)
            assert one == two
            return one

        return call

    def compare(self):
        one, two = self.pools
        assert one.free_order() == two.free_order()
        assert (one.free_count, one.cached_blocks, one.usage) == (two.free_count, two.cached_blocks, two.usage)


@pytest.mark.parametrize("seed", range(40))
def test_requests_come_grow_and_go(seed):
    rng = random.Random(seed)
    count = rng.choice([12, 40, 120])
    both = Both(count, seed % 8 != 7)
    threads = [[rng.randrange(3) for _ in range(rng.randrange(1, 6))] for _ in range(4)]
    live = []
    for step in range(300):
        if rng.random() < 0.5 and len(live) < 5:
            thread = rng.choice(threads)
            if thread and rng.random() < 0.4:  # a turn back, or another branch
                del thread[rng.randrange(len(thread)) :]
            thread += [rng.randrange(4) for _ in range(rng.randrange(0, 6))]
            keys = chained(0, thread)
            hits = both.find(keys, max(0, len(keys) - rng.randrange(2)))
            lacking = len(keys) - len(hits) + rng.randrange(3)
            if lacking + both.count_free(hits) <= both.pools[0].free_count:
                both.hold(hits)
                live.append([hits + both.take(lacking), keys, len(hits)])
        for request in live:
            blocks, keys, known = request
            full = min(len(keys), known + rng.randrange(4))
            if full > known:
                both.cache(blocks[known:full], keys[known:full])
                request[2] = full
            elif rng.random() < 0.3 and both.pools[0].free_count:
                blocks += both.take(1)
                if len(keys) < len(blocks):
                    keys += chained(keys[-1] if keys else 0, [rng.randrange(4)])
        if live and rng.random() < 0.4:
            blocks, _, _ = live.pop(rng.randrange(len(live)))
            both.release(blocks[::-1])
        both.compare()
        if step % 90 == 89:
            for blocks, _, _ in live:
                both.release(blocks[::-1])
            live.clear()
            if rng.random() < 0.5:
                assert both.reset()
            both.compare()


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_given_back_and_renamed_one_by_one(seed):
    """As groups of windows and states do: parts of a request's blocks go early, keys come and go."""
    rng = random.Random(seed)
    both = Both(60, True)
    live = []
    for number in range(400):
        if rng.random() < 0.5 and both.pools[0].free_count > 12:
            keys = chained(0, [rng.randrange(2) for _ in range(rng.randrange(1, 9))])
            hits = [both.get(key) for key in keys]
            hits = hits[rng.randrange(len(hits)) :]
            hits = hits[: hits.index(None)] if None in hits else hits
            both.hold(hits)
            blocks = both.take(rng.randrange(1, 5))
            if rng.random() < 0.7:
                tail = keys[-len(blocks) :]
                both.cache(blocks[: len(tail)], tail)
            live.append(hits + blocks)
        for blocks in live:
            if blocks and rng.random() < 0.3:
                block = rng.choice(blocks)
                if rng.random() < 0.5:
                    both.put(block, number)
                else:
                    both.forget(block)
            if blocks and rng.random() < 0.3:
                start = rng.randrange(len(blocks))
                stop = rng.randrange(start, len(blocks)) + 1
                both.release(blocks[start:stop][::-1])
                del blocks[start:stop]
        if live and rng.random() < 0.4:
            both.release(live.pop(rng.randrange(len(live)))[::-1])
        for block in range(1, 60):
            both.key_of(block)
        both.compare()


def test_a_turn_costs_what_it_adds():
    """Of ten thousand blocks that are held again, none is looked at by itself."""
    pool = RunPool(20_000)
    keys = chained(0, range(10_000))
    blocks = pool.take(10_000)
    pool.cache(blocks, keys)
    pool.release(reversed(blocks))
    run = pool._run[blocks[0]]
    for turn in range(5):
        hits = pool.find(keys, len(keys))
        assert len(hits) == 10_000 + 10 * turn
        assert pool.count_free(hits) == len(hits)
        pool.hold(hits)
        more = pool.take(10)
        keys += chained(keys[-1], [turn] * 10)
        pool.cache(more, keys[-10:])
        pool.release(reversed(hits + more))
        assert pool._run[more[-1]] is run


def test_a_run_is_cut_where_prompts_part_and_evicted_from_its_end():
    pool = RunPool(9)
    keys = chained(0, range(4))
    blocks = pool.take(4)
    pool.cache(blocks, keys)
    pool.release(reversed(blocks))
    other = [*keys[:2], *chained(keys[1], [7, 8])]
    hits = pool.find(other, 4)
    assert hits == [1, 2]
    pool.hold(hits)
    assert pool.free_order() == [5, 6, 7, 8, 4, 3]
    assert pool.take(5) == [5, 6, 7, 8, 4]
    assert pool.find(keys, 4) == [1, 2, 3]
    with pytest.raises(ValueError, match="fewer"):
        pool.take(2)
