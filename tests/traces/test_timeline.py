from itertools import pairwise

import pytest
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.pictures import Pen
from windtunnel.traces.sources import load
from windtunnel.traces.timeline import FOLD, Stretch, axis, lanes, states
from windtunnel.traces.timeline_text import timeline_lines

REVIEW = read_trace(library.path("review-patch")).traces[0]


def test_a_lane_is_what_its_thread_did_one_after_the_other(small):
    main, sub = lanes(small)
    assert (main.name, main.depth, main.calls, sub.name, sub.depth) == ("main", 0, 3, "sub", 1)
    assert main.stretches == (
        Stretch("call", 0.0, 2.0, 0),
        Stretch("tool", 2.0, 2.1, 2),
        Stretch("subagent", 2.1, 4.2, 2),
        Stretch("client", 4.2, 4.5, 2),
        Stretch("call", 4.5, 5.0, 2),
        Stretch("human", 5.0, 65.0, 3),
        Stretch("call", 65.0, 66.5, 3),
    )
    assert sub.stretches == (Stretch("call", 2.5, 4.0, 1),)


def test_time_that_no_wait_explains_is_the_client_s(small):
    main = lanes(replace(small, waits=()))[0]
    assert [(s.state, s.start, s.end) for s in main.stretches if s.state != "call"] == [
        ("client", 2.0, 4.5),
        ("client", 5.0, 65.0),
    ]


def test_a_long_idle_stretch_takes_few_columns_and_says_its_length(small):
    columns = axis(lanes(small), 60)
    assert len(columns) <= 60
    assert columns[0].start == 0.0
    assert columns[-1].end == 66.5
    assert all(b.start == pytest.approx(a.end) for a, b in pairwise(columns))
    folded = [c for c in columns if c.folded is not None]
    assert [c.part for c in folded] == list(range(FOLD))
    assert (folded[0].start, folded[0].folded) == (5.0, 60.0)


def test_every_column_shows_what_took_most_of_it(small):
    found = lanes(small)
    columns = axis(found, 60)
    main, sub = (states(lane, columns) for lane in found)
    assert (main[0], main[-1]) == ("call", "call")
    assert main.count("human") == FOLD
    assert None not in main
    assert {s for s in sub if s} == {"call"}
    assert sub[0] is None
    assert sub[-1] is None
    share = sum(s == "call" for s in main) / (len(main) - FOLD)
    assert share == pytest.approx((2.0 + 0.5 + 1.5) / (66.5 - 60), abs=0.05)


def test_the_picture_of_a_small_session(small):
    lines = timeline_lines(small, Pen(60, ascii=True))
    assert lines == [
        "        |0:00   |0:01   |0:02   |0:03   |0:04     |1:05",
        "main    ##############=::::::::::::::---###.1m00s.##########",
        "+sub                     ###########",
        "prompt  ===============================#####################",
        "",
        "# request in flight   = tools   . the user   - the client   : sub-agents",
        "prompt: full height 332",
    ]


@pytest.mark.parametrize("width", [80, 100, 160, 260])
def test_lines_fit_and_lanes_show_where_their_thread_lives(width):
    lines = timeline_lines(REVIEW, Pen(width))
    assert max(map(len, lines)) <= width
    names = {line.split()[0] for line in lines if line.startswith("\u2514")}
    assert names == {"\u2514Task-1", "\u2514Task-2", "\u2514Task-3"}
    assert all(line.isascii() for line in timeline_lines(REVIEW, Pen(width, ascii=True)))


def test_a_long_session_takes_several_strips_and_not_too_many():
    long = read_trace(library.path("monorepo-upgrade")).traces[0]
    lines = timeline_lines(long, Pen(80))
    assert sum(line.startswith("main") for line in lines) == 8
    assert sum(line.startswith("main") for line in timeline_lines(REVIEW, Pen(200))) == 1


def test_sessions_with_few_times_or_none(small):
    blind = tuple(replace(c, start_s=None, end_s=None) for c in small.calls)
    assert lanes(replace(small, calls=blind)) == []
    assert timeline_lines(replace(small, calls=blind), Pen(80)) == []
    starts = tuple(replace(c, end_s=None) for c in small.calls)
    assert timeline_lines(replace(small, calls=starts), Pen(80))
    assert timeline_lines(replace(small, calls=starts[:1], waits=()), Pen(80))[1].strip() == "main    \u2588"


def test_every_recorded_session_can_be_drawn(recorded):
    names = ("claude-code", "codex", "pi", "cline", "opencode", "swe-agent", "weka-kv-cache-tester", "openhands")
    drawn = 0
    for name in names:
        for trace in load([str(recorded / name)]).traces:
            for width in (80, 160):
                lines = timeline_lines(trace, Pen(width))
                assert all(len(line) <= width for line in lines), trace.header.id
                drawn += bool(lines)
    assert drawn >= 56
