"""A folder that several agents wrote into."""

import json
from pathlib import Path

from windtunnel.traces.importers import import_path

from . import cline_logs, opencode_logs, pi_logs
from .agent_logs import gemini_document, gemini_log, mini_log, qwen_log, swe_log
from .conftest import lines
from .openhands_logs import v0_log, v1_log, write_v1


def test_each_log_is_read_by_its_importer(
    tmp_path: Path, claude_log: list[dict[str, object]], codex_log: list[dict[str, object]]
) -> None:
    files = {
        "claude/s-1.jsonl": lines(claude_log),
        "codex/rollout-1.jsonl": lines(codex_log),
        "qwen/chats/q-1.jsonl": lines(qwen_log()),
        "gemini/chats/session-1.jsonl": lines(gemini_log()),
        "old-gemini/chats/session-2.json": json.dumps(gemini_document()).encode(),
        "swe/run.traj": json.dumps(swe_log()).encode(),
        "mini/run.traj.json": json.dumps(mini_log()).encode(),
        "v0/run.json": json.dumps(v0_log()).encode(),
        "notes/package.json": b'{"name": "shop", "source": "x"}',
        "swe/empty.traj": b"",
        "mini/empty.traj.json": b"",
        "gemini/chats/session-3.json": b"",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    write_v1(tmp_path / "v1" / "o-1", v1_log())
    result = import_path(tmp_path)
    assert sorted(t.header.agent for t in result.traces) == [
        "claude-code",
        "codex",
        "gemini-cli",
        "mini-swe-agent",
        "openhands",
        "openhands",
        "qwen-code",
        "swe-agent",
    ]
    empty = [Path(p.file).name for p in result.problems if p.reason == "the file is empty"]
    assert sorted(empty) == ["empty.traj", "empty.traj.json", "session-3.json"]
    # the older layout's file is the same session
    copies = [p for p in result.problems if "is a copy" in p.reason]
    assert [Path(p.file).name for p in copies] == ["session-2.json"]
    assert {Path(p.file).name for p in result.problems} == {*empty, "session-2.json"}


def test_sessions_of_agents_that_keep_several_files(tmp_path: Path) -> None:
    cline_logs.write_sessions(tmp_path / "cline")
    cline_logs.write_task(tmp_path / "vscode", texts=True)
    opencode_logs.write_database(tmp_path / "opencode.db", opencode_logs.shop())
    (tmp_path / "pi").mkdir()
    (tmp_path / "pi" / "s.jsonl").write_text("".join(json.dumps(r) + "\n" for r in pi_logs.shop()))
    result = import_path(tmp_path)
    assert result.problems == ()
    assert sorted((t.header.agent, len(t.calls)) for t in result.traces) == [
        ("cline", 4),
        ("cline", 6),
        ("opencode", 7),
        ("pi", 3),
    ]
