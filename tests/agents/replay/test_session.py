import random
from pathlib import Path

import pytest

from windtunnel.agents.policy import Dial, Policy
from windtunnel.agents.session import (
    AbortCalls,
    Begin,
    CallEnded,
    EndWait,
    Finish,
    SendCall,
    StartWait,
    Stop,
    WaitOver,
    advance,
    make_plan,
    start,
)
from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Trace

RECORDED = Policy(pace="recorded")


def plan_of(trace: Trace, policy: Policy = RECORDED, spread: bool = False, seed: int = 0):
    return make_plan(trace, policy, random.Random(seed), spread)


def linear(build, calls: int = 3):
    """One thread; before every later call the tools take 2 s and the human 5 s."""
    base = None
    for turn in range(calls):
        base = build.call([build.message("user", 100)], base=base, completion=50)
        if turn:
            build.wait(base, "tool", 2.0, "Bash")
            build.wait(base, "human", 5.0)
    return build.trace()


def test_a_session_goes_call_wait_call(build):
    state = start(plan_of(linear(build, 2)))
    state, actions = advance(state, Begin())
    assert actions == (SendCall(0, 0),)
    assert state.calls_in_flight == ((0, 0),)
    state, actions = advance(state, CallEnded(0, 0, ok=True))
    assert actions == (StartWait(0, 1, "tool", 2.0, 2.0, "Bash"),)
    state, actions = advance(state, WaitOver(0, 1))
    assert actions == (StartWait(0, 1, "human", 5.0, 5.0),)
    state, actions = advance(state, WaitOver(0, 1))
    assert actions == (SendCall(0, 1),)
    state, actions = advance(state, CallEnded(0, 1, ok=True))
    assert actions == (Finish("completed"),)
    assert advance(state, WaitOver(0, 1)) == (state, ())


def test_without_waiting_the_next_call_follows_at_once(build):
    state, _ = advance(start(plan_of(linear(build), Policy(pace="none"))), Begin())
    for call in (0, 1):
        state, actions = advance(state, CallEnded(0, call, ok=True))
        assert actions == (SendCall(0, call + 1),)


def with_agents(build):
    """Call 0 starts two agents; the parent's call 1 joins the first; the second runs on beside call 2."""
    first = build.call([build.message("user", 10)], completion=5)
    one = build.thread(spawn_call=first, spawn_delay_s=3.0, name="tester")
    two = build.thread(spawn_call=first, name="reader")
    own = [build.call([build.message("user", 10)], thread=t, completion=5) for t in (one, two)]
    joined = build.call([build.message("user", 10)], base=first, completion=5, joins=(one,))
    build.wait(joined, "tool", 1.0, "Task")
    build.wait(joined, "subagent", 60.0)
    last = build.call([build.message("user", 10)], base=joined, completion=5)
    return build.trace(), (first, *own, joined, last)


def test_sub_agents_run_beside_their_parent_and_join(build):
    trace, (first, one, two, joined, last) = with_agents(build)
    state, actions = advance(start(plan_of(trace)), Begin())
    state, actions = advance(state, CallEnded(0, first, ok=True))
    assert actions == (
        StartWait(1, one, "client", 3.0, 3.0),
        SendCall(2, two),
        StartWait(0, joined, "tool", 1.0, 1.0, "Task"),
    )
    state, actions = advance(state, WaitOver(0, joined))
    assert actions == (StartWait(0, joined, "subagent", None, 60.0, "tester"),)
    state, actions = advance(state, WaitOver(1, one))
    assert actions == (SendCall(1, one),)
    state, actions = advance(state, CallEnded(1, one, ok=True))
    assert actions == (EndWait(0, joined, "subagent"), SendCall(0, joined))
    state, actions = advance(state, CallEnded(0, joined, ok=True))
    assert actions == (SendCall(0, last),)
    state, actions = advance(state, CallEnded(0, last, ok=True))
    assert actions == ()
    assert state.calls_in_flight == ((2, two),)
    state, actions = advance(state, CallEnded(2, two, ok=True))
    assert actions == (Finish("completed"),)


def test_a_join_of_agents_that_have_ended_is_no_wait(build):
    trace, (first, one, two, joined, _) = with_agents(build)
    state, _ = advance(start(plan_of(trace, Policy(pace="none"))), Begin())
    state, _ = advance(state, CallEnded(0, first, ok=True))
    state, actions = advance(state, CallEnded(1, one, ok=True))
    assert EndWait(0, joined, "subagent") in actions
    state, actions = advance(state, CallEnded(2, two, ok=True))
    assert actions == ()


def test_a_failed_call_fails_the_session_and_calls_off_the_others(build):
    trace, (first, one, two, *_) = with_agents(build)
    state, _ = advance(start(plan_of(trace, Policy(pace="none"))), Begin())
    state, _ = advance(state, CallEnded(0, first, ok=True))
    state, actions = advance(state, CallEnded(1, one, ok=False, reason="http_500"))
    assert actions == (AbortCalls(((1, one), (2, two))), Finish("failed", "http_500")) or actions == (
        AbortCalls(((2, two),)),
        Finish("failed", "http_500"),
    )
    assert advance(state, CallEnded(2, two, ok=False)) == (state, ())


def test_a_stopped_session_is_cut(build):
    state, _ = advance(start(plan_of(linear(build))), Begin())
    state, actions = advance(state, Stop("cut", "duration"))
    assert actions == (AbortCalls(((0, 0),)), Finish("cut", "duration"))
    assert state.outcome == "cut"


def test_inputs_that_cannot_be_are_refused(build):
    state = start(plan_of(linear(build)))
    with pytest.raises(ValueError, match="call 0 of thread 0 is not sending"):
        advance(state, CallEnded(0, 0, ok=True))
    state, _ = advance(state, Begin())
    with pytest.raises(ValueError, match="begun already"):
        advance(state, Begin())
    with pytest.raises(ValueError, match="call 1 of thread 0 is not sending"):
        advance(state, CallEnded(0, 1, ok=True))
    with pytest.raises(ValueError, match="no thread 7"):
        advance(state, WaitOver(7, 0))


def test_the_work_of_a_plan_is_its_share_of_the_tokens(build):
    trace = linear(build, 4)
    plan = plan_of(trace)
    # prompts 100, 200, 300, 400 and 50 generated by each
    assert plan.work == 1.0
    assert [plan.work_of(c) for c in range(4)] == [150 / 1200, 250 / 1200, 350 / 1200, 450 / 1200]
    assert (plan.calls_total, plan.turns_total, plan.first_turn) == (4, 4, 0)
    assert plan.turn_of(2) == (3, 4)
    assert plan.wait_seconds == 21.0


class Always:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize(("drawn", "first"), [(0.0, 10), (0.5, 20), (0.999, 29)])
def test_spread_enters_between_a_quarter_and_three_quarters(build, drawn, first):
    trace = linear(build, 40)
    plan = make_plan(trace, RECORDED, Always(drawn), spread=True)
    assert plan.first_turn == first
    assert plan.order[0] == tuple(range(first, 40))
    assert (plan.calls_total, plan.turns_total) == (40 - first, 40)
    assert plan.turn_of(first) == (first + 1, 40)
    assert first not in plan.waits
    assert first + 1 in plan.waits
    assert 0 < plan.work < 1
    assert make_plan(trace, Policy(start="spread"), Always(drawn)).first_turn == first


def test_agents_spawned_before_the_start_point_have_ended(build):
    trace, (_, _, _, joined, last) = with_agents(build)
    plan = make_plan(trace, RECORDED, Always(0.5), spread=True)
    assert plan.order == ((joined, last), (), ())
    assert plan.joins == {}
    _, actions = advance(start(plan), Begin())
    assert actions == (SendCall(0, joined),)


def test_what_an_ended_agent_spawned_has_ended_too(build):
    first = build.call([build.message("user", 10)])
    child = build.thread(spawn_call=first)
    call = build.call([build.message("user", 10)], thread=child)
    grandchild = build.thread(parent=child, spawn_call=call)
    build.call([build.message("user", 10)], thread=grandchild)
    build.call([build.message("user", 10)], base=first)
    plan = make_plan(build.trace(), RECORDED, Always(0.5), spread=True)
    assert plan.order == ((3,), (), ())


def test_a_recording_that_waits_for_itself_is_untangled(build):
    first = build.call([build.message("user", 10)])
    child = build.thread(spawn_call=None)
    own = build.call([build.message("user", 10)], thread=child)
    never = build.thread(spawn_call=None)
    knot = build.call([build.message("user", 10)], thread=never)
    build.threads[child] = type(build.threads[child])(child, 0, spawn_call=first)
    build.threads[never] = type(build.threads[never])(never, 0, spawn_call=knot)
    build.calls[first] = type(build.calls[first])(first, 0, build.calls[first].append, joins=(child,))
    plan = plan_of(build.trace())
    assert sorted(drive(plan, random.Random(1))) == [first, own, knot]
    assert plan.joins == {}
    assert plan.roots == (0, never)


def test_filled_waits_are_counted(build):
    first = build.call([build.message("user", 10)])
    second = build.call([build.message("user", 10)], base=first)
    build.wait(second, "tool", None, "Read")
    plan = plan_of(build.trace())
    assert plan.filled_waits == 1
    assert plan.waits[second][0].seconds == 0.05


def drive(plan, rng: random.Random) -> list[int]:
    """Runs a session with made-up durations; checks order, waits and joins; returns the calls in order of sending."""
    trace = plan.trace
    state, actions = advance(start(plan), Begin())
    pending: list[tuple[float, int, object]] = []
    sent: list[int] = []
    ended: dict[int, float] = {}
    waited: dict[int, float] = {}
    joining: set[int] = set()
    now, tick = 0.0, 0
    finished = None
    last_of = {thread: calls[-1] for thread, calls in enumerate(plan.order) if calls}
    before = {c: p for calls in plan.order for p, c in zip((None, *calls), calls, strict=False)}
    origin = {t.id: t.spawn_call for t in trace.threads}
    while True:
        for action in actions:
            assert finished is None
            tick += 1
            if isinstance(action, SendCall):
                assert action.call not in sent
                assert trace.calls[action.call].thread == action.thread
                assert action.call not in joining
                for thread in plan.joins.get(action.call, ()):
                    assert last_of[thread] in ended
                due = sum(w.seconds or 0.0 for w in plan.waits.get(action.call, ()))
                assert waited.get(action.call, 0.0) == pytest.approx(due)
                previous = before[action.call]
                since = (
                    ended[previous]
                    if previous is not None
                    else ended.get(origin[action.thread] if action.thread not in plan.roots else -1, 0.0)
                )
                assert now + 1e-9 >= since + due
                sent.append(action.call)
                pending.append((now + rng.uniform(0.1, 9.0), tick, CallEnded(action.thread, action.call, ok=True)))
            elif isinstance(action, StartWait) and action.seconds is not None:
                assert action.seconds > 0
                waited[action.call] = waited.get(action.call, 0.0) + action.seconds
                pending.append((now + action.seconds, tick, WaitOver(action.thread, action.call)))
            elif isinstance(action, StartWait):
                joining.add(action.call)
            elif isinstance(action, EndWait):
                joining.remove(action.call)
            else:
                finished = action
        if not pending:
            break
        pending.sort(key=lambda p: p[:2])
        now, _, given = pending.pop(0)
        if isinstance(given, CallEnded):
            ended[given.call] = now
        state, actions = advance(state, given)
    assert finished == Finish("completed")
    assert sorted(sent) == sorted(c for calls in plan.order for c in calls)
    return sent


POLICIES = [
    Policy(),
    Policy(pace="recorded", tool_time=Dial("scale", 0.5)),
    Policy(pace="none"),
    Policy(pace="typical", start="spread", per_tool={"Bash": Dial("cap", 1.0)}),
]


@pytest.mark.parametrize("policy", POLICIES, ids=["busy", "recorded", "none", "spread"])
def test_library_sessions_run_to_their_end(policy):
    names = library.names()
    if not names:
        pytest.skip("the bundled library is not there")
    for number, name in enumerate(names):
        for trace in read_trace(Path(library.path(name))).traces:
            rng = random.Random(number)
            plan = make_plan(trace, policy, rng)
            sent = drive(plan, rng)
            if policy.start == "fresh":
                assert len(sent) == len(trace.calls)
                assert plan.work == pytest.approx(1.0)
            else:
                assert (
                    plan.turns_total == 1 or 0.25 <= plan.first_turn / plan.turns_total <= 0.75 or plan.turns_total < 4
                )


SHARED = Path(__file__).parents[4] / "shared" / "traces"


def test_real_sessions_run_to_their_end():
    if not SHARED.exists():
        pytest.skip("no recorded sessions beside the repository (../shared/traces)")
    from windtunnel.traces.importers import claude_code

    found = 0
    for path in sorted((SHARED / "claude-code").glob("*.jsonl"), key=lambda p: p.stat().st_size)[:12]:
        for trace in claude_code.read(path).traces:
            for policy in POLICIES:
                drive(make_plan(trace, policy, random.Random(found)), random.Random(found))
            found += 1
    assert found > 5
