"""The live view against the summary, and event by event."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from windtunnel.agents.events import (
    AgentProgress,
    CallEnd,
    CallStart,
    ClientSample,
    EngineSample,
    GpuSample,
    Note,
    Phase,
    Progress,
    RunEnd,
    RunStart,
    SessionEnd,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.lanes import STATES as LANE_STATES
from windtunnel.simulator.results.lines import decode_lines
from windtunnel.simulator.results.summary import summarise

NS = 1_000_000_000


def begin(t=0, agent=0, session="a", **more):
    fields = {"trace": "tr", "title": "claude/fix", "copy": 0, "calls_total": 8, "turns_total": 10, **more}
    return SessionStart(t=t * NS, agent=agent, session=session, **fields)


def call(t, agent=0, session="a", thread=0, call=0, **more):
    fields = {"turn": call + 1, "turns": 10, "request_id": f"{session}{call}", "expected_prompt_tokens": 1000, **more}
    return CallStart(
        t=int(t * NS), agent=agent, session=session, thread=thread, call=call, t_intended=int(t * NS), **fields
    )


def ended(t, sent, agent=0, session="a", thread=0, call=0, **more):
    fields = {
        "t_first": int((sent + 1) * NS),
        "t_last": int(t * NS),
        "t_end": int(t * NS),
        "prompt_tokens": 1000,
        "completion_tokens": 21,
        **more,
    }
    name = f"{session}{call}"
    base = {"agent": agent, "session": session, "thread": thread, "call": call, "request_id": name}
    return CallEnd(t=int(t * NS), t_intended=int(sent * NS), t_sent=int(sent * NS), **base, **fields)


def progress(t, *agents, out=0, prompt=0, **more):
    base = {"in_flight": 0, "in_tool": 0, "waiting": 0}
    return Progress(t=int(t * NS), output_tokens=out, prompt_tokens=prompt, agents=agents, **base, **more)


@pytest.fixture
def fold():
    fold = Fold()
    fold.apply(RunStart(t=0, agents=2, wall_clock=50.0))
    return fold


def test_counts_and_totals_equal_the_summary(busy):
    fold = Fold()
    fold.apply_all(busy.events())
    summary = summarise({}, busy.events())
    assert fold.output_tokens == summary.output_tokens
    assert fold.prompt_tokens == summary.prompt_tokens
    assert fold.cache.so_far.cached == summary.cached_tokens
    assert fold.sessions == {"started": 2, "completed": 1, "cut": 1}
    assert fold.calls == {"started": 4, "completed": 3, "cut": 1}
    assert (fold.ended, fold.status, fold.elapsed_s) == (True, "completed", summary.duration_s)
    assert fold.window == (10 * NS, 30 * NS)
    # The fold learns of a call when it is told; sent 0.5 s after its intention here, all else is exact.
    assert fold.trust.in_flight_mean == pytest.approx(summary.in_flight_mean)
    assert fold.trust.in_tool_s == pytest.approx(summary.in_tool_mean * 20)
    assert fold.trust.live_s == pytest.approx(summary.live_mean * 20)
    assert fold.trust.lag_p99_s == 0.0004
    assert fold.trust.cpu == pytest.approx(0.3)
    assert (fold.in_flight, fold.in_tool, fold.waiting, fold.live) == (0, 0, 0, 0)
    assert +fold.states == {"done": 1, "cut": 1}


def test_an_agent_through_a_turn(fold):
    assert [row.state for row in fold.rows] == ["idle", "idle"]
    fold.apply(begin())
    row = fold.rows[0]
    assert (row.state, row.title, row.turns, row.calls_total) == ("wait", "claude/fix", 10, 8)
    assert (fold.live, fold.waiting) == (1, 1)
    fold.apply(WaitStart(t=NS, agent=0, session="a", thread=0, call=0, cause="tool", seconds=3.0, label="Bash  pytest"))
    row = fold.rows[0]
    assert (row.state, row.tool, row.wait_planned_s, row.waited_s(2 * NS)) == ("tool", "Bash  pytest", 3.0, 1.0)
    assert (fold.in_tool, fold.waiting) == (1, 0)
    fold.apply(WaitEnd(t=4 * NS, agent=0, session="a", thread=0, call=0, cause="tool"))
    fold.apply(call(4))
    row = fold.rows[0]
    assert (row.state, row.turn, row.turns, row.context_tokens, row.tool) == ("prefill", 1, 10, 1000, "")
    assert (fold.in_flight, fold.in_tool) == (1, 0)
    fold.apply(progress(5, AgentProgress(0, 0, 0, "decode", 1, "I"), out=1))
    fold.apply(progress(6, AgentProgress(0, 0, 0, "decode", 11, "I will"), out=11))
    row = fold.rows[0]
    assert (row.state, row.since_t, row.tok_s, row.tail, row.context_tokens) == ("decode", 5 * NS, 10.0, "I will", 1011)
    assert fold.output_tokens == 11
    assert fold.output_per_s() == 10.0
    fold.apply(ended(7, 4, cached_tokens=800, expected_cached_tokens=900))
    row = fold.rows[0]
    assert (row.state, row.calls_done, row.cached_share, row.ttft_s) == ("wait", 1, 0.8, 1.0)
    assert (row.missed_cache, row.context_tokens, row.tok_s) == (False, 1021, None)
    assert row.trend == (10.0,)  # 20 tokens after the first in 2 s
    assert fold.output_tokens == 21
    line = fold.agents[0].calls[-1]
    assert (line.turn, line.waited_s, line.wait_label, line.missed_tokens) == (1, 3.0, "Bash  pytest", 100)
    starts, ends, ranks = fold.agents[0].lane.within(0, 7000, 7000, thread=0)
    told = zip(starts.tolist(), ends.tolist(), ranks.tolist(), strict=True)
    assert [(a, b, LANE_STATES[rank]) for a, b, rank in told] == [
        (1000, 4000, "tool"),
        (4000, 5000, "prefill"),
        (5000, 7000, "decode"),
    ]
    fold.apply(SessionEnd(t=8 * NS, agent=0, session="a", status="completed"))
    assert (fold.rows[0].state, fold.rows[0].sessions_done, fold.live) == ("done", 1, 0)
    fold.apply(begin(9, session="b"))
    assert (fold.rows[0].sessions_done, fold.rows[0].trend, fold.rows[0].calls_done) == (1, (10.0,), 0)


def test_every_change_of_a_row_raises_its_version(fold):
    versions = [fold.rows[0].version]
    for event in (
        begin(),
        call(1),
        progress(2, AgentProgress(0, 0, 0, "decode", 1)),
        ended(3, 1),
        begin(4, session="b"),
    ):
        fold.apply(event)
        versions.append(fold.rows[0].version)
    assert versions == sorted(set(versions))


def test_a_missed_cache_says_why(fold):
    fold.run = {"engine": {"kv_tokens": 1000}}
    fold.apply(begin())
    fold.apply(call(0))
    fold.apply(ended(2, 0, cached_tokens=0, expected_cached_tokens=800))
    assert (fold.rows[0].missed_cache, fold.rows[0].miss_cause) == (True, "unknown")
    fold.apply(call(73, call=1))
    fold.apply(ended(75, 73, call=1, cached_tokens=100, expected_cached_tokens=800))
    assert fold.rows[0].miss_cause == "evicted, 71 s gap"
    fold.apply(EngineSample(t=76 * NS, scrape_ms=1, preemptions=0))
    fold.apply(call(77, call=2))
    fold.apply(EngineSample(t=78 * NS, scrape_ms=1, preemptions=2))
    fold.apply(ended(79, 77, call=2, cached_tokens=100, expected_cached_tokens=800))
    assert fold.rows[0].miss_cause == "preempted"
    fold.apply(call(80, call=3))
    fold.apply(ended(81, 80, call=3, cached_tokens=790, expected_cached_tokens=800))
    assert (fold.rows[0].missed_cache, fold.rows[0].miss_cause) == (False, "")


def test_sub_agents_share_their_parents_row(fold):
    fold.apply(begin())
    fold.apply(WaitStart(t=0, agent=0, session="a", thread=0, call=5, cause="subagent", seconds=None))
    fold.apply(call(1, thread=2, call=1))
    fold.apply(call(1, thread=3, call=2))
    row = fold.rows[0]
    assert (row.thread_label, row.state, row.live_threads, fold.in_flight) == ("↳2", "prefill", 3, 2)
    fold.apply(progress(2, AgentProgress(0, 3, 2, "decode", 4)))
    assert (fold.rows[0].thread_label, fold.rows[0].state, fold.rows[0].call_tokens) == ("↳3", "decode", 4)
    fold.apply(ended(3, 1, thread=3, call=2))
    fold.apply(ended(3, 1, thread=2, call=1))
    row = fold.rows[0]
    assert (row.thread_label, row.state, row.wait_cause, fold.in_flight, fold.waiting) == ("", "wait", "subagent", 0, 1)


def test_a_queued_call_is_not_in_flight(fold):
    fold.apply(begin())
    fold.apply(call(0))
    fold.apply(progress(1, AgentProgress(0, 0, 0, "queue", 0)))
    assert (fold.rows[0].state, fold.in_flight, fold.waiting) == ("queue", 0, 1)
    fold.apply(progress(2, AgentProgress(0, 0, 0, "prefill", 0)))
    assert (fold.rows[0].state, fold.in_flight, fold.waiting) == ("prefill", 1, 0)


def test_failures(fold):
    fold.apply(begin())
    fold.apply(call(0))
    fold.apply(ended(1, 0, failure="http_500", detail="boom", completion_tokens=None, prompt_tokens=None, t_first=None))
    fold.apply(SessionEnd(t=NS, agent=0, session="a", status="failed", reason="http_500"))
    fold.apply(begin(1, agent=1, session="b"))
    fold.apply(SessionEnd(t=2 * NS, agent=1, session="b", status="failed", reason="engine_gone"))
    assert fold.failure_reasons == {"http_500": 1, "engine_gone": 1}
    assert [(f.agent, f.reason, f.detail) for f in fold.failures] == [(0, "http_500", "boom"), (1, "engine_gone", "")]
    assert (fold.rows[0].state, fold.rows[0].failure, fold.rows[1].failure) == ("failed", "http_500", "engine_gone")
    assert (fold.calls["failed"], fold.sessions["failed"]) == (1, 2)
    assert "failures" in fold.invalid_reasons()


def test_progress_of_a_call_that_ended_is_ignored(fold):
    fold.apply(begin())
    fold.apply(call(0))
    fold.apply(ended(3, 0))
    fold.apply(progress(3, AgentProgress(0, 0, 0, "decode", 15)))
    assert (fold.rows[0].state, fold.output_tokens) == ("wait", 21)


def test_speed_falls_to_nothing_when_progress_stops(fold):
    fold.apply(progress(1, out=0))
    fold.apply(progress(2, out=500))
    assert fold.output_per_s() == 500.0
    fold.apply(ClientSample(t=10 * NS, lag_us=(1,)))
    assert fold.output_per_s() == 0.0


def test_history_of_tokens_and_agents(fold):
    fold.apply(begin())
    fold.apply(call(0))
    for quarter in range(1, 13):
        fold.apply(progress(quarter / 4, out=quarter * 5, prompt=quarter * 100))
    fold.apply(ended(3, 0, cached_tokens=900))
    fold.apply(RunEnd(t=4 * NS, status="completed"))
    assert fold.series.rates("output")[1:3] == [20.0, 20.0]
    assert fold.series.rates("prompt")[1:3] == [400.0, 400.0]
    assert fold.series.rates("in_flight")[:3] == pytest.approx([1.0, 1.0, 1.0])
    assert fold.series.rates("waiting")[:4] == pytest.approx([0.0, 0.0, 0.0, 1.0])
    assert fold.series.shares("cached", "known_prompt")[:2] == [None, 0.9]


def test_history_without_progress_events_is_made_of_ended_calls(fold):
    fold.apply(begin())
    fold.apply(call(0))
    fold.apply(ended(4, 1))
    assert sum(fold.series.rates("output")[:4]) == pytest.approx(21)


def test_engine_strip(fold):
    fold.apply(EngineSample(t=0, scrape_ms=1, running=1, kv_usage=0.1, preemptions=4, prefix_queries=0, prefix_hits=0))
    fold.apply(Phase(t=NS, phase="steady"))
    fold.apply(
        EngineSample(
            t=NS, scrape_ms=1, preemptions=5, prefix_queries=100, prefix_hits=0, spec_drafts=0, spec_accepted=0
        )
    )
    fold.apply(
        EngineSample(
            t=2 * NS, scrape_ms=1, running=9, kv_usage=0.5, preemptions=7, prefix_queries=300, prefix_hits=150,
            spec_drafts=10, spec_accepted=11,
        )
    )  # fmt: skip
    engine = fold.engine
    assert (engine.latest.running, engine.latest.kv_usage) == (9, 0.5)
    assert (engine.preemptions, engine.hit_ratio, engine.acceptance_length) == (3, 0.75, 2.1)
    fold.apply(GpuSample(t=3 * NS, index=1, power_w=500.0))
    assert engine.gpus[1].power_w == 500.0


def test_validity_as_the_run_goes(fold):
    assert fold.invalid_reasons() == ()
    fold.apply(ClientSample(t=0, lag_us=(9000,) * 10, cpu=0.99))
    assert fold.invalid_reasons() == ()  # before the window nothing counts
    fold.apply(begin())
    fold.apply(begin(agent=1, session="b"))
    fold.apply(Phase(t=NS, phase="steady"))
    assert fold.invalid_reasons() == ()
    fold.apply(ClientSample(t=2 * NS, lag_us=(9000,) * 10, cpu=0.99))
    assert fold.invalid_reasons() == ("client_lag", "client_cpu")
    fold.apply(GpuSample(t=2 * NS, index=0, throttle=("hw_thermal_slowdown",), other_processes=1))
    fold.apply(Note(t=3 * NS, level="warning", text="compiling", reason="compilation"))
    fold.apply(SessionEnd(t=3 * NS, agent=1, session="b", status="completed"))
    fold.apply(Phase(t=30 * NS, phase="draining"))
    fold.apply(ClientSample(t=31 * NS, lag_us=(1,) * 10000, cpu=0.0))  # after it neither
    assert fold.invalid_reasons() == (
        "client_lag", "client_cpu", "agents_missing", "gpu_throttling", "other_gpu_process", "compilation",
    )  # fmt: skip


def test_a_warm_cache_is_noticed(fold):
    fold.apply(begin())
    fold.apply(call(0))
    fold.apply(ended(3, 0, cached_tokens=500))
    assert fold.invalid_reasons() == ("isolation_not_verified",)


def test_a_run_that_ends_without_a_window_is_not_valid(fold):
    fold.apply(RunEnd(t=NS, status="failed", reason="engine_gone"))
    assert fold.invalid_reasons() == ("engine_gone", "run_failed", "no_steady_state")


def test_memory_is_bounded(fold):
    fold.apply(begin())
    for i in range(3000):
        fold.apply(call(i, call=i))
        fold.apply(progress(i + 0.5, AgentProgress(0, 0, i, "decode", 3), out=i * 21))
        fold.apply(ended(i + 0.9, i, call=i, failure="x"))
    assert len(fold.series) <= 1200
    assert len(fold.agents[0].calls) == 2048
    assert len(fold.failures) == 200
    assert len(fold._speed) < 50
    assert len(fold.trust._herd) <= 3
    # What was halved is still all there.
    assert sum(fold.series.rates("output")) * fold.series.step_s == pytest.approx(2999 * 21, rel=0.01)


def test_estimates_are_told_apart_from_counts(fold):
    """A row is marked while its call's count is an estimate; the end of the call brings the true one."""
    fold.apply(begin())
    fold.apply(begin(agent=1, session="b"))
    fold.apply(call(0))
    fold.apply(call(0, agent=1, session="b"))
    guess, known = AgentProgress(0, 0, 0, "decode", 5, "", False), AgentProgress(1, 0, 0, "decode", 7)
    fold.apply(progress(1.5, guess, known, out=12, parsed=False))
    assert ([row.exact for row in fold.rows], fold.approximate) == ([False, True], True)
    fold.apply(ended(2, 0))
    fold.apply(progress(2.25, known, out=28))
    assert ([row.exact for row in fold.rows], fold.approximate) == ([True, True], False)


@pytest.mark.parametrize("apart", [0.25, 1.0])
def test_a_first_token_is_worked_out_between_looks_however_far_apart(fold, apart):
    """21 tokens at the first look and 50 a second: the first came 0.4 s before, or at the look before where that is later."""
    fold.apply(begin())
    fold.apply(call(0))
    for k, tokens in enumerate((0, 21, 21 + round(50 * apart))):
        state = "decode" if tokens else "prefill"
        fold.apply(progress(2 + k * apart, AgentProgress(0, 0, 0, state, tokens, "", True), out=tokens))
    first = 2 + apart - min(apart, 20 / 50)
    assert fold.rows[0].first_t == pytest.approx(first * NS, rel=0.02)


def test_a_row_is_the_same_however_often_it_was_looked_at():
    kept = Path(__file__).parent.parent / "virtual" / "golden" / "preemption.jsonl"
    events = decode_lines(kept.read_bytes(), kept.name, 1, [])
    watched, at_last = Fold(), Fold()
    seen = set()
    for event in events:
        watched.apply(event)
        seen.update((row.agent, row.call_tokens) for row in watched.rows)
        at_last.apply(event)
        assert watched.output_tokens == at_last.output_tokens
    assert len(seen) > 10
    assert [replace(row, version=0) for row in watched.rows] == [replace(row, version=0) for row in at_last.rows]


def test_of_few_agents_more_calls_are_kept():
    kept = []
    for agents in (0, 1, 32, 1000):
        fold = Fold()
        fold.apply(RunStart(t=0, agents=agents, wall_clock=0.0))
        fold.apply(begin())
        kept.append(fold.agents[0].calls.maxlen)
    assert kept == [2048, 2048, 1024, 128]


def test_the_sessions_of_an_agent_are_known(fold):
    fold.apply(begin(1))
    fold.apply(SessionEnd(t=5 * NS, agent=0, session="a", status="failed", reason="http_500"))
    fold.apply(begin(6, session="b", title="codex/bench"))
    agent = fold.agents[0]
    assert [(s.session, s.state, s.since // NS, s.until // NS) for s in agent.sessions] == [("a", "failed", 1, 6)]
    assert (agent.present.session, agent.present.title, agent.present.until) == ("b", "codex/bench", None)


def test_the_waits_before_a_call_are_told_with_what_was_recorded(fold):
    fold.apply(begin())
    common = {"agent": 0, "session": "a", "thread": 0, "call": 0}
    fold.apply(WaitStart(t=0, cause="tool", seconds=3.0, recorded_s=14.0, label="Bash", **common))
    fold.apply(WaitEnd(t=3 * NS, cause="tool", **common))
    fold.apply(WaitStart(t=3 * NS, cause="human", seconds=2.0, **common))
    fold.apply(WaitEnd(t=5 * NS, cause="human", **common))
    fold.apply(call(5))
    fold.apply(ended(7, 5))
    line = fold.agents[0].calls[-1]
    assert [(w.cause, w.label, w.seconds, w.recorded_s) for w in line.waits] == [
        ("tool", "Bash", 3.0, 14.0),
        ("human", "", 2.0, None),
    ]
    assert (line.waited_s, line.wait_label) == (5.0, "human")
    again = line.event(0, "a")
    assert (again.t_sent, again.t_end, again.prompt_tokens) == (5 * NS, 7 * NS, line.prompt_tokens)
