import pytest
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.check import contradictions, faults
from windtunnel.traces.errors import TraceError
from windtunnel.traces.format import encode_trace, read_trace
from windtunnel.traces.habits import learn
from windtunnel.traces.model import ToolRun
from windtunnel.traces.profile import profile
from windtunnel.traces.resample import met, resample
from windtunnel.traces.sources import load

NAMES = (*library.SMALL, "review-patch", "speed-up-query", "flaky-test", "parse-dates", "dark-theme")
GIVEN = [read_trace(library.path(n)).traces[0] for n in NAMES]
MADE = resample(GIVEN, 200, seed=3)


def near(made, given, bound):
    return pytest.approx(given, rel=bound) == made


def test_what_is_learned_of_a_small_session(small):
    (habit,) = learn([small])
    main, sub = habit.threads[0], habit.threads[1]
    assert (main.schemas, main.system, main.opening, main.peak, len(main.turns)) == (100, (50, 0), 20, 332, 3)
    assert (sub.schemas, sub.opening, sub.peak, sub.joined_after) == (0, 40, 40, 1)
    first = main.turns[0]
    assert first.kept == (12, 0)
    assert [(t.name, t.arguments, t.result, t.seconds, t.error, t.spawns) for t in first.tools] == [
        ("Read", 8, 100, pytest.approx(0.1), True, None),
        ("Task", 8, 9, None, False, 1),
    ]
    assert (first.added, first.starts, first.output, first.reasoning, first.took_s) == (0, (1,), 28, 12, 2.0)
    assert first.waits == (("tool", 0.1), ("client", 0.3))
    assert main.turns[1].waits == (("human", None),)
    assert (main.turns[1].added, main.turns[2].compaction) == (20, True)


def test_names_of_their_own_are_numbered(small):
    own = replace(
        small.messages[2], tool_calls=tuple(replace(c, name="billing_lookup") for c in small.messages[2].tool_calls)
    )
    header = replace(small.header, agent="acme-internal-bot", models=("acme-secret-finetune",))
    calls = tuple(replace(c, model="acme-secret-finetune", stop="billing quota of the team") for c in small.calls)
    messages = (*small.messages[:2], own, *small.messages[3:])
    runs = tuple(
        ToolRun(r.call, r.tool_call_id, "billing_lookup", r.start_s, r.end_s, r.thread) for r in small.tool_runs
    )
    sets = tuple(replace(t, names=("billing_lookup",)) for t in small.toolsets)
    private = replace(small, header=header, calls=calls, messages=messages, tool_runs=runs, toolsets=sets)
    data = b"".join(encode_trace(t) for t in resample([private], 3, 1))
    assert b"billing" not in data
    assert b"acme" not in data
    assert b"tool-1" in data
    assert b"fix it" not in data
    assert not any(b.digest.encode() in data for b in small.blocks)


def test_made_sessions_are_sound_and_nobody_s():
    for trace in MADE:
        assert faults(trace) == []
        assert contradictions(trace) == []
        assert trace.header.synthetic
        assert trace.header.shape_only
        assert all(b.text is None for b in trace.blocks)
    assert len({t.header.id for t in MADE}) == 200
    given = {b.digest for t in GIVEN for b in t.blocks}
    assert not given & {b.digest for t in MADE for b in t.blocks}


def test_the_same_seed_makes_the_same_and_another_does_not():
    again = resample(GIVEN, 4, seed=3)
    assert [encode_trace(t) for t in again] == [encode_trace(t) for t in MADE[:4]]
    assert encode_trace(resample(GIVEN, 1, seed=4)[0]) != encode_trace(MADE[0])


def test_two_hundred_made_sessions_are_like_the_given_ones():
    """Sizes within 10%, 15% at their 90th percentile; times within 20%; how often things happen within 10%."""
    given, made = profile(GIVEN), profile(MADE)
    for name in ("turns", "first_prompt", "peak_prompt", "prompt", "growth", "output"):
        a, b = given.spreads[name], made.spreads[name]
        assert near(b.p50, a.p50, 0.1), name
        assert near(b.p90, a.p90, 0.15), name
        assert near(b.mean, a.mean, 0.1), name
    for name in ("call_s", "first_token_s", "tool_s", "human_s"):
        a, b = given.spreads[name], made.spreads[name]
        assert near(b.p50, a.p50, 0.2), name
        assert near(b.p90, a.p90, 0.25), name
    for name in ("calls", "human_waits", "subagents", "subagent_calls"):
        assert near(getattr(made, name) / 200, getattr(given, name) / len(GIVEN), 0.1), name
    assert near(made.cached_share, given.cached_share, 0.01)
    assert near(made.reused_share, given.reused_share, 0.01)
    for a, b in zip(given.duty, made.duty, strict=True):
        assert near(b.duty_cycle, a.duty_cycle, 0.1)


def test_tools_are_as_frequent_and_as_slow():
    given, made = profile(GIVEN), profile(MADE)
    runs = sum(t.runs for t in given.tools), sum(t.runs for t in made.tools)
    got = {t.name: t for t in made.tools}
    common = [t for t in given.tools if t.runs >= 40]
    assert {t.name for t in common} == {"Bash", "Read"}
    for tool in common:
        assert near(got[tool.name].runs / runs[1], tool.runs / runs[0], 0.2), tool.name
        assert near(got[tool.name].p50_s, tool.p50_s, 0.35), tool.name
    assert set(got) == {t.name for t in given.tools}


def test_sessions_of_an_agent_share_their_front():
    fronts = {}
    for trace in MADE:
        shared = tuple((b.digest, b.tokens) for b in trace.blocks if b.filler and b.id < 2)
        fronts.setdefault(trace.header.agent, set()).add(shared)
    assert all(len(found) == 1 for found in fronts.values())
    assert len(fronts) == 3


def test_sub_agents_run_as_they_did():
    (given,) = [t for t in GIVEN if t.header.title == "review-patch"]
    for trace in resample([given], 5, seed=1):
        assert len(trace.threads) == len(given.threads)
        assert all(t.parent == 0 and not t.background for t in trace.threads[1:])
        joined = {t for c in trace.calls for t in c.joins}
        assert joined == {1, 2, 3}
        assert {w.cause for w in trace.waits} >= {"tool", "human", "subagent"}
    beside = read_trace(library.path("memory-leak")).traces[0]
    assert sum(t.background for t in beside.threads) == 1
    for trace in resample([beside], 3, seed=1):
        assert sum(t.background for t in trace.threads) == 1
        assert {t for c in trace.calls for t in c.joins} == {1, 2}


def test_compactions_come_where_they_came():
    (made,) = resample([read_trace(library.path("release-train")).traces[0]], 1, seed=2)
    kinds = [c.kind for c in made.calls]
    assert kinds.count("compaction") == 1
    assert 0.5 < kinds.index("compaction") / len(kinds) < 0.75


def test_what_is_added_is_scaled_to_the_peak():
    (habit,) = learn([t for t in GIVEN if t.header.title == "flaky-test"])
    main = habit.threads[0]
    opening = main.schemas + sum(main.system) + main.opening
    for peak in (50_000, 70_000):
        turns = met(main.turns, opening, peak)
        written = sum(sum(t.kept) + sum(c.arguments for c in t.tools) for t in turns[:-1])
        read = sum(t.added + sum(c.result for c in t.tools) for t in turns[:-1])
        assert opening + written + read == pytest.approx(peak, rel=0.01)


def test_nothing_to_learn_from(small):
    with pytest.raises(TraceError, match="none of the sessions has a call of its main agent"):
        resample([replace(small, calls=tuple(replace(c, kind="auxiliary") for c in small.calls))], 3, 0)


def test_recorded_sessions_of_many_agents(recorded):
    names = ("claude-code", "codex", "pi", "opencode", "swe-agent", "weka-kv-cache-tester", "openhands", "gemini")
    given = load([str(recorded / name) for name in names]).traces
    made = resample(given, len(given), seed=5)
    for trace in made:
        assert faults(trace) == []
        assert contradictions(trace) == []
    a, b = profile(given), profile(made)
    assert near(b.calls, a.calls, 0.1)
    assert near(b.prompt_tokens, a.prompt_tokens, 0.15)
    assert near(b.spreads["output"].p50, a.spreads["output"].p50, 0.1)
    assert near(b.spreads["peak_prompt"].mean, a.spreads["peak_prompt"].mean, 0.1)
    assert b.subagents == sum(t.spawn_call is not None for trace in given for t in trace.threads)
