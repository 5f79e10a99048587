"""What a step computes and whom it admits; numbers worked out by hand, blocks of 4 tokens."""

from .scheduling import ask, batch, finish, make, turn


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
