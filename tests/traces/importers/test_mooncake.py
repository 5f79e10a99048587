"""Mooncake rows made up for the purpose."""

from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, detect, import_path
from windtunnel.traces.model import Trace

from .workload_logs import UNIX, lines, mooncake, row, sessions


def load(tmp_path: Path, rows: list[dict[str, Any]], name: str | None = None) -> Imported:
    path = tmp_path / "m.jsonl"
    path.write_bytes(lines(rows))
    result = import_path(path, name)
    assert [f for t in result.traces for f in faults(t)] == []
    return result


def prompt(trace: Trace, call: int) -> list[tuple[str, int]]:
    ids = next(m for c, m in trace.prompts() if c.id == call)
    blocks = [trace.blocks[b] for m in ids for b in trace.message_blocks(trace.messages[m])]
    return [(b.digest, b.tokens) for b in blocks]


def test_rows_without_a_session_are_sessions_of_their_own(tmp_path: Path) -> None:
    result = load(tmp_path, mooncake())
    assert result.problems == ()
    assert [(t.calls[0].usage.prompt, t.calls[0].usage.completion, t.calls[0].start_s) for t in result.traces] == [
        (1_000, 5, 0.0),
        (900, 7, 0.25),
        (1_100, 9, 0.9),
    ]
    first, second, third = (prompt(t, 0) for t in result.traces)
    assert [n for _, n in first] == [512, 488]
    assert first[0] == second[0] == third[0]
    assert first[1][0] != second[1][0]
    # block 2 is not full in the second row and full in the third: the same text, longer
    assert (second[1][0], second[1][1], third[1][1]) == (third[1][0], 388, 512)
    assert result.traces[0].header.shape_only
    assert "the format names no sessions" in result.traces[0].header.notes[0]


def test_a_file_with_turns_asks_for_its_dialect(tmp_path: Path) -> None:
    result = load(tmp_path, sessions())
    assert result.traces == ()
    (problem,) = result.problems
    assert problem.line == 3
    told = "say it with `windtunnel import FILE --format mooncake-aiperf --out DIR` (new tokens only) or --format "
    assert f"{told}mooncake-dynamo (whole prompts)" in str(problem)
    assert detect(tmp_path / "m.jsonl") == "mooncake"
    assert import_path(tmp_path).problems == result.problems


def test_sessions_of_one_row_are_the_same_in_every_dialect(tmp_path: Path) -> None:
    rows = sessions()[:2]
    figures = {
        name: [(t.header.id, t.calls[0].usage, prompt(t, 0)) for t in load(tmp_path, rows, name).traces]
        for name in ("mooncake", "mooncake-aiperf", "mooncake-dynamo")
    }
    assert figures["mooncake"] == figures["mooncake-aiperf"] == figures["mooncake-dynamo"]
    assert [own for own, _, _ in figures["mooncake"]] == ["a", "b"]


def test_aiperf_rows_are_what_is_new(tmp_path: Path) -> None:
    a, b = load(tmp_path, sessions(), "mooncake-aiperf").traces
    assert [(c.usage.prompt, c.usage.completion, c.start_s) for c in a.calls] == [(1_024, 100, 0.0), (2_660, 20, None)]
    assert [c.marks for c in a.calls] == [{}, {"prompt": "derived"}]
    assert [(w.before, w.cause, w.seconds, w.mark) for w in a.waits] == [(1, "client", 2.5, "recorded")]
    assert a.calls[1].append[0] == a.calls[0].output
    # the new tokens begin with block 0 again, after the first answer
    assert prompt(a, 1)[3] == prompt(a, 0)[0] == (prompt(b, 0)[0][0], 512)


def test_dynamo_rows_are_whole_prompts(tmp_path: Path) -> None:
    a, b = load(tmp_path, sessions(), "mooncake-dynamo").traces
    assert [(c.usage.prompt, c.usage.completion) for c in a.calls] == [(1_024, 100), (1_536, 20)]
    assert [(w.seconds, w.mark) for w in a.waits] == [(2.5, "recorded")]
    first, second = prompt(a, 0), prompt(a, 1)
    assert second[: len(first)] == first
    assert [n for _, n in second[len(first) :]] == [100, 412]
    assert a.calls[1].append[0] == a.calls[0].output
    assert prompt(b, 0)[0] == first[0]


def test_dynamo_takes_the_difference_of_timestamps_for_a_pause(tmp_path: Path) -> None:
    rows = [row(100, 600, 5, [0, 1], session_id="a"), row(1_600, 700, 5, [0, 2], session_id="a")]
    (trace,) = load(tmp_path, rows, "mooncake-dynamo").traces
    assert [(w.seconds, w.mark) for w in trace.waits] == [(1.5, "derived")]
    (delta,) = load(tmp_path, rows, "mooncake-aiperf").traces
    assert [(w.seconds, w.mark) for w in delta.waits] == [(None, "estimated")]


def test_other_names_other_blocks_and_unix_times(tmp_path: Path) -> None:
    rows = [
        {"input_tokens": 40, "output_tokens": 3, "created_time": (UNIX + n) * 1000, "hash_ids": [n, 9, 8]}
        for n in range(2)
    ]
    result = load(tmp_path, rows)
    assert result.problems == ()
    assert [t.header.started_at for t in result.traces] == [UNIX, UNIX]
    assert [t.calls[0].start_s for t in result.traces] == [0.0, 1.0]
    assert [n for _, n in prompt(result.traces[0], 0)] == [16, 16, 8]


def test_lines_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    rows = [*mooncake(), row(1, 100, 1, [1, 2]), row(1, 2_000, 1, [7]), {"wait_for": ["a"], "input_length": 3}]
    path.write_bytes(lines(rows) + b'{"timestamp": 1, "input_le')
    result = import_path(path)
    assert [t.calls[0].usage.prompt for t in result.traces] == [1_000, 900, 1_100, 2_000]
    assert [(p.line, p.reason) for p in result.problems] == [
        (6, "rows that wait for other rows (agentic Mooncake) cannot be read; left out"),
        (7, "the last line is cut off"),
        (4, "2 hash ids for 100 tokens in blocks of 512; left out"),
        (5, "1 hash ids cover 512 of 2000 tokens"),
    ]


@pytest.mark.parametrize("name", ["mooncake", "mooncake-aiperf", "mooncake-dynamo"])
def test_an_empty_file_is_said_to_be_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"")
    assert [p.reason for p in import_path(path, name).problems] == ["the file is empty"]
