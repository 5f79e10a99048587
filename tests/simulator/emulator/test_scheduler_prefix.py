"""What the prefix cache finds, what it counts, what it evicts; numbers worked out by hand, blocks of 4 tokens."""

import pytest

from .scheduling import ask, finish, make, turn


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
    assert s.pool.find(ask("a", a).hashes, 3).count == 1
    assert s.pool.find(ask("b", b).hashes, 3).count == 3
