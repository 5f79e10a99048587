"""What live sessions hold together, and that a common beginning is counted once."""

import random

from windtunnel.agents.events import CallEnd, CallStart, SessionEnd
from windtunnel.simulator.results.working_set import WorkingSet, working_set

S = 1_000_000_000


def begun(session: str, prompt: int, shared: int | None = None, *, thread: int = 0, t: int = 0) -> CallStart:
    return CallStart(
        t=t,
        agent=0,
        session=session,
        thread=thread,
        call=0,
        turn=1,
        turns=1,
        request_id=f"{session}-{thread}",
        t_intended=t,
        expected_prompt_tokens=prompt,
        expected_cached_tokens=shared,
        pinned_tokens=10,
    )


def done(session: str, prompt: int, output: int, *, thread: int = 0, t: int = 0) -> CallEnd:
    return CallEnd(
        t=t,
        agent=0,
        session=session,
        thread=thread,
        call=0,
        request_id=f"{session}-{thread}",
        t_intended=0,
        t_first=t,
        t_last=t,
        t_end=t,
        prompt_tokens=prompt,
        completion_tokens=output,
        finish="stop",
    )


def over(session: str, t: int = 0) -> SessionEnd:
    return SessionEnd(t=t, agent=0, session=session, status="completed", calls_done=1, work_done=1.0)


def test_a_common_beginning_is_counted_once():
    held = WorkingSet()
    assert held.call_start(begun("a", 30_000)) == 30_000
    assert held.call_start(begun("b", 31_000, 27_728)) == 31_000 - 27_728
    assert held.call_start(begun("c", 32_000, 27_728)) == 32_000 - 27_728
    assert held.call_end(done("b", 31_000, 500)) == 500
    assert held.tokens == 30_000 + 3_272 + 500 + 4_272


def test_it_stays_when_the_one_that_brought_it_is_gone():
    held = WorkingSet()
    held.call_start(begun("a", 30_000))
    held.call_start(begun("b", 31_000, 27_728))
    assert held.session_end(over("a")) == -(30_000 - 27_728)
    assert held.tokens == 31_000
    held.call_start(begun("b", 90_000, 31_000))
    assert held.tokens == 90_000, "only a thread's first prompt says what it began with"
    assert held.session_end(over("b")) == -90_000
    assert held.tokens == 0


def test_a_thread_that_forks_another_adds_what_is_its_own():
    held = WorkingSet()
    held.call_start(begun("a", 60_000))
    held.call_start(begun("a", 61_000, 60_000, thread=1))
    assert held.tokens == 61_000


def test_without_sharing_and_where_it_is_not_known_contexts_add_up():
    held = WorkingSet()
    held.call_start(begun("a", 1000))
    held.call_start(begun("b", 2000, 0))
    held.call_end(done("c", 3000, 10))
    assert held.tokens == 6010


def test_changes_add_up_to_what_is_held():
    rng = random.Random(3)
    held, total, live = WorkingSet(), 0, list[str]()
    for number in range(400):
        kind = rng.random()
        if kind < 0.4 or not live:
            live.append(f"s{number}")
            total += held.call_start(begun(live[-1], rng.randint(1, 9000), rng.choice([0, 500, 700])))
        elif kind < 0.8:
            total += held.call_end(done(rng.choice(live), rng.randint(1, 9000), 5))
        else:
            total += held.session_end(over(live.pop(rng.randrange(len(live)))))
        assert held.tokens == total >= 0
    for name in live:
        held.session_end(over(name))
    assert held.tokens == 0


def test_over_time():
    events = [
        begun("a", 1000, t=0),
        begun("b", 1500, 800, t=1 * S),
        over("a", t=2 * S),
        over("b", t=3 * S),
    ]
    assert working_set(events, 4.0, 4) == [(0.0, 1000.0), (1.0, 1700.0), (2.0, 1500.0), (3.0, 0.0), (4.0, 0.0)]
