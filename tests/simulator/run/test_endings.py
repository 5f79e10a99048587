"""Whole runs in virtual time: the measured window, how runs drain or are cut, and what failures do."""

import asyncio
from itertools import pairwise

import pytest

from windtunnel.agents import events as ev
from windtunnel.agents.failures import Failure
from windtunnel.agents.fake import Answer
from windtunnel.simulator.run.config import Warmup
from windtunnel.simulator.run.driver import FAILED_SESSION_PAUSE_S
from windtunnel.simulator.run.window import WARMUP_LIMIT_S

from .conftest import NS, Sketch, chain


def many(count=8, calls=6, **more):
    return [chain(f"t{n}", calls, **more) for n in range(count)]


def parallel(name="p", *, subs=3, calls=3):
    """A parent that waits for sub-agents which work beside each other."""
    sketch = Sketch(name)
    first = sketch.call()
    threads = [sketch.thread(first, delay=0.1 * n) for n in range(subs)]
    for _ in range(calls):
        for thread in threads:
            sketch.call(thread=thread)
    sketch.call(("subagent", 1.0), joins=tuple(threads))
    return sketch.trace()


# -- the window


def test_the_window_opens_when_the_last_lane_has_warmed_up_and_lasts_as_long_as_asked(replay):
    run = replay(*many(), agents=3, ramp_s=6.0, warmup=Warmup(calls=2), duration_s=20.0)
    # Lanes start at 0, 2, 4 s; a warm-up is 0.69 + 2 + 0.69 s.
    assert run.phases == {"warmup": 0.0, "steady": 7.38, "draining": 27.38, "done": 27.38}
    assert run.summary.window_s == 20.0
    assert {e.warmup for e in run.ends if e.t_end <= round(7.38 * NS)} == {True}
    assert {e.warmup for e in run.ends if e.t_end is None or e.t_end > round(7.38 * NS)} == {False}


def test_the_herd_of_the_start_is_outside_the_window(replay):
    run = replay(*many(), agents=4, warmup=Warmup(calls=1), duration_s=10.0)
    first = [e for e in run.ends if e.t_intended == 0]
    assert len(first) == 4
    assert run.phases["steady"] == 0.69
    assert run.summary.ttft_s.n == len([e for e in run.ends if e.t_intended >= 0.69 * NS and not e.cut])


def test_a_warm_up_by_time_shorter_than_the_ramp_opens_with_the_last_lane(replay):
    run = replay(*many(), agents=4, ramp_s=8.0, warmup=Warmup(calls=None, seconds=3.0), duration_s=5.0)
    assert run.phases["steady"] == 6.0
    assert run.phases["draining"] == 11.0


def test_a_warm_up_by_time_longer_than_the_ramp_opens_when_it_is_over(replay):
    run = replay(*many(), agents=4, ramp_s=2.0, warmup=Warmup(calls=None, seconds=7.25), duration_s=5.0)
    assert (run.phases["steady"], run.phases["draining"]) == (7.25, 12.25)


def test_a_warm_up_that_never_ends_is_given_up_and_said(replay):
    slow = Answer(first_s=70.0, token_s=0.0)
    run = replay(chain(calls=2), answer=lambda _: slow, warmup=Warmup(calls=10**6), duration_s=2.0, text=False)
    assert run.phases == {"warmup": 0.0, "draining": WARMUP_LIMIT_S, "done": WARMUP_LIMIT_S}
    assert [n.reason for n in run.of(ev.Note)] == ["no_steady_state"]
    summary = run.summary
    assert (summary.window_s, summary.output_tokens_per_s) == (0.0, None)
    assert "no_steady_state" in summary.invalid_reasons


def test_a_duration_cuts_what_is_in_flight_and_counts_it_apart(replay):
    run = replay(*many(wait=0.0), agents=3, warmup=Warmup(calls=1), duration_s=5.0, ramp_s=0.6)
    cut = [e for e in run.ends if e.cut]
    assert [(e.t, e.failure) for e in cut] == [(run.phases["draining"] * NS, None)] * 3
    # The tokens that had arrived are kept; what usage would have told is not made up.
    arrived = [0 if e.t_first is None else (e.t - e.t_first) // 10_000_000 + 1 for e in cut]
    assert [sum(e.chunks.n) for e in cut] == arrived
    assert sum(arrived) > 0
    assert all(e.prompt_tokens is None and e.cached_tokens is None for e in cut)
    summary = run.summary
    assert (summary.calls_cut, summary.failed_calls, summary.sessions_cut) == (3, 0, 3)
    assert summary.calls == len(run.ends)
    assert {e.reason for e in run.of(ev.SessionEnd) if e.status == "cut"} == {"duration"}


def test_three_numbers_tell_where_the_agents_are(replay):
    run = replay(*many(calls=20), agents=3, warmup=Warmup(calls=1), duration_s=26.9)
    summary = run.summary
    assert summary.live_mean == pytest.approx(3)
    # 0.69 s of each 2.69 s in flight, the rest in a tool.
    assert summary.in_flight_mean == pytest.approx(3 * 0.69 / 2.69, rel=0.01)
    assert summary.in_tool_mean == pytest.approx(3 * 2 / 2.69, rel=0.01)
    assert summary.waiting_mean == pytest.approx(0, abs=0.01)
    assert all(p.in_flight + p.in_tool + p.waiting == 3 for p in run.of(ev.Progress)[1:-1])


# -- drains


def test_sessions_are_counted_at_their_start_and_all_of_them_end(replay):
    run = replay(*many(3), agents=2, sessions=5)
    assert [e.status for e in run.of(ev.SessionEnd)] == ["completed"] * 5
    assert len(run.ends) == 30
    # The window closes when the first lane has nothing more to start.
    assert run.phases["draining"] == run.of(ev.SessionEnd)[3].t / NS
    assert run.phases["done"] == run.of(ev.SessionEnd)[4].t / NS


def test_calls_are_counted_at_their_start_and_none_is_cut(replay):
    run = replay(*many(), agents=3, calls=16)
    assert len(run.ends) == len(run.of(ev.CallStart)) == 16
    assert not any(e.cut or e.failure for e in run.ends)
    summary = run.summary
    assert (summary.calls, summary.output_tokens) == (16, 16 * 20)
    # A drained run counts what its engine counted.
    assert summary.output_tokens == run.client.generated_tokens
    assert summary.prompt_tokens == run.client.prompt_tokens
    assert summary.cached_tokens == run.client.cached_tokens


@pytest.mark.parametrize("calls", range(1, 12))
def test_the_last_call_that_may_start_cuts_no_call_beside_it(replay, calls):
    run = replay(parallel(), agents=1, calls=calls, sessions=None)
    assert len(run.ends) == calls
    assert not any(e.cut or e.failure for e in run.ends)
    assert run.summary.output_tokens == run.client.generated_tokens == calls * 20


def test_nobody_waits_for_a_turn_that_may_not_come(replay):
    sketch = Sketch("slow")
    sketch.call()
    sketch.call(("human", 7200.0))
    run = replay(sketch.trace(), agents=1, calls=1, pace="recorded")
    assert run.phases["done"] == 0.69
    assert run.statuses() == [("s0", "cut", "call_budget")]
    quick = chain("quick", calls=20, wait=1.0)
    run = replay(sketch.trace(), quick, agents=2, calls=5, pace="recorded")
    assert len(run.ends) == 5
    assert run.phases["done"] < 20


def test_the_call_that_spends_the_budget_may_end_its_session(replay):
    run = replay(chain(calls=3), agents=1, calls=3)
    assert run.statuses() == [("s0", "completed", None)]
    assert len(run.of(ev.SessionStart)) == 1


# -- work


def test_work_done_adds_up_to_the_recorded_share_of_tokens(replay):
    trace = chain(calls=4, out=50)
    tokens = [prompt + 50 for prompt in trace.prompt_tokens().values()]
    whole = replay(trace, sessions=2)
    assert [e.work_done for e in whole.of(ev.SessionEnd)] == pytest.approx([1.0, 1.0])
    assert [e.calls_done for e in whole.of(ev.SessionEnd)] == [4, 4]
    part = replay(trace, calls=3)
    (end,) = part.of(ev.SessionEnd)
    assert end.work_done == pytest.approx(sum(tokens[:3]) / sum(tokens))
    spread = replay(trace, sessions=6, start="spread", agents=2)
    ended = {e.session: e for e in spread.of(ev.SessionEnd)}
    for begun in spread.of(ev.SessionStart):
        assert begun.first_turn in (1, 2)
        share = pytest.approx(sum(tokens[begun.first_turn :]) / sum(tokens))
        assert (begun.work, ended[begun.session].work_done) == (share, share)
    cut = replay(trace, duration_s=4.0)  # two calls of 0.99 s, two seconds between them
    (end,) = cut.of(ev.SessionEnd)
    assert end.work_done == pytest.approx(sum(tokens[:2]) / sum(tokens))


# -- failures


def failing(*numbers, failure=Failure.CONNECTION_RESET, **more):
    return lambda asked: Answer(failure=failure, **more) if asked.number in numbers else Answer()


def test_a_failed_call_fails_its_session_and_the_lane_goes_on(replay):
    run = replay(*many(4, 3), answer=failing(1, fails_s=0.605), agents=1, sessions=3)
    failed = run.end(1)
    assert (failed.failure, failed.cut, failed.finish) == ("connection_reset", False, None)
    # What had arrived of it still counts as arrived.
    assert sum(failed.chunks.n) == 11
    assert run.statuses() == [
        ("s0", "failed", "connection_reset"),
        ("s1", "completed", None),
        ("s2", "completed", None),
    ]
    ended, begun = run.of(ev.SessionEnd)[0], run.of(ev.SessionStart)[1]
    assert begun.t - ended.t == round(FAILED_SESSION_PAUSE_S * NS)
    summary = run.summary
    assert (summary.sessions_failed, summary.sessions_completed, summary.failures) == (1, 2, {"connection_reset": 1})
    assert not any(request.request_id.endswith("s0-0-2") for request in run.client.asked)  # nothing is tried again
    assert len({request.request_id for request in run.client.asked}) == len(run.client.asked)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (Answer(tokens=19), "wrong_length"),
        (Answer(tokens=21), "wrong_length"),
        (Answer(failure=Failure.READ_TIMEOUT, fails_s=600.0), "read_timeout"),
        (Answer(failure=Failure.CONNECTION_CLOSED, fails_s=0.5), "connection_closed"),
    ],
)
def test_every_failure_has_its_own_name(replay, answer, name):
    run = replay(*many(2, 2), answer=lambda asked: answer if asked.number == 0 else Answer(), agents=1, sessions=2)
    assert run.summary.failures == {name: 1}
    assert run.summary.sessions_completed == 1


def test_a_length_that_nobody_reported_is_not_called_wrong(replay):
    run = replay(chain(calls=1), answer=lambda _: Answer(reports=False, ids=False), sessions=1)
    assert (run.end(0).failure, run.end(0).completion_tokens, run.end(0).prompt_tokens) == (None, None, None)
    assert run.summary.calls_without_usage == 1
    assert run.summary.output_tokens is None


def test_a_failed_sub_agent_calls_off_the_others_of_its_session(replay):
    run = replay(parallel(), chain("b"), answer=failing(2, fails_s=0.2), agents=1, sessions=2, seed=1)
    session = next(e.session for e in run.of(ev.SessionStart) if e.trace == "p")
    mine = [e for e in run.ends if e.session == session]
    (failed,) = [e for e in mine if e.failure]
    beside = [e for e in mine if e.t_sent < failed.t_end and e.t_end >= failed.t_end and e is not failed]
    assert len(beside) == 2
    assert all((e.cut, e.failure, e.t) == (True, None, failed.t_end) for e in beside)
    assert run.summary.failures == {"connection_reset": 1}
    other = next(s for s in run.statuses() if s[0] != session)
    assert other[1:] == ("completed", None)


def test_connections_refused_end_the_run_and_name_what_was_left(replay):
    def dies(asked):
        return Answer(failure=Failure.CONNECT_REFUSED) if asked.t > 10 * NS else Answer()

    run = replay(*many(calls=9), answer=dies, agents=4, ramp_s=1.0, duration_s=300.0)
    refused = [e for e in run.ends if e.failure == "connect_refused"]
    assert len(refused) == 1
    assert (refused[0].t_sent, refused[0].t_first) == (None, None)
    assert run.phases["done"] == refused[0].t / NS
    assert run.driver.stopped == "engine_gone"
    assert [s[1:] for s in run.statuses()] == [("failed", "engine_gone")] * 4
    left = [e for e in run.ends if e.t == refused[0].t and e is not refused[0]]
    assert all(e.failure == "engine_gone" and not e.cut for e in left)


def test_an_engine_that_exits_is_engine_gone_for_everything_left(replay):
    run = replay(
        *many(calls=9, wait=0.0), agents=4, duration_s=300.0, at=[(5.0, lambda driver: driver.stop("engine_gone"))]
    )
    assert run.phases["done"] == 5.0
    assert [s[1:] for s in run.statuses() if s[1] != "completed"] == [("failed", "engine_gone")] * 4
    assert run.summary.failures == {"engine_gone": 4}
    assert run.summary.calls_cut == 0


def test_a_server_that_refuses_everything_is_given_up(replay):
    run = replay(*many(), answer=lambda _: Answer(failure=Failure.SERVER_DISCONNECTED), agents=3, duration_s=300.0)
    assert run.driver.stopped == "failures"
    assert len(run.ends) == 6
    assert run.phases["done"] < 3


# -- stops


@pytest.mark.parametrize(
    ("when", "phase"),
    [(0.0, "warmup"), (0.3, "warmup"), (3.0, "warmup"), (8.0, "steady"), (26.0, "draining")],
)
def test_a_stop_keeps_what_was_measured_and_opens_no_window(replay, when, phase):
    ends = {"duration_s": 20.0} if phase != "draining" else {"sessions": 8}
    run = replay(
        *many(),
        agents=3,
        ramp_s=3.0,
        warmup=Warmup(calls=2),
        at=[(when, lambda driver: driver.stop("interrupted"))],
        **ends,
    )
    phases = [e.phase for e in run.of(ev.Phase)]
    assert phases == ["warmup", *(["steady"] if phase != "warmup" else []), "draining", "done"]
    assert run.phases["done"] == when
    started, ended = run.of(ev.SessionStart), run.of(ev.SessionEnd)
    assert sorted(e.session for e in started) == sorted(e.session for e in ended)
    assert sorted(e.request_id for e in run.of(ev.CallStart)) == sorted(e.request_id for e in run.ends)
    assert {e.reason for e in ended if e.status != "completed"} <= {"interrupted"}
    assert len(run.of(ev.WaitStart)) == len(run.of(ev.WaitEnd))
    assert (run.driver.live, run.driver.active, run.client.in_flight) == ({}, [], 0)
    measured = 0.0 if phase == "warmup" else run.phases["draining"] - run.phases["steady"]
    assert run.summary.window_s == pytest.approx(measured)


def test_a_stop_before_the_first_lane_starts_nobody(replay, monkeypatch):
    from windtunnel.simulator.run.driver import Driver

    begin = Driver.run

    async def stopped(self):
        self.stop("interrupted")
        await begin(self)

    monkeypatch.setattr(Driver, "run", stopped)
    run = replay(*many(), agents=3, duration_s=20.0)
    assert run.of(ev.SessionStart) == []
    assert run.phases["done"] == 0.0


def test_a_second_stop_changes_nothing(replay):
    def twice(driver):
        driver.stop("interrupted")
        driver.stop("engine_gone")

    run = replay(*many(), agents=2, duration_s=20.0, at=[(3.0, twice)])
    assert run.driver.stopped == "interrupted"
    assert {s[2] for s in run.statuses()} == {"interrupted"}


def test_a_stop_after_the_last_call_changes_nothing(replay, monkeypatch):
    from windtunnel.simulator.run.driver import Driver

    begin = Driver.run

    async def ended(self):
        await begin(self)
        self.stop("interrupted")  # while the engine's last counts are waited for

    monkeypatch.setattr(Driver, "run", ended)
    run = replay(*many(), agents=3, sessions=4)
    assert run.driver.stopped is None
    assert {s[1] for s in run.statuses()} == {"completed"}


@pytest.mark.parametrize("passes", range(12))
def test_a_failure_and_a_stop_in_the_same_moment_lose_no_end(replay, passes):
    """Sub-agents are being called off while the run is stopped, some turns of the loop apart: every start has its end."""

    def soon(driver):
        loop = asyncio.get_running_loop()
        left = passes

        def turn():
            nonlocal left
            left -= 1
            if left < 0:
                driver.stop("engine_gone")
            else:
                loop.call_soon(turn)

        turn()

    failed = 0.69 + 0.1 + 0.2
    run = replay(parallel(subs=4), answer=failing(2, fails_s=0.2), agents=1, duration_s=60.0, at=[(failed, soon)])
    assert run.phases["done"] == failed
    assert [s[1] for s in run.statuses()] == ["failed"]
    assert sorted(e.request_id for e in run.of(ev.CallStart)) == sorted(e.request_id for e in run.ends)


def test_an_error_of_ours_ends_the_run_at_once_and_is_raised(replay):
    def wrong(asked):
        if asked.number == 5:
            raise ZeroDivisionError("a bug")
        return Answer()

    with pytest.raises(ZeroDivisionError, match="a bug"):
        replay(*many(), answer=wrong, agents=3, duration_s=300.0)


def test_progress_comes_every_quarter_second_for_all_agents_together(replay):
    run = replay(*many(), agents=5, duration_s=10.0)
    times = [e.t for e in run.of(ev.Progress)]
    assert {b - a for a, b in pairwise(times[:-1])} == {NS // 4}
    totals = [e.output_tokens for e in run.of(ev.Progress)]
    assert totals == sorted(totals)
    assert totals[-1] == sum(sum(e.chunks.n) for e in run.ends) == run.client.generated_tokens
