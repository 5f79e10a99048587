"""The scheduler's rules, each with numbers worked out by hand. Blocks hold 4 tokens unless said otherwise."""

from collections.abc import Sequence

import numpy as np
import pytest

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler, Step


class Same:
    """Output tokens 1000, 1001, ... whoever asks."""

    def tokens(self, start: int, stop: int) -> list[int]:
        return list(range(1000 + start, 1000 + stop))


def make(blocks: int = 100, *, seqs: int = 8, budget: int = 64, size: int = 4, **more: object) -> Scheduler:
    limits = {"num_gpu_blocks": blocks, "block_size": size, "max_model_len": 1000, "max_num_seqs": seqs}
    return Scheduler(Limits(**(limits | {"max_num_batched_tokens": budget} | more)))


def ask(key: str, prompt: int | Sequence[int], out: int = 4, *, size: int = 4, **more: object) -> Request:
    """A request; a number of tokens stands for tokens that nobody else has."""
    ids = (
        [int.from_bytes(key.encode()) % 4000 * 1000 + i for i in range(prompt)]
        if isinstance(prompt, int)
        else list(prompt)
    )
    return Request(key, np.array(ids, dtype=np.uint32), Same(), out, block_size=size, **more)


def batch(step: Step | None) -> dict[str, int]:
    return {} if step is None else {r.key: n for r, n in zip(step.requests, step.counts, strict=True)}


def turn(scheduler: Scheduler) -> dict[str, int]:
    """One synchronous step; what it computed."""
    step = scheduler.schedule()
    if step is not None:
        scheduler.complete(step)
    return batch(step)


def finish(scheduler: Scheduler) -> int:
    steps = 0
    while turn(scheduler):
        steps += 1
        assert steps < 10_000
    return steps


def test_running_requests_come_first_and_prompts_are_chunked_into_the_budget() -> None:
    s = make(budget=10)
    s.add(ask("a", 4))
    assert turn(s) == {"a": 4}
    s.add(ask("b", 20))
    s.add(ask("c", 3))
    assert turn(s) == {"a": 1, "b": 9}
    assert turn(s) == {"a": 1, "b": 9}
    assert turn(s) == {"a": 1, "b": 2, "c": 3}
    assert turn(s) == {"b": 1, "c": 1}


def test_a_prompt_whose_last_chunk_is_computed_gets_its_token_in_that_step() -> None:
    s = make(budget=8)
    r = ask("a", 12, 2)
    s.add(r)
    turn(s)
    assert r.output == []
    turn(s)
    assert r.output == [1000]
    turn(s)
    assert r.finished == "length"
    assert not s.running
    assert s.pool.free_count == 99


def test_at_most_max_num_seqs_run() -> None:
    s = make(seqs=2)
    for key in "abc":
        s.add(ask(key, 4, 2))
    assert turn(s) == {"a": 4, "b": 4}
    assert turn(s) == {"a": 1, "b": 1}
    assert turn(s) == {"c": 4}


def test_a_long_prompt_is_cut_by_the_threshold_unless_it_is_alone() -> None:
    s = make(budget=64, long_prefill_token_threshold=8)
    s.add(ask("a", 30))
    assert turn(s) == {"a": 30}
    s.add(ask("b", 30))
    assert turn(s) == {"a": 1, "b": 8}


def test_admission_needs_room_for_the_whole_prompt() -> None:
    # 9 usable blocks; b's 20 tokens need 5, of which only the first chunk's 1 would fit beside a's 5.
    s = make(10, budget=20)
    s.add(ask("a", 17, 8))
    assert turn(s) == {"a": 17}
    s.add(ask("b", 20))
    assert turn(s) == {"a": 1}
    assert [r.key for r in s.waiting] == ["b"]
    loose = make(10, budget=20, scheduler_reserve_full_isl=False)
    loose.add(ask("a", 17, 8))
    turn(loose)
    loose.add(ask("b", 20))
    assert turn(loose) == {"a": 1}
    small = make(10, budget=8, scheduler_reserve_full_isl=False)
    small.add(ask("a", 17, 8))
    turn(small), turn(small), turn(small)
    small.add(ask("b", 20))
    assert turn(small) == {"a": 1, "b": 7}


def test_admission_does_not_reserve_the_output() -> None:
    s = make(4, budget=20)
    s.add(ask("a", 12, 400))
    assert turn(s) == {"a": 12}


def test_who_does_not_fit_blocks_those_behind() -> None:
    s = make(10)
    s.add(ask("a", 20))
    turn(s)
    s.add(ask("b", 20))
    s.add(ask("c", 2))
    assert turn(s) == {"a": 1}
    assert [r.key for r in s.waiting] == ["b", "c"]


def test_the_last_running_request_is_preempted_and_nothing_is_admitted_in_that_step() -> None:
    # 6 usable blocks: a and b take 3 each with 11 tokens; both need a 4th at token 13.
    s = make(7)
    a, b = ask("a", 11, 10), ask("b", 11, 10)
    s.add(a)
    s.add(b)
    assert turn(s) == {"a": 11, "b": 11}
    assert turn(s) == {"a": 1, "b": 1}
    s.add(ask("c", 2))
    assert turn(s) == {"a": 1}
    assert [r.key for r in s.waiting] == ["b", "c"]
    assert (b.computed, b.preemptions, b.blocks) == (0, 1, [])
    assert len(b.output) == 2
    assert s.counters.preemptions == 1
    # Now b's 13 tokens need 4 blocks, 3 of them hits that sit in the free queue; 2 are free: it waits, and c behind it.
    assert turn(s) == {"a": 1}
    finish(s)
    assert len(a.output) == len(b.output) == 10


def test_a_request_that_cannot_grow_and_is_itself_the_last_is_preempted() -> None:
    s = make(4, budget=64)
    a = ask("a", 4, 8)
    b = ask("b", 8, 4)
    s.add(a)
    s.add(b)
    assert turn(s) == {"a": 4, "b": 8}
    # a needs a second block: b goes; then a runs alone.
    assert turn(s) == {"a": 1}
    assert [r.key for r in s.running] == ["a"]
    finish(s)
    assert a.finished == b.finished == "length"
    c, d = ask("c", 7, 8), ask("d", 4, 8)
    s.add(c)
    s.add(d)
    assert turn(s) == {"c": 7, "d": 4}
    # c has room in its second block; d needs one more and is the victim itself.
    assert turn(s) == {"c": 1}
    assert [r.key for r in s.waiting] == ["d"]


def test_preempted_requests_hit_their_own_blocks_again_and_count_once() -> None:
    s = make(7)
    a, b = ask("a", 11, 10), ask("b", 11, 10)
    s.add(a)
    s.add(b)
    turn(s), turn(s), turn(s)
    assert b.preemptions == 1
    assert (s.counters.queries, s.counters.hits) == (22, 0)
    s.abort(a)
    # b knows 13 tokens. Of its three full blocks the last was freed first and taken for a; two are still cached.
    assert turn(s) == {"b": 5}
    assert b.computed == 13
    assert b.hit == 0
    assert (s.counters.queries, s.counters.hits) == (22, 0)


def test_an_evicted_request_does_not_storm() -> None:
    # More work than fits: each preemption lets the others progress, so their number stays far below the step count.
    s = make(40, seqs=64)
    requests = [ask(f"r{i}", 20, 40) for i in range(16)]
    for r in requests:
        s.add(r)
    steps = finish(s)
    assert all(len(r.output) == 40 for r in requests)
    assert max(r.preemptions for r in requests) <= 4
    assert s.counters.preemptions < steps / 4
    assert s.counters.queries == 16 * 20


def test_hits_end_before_the_last_token() -> None:
    s = make()
    ids = list(range(16))
    s.add(ask("a", ids, 1))
    turn(s)
    again, longer = ask("b", ids, 1), ask("c", [*ids, 99], 1)
    s.add(again)
    s.add(longer)
    # 16 tokens: at most (16 - 1) // 4 blocks; 17 tokens: all four.
    assert turn(s) == {"b": 4, "c": 1}
    assert (again.hit, longer.hit) == (12, 16)


def test_a_later_request_of_the_same_step_already_hits() -> None:
    s = make()
    ids = list(range(20))
    one, two = ask("a", [*ids, 1], 1), ask("b", [*ids, 2], 1)
    s.add(one)
    s.add(two)
    assert turn(s) == {"a": 21, "b": 1}
    assert (one.hit, two.hit) == (0, 20)
    assert (s.counters.queries, s.counters.hits) == (42, 20)


def test_only_what_is_scheduled_so_far_can_be_hit() -> None:
    s = make(budget=10)
    ids = list(range(20))
    s.add(ask("a", [*ids, 1], 1))
    s.add(ask("b", [*ids, 2], 1))
    assert turn(s) == {"a": 10}
    assert turn(s) == {"a": 10}
    # a computes its last token; its five full blocks were cached when they were allocated.
    assert turn(s) == {"a": 1, "b": 1}


def test_output_is_cached_as_it_comes_and_the_last_token_is_not_computed() -> None:
    s = make()
    r = ask("a", list(range(6)), 7)
    s.add(r)
    finish(s)
    # 13 tokens are known and 12 were computed: 3 full blocks.
    follow = ask("b", [*range(6), *r.output, 5, 5, 5], 1)
    s.add(follow)
    assert turn(s) == {"b": 4}
    assert follow.hit == 12


def test_a_growing_conversation_hits_all_full_blocks_of_the_turn_before() -> None:
    s = make(1000, size=16, budget=1000)
    history = list(range(50))
    previous = 0
    for turns in range(1, 6):
        r = ask(f"t{turns}", history, 20, size=16)
        s.add(r)
        finish(s)
        expected = max(0, previous - 1) // 16 * 16
        assert r.hit == expected
        previous = len(history) + 20
        history = [*history, *r.output, *range(500, 530)]


def test_salts_do_not_share_and_equal_salts_do() -> None:
    s = make()
    ids = list(range(16))
    hits = []
    for key, salt in (("a", None), ("b", "x"), ("c", "x"), ("d", "y"), ("e", None)):
        r = ask(key, ids, 1, salt=salt)
        s.add(r)
        turn(s)
        hits.append(r.hit)
    assert hits == [0, 0, 12, 0, 12]


def test_without_prefix_caching_nothing_is_looked_up() -> None:
    s = make(enable_prefix_caching=False)
    ids = list(range(16))
    for key, order in (("a", [4, 3, 2, 1]), ("b", [1, 2, 3, 4])):
        r = ask(key, ids, 1)
        s.add(r)
        turn(s)
        assert r.hit == 0
        # Freed blocks are reused last in, first out.
        assert s.pool.free_order()[:4] == order
    assert s.counters.queries == 0


def test_shared_blocks_are_read_by_each_that_uses_them() -> None:
    s = make()
    ids = list(range(40))
    s.add(ask("a", ids, 9))
    turn(s)
    for key in "bc":
        s.add(ask(key, ids, 9))
    turn(s)
    step = s.schedule()
    assert step is not None
    assert batch(step) == {"a": 1, "b": 1, "c": 1}
    # Contexts of 42, 41 and 41 tokens, though ten blocks are the same.
    assert step.context == 42 + 41 + 41
    assert s.pool.count - 1 - s.pool.free_count < 3 * 11


def test_chunks_count_their_attention_work() -> None:
    s = make(budget=8)
    s.add(ask("a", 16, 1))
    first, second = s.schedule(), s.schedule()
    assert first is not None
    assert second is not None
    assert (first.work, second.work) == (8 * 4.0, 8 * (8 + 4.0))
    assert (first.tokens, first.context, second.context) == (8, 8, 16)
    assert [r.key for r, *_ in first.sampling] == []
    assert [r.key for r, *_ in second.sampling] == ["a"]


def test_usage_counts_held_blocks_and_running_requests_grow() -> None:
    s = make(11)
    s.add(ask("a", 8, 9))
    turn(s)
    assert s.pool.usage == pytest.approx(0.2)
    turn(s)
    assert s.pool.usage == pytest.approx(0.3)
    finish(s)
    assert s.pool.usage == 0.0
    assert s.pool.cached_blocks == 4


def test_blocks_are_evicted_oldest_first_across_requests() -> None:
    # 8 usable blocks; a and b leave 3 cached blocks each; c takes 4: two never used ones, then a's last two.
    s = make(9)
    a, b = list(range(12)), list(range(100, 112))
    s.add(ask("a", a, 1))
    turn(s)
    s.add(ask("b", b, 1))
    turn(s)
    s.add(ask("c", list(range(200, 216)), 1))
    turn(s)
    assert len(s.pool.find(ask("a", a).hashes, 3)) == 1
    assert len(s.pool.find(ask("b", b).hashes, 3)) == 3


def test_priority_orders_the_queue_and_picks_the_victim() -> None:
    s = make(7, priority=True)
    a, b = ask("a", 11, 10, priority=5, arrival=1), ask("b", 11, 10, priority=0, arrival=2)
    s.add(a)
    s.add(b)
    assert turn(s) == {"b": 11, "a": 11}
    turn(s)
    s.add(ask("c", 2, priority=9, arrival=3))
    s.add(ask("d", 2, priority=1, arrival=4))
    assert turn(s) == {"b": 1}
    assert [r.key for r in s.waiting] == ["d", "a", "c"]


def test_a_victim_before_the_request_in_need_gives_its_budget_back() -> None:
    s = make(7, priority=True)
    a, b = ask("a", 9, 10, priority=5, arrival=1), ask("b", 12, 10, priority=0, arrival=2)
    s.add(a)
    turn(s)
    s.add(b)
    # a runs first and is scheduled; b then needs room for its first output: a is taken back out of the step.
    assert turn(s) == {"a": 1, "b": 12}
    assert turn(s) == {"b": 1}
    assert a.preemptions == 1
    finish(s)
    assert len(a.output) == len(b.output) == 10


def test_the_model_length_bounds_what_is_computed() -> None:
    s = make(300, max_model_len=20)
    r = ask("a", 16, 4)
    s.add(r)
    finish(s)
    assert len(r.output) == 4


def test_abort_frees_the_blocks_of_running_and_waiting_requests() -> None:
    s = make(6)
    a, b = ask("a", 16), ask("b", 16)
    s.add(a)
    s.add(b)
    turn(s)
    assert s.abort(b)
    assert s.abort(a)
    assert not s.abort(a)
    assert s.pool.free_count == 5
    assert not s.waiting
    assert not s.running


def test_reset_is_refused_while_a_request_runs_unless_it_is_preempted() -> None:
    s = make()
    r = ask("a", 16, 8)
    s.add(r)
    turn(s)
    assert not s.reset_prefix_cache()
    assert s.reset_prefix_cache(preempt=True)
    assert turn(s) == {"a": 17}
    finish(s)
    assert len(r.output) == 8


def test_watermark_keeps_blocks_free_when_others_run() -> None:
    s = make(20, watermark=0.2)
    s.add(ask("a", 40, 8))
    assert turn(s) == {"a": 40}
    s.add(ask("b", 28))
    # b needs 7 of 9 free blocks and 4 must stay.
    assert turn(s) == {"a": 1}
    plain = make(20)
    plain.add(ask("a", 40, 8))
    turn(plain)
    plain.add(ask("b", 28))
    assert turn(plain) == {"a": 1, "b": 24 + 4}
