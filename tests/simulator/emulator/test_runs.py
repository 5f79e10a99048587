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


@pytest.fixture(autouse=True, params=[0, 2, 1000])
def short(monkeypatch, request):
    """Neighbours that are freed become one never, if they are short, always."""
    monkeypatch.setattr(runs, "_SHORT", request.param)


def numbers(found):
    return [block for run in found.runs for block in run.blocks][: found.count]


class Both:
    """Each call goes to both pools, and both have to say the same. Requests are pairs: blocks of the one, and a chain."""

    def __init__(self, count, caching):
        self.plain, self.runs = BlockPool(count, caching=caching), RunPool(count, caching=caching)

    def __getattr__(self, name):
        def call(*given):
            one, two = (getattr(pool, name)(*given) for pool in (self.plain, self.runs))
            assert one == two
            return one

        return call

    def find(self, keys, most, less=0):
        """`less`: so many blocks of the hit are not made use of."""
        one, two = self.plain.find(keys, most), self.runs.find(keys, most)
        assert one == numbers(two)
        two.count = max(0, two.count - less)
        one = one[: two.count]
        assert self.plain.count_free(one) == self.runs.held_by_none(two)
        return one, two

    def begin(self, found):
        self.plain.hold(found[0])
        return found[0].copy(), self.runs.begin(found[1])

    def extend(self, request, wanted):
        request[0].extend(self.plain.take(wanted))
        self.runs.extend(request[1], wanted)

    def cache(self, request, keys):
        known = request[1].cached
        self.plain.cache(request[0][known : known + len(keys)], keys)
        self.runs.cache(request[1], keys)

    def free(self, request):
        assert request[0] == request[1].numbers
        assert len(request[0]) == len(request[1])
        self.plain.release(request[0][::-1])
        self.runs.free(request[1])

    def name(self, blocks, keys):
        self.plain.cache(blocks, keys)
        self.runs.name(blocks, keys)

    def compare(self):
        one, two = self.plain, self.runs
        assert one.free_order() == two.free_order()
        assert (one.free_count, one.cached_blocks, one.usage) == (two.free_count, two.cached_blocks, two.usage)
        told = [(block, one.key_of(block), one.get(one.key_of(block)) == block) for block in one.free_order()]
        assert told == two.queue()


@pytest.mark.parametrize("seed", range(24))
def test_requests_come_grow_and_go(seed):
    rng = random.Random(seed)
    count = rng.choice([12, 40, 120])
    caching = seed % 8 != 7
    both = Both(count, caching)
    threads = [[rng.randrange(3) for _ in range(rng.randrange(1, 6))] for _ in range(4)]
    live = []
    for step in range(300):
        if rng.random() < 0.5 and len(live) < 5:
            thread = rng.choice(threads)
            if thread and rng.random() < 0.4:  # a turn back, or another branch
                del thread[rng.randrange(len(thread)) :]
            thread += [rng.randrange(4) for _ in range(rng.randrange(0, 6))]
            keys = chained(0, thread)
            found = both.find(keys, max(0, len(keys) - rng.randrange(2)), rng.choice([0, 0, 0, 1, 3]))
            lacking = len(keys) - len(found[0]) + rng.randrange(3)
            if lacking + both.plain.count_free(found[0]) <= both.plain.free_count:
                request = both.begin(found)
                both.extend(request, lacking)
                live.append([request, keys, len(found[0]), []])
        for entry in live:
            request, keys, known, more = entry
            full = min(len(keys), known + rng.randrange(4))
            if full > known and caching:
                both.cache(request, keys[known:full])
                entry[2] = full
            elif rng.random() < 0.3 and both.plain.free_count:
                both.extend(request, 1)
                if len(keys) < len(request[0]):
                    keys += chained(keys[-1] if keys else 0, [rng.randrange(4)])
            elif rng.random() < 0.2 and both.plain.free_count and keys:  # a window's blocks are in the same queue
                mine = both.take(1)
                both.name(mine, [~rng.choice(keys)])
                more += mine
                if (other := both.get(~rng.choice(keys))) is not None:
                    both.hold([other])
                    more.append(other)
        if live and rng.random() < 0.4:
            request, _, _, more = live.pop(rng.randrange(len(live)))
            both.free(request)
            both.release(more)
        both.compare()
        if step % 90 == 89:
            for request, _, _, more in live:
                both.release(more)
                both.free(request)
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
        if rng.random() < 0.5 and both.plain.free_count > 12:
            keys = chained(0, [rng.randrange(2) for _ in range(rng.randrange(1, 9))])
            hits = [both.get(key) for key in keys]
            hits = hits[rng.randrange(len(hits)) :]
            hits = hits[: hits.index(None)] if None in hits else hits
            assert both.count_free(hits) <= len(hits)
            both.hold(hits)
            blocks = both.take(rng.randrange(1, 5))
            if rng.random() < 0.7:
                tail = keys[-len(blocks) :]
                both.name(blocks[: len(tail)], tail)
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


class Counted(list):
    """Says how many of its keys were looked at one by one."""

    looks = 0

    def __getitem__(self, place):
        self.looks += 1 if isinstance(place, int) else len(range(*place.indices(len(self))))
        return super().__getitem__(place)


def test_a_turn_costs_what_it_adds():
    """Of ten thousand blocks that are held again, none is looked at by itself."""
    pool = RunPool(20_000)
    keys = Counted(chained(0, range(10_000)))
    chain = pool.begin(pool.find(keys, len(keys)))
    pool.extend(chain, 10_000)
    pool.cache(chain, keys[:10_000])
    (run,) = chain.runs
    blocks = chain.numbers
    pool.free(chain)
    keys.looks = 0
    for turn in range(5):
        found = pool.find(keys, len(keys))
        assert found.count == pool.held_by_none(found) == 10_000 + 10 * turn
        chain = pool.begin(found)
        pool.extend(chain, 10)
        keys += chained(keys[-1], [turn] * 10)
        pool.cache(chain, keys[-10:])
        assert chain.runs == [run]
        pool.free(chain)
    assert keys.looks < 100
    assert run.blocks[:10_000] == blocks
    assert pool.free_order()[-10_050:] == run.blocks[::-1]


def test_a_run_is_cut_where_prompts_part_and_evicted_from_its_end():
    pool = RunPool(9)
    keys = chained(0, range(4))
    chain = pool.begin(pool.find(keys, 4))
    pool.extend(chain, 4)
    pool.cache(chain, keys)
    pool.free(chain)
    other = [*keys[:2], *chained(keys[1], [7, 8])]
    found = pool.find(other, 4)
    assert numbers(found) == [1, 2]
    pool.begin(found)
    assert pool.free_order() == [5, 6, 7, 8, 4, 3]
    assert pool.take(5) == [5, 6, 7, 8, 4]
    assert numbers(pool.find(keys, 4)) == [1, 2, 3]
    with pytest.raises(ValueError, match="fewer"):
        pool.take(2)


def test_a_run_that_others_hold_is_cut_for_them_too():
    pool = RunPool(20)
    keys = chained(0, range(6))
    first = pool.begin(pool.find(keys, 6))
    pool.extend(first, 7)
    pool.cache(first, keys)
    second = pool.begin(pool.find(keys, 3))
    assert first.numbers == [1, 2, 3, 4, 5, 6, 7]
    assert second.numbers == [1, 2, 3]
    pool.free(first)
    assert pool.free_order() == [7, *range(8, 20), 6, 5, 4]
    pool.free(second)
    assert pool.free_order()[-3:] == [3, 2, 1]
