"""Speculation in the scheduler: budget, room, what is taken back and what counts; blocks of 4 tokens, worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Output, Scheduler, Step

from .scheduling import Same, batch, make, turn


class Accepts(Same):
    """Accepts drafts in the given numbers, one after the other, whatever the position; then none."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def accepted(self, _position: int, drafted: int) -> int:
        return min(self.numbers.pop(0), drafted) if self.numbers else 0


class Finds(Accepts):
    """An n-gram drafter: so many drafts after each step."""

    def __init__(self, drafts: Sequence[int], *numbers: int) -> None:
        super().__init__(*numbers)
        self.drafts = list(drafts)

    def drafted(self, _position: int, most: int) -> int:
        return min(self.drafts.pop(0), most)


def ask(key: str, prompt: int | Sequence[int], out: int, script: Same, ends: int | None = None) -> Request:
    ids = [ord(key[0]) * 1000 + i for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
    return Request(key, np.array(ids, dtype=np.uint32), script, out, block_size=4, ends=ends)


def three(blocks: int = 100, **more: object) -> Scheduler:
    return make(blocks, **({"speculative_tokens": 3, "lookahead": 3} | more))


def ahead(s: Scheduler, flying: list[Step]) -> list[Output]:
    """One turn of an engine that schedules a step ahead."""
    step = s.schedule()
    outputs = s.complete(flying.pop()) if flying else []
    if step is not None:
        flying.append(step)
    return outputs


def test_a_request_costs_its_drafts_of_the_budget_and_they_are_shortened_to_it() -> None:
    s = three(budget=10)
    for key in "abc":
        s.add(ask(key, 3, 50, Accepts()))
    assert turn(s) == {"a": 3, "b": 3, "c": 3}
    step = s.schedule()
    assert batch(step) == {"a": 4, "b": 4, "c": 2}
    assert step.drafted == [3, 3, 1]
    assert (step.tokens, step.drafts, step.sequences, step.drafting, step.chunks) == (10, 7, 3, 3, 0)
    assert step.pure_decode


def test_a_draft_model_costs_each_request_one_more() -> None:
    s = three(budget=12, draft_slots=1)
    for key in "abc":
        s.add(ask(key, 3, 50, Accepts()))
    assert turn(s) == {"a": 3, "b": 3, "c": 3}
    # Each takes 4 and leaves one: 12, 7, 2.
    assert turn(s) == {"a": 4, "b": 4, "c": 1}


def test_rejected_drafts_are_taken_back() -> None:
    s = three()
    r = ask("a", 6, 50, Accepts(0, 3, 1))
    s.add(r)
    turn(s)
    assert (r.computed, r.known) == (6, 7)
    seen = []
    for _ in range(3):
        assert turn(s) == {"a": 4}
        seen.append((r.computed, r.known, len(r.output)))
    assert seen == [(7, 8, 2), (11, 12, 6), (13, 14, 8)]
    assert r.output == list(range(1000, 1008))


def test_room_is_reserved_for_drafts_to_come_but_the_gate_asks_for_the_prompt_alone() -> None:
    s = three(4)
    r = ask("a", 8, 50, Accepts())
    s.add(r)
    turn(s)
    # 8 tokens and 3 behind them; three blocks are all there are, and a prompt of 12 with lookahead finds no room.
    assert len(r.blocks) == 3
    t = three(4)
    t.add(ask("b", 12, 50, Accepts()))
    assert t.schedule() is None
    u = three(4, lookahead=0)
    u.add(ask("b", 12, 50, Accepts()))
    assert turn(u) == {"b": 12}


def test_room_never_exceeds_the_models_length_and_drafts_end_before_it() -> None:
    s = three(max_model_len=14)
    r = ask("a", 10, 4, Accepts(3, 3))
    s.add(r)
    turn(s)
    assert len(r.blocks) == 4
    # The thirteenth token is the last that is ever an input.
    assert turn(s) == {"a": 3}
    assert (r.finished, r.output) == ("length", [1000, 1001, 1002, 1003])


def test_a_stop_among_accepted_tokens_cuts_them_but_not_the_counters() -> None:
    s = three()
    r = ask("a", 6, 50, Accepts(3), ends=3)
    s.add(r)
    turn(s)
    step = s.schedule()
    (output,) = s.complete(step)
    assert output.tokens == [1001, 1002]
    assert (r.finished, r.output) == ("stop", [1000, 1001, 1002])
    c = s.counters
    assert (c.drafts, c.draft_tokens, c.accepted_tokens, c.accepted_per_position) == (1, 3, 3, [1, 1, 1])


def test_max_tokens_among_accepted_tokens_cuts_them() -> None:
    s = three()
    r = ask("a", 6, 6, Accepts(3, 3))
    s.add(r)
    turn(s), turn(s), turn(s)
    assert (r.finished, len(r.output)) == ("length", 6)
    assert not s.running
    assert s.pool.free_count == 99


def test_accepted_tokens_count_by_position() -> None:
    s = three()
    s.add(ask("a", 6, 50, Accepts(0, 1, 3, 2, 1)))
    for _ in range(6):
        turn(s)
    c = s.counters
    assert (c.drafts, c.draft_tokens, c.accepted_tokens, c.accepted_per_position) == (5, 15, 7, [4, 2, 1])


def test_only_accepted_tokens_can_be_found_and_without_scheduling_ahead_only_at_the_next_step() -> None:
    s = three(drops_last_block=False)
    r = ask("a", [1, 2, 3], 6, Accepts(2, 3))
    s.add(r)
    turn(s)
    # 4 tokens known: the block becomes findable when its last token is computed, in the next step.
    assert s.pool.cached_blocks == 0
    turn(s)
    assert (r.known, s.pool.cached_blocks) == (7, 1)
    # 9 tokens, two full blocks; the request ends in this step, and the second block was never offered.
    turn(s)
    assert r.finished == "length"
    assert s.pool.cached_blocks == 1


def test_with_scheduling_ahead_the_last_accepted_tokens_can_be_found() -> None:
    s = three()
    s.asynchronous = True
    r = ask("a", [1, 2, 3], 6, Accepts(2, 3))
    s.add(r)
    flying: list[Step] = []
    while r.finished is None:
        ahead(s, flying)
    assert s.pool.cached_blocks == 2


def test_scheduling_ahead_makes_room_as_if_all_drafts_were_accepted() -> None:
    s = three()
    s.asynchronous = True
    r = ask("a", 6, 50, Accepts(1, 2))
    s.add(r)
    flying: list[Step] = []
    ahead(s, flying)
    assert (r.computed, r.placeholders, r.drafts) == (6, 1, 3)
    ahead(s, flying)
    # The prompt's token has returned, four are under way.
    assert (r.known, r.computed, r.placeholders) == (7, 10, 4)
    (output,) = ahead(s, flying)
    # 4 + 4 were scheduled; of the first four two were right.
    assert output.tokens == [1001, 1002]
    assert (r.known, r.computed, r.placeholders) == (9, 12, 4)
    # Each step made room for its own four tokens and three behind them.
    assert len(r.blocks) == -(-(10 + 4 + 3) // 4)


def test_with_drafts_not_only_a_stop_token_but_also_max_tokens_costs_a_wasted_step() -> None:
    steps = {}
    for ends in (4, None):
        s = three()
        s.asynchronous = True
        r = ask("a", 6, 4 if ends is None else 50, Accepts(2), ends=ends)
        s.add(r)
        flying: list[Step] = []
        ahead(s, flying)
        while flying:
            ahead(s, flying)
        assert len(r.output) == 4
        steps[ends] = s.counters.steps
    # With max_tokens 4 the second step may bring the last token, but is only sure to bring one: a third is scheduled.
    assert steps == {4: 3, None: 3}


def test_a_request_with_one_token_left_is_padded_with_drafts_that_are_all_rejected() -> None:
    s = three()
    shared = list(range(9))
    s.add(ask("a", shared, 50, Accepts(*[0] * 20)))
    turn(s)
    script = Accepts(3)
    s.add(ask("b", shared, 50, script))
    step = s.schedule()
    assert batch(step) == {"a": 4, "b": 4}
    s.complete(step)
    assert script.numbers == [3]
    assert s.counters.draft_tokens == 6
    assert s.counters.accepted_tokens == 0


def test_nothing_is_padded_beside_a_prompt_that_is_being_computed() -> None:
    s = three(budget=24)
    shared = list(range(9))
    s.add(ask("a", shared, 2, Accepts()))
    turn(s), turn(s)
    s.add(ask("long", 40, 50, Accepts()))
    assert turn(s) == {"long": 24}
    s.add(ask("b", shared, 50, Accepts()))
    assert turn(s) == {"long": 16, "b": 1}


def test_n_grams_may_propose_fewer_drafts_or_none() -> None:
    s = three(lookahead=0)
    r = ask("a", 6, 50, Finds([2, 0, 5, 1], 1, 0))
    s.add(r)
    assert [turn(s) for _ in range(4)] == [{"a": 6}, {"a": 3}, {"a": 1}, {"a": 4}]
    assert (s.counters.drafts, s.counters.draft_tokens, s.counters.accepted_tokens) == (2, 5, 1)


def test_n_grams_are_not_looked_up_when_one_sequence_comes_close_to_the_models_length() -> None:
    s = three(lookahead=0, max_model_len=20)
    a, b = ask("a", 3, 10, Accepts(0, 3)), ask("b", 17, 3, Accepts())
    s.add(a)
    s.add(b)
    assert turn(s) == {"a": 3, "b": 17}
    # 17 + 3 is not beyond 20; 18 + 3 is: zeros stand for the drafts of both in the step after, and are rejected.
    assert turn(s) == {"a": 4, "b": 2}
    assert (len(a.output), s.counters.draft_tokens) == (2, 4)
    assert turn(s) == {"a": 4, "b": 1}
    assert (len(a.output), s.counters.draft_tokens, s.counters.accepted_tokens) == (3, 7, 0)


def test_preemption_forgets_drafts_and_what_is_computed() -> None:
    s = three(6, lookahead=0)
    a, b = ask("a", 8, 30, Accepts()), ask("b", 7, 30, Accepts())
    s.add(a)
    s.add(b)
    assert turn(s) == {"a": 8, "b": 7}
    # Five blocks: a takes the last for tokens 9 to 12; b's 8 to 11 need a third that is not there.
    assert turn(s) == {"a": 4}
    assert (b.drafts, b.computed, b.placeholders, b.preemptions, b.blocks.numbers) == (0, 0, 0, 1, [])
    assert s.counters.drafts == 1


@pytest.mark.parametrize("drops", [False, True])
def test_the_last_matched_block_is_computed_again_where_drafts_need_its_hidden_states(drops: bool) -> None:
    s = three(drops_last_block=drops)
    ids = list(range(12))
    s.add(ask("a", ids, 1, Accepts()))
    turn(s)
    r = ask("b", [*ids, 50, 51], 1, Accepts())
    s.add(r)
    assert turn(s) == {"b": 6 if drops else 2}
    assert r.hit == (8 if drops else 12)
