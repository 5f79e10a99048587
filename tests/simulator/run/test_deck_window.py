"""Order of sessions, budgets, and the moments at which the measured window opens and closes."""

from collections import Counter

from windtunnel.simulator.run.config import Warmup
from windtunnel.simulator.run.deck import CallBudget, Deck, seeded
from windtunnel.simulator.run.window import NS, WARMUP_LIMIT_S, Window


def test_every_trace_comes_once_before_any_comes_again():
    deck = Deck(5, seed=3, sessions=None)
    draws = [deck.next() for _ in range(15)]
    for start in (0, 5, 10):
        assert sorted(d.index for d in draws[start : start + 5]) == [0, 1, 2, 3, 4]
    assert [d.number for d in draws] == list(range(15))
    assert Counter(d.copy for d in draws) == {0: 5, 1: 5, 2: 5}


def test_order_depends_on_the_seed_and_on_nothing_else():
    def order(seed):
        deck = Deck(16, seed=seed, sessions=None)
        return [deck.next().index for _ in range(32)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    # A fixed value: the order is the same in every process and on every machine.
    assert seeded(0, "deck").random() == 0.39128135847600776


def test_session_and_call_budgets_count_what_is_started():
    deck = Deck(3, seed=0, sessions=4)
    assert [deck.next() is not None for _ in range(6)] == [True] * 4 + [False] * 2
    assert deck.exhausted
    budget = CallBudget(2)
    assert [budget.take() for _ in range(4)] == [True, True, False, False]
    assert all(CallBudget(None).take() for _ in range(100))


def phases(agents=2, warmup=None, duration_s=10.0):
    seen = []
    warmup = warmup or Warmup(calls=2)
    return Window(agents, warmup, duration_s, lambda phase, at, _note: seen.append((phase, at))), seen


def test_window_opens_when_the_last_lane_ended_its_warm_up_calls():
    window, seen = phases()
    window.begin(0)
    window.lane_started(1)
    window.call_ended(0, 2)
    window.call_ended(0, 3)
    window.lane_started(4)
    window.call_ended(1, 5)
    assert window.phase == "warmup"
    window.call_ended(0, 6)  # more calls of a lane that is ready change nothing
    assert window.phase == "warmup"
    window.call_ended(1, 7)
    assert seen == [("warmup", 0), ("steady", 7)]
    assert window.deadline == 7 + 10 * NS
    assert not window.tick(7 + 10 * NS - 1)
    assert window.tick(7 + 10 * NS)


def test_window_does_not_open_before_every_lane_has_started_even_without_warm_up():
    window, seen = phases(agents=2, warmup=Warmup(calls=0))
    window.begin(0)
    window.lane_started(1)
    assert [p for p, _ in seen] == ["warmup"]
    window.lane_started(9)
    assert seen[-1] == ("steady", 9)


def test_window_by_time():
    window, seen = phases(agents=1, warmup=Warmup(calls=None, seconds=3.0))
    window.begin(0)
    window.lane_started(1)
    assert window.wake == 3 * NS
    assert not window.tick(2 * NS)
    assert [p for p, _ in seen] == ["warmup"]
    window.tick(3 * NS)
    assert seen[-1] == ("steady", 3 * NS)
    assert window.wake == 13 * NS


def test_the_first_thing_that_may_not_start_closes_the_window():
    window, seen = phases(duration_s=None)
    window.begin(0)
    for agent in (0, 1):
        window.lane_started(1)
        window.call_ended(agent, 2)
        window.call_ended(agent, 3)
    window.dry(50)
    window.dry(60)
    window.end(70)
    assert [p for p, _ in seen] == ["warmup", "steady", "draining", "done"]
    assert seen[2] == ("draining", 50)
    assert window.deadline is None


def test_a_run_that_drains_in_its_warm_up_never_has_a_window():
    window, seen = phases(duration_s=None)
    window.begin(0)
    window.lane_started(1)
    window.dry(2)
    window.lane_started(3)
    for _ in range(4):
        window.call_ended(0, 4)
        window.call_ended(1, 4)
    assert [p for p, _ in seen] == ["warmup", "draining"]


def test_a_warm_up_that_never_ends_is_given_up():
    window, _ = phases()
    window.begin(0)
    assert not window.tick(round(WARMUP_LIMIT_S * NS) - 1)
    assert window.tick(round(WARMUP_LIMIT_S * NS))
