"""Which files of a folder are logs: long first lines, files of other kinds, and what is no file."""

import os
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import MOST_HEAD_BYTES, detect, import_path
from windtunnel.traces.importers.claude_code import session_of

from . import claude_logs, codex_logs, pi_logs
from .conftest import lines

LONG = "a line of a diff\n" * 6_000


def queued(**more: Any) -> dict[str, Any]:
    return {"type": "queue-operation", "operation": "enqueue", "content": LONG, "sessionId": "s-1", **more}


def reasons(folder: Path, name: str | None = None) -> list[str]:
    return [p.reason for p in import_path(folder, name).problems]


LOGS = {
    "claude-code": claude_logs.shop(),
    "codex": codex_logs.shop(),
    "pi": pi_logs.shop(),
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("ahead", [1, 3])
def test_long_lines_in_front_hide_no_log(name: str, ahead: int, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    path.write_bytes(lines([queued()] * ahead + LOGS[name]))
    assert detect(path) == name
    assert len(import_path(tmp_path).traces) == 1


def test_a_long_first_message_hides_no_log(tmp_path: Path) -> None:
    """Whatever stands first in its line."""
    log = claude_logs.shop()
    first = {"message": {"role": "user", "content": LONG}, **{k: v for k, v in log[0].items() if k != "message"}}
    (tmp_path / "s-1.jsonl").write_bytes(lines([first, *log[1:]]))
    assert len(import_path(tmp_path).traces) == 1


def test_a_line_longer_than_all_that_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"content":"' + b"x" * (MOST_HEAD_BYTES + 9) + b'"}\n')
    assert detect(path) is None


def test_the_session_of_a_file_that_begins_with_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "agent-a.jsonl"
    path.write_bytes(lines([queued()]))
    assert session_of(path) == "s-1"
    os.mkfifo(tmp_path / "agent-b.jsonl")
    assert session_of(tmp_path / "agent-b.jsonl") == ""


def test_files_that_no_importer_takes_are_counted(tmp_path: Path) -> None:
    (tmp_path / "s-1.jsonl").write_bytes(lines(claude_logs.shop()))
    assert reasons(tmp_path) == []
    (tmp_path / "z.jsonl").write_text('{"what": 1}\n')
    said = "is of none of the formats that can be imported and left out"
    assert reasons(tmp_path) == [f"1 file {said}: z.jsonl"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b/rows.jsonl").write_text('{"what": 1}\n')
    (tmp_path / "export.json").write_text("{}")
    assert reasons(tmp_path) == [f"3 files {said.replace('is', 'are', 1)}: export.json and others"]


def test_what_agents_keep_beside_their_sessions_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "s-1.jsonl").write_bytes(lines(claude_logs.shop()))
    (tmp_path / "s-1/tool-results").mkdir(parents=True)
    for name in ("s-1/tool-results/a.json", "agent-x.meta.json", "sessions-index.json", "notes.txt"):
        (tmp_path / name).write_text("{}")
    assert reasons(tmp_path) == []


def test_files_of_other_formats_than_the_asked_one_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(claude_logs.shop()))
    (tmp_path / "b.jsonl").write_bytes(lines(codex_logs.shop()))
    assert reasons(tmp_path, "codex") == ["1 file is not of the format codex and left out: a.jsonl"]


def test_pipes_and_dead_links_are_left_out_and_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    assert reasons(tmp_path) == ["holds nothing that can be imported", "is no regular file and was left out"]
    (tmp_path / "s-1.jsonl").write_bytes(lines(claude_logs.shop()))
    result = import_path(tmp_path)
    assert len(result.traces) == 1
    assert [(p.file, p.reason) for p in result.problems] == [
        (str(tmp_path / "a.jsonl"), "is no regular file and was left out")
    ]
    (tmp_path / "b.json").symlink_to("nowhere")
    assert reasons(tmp_path) == ["is no regular file and was left out, as were 1 more"]


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini-cli", "atif", "litellm", "aider"])
def test_a_pipe_given_by_name_is_told(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    assert reasons(tmp_path / "a.jsonl", name) == ["is no regular file and was left out"]


def test_a_pipe_among_a_sessions_own_files_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "s-1.jsonl").write_bytes(lines(claude_logs.shop()))
    (tmp_path / "s-1/subagents").mkdir(parents=True)
    os.mkfifo(tmp_path / "s-1/subagents/agent-a.jsonl")
    os.mkfifo(tmp_path / "agent-b.jsonl")
    result = import_path(tmp_path)
    assert len(result.traces) == 1
    assert {p.reason.partition(",")[0] for p in result.problems} == {"is no regular file and was left out"}
