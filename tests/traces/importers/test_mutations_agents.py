"""Damaged logs of further agents: nothing escapes, nothing hangs, and what is kept still adds up."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import IMPORTERS, Imported, import_path

from .agent_logs import gemini_document, gemini_log, mini_log, qwen_log, swe_log
from .openhands_logs import v0_log, v1_log
from .test_mutations import check, encoded, mutate_bytes, mutate_value, mutated
from .test_qwen import agent_log, transcript

MUTATIONS = 200
MOST_BYTES = 50_000

Write = Callable[[Path, random.Random], Imported]


def one_file(importer: str, name: str, log: Any) -> Write:
    """A log in one file."""

    def write(folder: Path, rng: random.Random) -> Imported:
        path = folder / name
        data = mutated(log, rng)
        assert len(data) < MOST_BYTES
        path.write_bytes(data)
        return IMPORTERS[importer].read(path)

    return write


def listed(importer: str, name: str, log: list[Any]) -> Write:
    """A log that is one JSON list."""

    def write(folder: Path, rng: random.Random) -> Imported:
        whole = json.dumps(mutate_value(log, rng)).encode()
        path = folder / name
        path.write_bytes(whole if rng.random() < 0.7 else mutate_bytes(whole, rng))
        return IMPORTERS[importer].read(path)

    return write


def v1_folder(folder: Path, rng: random.Random) -> Imported:
    """A conversation's files, one or two of which are damaged or missing."""
    log = v1_log()
    (folder / "o" / "events").mkdir(parents=True, exist_ok=True)
    for path in (folder / "o" / "events").iterdir():
        path.unlink()
    broken = set(rng.sample(range(len(log)), rng.randint(1, 2)))
    for number, item in enumerate(log):
        path = folder / "o" / ("base_state.json" if not number else f"events/event-{number:05d}-x.json")
        data = encoded(item)
        if number in broken:
            data = encoded(mutate_value(item, rng)) if rng.random() < 0.7 else mutate_bytes(data, rng)
        path.write_bytes(data)
    if rng.random() < 0.1:
        (folder / "o" / "base_state.json").unlink()
    return IMPORTERS["openhands"].read(folder / "o" / "events" / "event-00001-x.json")


def qwen_folder(folder: Path, rng: random.Random) -> Imported:
    """A chat and a sub-agent's transcript."""
    chat, inner = folder / "chats" / "q-1.jsonl", folder / "subagents" / "q-1" / "agent-a.jsonl"
    for path, log in ((chat, agent_log()), (inner, transcript())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutated(log, rng))
    return IMPORTERS["qwen-code"].read(chat)


CASES: dict[str, Write] = {
    "qwen": one_file("qwen-code", "q-1.jsonl", qwen_log()),
    "qwen with a sub-agent": qwen_folder,
    "gemini log": one_file("gemini-cli", "session-1.jsonl", gemini_log()),
    "gemini document": one_file("gemini-cli", "session-1.json", gemini_document()),
    "openhands folder": v1_folder,
    "openhands trajectory": listed("openhands", "run.json", v0_log()),
    "openhands evaluation": one_file("openhands", "output.jsonl", [{"instance_id": "a", "history": v0_log()}] * 2),
    "swe-agent": one_file("swe-agent", "run.traj", swe_log()),
    "mini-swe-agent": one_file("mini-swe-agent", "run.traj.json", mini_log()),
    "mini-swe-agent list": listed("mini-swe-agent", "run.traj.json", mini_log()["messages"]),
}


@pytest.mark.parametrize("name", CASES)
def test_no_mutation_escapes(name: str, tmp_path: Path) -> None:
    rng = random.Random(f"mutations of {name}")
    began = time.perf_counter()
    for number in range(MUTATIONS):
        check(CASES[name](tmp_path, rng), f"mutation {number}")
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize(
    ("importer", "name", "log", "key"),
    [
        ("qwen-code", "q.jsonl", qwen_log(), b'"promptTokenCount": 5000'),
        ("gemini-cli", "session-1.jsonl", gemini_log(), b'"input": 5200'),
        ("openhands", "base_state.json", v1_log()[0], b'"prompt_tokens": 5000'),
        ("openhands", "output.jsonl", [{"instance_id": "a", "history": v0_log()}], b'"prompt_tokens": 5000'),
        ("swe-agent", "run.traj", swe_log(), b'"tokens_sent": 0'),
        ("mini-swe-agent", "run.traj.json", mini_log(), b'"prompt_tokens": 2000'),
    ],
)
def test_an_incredible_count_is_reported(importer: str, name: str, log: Any, key: bytes, tmp_path: Path) -> None:
    data = encoded(log)
    assert key in data
    for nonsense in (b"-5", b"1e300", b'"many"', b"123456789012345678901234567890"):
        path = tmp_path / name
        path.write_bytes(data.replace(key, key.partition(b":")[0] + b": " + nonsense, 1))
        reasons = [p.reason for p in IMPORTERS[importer].read(path).problems]
        assert any("not a credible count" in r for r in reasons), nonsense


@pytest.mark.parametrize("name", ["q.jsonl", "session-1.json", "output.jsonl", "run.traj", "run.traj.json"])
def test_nonsense_is_not_silently_a_success(name: str, tmp_path: Path) -> None:
    for nonsense in (b"", b"\0" * 50, b"[]", b"{}", b"null", b"[" * 5_000, b'{"history": 3, "messages": {"a": []}}'):
        path = tmp_path / name
        path.write_bytes(nonsense)
        for importer in (None, "qwen-code", "gemini-cli", "openhands", "swe-agent", "mini-swe-agent"):
            result = import_path(path, importer)
            assert result.traces == ()
            assert result.problems
