"""Whole runs in virtual time: when each call is wanted and sent, who runs beside whom, and that it is always the same."""

import pytest

from windtunnel.agents import events as ev
from windtunnel.agents.fake import Answer
from windtunnel.agents.policy import Dial
from windtunnel.simulator.run.config import Warmup

from .conftest import NS, Sketch, chain


def test_a_call_is_wanted_when_the_one_before_ended_and_its_waits_are_over(replay):
    sketch = Sketch()
    sketch.call()
    sketch.call(("tool", 1.25), ("client", 0.125))
    sketch.call(("human", 3.0))
    sketch.call()
    run = replay(sketch.trace(), sessions=1)
    for call, waited in ((1, 1.375), (2, 3.0), (3, 0.0)):
        assert run.end(call).t_intended == run.end(call - 1).t_end + round(waited * NS)
        assert run.end(call).t_sent == run.end(call).t_intended
    # First token after 0.5 s, 19 more of 10 ms each.
    assert run.end(0).t_end - run.end(0).t_sent == round(0.69 * NS)
    assert run.end(3).t_end == round((4 * 0.69 + 4.375) * NS)
    waits = [(e.cause, e.seconds, e.t) for e in run.of(ev.WaitStart)]
    ended = [(e.cause, e.t) for e in run.of(ev.WaitEnd)]
    assert waits == [
        ("tool", 1.25, round(0.69 * NS)),
        ("client", 0.125, round(1.94 * NS)),
        ("human", 3.0, round(2.755 * NS)),
    ]
    assert ended == [("tool", round(1.94 * NS)), ("client", round(2.065 * NS)), ("human", round(5.755 * NS))]


def test_a_hundred_turns_do_not_drift(replay):
    run = replay(chain(calls=100, wait=0.333), sessions=1)
    assert run.end(99).t_intended == 99 * (round(0.69 * NS) + 333_000_000)


def test_a_late_client_shows_and_does_not_add_up(replay):
    """Deadlines are absolute: each call is wanted where the plan says, and the client's lateness is told beside it."""
    late = 7_000_000
    run = replay(chain(calls=50, wait=0.333), sessions=1, late_s=late / NS)
    for call in range(1, 50):
        assert run.end(call).t_intended == run.end(call - 1).t_end + 333_000_000
        assert run.end(call).t_sent == run.end(call).t_intended + late
    assert run.driver.dispatch_us == [0] + [7000] * 49
    # What a caller had to wait is counted from when the call was wanted.
    assert run.summary.ttft_s.p50 == 0.507
    capped = replay(*(chain(n, calls=10, wait=0.0) for n in "abc"), agents=3, sessions=3, rate=2.0, late_s=late / NS)
    sent = sorted(e.t_sent for e in capped.ends)
    assert sent[-1] == 29 * NS // 2 + late


def test_waits_of_unknown_length_last_their_usual_time_and_say_so(replay):
    """A tool's usual time is its median in the traces at hand; one that no trace times has a rough figure."""
    sketch = Sketch()
    sketch.call()
    for seconds in (2.0, 4.0, 9.0, None):
        sketch.call(("tool", seconds))
    run = replay(sketch.trace(), sessions=1)
    waits = [(e.seconds, e.recorded_s, e.filled) for e in run.of(ev.WaitStart)]
    assert waits == [(2.0, 2.0, False), (4.0, 4.0, False), (9.0, 9.0, False), (4.0, None, True)]
    assert run.end(4).t_intended == run.end(3).t_end + 4 * NS


def test_dials_shorten_the_waits(replay):
    trace = chain(calls=3, wait=8.0)
    assert replay(trace, sessions=1, tool_time=Dial("scale", 0.5)).end(2).t_intended == round((2 * 0.69 + 8) * NS)
    assert replay(trace, sessions=1, pace="none").end(2).t_intended == round(2 * 0.69 * NS)
    assert not replay(trace, sessions=1, pace="none").of(ev.WaitStart)


def test_times_of_a_call_are_those_of_the_stream(replay):
    run = replay(chain(calls=1, out=10), answer=lambda _: Answer(first_s=1.0, token_s=0.1, per_chunk=4), sessions=1)
    end = run.end(0)
    assert (end.t_first, end.t_first_visible, end.t_last, end.t_first_tool) == (NS, NS, round(1.8 * NS), None)
    assert (end.chunks.us, end.chunks.n) == ((1_000_000, 400_000, 400_000), (4, 4, 2))
    assert (end.completion_tokens, end.pinned_tokens, end.finish) == (10, 10, "length")


def test_first_tokens_of_three_kinds_are_three_times(replay):
    def thinks(_):
        return Answer(first_s=1.0, token_s=0.1, reasoning=4, tool=3)

    end = replay(chain(calls=1, out=12), answer=thinks, sessions=1, route="chat").end(0)
    assert (end.t_first, end.t_first_visible, end.t_first_tool) == (NS, round(1.4 * NS), round(1.9 * NS))
    assert (end.t_last, sum(end.chunks.n), end.failure) == (round(2.1 * NS), 12, None)


def test_lanes_start_evenly_over_the_ramp(replay):
    run = replay(*(chain(n) for n in "abcd"), agents=4, ramp_s=8.0, sessions=4)
    assert [(e.agent, e.t / NS) for e in run.of(ev.SessionStart)] == [(0, 0.0), (1, 2.0), (2, 4.0), (3, 6.0)]
    assert [run.end(0, f"s{n}").t_intended for n in range(4)] == [2 * n * NS for n in range(4)]


def test_a_lane_goes_on_with_the_next_session_at_once(replay):
    run = replay(chain(calls=2), agents=1, sessions=3)
    starts, ends = run.of(ev.SessionStart), run.of(ev.SessionEnd)
    assert [s.t for s in starts[1:]] == [e.t for e in ends[:-1]]
    assert [s.copy for s in starts] == [0, 1, 2]
    assert run.client.most_in_flight == 1


def test_as_many_streams_as_agents_and_sub_agents_at_once(replay):
    traces = []
    for number in range(75):
        sketch = Sketch(f"t{number}")
        first = sketch.call()
        for _ in range(3):
            sketch.call(thread=sketch.thread(first))
        sketch.call(("tool", 0.1))
        traces.append(sketch.trace())
    run = replay(*traces, agents=75, sessions=75)
    assert run.client.most_in_flight == 300  # no pool holds anybody back
    assert {(e.t_sent - e.t_intended) for e in run.ends} == {0}


def test_sub_agents_run_beside_their_parent_and_are_joined(replay):
    sketch = Sketch()
    first = sketch.call()
    slow, quick = sketch.thread(first, delay=0.5, name="slow"), sketch.thread(first, name="quick")
    one = sketch.call(thread=slow, out=100)
    two = sketch.call(("tool", 1.0), thread=slow, out=20)
    three = sketch.call(thread=quick, out=20)
    beside = sketch.call(("tool", 0.2), out=20)
    joined = sketch.call(("tool", 0.1), ("subagent", 9.0), ("client", 0.3), joins=(slow, quick))
    run = replay(sketch.trace(), sessions=1)
    born = run.end(first).t_end
    assert run.end(one).t_intended == born + NS // 2
    assert run.end(three).t_intended == born
    assert run.end(beside).t_intended == born + NS // 5
    assert run.end(two).t_intended == run.end(one).t_end + NS
    assert run.client.most_in_flight == 3
    # The join ends with the slower sub-agent, whatever was recorded, and only then comes the client's own time.
    assert run.end(joined).t_intended == run.end(two).t_end + round(0.3 * NS)
    (join,) = [e for e in run.of(ev.WaitStart) if e.cause == "subagent"]
    (over,) = [e for e in run.of(ev.WaitEnd) if e.cause == "subagent"]
    assert (join.seconds, join.recorded_s, join.label) == (None, 9.0, "slow, quick")
    assert over.t == run.end(two).t_end
    assert run.statuses() == [("s0", "completed", None)]


def test_the_rate_cap_is_recorded_apart_and_kept_in_order(replay):
    traces = [chain(n, calls=2, wait=0.0) for n in "abcdef"]
    run = replay(*traces, agents=6, sessions=6, rate=4.0)
    sent = sorted(run.ends, key=lambda e: e.t_sent)
    assert [e.t_sent for e in sent] == [n * NS // 4 for n in range(12)]
    # First come, first served; and what the cap cost is not the client's own delay.
    assert [e.t_intended for e in sent] == sorted(e.t_intended for e in sent)
    assert all(e.t_sent - e.t_intended == e.throttled_ns for e in sent)
    assert run.driver.dispatch_us == [0] * 12
    assert run.summary.throttled_s.max == max(e.throttled_ns for e in sent) / NS
    assert run.summary.ttft_s.max == 0.5


def test_a_cap_that_is_never_reached_costs_nothing(replay):
    run = replay(chain(calls=3), sessions=1, rate=100.0)
    assert [e.throttled_ns for e in run.ends] == [0, 0, 0]


@pytest.mark.parametrize("dials", [{"calls": 60}, {"duration_s": 20.0, "warmup": Warmup(calls=1)}, {"rate": 3.0}])
def test_the_same_seed_gives_the_same_events_to_the_byte(replay, dials):
    traces = []
    for name in "abcdefgh":
        sketch = Sketch(name, front="shared")
        first = sketch.call()
        sub = sketch.thread(first, delay=0.1)
        sketch.call(thread=sub)
        sketch.call(("tool", 1.0), joins=(sub,))
        sketch.call(("human", 30.0), out=40)
        traces.append(sketch.trace())
    more = {"agents": 6, "ramp_s": 2.0, "start": "spread", **({"sessions": 12} if "rate" in dials else {}), **dials}

    def uneven(asked):
        return Answer(first_s=0.2 + 0.01 * (asked.number % 7), token_s=0.01)

    one = replay(*traces, answer=uneven, seed=3, **more)
    assert len(one.ends) > 20
    assert one.driver.reader._now() == one.driver.clock.now_ns()  # no other clock decides about anything
    assert replay(*traces, answer=uneven, seed=3, **more).data == one.data
    assert replay(*traces, answer=uneven, seed=4, **more).data != one.data
