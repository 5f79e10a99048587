import pytest
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Usage
from windtunnel.traces.pictures import Pen
from windtunnel.traces.profile import compactions, growths, profile, session_figures, spread, tool_times
from windtunnel.traces.profile_text import compared_lines, profile_lines
from windtunnel.traces.sources import load

LIBRARY = [read_trace(library.path(n)).traces[0] for n in library.names()]


def test_a_small_session_described(small):
    p = profile([small])
    assert (p.sessions, p.calls, p.turns, p.auxiliary, p.human_waits) == (1, 4, 3, 0, 1)
    assert (p.subagents, p.background, p.subagent_calls, p.subagent_sessions) == (1, 0, 1, 1)
    assert p.cached_said == 3
    assert p.cached_share == round((0 + 170 + 300) / (170 + 307 + 332), 4)
    assert p.reused_share == round((170 + 307) / 849, 4)
    assert p.estimated == {"cached": 1, "output": 1, "first token": 3}
    assert p.spreads["growth"].max == 137
    assert p.waits["client"].p50 == 0.3
    assert p.waits_unknown == {"human": 1}
    assert [(t.name, t.runs, t.timed, t.errors, t.p50_s) for t in p.tools] == [
        ("Read", 1, 1, 1, 0.1),
        ("Task", 1, 0, 0, None),
    ]


def test_percentiles_are_interpolated_and_nothing_has_none():
    s = spread([1.0, 2.0, 3.0, 4.0])
    assert (s.n, s.mean, s.min, s.p50, s.p90, s.max) == (4, 2.5, 1.0, 2.5, 3.7, 4.0)
    assert spread([]) is None


def test_growth_and_compactions_are_of_one_thread(small):
    assert growths(small) == [137, 25]
    assert compactions(small) == 1
    shrunk = (*small.calls[:3], replace(small.calls[3], kind="turn", usage=Usage(prompt=90)))
    assert compactions(replace(small, calls=shrunk)) == 1
    assert growths(replace(small, calls=shrunk)) == [137]
    resumed = replace(small.calls[3], id=4, kind="turn", usage=Usage(prompt=90))
    assert compactions(replace(small, calls=(*small.calls, resumed))) == 1


def test_the_library_has_the_shape_it_was_made_with():
    p = profile(LIBRARY)
    assert (p.sessions, p.calls, p.compactions, p.subagents) == (24, 2161, 2, 25)
    assert p.estimated == {}
    assert p.spreads["output"].p50 == pytest.approx(216, rel=0.05)
    assert 0.96 < p.cached_share < p.reused_share < p.reused_across_share < 1
    assert [d.duty_cycle for d in p.duty] == sorted((d.duty_cycle for d in p.duty), reverse=True)
    assert p.duty[0].in_flight > p.duty[0].duty_cycle == 1.0
    assert p.tools[0].name == "Bash"
    assert sum(t.runs for t in p.tools) == 2336


def test_a_session_s_own_figures(small):
    figures = session_figures(small)
    assert figures["growth_tokens"] == {"p50": 81.0, "p90": 125.8, "max": 137}
    assert figures["duty_cycle"] == {"0": 1.0, "10": 0.3333, "60": 0.0827, "none": 0.0827}
    assert (figures["turns"], figures["subagents"], figures["human_waits"]) == (3, 1, 1)


def test_tools_with_most_time_come_first():
    names = [t.name for t in tool_times(LIBRARY)]
    assert names[:3] == ["Bash", "terminal", "shell"]
    assert names[-1] in {"Task", "delegate"}


@pytest.mark.parametrize("width", [80, 100, 160, 300])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_lines_fit_the_terminal_and_need_no_more_than_it_has(width, ascii_only, small):
    pen = Pen(width, ascii=ascii_only)
    for traces in (LIBRARY, LIBRARY[:1], [small], [replace(small, waits=(), tool_runs=())]):
        lines = profile_lines(traces, profile(traces), pen)
        assert max(map(len, lines)) <= width
        assert not ascii_only or all(line.isascii() for line in lines)


def test_what_the_lines_say():
    text = "\n".join(profile_lines(LIBRARY, profile(LIBRARY), Pen(100)))
    assert "24 sessions, 2,161 calls" in text
    assert "25 sub-agents in 9 sessions of 24, 2 in the background" in text
    assert "as recorded" in text
    assert "every figure is recorded or derived" in text
    one = "\n".join(profile_lines(LIBRARY[:1], profile(LIBRARY[:1]), Pen(100)))
    assert "1 session, 18 calls" in one
    assert "30.2k at most" in one
    assert "turns a session" not in one


def test_what_was_not_reported_is_said_so(small):
    blind = replace(
        small,
        calls=tuple(replace(c, usage=Usage(), start_s=None, first_s=None, end_s=None) for c in small.calls),
        tool_runs=(),
    )
    text = "\n".join(profile_lines([blind], profile([blind]), Pen(80)))
    assert "not reported" in text
    assert "unknown: no call says when it started and ended" in text
    assert "prompt of all calls" in text


def test_colours_leave_the_text_as_it_is():
    import re

    p = profile(LIBRARY[:3])
    plain = profile_lines(LIBRARY[:3], p, Pen(100))
    coloured = profile_lines(LIBRARY[:3], p, Pen(100, colour=True))
    assert plain != coloured
    assert [re.sub(r"\033\[\d*m", "", line) for line in coloured] == plain


def test_two_profiles_side_by_side():
    p = profile(LIBRARY)
    lines = compared_lines(p, p, Pen(80))
    assert max(map(len, lines)) <= 80
    ratios = {line.split()[-1] for line in lines[2:12]}
    assert ratios == {"1.00"}
    assert any(line.startswith("duty cycle, gaps at most 10 s") for line in lines)


def test_reuse_across_the_sessions_of_a_published_workload(recorded):
    """ground_truth.json: 77,953 of the 121,877 blocks of all requests were at the front of an earlier one."""
    traces = load([str(recorded / "mooncake/synthetic_trace.jsonl")]).traces
    p = profile(traces)
    assert (p.calls, p.prompt_tokens, p.reused_share) == (3993, 61_194_628, 0.0)
    assert p.reused_across_share == pytest.approx(77_953 / 121_877, abs=0.015)
    assert (p.cached_share, p.duty) == (None, ())


def test_a_recorded_session(recorded):
    """The largest one with sub-agents of those at hand, against its independent counts."""
    traces = load([str(recorded / "claude-code/spotter")]).traces
    p = profile(traces)
    assert p.calls == 152 + 3 + 1
    bash = next(t for t in p.tools if t.name == "Bash")
    assert (bash.runs, bash.timed) == (79, 79)
    assert p.compactions == 1
    assert 0.9 < p.reused_share < 1
    assert 0.2 < p.duty[-1].duty_cycle < 0.6
    assert p.estimated["first token"] == p.calls


def test_an_answer_in_one_piece_has_no_first_token(small):
    """Recordings made before said the end for it; of one token that is when it came."""
    whole = [replace(c, start_s=0.0, first_s=2.0, end_s=2.0, usage=Usage(10, 0, 5)) for c in small.calls]
    whole[0] = replace(whole[0], usage=Usage(10, 0, 1))
    whole[1] = replace(whole[1], first_s=0.5)
    p = profile([replace(small, calls=tuple(whole))])
    assert (p.spreads["first_token_s"].n, p.spreads["first_token_s"].p50) == (2, 1.25)
    assert p.estimated["first token"] == 2
