"""Windows and recurrent states beside full attention: what is held, found, given back."""

from typing import Any

import numpy as np

from windtunnel.simulator.emulator.kv import KvCache
from windtunnel.simulator.emulator.kv_grouped import GroupedKv, cache_of
from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler

WINDOWED = (Group("window", 16, window=128), Group("full", 16))
STATES = (Group("mamba", 64, count=3), Group("full", 64))
CHECKPOINTED = (Group("mamba", 64, count=2, checkpoints=True), Group("full", 64))
STATELESS = (Group("mamba", 4096, mamba_mode="none", count=3), Group("full", 64))


class Counting:
    """Output tokens that say whose they are and which."""

    def __init__(self, base: int = 0) -> None:
        self.base = base

    def tokens(self, start: int, stop: int) -> list[int]:
        return list(range(self.base + start, self.base + stop))


def scheduler(groups: tuple[Group, ...], *, blocks: int = 1000, **more: Any) -> Scheduler:
    size = next(group.block_size for group in groups if group.kind == "full")
    settings = {"max_num_batched_tokens": 512, "max_model_len": 4096, "num_gpu_blocks": blocks, "block_size": size}
    return Scheduler(Limits(groups=groups, **(settings | more)))


def ask(engine: Scheduler, key: str, prompt: list[int], out: int = 4) -> Request:
    ids = np.array(prompt, dtype=np.uint32)
    request = Request(key, ids, Counting(5000), out, block_size=engine.limits.hash_block_size)
    engine.add(request)
    return request


def finish(engine: Scheduler) -> None:
    while (step := engine.schedule()) is not None:
        engine.complete(step)


def held(engine: Scheduler, request: Request) -> list[list[int]]:
    assert isinstance(engine.kv, GroupedKv)
    return engine.kv.tables(request)


def test_one_group_of_full_attention_gets_the_plain_cache() -> None:
    assert type(cache_of(Limits(num_gpu_blocks=10))) is KvCache
    assert type(cache_of(Limits(num_gpu_blocks=10, groups=(Group("full", 16),)))) is KvCache
    assert type(cache_of(Limits(num_gpu_blocks=10, groups=WINDOWED))) is GroupedKv


def test_blocks_before_the_window_are_given_back_and_null_stands_in_their_place() -> None:
    engine = scheduler(WINDOWED)
    request = ask(engine, "a", list(range(500)))
    for _ in range(2):
        step = engine.schedule()
        assert step is not None
        engine.complete(step)
    window, full = held(engine, request)
    # 500 tokens: the token after them sees those from 373 on, that is from block 23 on.
    assert [place for place, block in enumerate(window) if block == 0] == list(range(23))
    assert len(window) == len(full) == 32
    assert 0 not in full
    assert engine.pool.free_count == 999 - 32 - 9


def test_a_window_keeps_the_ends_of_prompts_only() -> None:
    # One prompt of 500 tokens with 100 of output; a second one goes on from both.
    engine = scheduler(WINDOWED)
    first = ask(engine, "a", list(range(500)), 100)
    finish(engine)
    second = ask(engine, "b", [*range(500), *first.output, 9, 9, 9])
    finish(engine)
    # Full attention has 592 tokens of it; the window's last state that was kept is that of the prompt's end.
    assert second.hit == 496
    # Where they parted was seen by then: the third finds it.
    third = ask(engine, "c", [*range(500), *first.output, 8, 8, 8])
    finish(engine)
    assert third.hit == 592


def test_a_dense_window_keeps_output_too() -> None:
    engine = scheduler(WINDOWED, prefix_cache_retention_interval=None)
    first = ask(engine, "a", list(range(500)), 100)
    finish(engine)
    second = ask(engine, "b", [*range(500), *first.output, 9, 9, 9])
    finish(engine)
    assert second.hit == 592


def test_a_state_is_found_at_ends_of_blocks_only() -> None:
    engine = scheduler(STATES)
    ask(engine, "a", list(range(150)))
    finish(engine)
    for length, hit in [(63, 0), (129, 128), (150, 128), (140, 128)]:
        request = ask(engine, f"b{length}", list(range(length)))
        finish(engine)
        assert request.hit == hit, length
    shorter = ask(engine, "c", [*range(100), 9])
    finish(engine)
    # The state after 64 tokens was not kept: nobody had parted there.
    assert shorter.hit == 0
    assert shorter.created == 64
    again = ask(engine, "d", [*range(100), 8])
    finish(engine)
    assert again.hit == 64


def test_a_chunk_ends_where_its_state_is_to_be_kept_unless_the_kernel_keeps_it_from_inside() -> None:
    for groups, counts in [(STATES, [128, 22]), (CHECKPOINTED, [150])]:
        engine = scheduler(groups)
        request = ask(engine, "a", list(range(150)), 1)
        computed = []
        while (step := engine.schedule()) is not None:
            computed += step.counts
            engine.complete(step)
        assert computed == counts
        request = ask(engine, "b", list(range(150)), 1)
        finish(engine)
        assert request.hit == 128


def test_the_same_step_cannot_start_from_a_state_that_it_writes() -> None:
    engine = scheduler(STATES)
    ask(engine, "a", list(range(128 + 22)))
    ask(engine, "b", list(range(128 + 22)))
    counts = []
    for _ in range(3):
        step = engine.schedule()
        assert step is not None
        counts.append(step.counts)
        engine.complete(step)
    # Nor can the next one, which reads the state that it starts from.
    assert counts == [[128], [22], [1, 22]]
    # Full attention alone has no such rule.
    engine = Scheduler(Limits(num_gpu_blocks=100, block_size=64, max_model_len=4096))
    ask(engine, "a", list(range(150)))
    ask(engine, "b", list(range(150)))
    step = engine.schedule()
    assert step is not None
    assert step.counts == [150, 22]


def test_a_state_without_prefix_caching_is_one_block_of_each_group() -> None:
    engine = scheduler(STATELESS, enable_prefix_caching=False)
    request = ask(engine, "a", list(range(150)))
    step = engine.schedule()
    assert step is not None
    assert [len(blocks) for blocks in held(engine, request)] == [1, 1, 1, 3]
    engine.complete(step)
    finish(engine)
    assert engine.pool.free_count == 999
    assert engine.counters.queries == 0


def test_the_dropped_block_of_a_draft_model_costs_one_match_unit() -> None:
    groups = (Group("mamba", 64, count=3), Group("full", 64, drafts=True))
    hits = {}
    for drops in (False, True):
        engine = scheduler(groups, drops_last_block=drops)
        ask(engine, "a", list(range(300)))
        finish(engine)
        request = ask(engine, "b", list(range(300)))
        finish(engine)
        hits[drops] = request.hit
    assert hits == {False: 256, True: 192}


def test_admission_counts_the_blocks_of_all_groups() -> None:
    # 150 tokens need three blocks of full attention and, at the end of prefill, two states of each of three groups.
    for blocks, fits in [(3 + 3, False), (3 + 3 + 1, True)]:
        engine = scheduler(STATES, blocks=blocks)
        ask(engine, "a", list(range(150)))
        assert (engine.schedule() is not None) == fits, blocks
