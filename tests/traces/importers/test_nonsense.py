"""Files that are nothing, hold nothing, or hold figures that nobody can believe: said to be that, never a success."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import IMPORTERS, import_path

from . import (
    agent_logs,
    claude_logs,
    cline_logs,
    codex_logs,
    opencode_logs,
    openhands_logs,
    pi_logs,
    weka_logs,
    workload_logs,
)
from .mutations import encoded

INCREDIBLE = (b"-5", b"1e300", b'"many"', b"[]", b"123456789012345678901234567890")


def document(log: Any) -> bytes:
    return json.dumps(log).encode()


FIGURES: tuple[tuple[str, str, Callable[[], bytes], bytes], ...] = (
    ("claude-code", "s.jsonl", lambda: encoded(claude_logs.shop()), b'"input_tokens": 3'),
    ("codex", "rollout-1.jsonl", lambda: encoded(codex_logs.shop()), b'"input_tokens": 5000'),
    ("weka", "m.json", lambda: encoded(weka_logs.shop()), b'"in": 200'),
    ("qwen-code", "q.jsonl", lambda: encoded(agent_logs.qwen_log()), b'"promptTokenCount": 5000'),
    ("gemini-cli", "session-1.jsonl", lambda: encoded(agent_logs.gemini_log()), b'"input": 5200'),
    ("openhands", "base_state.json", lambda: encoded(openhands_logs.v1_log()[0]), b'"prompt_tokens": 5000'),
    (
        "openhands",
        "output.jsonl",
        lambda: encoded([{"instance_id": "a", "history": openhands_logs.v0_log()}]),
        b'"prompt_tokens": 5000',
    ),
    ("swe-agent", "run.traj", lambda: encoded(agent_logs.swe_log()), b'"tokens_sent": 0'),
    ("mini-swe-agent", "run.traj.json", lambda: encoded(agent_logs.mini_log()), b'"prompt_tokens": 2000'),
    ("pi", "s.jsonl", lambda: encoded(pi_logs.shop()), b'"cacheRead": 2000'),
    ("cline", "s.messages.json", lambda: document(cline_logs.shop()), b'"inputTokens": 9300'),
    ("cline", "ui_messages.json", lambda: document(cline_logs.task()), b'\\"tokensIn\\": 3'),
    ("opencode", "export.json", lambda: document(opencode_logs.shop()[0]), b'"read": 9000'),
    ("mooncake", "m.jsonl", lambda: encoded(workload_logs.mooncake()), b'"input_length": 1000'),
    ("mooncake-aiperf", "m.jsonl", lambda: encoded(workload_logs.sessions()), b'"output_length": 100'),
    ("mooncake-dynamo", "m.jsonl", lambda: encoded(workload_logs.sessions()), b'"input_length": 1024'),
    ("tracelab", "m.jsonl", lambda: encoded(workload_logs.tracelab()), b'"input_tokens_total": 9000'),
    ("atif", "m.json", lambda: encoded(workload_logs.atif()), b'"prompt_tokens": 2000'),
    ("otel", "m.jsonl", lambda: encoded(workload_logs.otel_events()), b'"input_tokens": 10'),
    ("litellm", "m.json", lambda: encoded(workload_logs.litellm()), b'"prompt_tokens": 800'),
    ("litellm", "m.jsonl", lambda: encoded(workload_logs.payloads()), b'"prompt_tokens": 700'),
)
EMPTY = {importer: name for importer, name, _, _ in reversed(FIGURES)} | {
    "aiperf-multi-turn": "m.jsonl",
    "har": "m.har",
    "aider": ".aider.chat.history.md",
}
"""A file name for each importer."""


@pytest.mark.parametrize(("importer", "name", "log", "key"), FIGURES, ids=[f"{i} {n}" for i, n, _, _ in FIGURES])
def test_an_incredible_count_is_reported(
    importer: str, name: str, log: Callable[[], bytes], key: bytes, tmp_path: Path
) -> None:
    data = log()
    assert key in data
    quote = b'\\"' if b'\\"' in key else b'"'  # some figures stand in a text that is JSON itself
    for nonsense in INCREDIBLE:
        path = tmp_path / name
        path.write_bytes(data.replace(key, key.partition(b":")[0] + b": " + nonsense.replace(b'"', quote)))
        reasons = [p.reason for p in IMPORTERS[importer].read(path).problems]
        assert any("not a credible count" in r for r in reasons), nonsense


def test_every_importer_is_here() -> None:
    assert set(EMPTY) == set(IMPORTERS)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\0" * 50,
        b"[]",
        b"{}",
        b"null",
        b"[1]",
        b'{"a": 1}',
        b"\xff\xfe{",
        b"[" * 5_000,
        b'{"history": 3, "messages": {"a": []}}',
    ],
    ids=lambda d: repr(d[:20]),
)
def test_nonsense_is_never_a_success(data: bytes, tmp_path: Path) -> None:
    for importer, name in EMPTY.items():
        path = tmp_path / name
        path.write_bytes(data)
        for asked in (importer, None):
            result = import_path(path, asked)
            assert result.traces == (), importer
            assert result.problems, importer
