import pytest

from windtunnel.agents.policy import (
    Dial,
    Policy,
    Replayed,
    UsualTimes,
    parse_dial,
    replayed_gap,
    replayed_wait,
    usual_times,
)
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import ToolRun, Trace, Wait


@pytest.mark.parametrize(
    ("text", "dial", "of_20"),
    [
        ("recorded", Dial("recorded"), 20.0),
        ("none", Dial("none"), 0.0),
        ("x2", Dial("scale", 2.0), 40.0),
        ("x0.5", Dial("scale", 0.5), 10.0),
        (" x.5 ", Dial("scale", 0.5), 10.0),
        ("<=10", Dial("cap", 10.0), 10.0),
        ("<=2.5s", Dial("cap", 2.5), 2.5),
        ("<=60", Dial("cap", 60.0), 20.0),
    ],
)
def test_a_dial_is_what_its_text_says(text, dial, of_20):
    assert parse_dial(text) == dial
    assert dial.apply(20.0) == of_20
    assert parse_dial(str(dial)) == dial


@pytest.mark.parametrize("text", ["", "2", "x", "x-1", "<10", "<=", "fast", "x2x", "x1e3"])
def test_anything_else_is_wrong_use_said_in_one_sentence(text):
    with pytest.raises(UsageError, match="write recorded, none, a factor such as x2, or a cap such as <=10") as error:
        parse_dial(text)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


def gap(policy, *waits, usual=None):
    usual = usual or UsualTimes()
    return [r.seconds for r in replayed_gap(policy, [Wait(0, *w) for w in waits], usual)]


@pytest.mark.parametrize(("pace", "seconds"), [("busy", 10.0), ("typical", 60.0), ("recorded", 300.0), ("none", 0.0)])
def test_the_pace_caps_every_cause(pace, seconds):
    for cause in ("tool", "human", "client"):
        assert gap(Policy(pace=pace), (cause, 300.0)) == [seconds]


def test_the_pace_caps_the_whole_gap_before_a_call():
    assert gap(Policy(), ("tool", 8.0), ("human", 30.0), ("client", 1.0)) == [8.0, 2.0, 0.0]
    assert sum(gap(Policy(pace="typical"), ("tool", 8.0), ("human", 30.0), ("client", 1.0))) == 39.0


def test_a_dial_overrides_the_pace_for_its_cause_only():
    policy = Policy(pace="busy", tool_time=Dial("recorded"), human_time=Dial("scale", 0.1))
    assert gap(policy, ("tool", 40.0), ("human", 30.0), ("client", 15.0)) == [40.0, 3.0, 10.0]


def test_a_tools_own_dial_comes_before_the_tool_dial_and_the_pace():
    policy = Policy(tool_time=Dial("none"), per_tool={"Bash": Dial("scale", 2.0)})
    assert gap(policy, ("tool", 40.0, ("Bash",))) == [80.0]
    assert gap(policy, ("tool", 40.0, ("Read",))) == [0.0]


def test_parallel_tools_last_as_long_as_the_slowest_of_them():
    policy = Policy(pace="recorded", per_tool={"Bash": Dial("none")})
    wait = Wait(0, "tool", 40.0, ("Bash", "Read"))
    assert replayed_wait(policy, wait, UsualTimes()).seconds == 40.0
    assert replayed_wait(policy, wait, UsualTimes(), runs(("Bash", 1, 41), ("Read", 1, 1.5))).seconds == 0.5


def runs(*of):
    return [ToolRun(0, str(at), name, start, end) for at, (name, start, end) in enumerate(of)]


ONE_AFTER_THE_OTHER = runs(("Bash", 1, 6), ("Bash", 6, 11))
MIXED = runs(("Bash", 1, 9), ("Read", 9, 11))
STAGGERED = runs(("Bash", 1, 6), ("Read", 2, 11))
TOUCHING = runs(("Bash", 1, 6.01), ("Read", 6, 11))
APART = runs(("Bash", 1, 5), ("Read", 35, 39))


@pytest.mark.parametrize(
    ("before", "dial", "seconds"),
    [
        (ONE_AFTER_THE_OTHER, "x2", 20.0),
        (ONE_AFTER_THE_OTHER, "x1", 10.0),
        (ONE_AFTER_THE_OTHER, "recorded", 10.0),
        (ONE_AFTER_THE_OTHER, "<=2", 4.0),
        (ONE_AFTER_THE_OTHER, "none", 0.0),
        (MIXED, "recorded", 10.0),
        (MIXED, "x2", 18.0),
        (MIXED, "none", 2.0),
        (STAGGERED, "x1", 10.0),
        (STAGGERED, "none", 9.0),
        (STAGGERED, "x3", 15.0),
        (TOUCHING, "x1", 10.0),
        (TOUCHING, "x2", 15.01),
        (APART, "x1", 10.0),  # idle between them: the wait's 10 s are of both alike
        (APART, "none", 5.0),
    ],
)
def test_tools_that_ran_one_after_the_other_still_do_under_a_dial_of_one_of_them(before, dial, seconds):
    policy = Policy(pace="recorded", per_tool={"Bash": parse_dial(dial)})
    wait = Wait(0, "tool", 10.0, tuple(dict.fromkeys(run.name for run in before)))
    found = replayed_wait(policy, wait, UsualTimes(), before).seconds
    if dial in ("x1", "recorded"):
        assert found == seconds
    assert found == pytest.approx(seconds)


def test_the_pace_caps_all_that_no_dial_decides_about_together():
    policy = Policy(per_tool={"Bash": Dial("recorded")})
    wait = Wait(0, "tool", 28.0, ("Bash", "Read"))
    before = runs(("Bash", 0, 1), ("Read", 1, 10), ("Read", 10, 19), ("Read", 19, 28))
    assert replayed_wait(policy, wait, UsualTimes(), before).seconds == 11.0


def test_a_wait_of_unknown_length_is_made_of_its_tools_usual_times():
    usual = UsualTimes({"Bash": 4.0, "Read": 1.0})
    for dial, seconds in (("none", 1.0), ("x1", 4.0), ("x2", 8.0)):
        policy = Policy(per_tool={"Bash": parse_dial(dial)})
        assert replayed_wait(policy, Wait(0, "tool", None, ("Bash", "Read")), usual) == Replayed(seconds, filled=True)


def test_unknown_waits_get_the_tools_usual_time_and_are_marked():
    usual = UsualTimes({"Bash": 4.0, "make": 25.0}, human=7.0)
    policy = Policy()
    known = replayed_wait(policy, Wait(0, "tool", 4.0, ("Bash",)), usual)
    assert (known.seconds, known.filled) == (4.0, False)
    for wait, seconds in [
        (Wait(0, "tool", None, ("Bash",)), 4.0),
        (Wait(0, "tool", None, ("Bash", "make")), 10.0),
        (Wait(0, "tool", None, ("Read",)), 0.05),
        (Wait(0, "tool", None, ("never-seen",)), 0.3),
        (Wait(0, "human", None), 7.0),
        (Wait(0, "client", None), 0.0),
    ]:
        filled = replayed_wait(policy, wait, usual)
        assert (filled.seconds, filled.filled) == (seconds, True)


def test_usual_times_are_medians_over_the_traces(build):
    trace = build.trace()
    runs = tuple(ToolRun(0, str(i), "Bash", 10.0, 10.0 + s) for i, s in enumerate((1.0, 2.0, 90.0)))
    waits = (Wait(0, "human", 5.0), Wait(0, "human", 9.0), Wait(0, "human", None))
    usual = usual_times([Trace(trace.header, tool_runs=runs, waits=waits)])
    assert usual.tools == {"Bash": 2.0}
    assert usual.human == 7.0
    assert usual_times([]).human == 84.0


def test_a_join_has_no_seconds_of_its_own():
    assert replayed_wait(Policy(pace="recorded"), Wait(0, "subagent", 500.0), UsualTimes()).seconds == 0.0
