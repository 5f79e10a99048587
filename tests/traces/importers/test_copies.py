"""The same session twice in a folder: it comes once, and what was left out is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Call, Trace

from . import claude_logs, codex_logs, pi_logs
from .agent_logs import swe_log
from .conftest import lines

Log = list[dict[str, Any]]


def write(path: Path, log: Log) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(log))
    return path


@pytest.mark.parametrize("kept", [2, 3, 4, 7])
def test_an_earlier_state_is_left_out(kept: int, tmp_path: Path) -> None:
    """Also one that was taken while an answer was being written."""
    log = claude_logs.shop()
    early, late = write(tmp_path / "a/s-1.jsonl", log[:kept]), write(tmp_path / "b/s-1.jsonl", log)
    result = import_path(tmp_path)
    assert [(t.header.source, len(t.calls)) for t in result.traces] == [(f"claude-code {late}", 3)]
    told = "is the beginning (" + ("2" if kept == 7 else "1") + " of 3 calls) of"
    assert [(p.file, p.reason) for p in result.problems] == [
        (str(early), f"the session {told} the one in {late} and was left out")
    ]


def test_copies_come_once(tmp_path: Path) -> None:
    paths = [write(tmp_path / folder / "rollout-1.jsonl", codex_logs.shop()) for folder in ("a", "b", "c")]
    result = import_path(tmp_path)
    assert [t.header.source for t in result.traces] == [f"codex {paths[0]}"]
    assert [p.reason for p in result.problems] == [
        f"the session is a copy of the one in {paths[0]} and was left out"
    ] * 2


def test_a_fork_holds_what_it_began_with(tmp_path: Path) -> None:
    """Under another name the first calls are the same requests: they were sent once."""
    log = pi_logs.shop()
    fork = [
        pi_logs.head(id="fork", parentSession="s.jsonl"),
        *log[1:],
        pi_logs.user("z1", log[-1]["id"], 60, "Go on"),
        pi_logs.answer("z2", "z1", (61, 62), (3, 0, 2_200, 9), [pi_logs.said("Done.")]),
    ]
    original = write(tmp_path / "s.jsonl", log)
    later = write(tmp_path / "t.jsonl", fork)
    result = import_path(tmp_path)
    assert [t.header.source for t in result.traces] == [f"pi {later}"]
    assert [p.file for p in result.problems if p.reason.endswith("was left out")] == [str(original)]


def texts(trace: Trace, call: Call) -> list[tuple[str, int]]:
    """What stands in a call's prompt."""
    ids = next(ids for c, ids in trace.prompts() if c.id == call.id)
    return [
        (trace.blocks[b].digest, trace.blocks[b].tokens) for m in ids for b in trace.message_blocks(trace.messages[m])
    ]


def test_of_sessions_that_part_the_later_begins_with_its_own(tmp_path: Path) -> None:
    log = claude_logs.shop()
    other = json.loads(json.dumps(log))
    other[6]["message"]["content"][0]["text"] = "It takes the difference; that is wrong."
    for line in other:
        line["sessionId"] = "s-2"
    first, second = write(tmp_path / "a.jsonl", log), write(tmp_path / "b.jsonl", other)
    alone = import_path(second).traces[0]
    result = import_path(tmp_path)
    whole, rest = result.traces
    assert [len(t.calls) for t in result.traces] == [3, 2]
    assert [(p.file, p.reason) for p in result.problems] == [
        (str(second), f"the first of 3 calls is in {first} too and is counted there only")
    ]
    assert rest.calls[0].usage.prompt == alone.calls[1].usage.prompt == rest.prompt_tokens()[0]
    assert (rest.calls[0].base, rest.calls[0].keep, rest.calls[0].start_s) == (None, 0, 0.0)
    assert rest.header.started_at == pytest.approx((alone.header.started_at or 0) + (alone.calls[1].start_s or 0))
    assert all(w.before for w in rest.waits)
    # the same prompt, asked twice: the text that the log lacks is the same too
    assert texts(rest, rest.calls[0]) == texts(whole, whole.calls[1])


def test_pi_branches_too(tmp_path: Path) -> None:
    log = pi_logs.shop()
    for name, second, said in (("a", 60, "Go on"), ("b", 90, "Rather not")):
        end = [
            pi_logs.user("z1", log[-1]["id"], second, said),
            pi_logs.answer("z2", "z1", (second + 1, second + 2), (3, 0, 2_200, 9), [pi_logs.said("Done.")]),
        ]
        write(tmp_path / f"{name}.jsonl", [pi_logs.head(id=name), *log[1:], *end])
    result = import_path(tmp_path)
    whole, rest = result.traces
    assert (len(rest.calls), rest.prompt_tokens()[0]) == (1, rest.calls[0].usage.prompt)
    number = len(whole.calls)
    told = f"the first {number - 1} of {number} calls are in {tmp_path / 'a.jsonl'} too and are counted there only"
    assert told in [p.reason for p in result.problems]


def test_a_sub_agent_that_only_one_branch_has_stays_with_its_call(tmp_path: Path) -> None:
    """What is shared ends before the call that started it."""
    log = claude_logs.with_task(claude_logs.shop())
    other = json.loads(json.dumps(log))
    other[-1]["message"]["content"] = [{"type": "text", "text": "another end"}]
    write(tmp_path / "a/s-1.jsonl", log)
    write(tmp_path / "b/s-1.jsonl", other)
    write(tmp_path / "b/s-1/subagents/agent-a7.jsonl", claude_logs.sub_agent(claude_logs.shop(), "a7"))
    result = import_path(tmp_path)
    assert sorted((len(t.threads), len(t.calls_of(0))) for t in result.traces) == [(1, 3), (2, 3)]
    write(tmp_path / "a/s-1/subagents/agent-a7.jsonl", claude_logs.sub_agent(claude_logs.shop(), "a7"))
    whole, rest = import_path(tmp_path).traces
    assert [len(t.threads) for t in (whole, rest)] == [2, 1]
    assert len(rest.calls) == 1


def test_a_third_branch_leaves_the_second_its_own(tmp_path: Path) -> None:
    log = claude_logs.shop()
    for number in range(3):
        branch = json.loads(json.dumps(log))
        if number:
            branch[-1]["message"]["content"] = [{"type": "text", "text": f"branch {number}"}]
        write(tmp_path / f"{number}.jsonl", branch)
    assert [len(t.calls) for t in import_path(tmp_path).traces] == [3, 1, 1]


def test_a_copy_whose_sub_agent_is_only_there_is_kept(tmp_path: Path) -> None:
    """Nothing is lost: the shorter one has what the longer one lacks."""
    log = claude_logs.with_task(claude_logs.shop())
    write(tmp_path / "a/s-1.jsonl", log[:-2])
    write(tmp_path / "a/s-1/subagents/agent-a7.jsonl", claude_logs.sub_agent(claude_logs.shop(), "a7"))
    write(tmp_path / "b/s-1.jsonl", log)
    result = import_path(tmp_path)
    assert sorted(len(t.threads) for t in result.traces) == [1, 2]
    assert result.problems == ()


def test_without_a_clock_the_id_tells(tmp_path: Path) -> None:
    for name in ("a/run.traj", "b/run.traj", "b/other.traj"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(swe_log()))
    result = import_path(tmp_path)
    assert sorted(t.header.id for t in result.traces) == ["other", "run"]
    assert len(result.problems) == 1


def test_recorded_snapshots(recorded: Path) -> None:
    result = import_path(recorded / "claude-code")
    names = {Path(p.file).name: p.reason for p in result.problems if "was left out" in p.reason and p.line is None}
    assert set(names) == {"derived-truncated-tail.jsonl", "entire-2.1.29-growing-1.jsonl"}
    assert "(132 of 146 calls)" in names["entire-2.1.29-growing-1.jsonl"]
    assert "(19 of 32 calls)" in names["derived-truncated-tail.jsonl"]
