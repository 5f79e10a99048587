"""Who is preempted, what it gives back, how it goes on; numbers worked out by hand, blocks of 4 tokens."""

from .scheduling import ask, finish, make, turn


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
    assert (b.computed, b.preemptions, b.blocks.numbers) == (0, 1, [])
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
