"""What emulators of inference engines were found to get wrong, a test for each fault that is the scheduler's."""

import numpy as np
import pytest

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler, Step

from .scheduling import Same, ask, batch, finish, make, turn


class Pace:
    """10 ms a step and 1 ms for each thousand tokens of context."""

    def of(self, step: Step) -> float:
        return self.seconds(step.sequences, step.tokens, step.context)

    def seconds(self, _sequences: int, _tokens: int, context: int, _windowed: int = 0) -> float:
        return 0.010 + 1e-6 * context


def core(*, blocks: int = 1000, asynchronous: bool = False) -> Core:
    limits = Limits(num_gpu_blocks=blocks, max_model_len=4096, max_num_batched_tokens=512)
    return Core(Scheduler(limits, asynchronous=asynchronous), Pace(), asynchronous=asynchronous)


def long(key: str, prompt: int, out: int) -> Request:
    ids = np.arange(prompt, dtype=np.uint32) + 10_000 * (ord(key[-1]) + len(key))
    return Request(key, ids, Same(), out, block_size=16)


def storm(*, gate: bool) -> Scheduler:
    """24 prompts of 100 tokens, each computed 16 at a time, where 128 tokens fit."""
    s = make(33, seqs=64, budget=64, scheduler_reserve_full_isl=gate, long_prefill_token_threshold=16)
    for i in range(24):
        s.add(ask(f"r{i:02}", 100, 3))
    finish(s)
    return s


def test_without_the_gate_for_whole_prompts_preemptions_storm() -> None:
    assert storm(gate=True).counters.preemptions == 12
    assert storm(gate=False).counters.preemptions == 66


def test_mtp_drops_the_last_matched_block() -> None:
    hits = {}
    for drops in (False, True):
        s = make(drops_last_block=drops, speculative_tokens=3, lookahead=3)
        history = list(range(41))
        for key in "ab":
            r = ask(key, history, 2)
            s.add(r)
            finish(s)
        hits[drops] = r.hit
    assert hits == {False: 40, True: 36}


def test_shared_blocks_do_not_reduce_what_attention_reads() -> None:
    contexts = {}
    for shared in (True, False):
        s = make(1500, budget=1000, seqs=64)
        for i in range(10):
            r = ask(f"r{i}", list(range(400)) if shared else [i * 1000 + k for k in range(400)], 50)
            s.add(r)
        turn(s)
        step = s.schedule()
        while step is not None and len(step.requests) < 10:
            s.complete(step)
            step = s.schedule()
        assert step is not None
        contexts[shared] = step.context
        assert s.pool.usage < 0.15 if shared else s.pool.usage > 0.65
    assert contexts[True] > 10 * 400
    assert contexts[True] == pytest.approx(contexts[False], rel=0.01)


def test_eviction_takes_what_was_used_longest_ago_not_what_came_first() -> None:
    # Room for three prompts of 12; a comes first but is used again before d needs room: b goes.
    s = make(10)
    prompts = {key: [ord(key) * 100 + i for i in range(12)] for key in "abcd"}
    for key in "abc":
        s.add(ask(key, prompts[key], 1))
        turn(s)
    s.add(ask("a2", [*prompts["a"], 7], 1))
    turn(s)
    s.add(ask("d", prompts["d"], 1))
    turn(s)
    assert {key: s.pool.find(ask(key, prompts[key]).hashes, 3).count for key in "abcd"} == {
        "a": 3,
        "b": 0,
        "c": 3,
        "d": 3,
    }


def test_a_preempted_request_finds_its_blocks_again_and_is_not_evicted_over_and_over() -> None:
    s = make(60, seqs=16, budget=64)
    requests = [ask(f"r{i}", 40, 60) for i in range(8)]
    for r in requests:
        s.add(r)
    computed = 0
    while (step := s.schedule()) is not None:
        computed += step.tokens
        s.complete(step)
    assert s.counters.preemptions > 0
    assert max(r.preemptions for r in requests) <= 3
    # Each prompt once, each output token once; what preemption made to be computed again is a small part.
    least = sum(r.prompt_tokens + len(r.output) - 1 for r in requests)
    assert least <= computed < 1.35 * least


def test_a_preempted_request_counts_its_prompt_its_hits_and_its_tokens_once() -> None:
    s = make(40, seqs=64)
    requests = [ask(f"r{i}", 20, 40) for i in range(16)]
    for r in requests:
        s.add(r)
    first, tokens = [], 0
    while (step := s.schedule()) is not None:
        outputs = s.complete(step)
        first += [o.request.key for o in outputs if o.first]
        tokens += sum(len(o.tokens) for o in outputs)
    assert s.counters.preemptions > 0
    assert s.counters.queries == 16 * 20
    assert s.counters.hits == 0
    assert sorted(first) == sorted(r.key for r in requests)
    assert tokens == 16 * 40
    assert all(r.hit == 0 for r in requests)


def test_a_server_whose_cache_was_reset_is_as_cold_as_a_new_one() -> None:
    def times(engine: Core, start: int) -> list[int]:
        ends, at = [], start
        for key in "abc":
            engine.submit(long(key, 1000, 5), at)
            while engine.due is not None:
                at = engine.turn().ended
            ends.append(at - start)
        return ends

    engine = core()
    fresh = times(engine, 0)
    warm = times(engine, 10**10)
    assert engine.reset_prefix_cache()
    assert times(engine, 2 * 10**10) == fresh
    assert warm[0] < fresh[0]


def test_running_requests_take_blocks_as_they_grow() -> None:
    s = make(1000, seqs=64)
    for i in range(10):
        s.add(ask(f"r{i}", 6, 200))
    used = []
    for _ in range(100):
        turn(s)
        used.append(s.pool.count - 1 - s.pool.free_count)
    # Ten requests of 6 tokens hold two blocks each; after 99 more tokens 105 of them need 27.
    assert (used[0], used[-1]) == (20, 270)


def test_no_token_is_given_before_its_step_has_ended() -> None:
    for asynchronous in (False, True):
        engine = core(asynchronous=asynchronous)
        engine.submit(long("a", 1000, 3), 5)
        # Two chunks of the prompt: 512 tokens, then 488 that see 1000.
        assert engine.due == 5 + 10_512_000
        assert engine.turn().outputs == []
        assert engine.due == 5 + 10_512_000 + 11_000_000
        first = engine.turn()
        assert [o.tokens for o in first.outputs] == [[1000]]
        assert first.ended == 5 + 21_512_000


def test_a_quarter_fewer_blocks_change_how_many_run_together() -> None:
    # Each request holds 25 blocks at its end: 100 blocks carry four of them, 75 three.
    together = {}
    for blocks in (101, 76):
        s = make(blocks, seqs=64, budget=512)
        for i in range(12):
            s.add(ask(f"r{i:02}", 96, 4))
        most = 0
        while step := batch(s.schedule()):
            most = max(most, len(step))
            s.complete(last(s))
        together[blocks] = most
    assert together == {101: 4, 76: 3}


def last(s: Scheduler) -> Step:
    return s.flying[-1]
