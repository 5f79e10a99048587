"""AIPerf's multi-turn conversations made up for the purpose."""

from pathlib import Path

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path

from .workload_logs import conversations, lines


def test_turns_grow_by_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines(conversations()))
    result = import_path(path)
    assert result.problems == ()
    first, second = result.traces
    assert [f for t in result.traces for f in faults(t)] == []
    assert (first.header.id, first.header.title) == ("chat-1", "What is a prefix cache?")
    assert [(c.usage.prompt, c.usage.completion) for c in first.calls] == [(None, 100), (None, 216)]
    assert [c.marks for c in first.calls] == [{}, {"completion": "estimated"}]
    assert [(w.before, w.cause, w.seconds) for w in first.waits] == [(1, "human", 1.5)]
    roles = [[first.messages[m].role for m in ids] for _, ids in first.prompts()]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    sums = first.prompt_tokens()
    new = sum(first.message_tokens(m) for m in first.calls[1].append)
    assert sums[1] == sums[0] + new
    assert first.message_tokens(first.calls[0].output or 0) == 100
    assert len(second.calls) == 1


def test_turns_without_text_are_said(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines([*conversations(), {"turns": [{"image": "x"}]}]))
    result = import_path(path)
    assert len(result.traces) == 2
    assert [(p.line, p.reason) for p in result.problems] == [
        (3, "turn 0 has no text and was left out"),
        (3, "the line has no turns with text and was left out"),
    ]
