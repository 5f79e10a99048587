import pytest
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Usage
from windtunnel.traces.pictures import Pen
from windtunnel.traces.sources import load
from windtunnel.traces.turns import Pause, ToolUse, turn_rows
from windtunnel.traces.turns_text import turn_lines


def test_a_row_says_what_went_in_and_what_came_of_it(small):
    first, sub, second, last = turn_rows(small)
    assert (first.prompt, first.cached, first.new, first.missed, first.output, first.reasoning) == (
        170, 0, 170, 0, 28, 12,
    )  # fmt: skip
    assert (first.first_token_s, first.took_s) == (1.0, 2.0)
    assert first.tools == (ToolUse("Read", 0.1, error=True), ToolUse("Task", 2.2, thread=1))
    assert first.waits == (Pause("tool", 0.1), Pause("subagent", 2.1), Pause("client", 0.3))
    assert (sub.thread, sub.cached, sub.missed, sub.tools, sub.waits) == (1, None, None, (), ())
    assert (second.new, second.missed, second.joins, second.estimated) == (137, 0, (1,), ("completion",))
    assert second.waits == (Pause("human", None),)
    assert (last.kind, last.aborted, last.new, last.missed) == ("compaction", True, 25, 7)


def test_sub_agents_that_no_tool_run_tells_of(small):
    trace = replace(small, tool_runs=small.tool_runs[:1])
    row = turn_rows(trace)[0]
    assert (row.starts, [t.thread for t in row.tools]) == ((1,), [None])
    assert "Read 0.10s!, \u2192#1" in turn_lines(trace, [row], Pen(100))[1]


def test_tools_without_a_recorded_run_are_those_the_output_asks_for(small):
    row = turn_rows(replace(small, tool_runs=()))[0]
    assert row.tools == (ToolUse("Read", None), ToolUse("Task", None))


def test_lines_of_a_small_session(small):
    lines = turn_lines(small, turn_rows(small), Pen(98))
    assert lines[0].split()[:8] == ["call", "of", "at", "prompt", "cached", "new", "output", "took"]
    assert lines[0].endswith("what it led to, and the wait after it")
    assert lines[1].endswith("Read 0.10s!, Task \u2192#1  sub-agents 2.1s")
    assert "~5" in lines[3]
    assert lines[3].endswith("user ?")
    assert "[compaction, aborted]" in lines[4]
    narrow = turn_lines(small, turn_rows(small), Pen(80))
    assert narrow[0].endswith("took  then")
    assert narrow[1].endswith("Read 0.10s\u2026  sub-agents 2.1s")
    wide = turn_lines(small, turn_rows(small), Pen(160))
    assert wide[0].split()[:11] == [
        "call",
        "of",
        "at",
        "prompt",
        "cached",
        "new",
        "output",
        "reasoning",
        "first",
        "took",
        "what",
    ]


def test_columns_that_say_nothing_are_left_out(small):
    blind = tuple(replace(c, usage=Usage(completion=3), first_s=None, thread=0, joins=()) for c in small.calls)
    trace = replace(small, calls=blind, threads=small.threads[:1])
    assert turn_lines(trace, turn_rows(trace), Pen(160))[0].split()[:6] == [
        "call",
        "at",
        "prompt",
        "new",
        "output",
        "took",
    ]


def test_tokens_missing_from_the_cache_are_told(small):
    cold = replace(small.calls[2], usage=replace(small.calls[2].usage, cached=0))
    trace = replace(small, calls=(*small.calls[:2], cold, small.calls[3]))
    assert "[170 missed]" in turn_lines(trace, turn_rows(trace), Pen(80))[3]
    assert "missed" in turn_lines(trace, turn_rows(trace), Pen(160))[0]


@pytest.mark.parametrize("width", [80, 100, 116, 160, 300])
def test_lines_fit(width, recorded):
    traces = [read_trace(library.path(n)).traces[0] for n in ("review-patch", "memory-leak", "release-train")]
    traces += load([str(recorded / "claude-code/spotter"), str(recorded / "swe-agent"), str(recorded / "codex")]).traces
    for trace in traces:
        lines = turn_lines(trace, turn_rows(trace), Pen(width, ascii=True))
        assert len(lines) == 1 + len(trace.calls)
        assert max(map(len, lines)) <= width
        assert all(line.isascii() for line in lines[1:])
