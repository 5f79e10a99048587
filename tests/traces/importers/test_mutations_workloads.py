"""Damaged workload files and recordings: nothing escapes, nothing hangs, and what is kept still adds up."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import IMPORTERS

from . import workload_logs
from .test_mutations import check, encoded, mutate_bytes, mutated

MUTATIONS = 200
LARGEST = 50_000

LOGS: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "mooncake": ("mooncake", ".jsonl", workload_logs.mooncake),
    "mooncake in turns": ("mooncake", ".jsonl", workload_logs.sessions),
    "aiperf": ("mooncake-aiperf", ".jsonl", workload_logs.sessions),
    "dynamo": ("mooncake-dynamo", ".jsonl", workload_logs.sessions),
    "conversations": ("aiperf-multi-turn", ".jsonl", workload_logs.conversations),
    "tracelab": ("tracelab", ".jsonl", workload_logs.tracelab),
    "atif": ("atif", ".json", workload_logs.atif),
    "spans": ("otel", ".jsonl", workload_logs.otel),
    "events": ("otel", ".jsonl", workload_logs.otel_events),
    "har": ("har", ".har", workload_logs.har),
    "litellm": ("litellm", ".json", workload_logs.litellm),
    "payloads": ("litellm", ".jsonl", workload_logs.payloads),
}


@pytest.mark.parametrize("what", sorted(LOGS))
def test_no_mutation_escapes(what: str, tmp_path: Path) -> None:
    importer, suffix, made = LOGS[what]
    log = made()
    assert len(encoded(log)) < LARGEST
    rng = random.Random(f"mutations of {what}")
    began = time.perf_counter()
    for number in range(MUTATIONS):
        path = tmp_path / f"m{suffix}"
        path.write_bytes(mutated(log, rng))
        check(IMPORTERS[importer].read(path), f"mutation {number}")
    assert time.perf_counter() - began < 10


def test_no_mutation_of_bodies_escapes(tmp_path: Path) -> None:
    """Bodies are texts inside the recording: damage them as what they hold."""
    rng = random.Random("mutations of bodies")
    for number in range(MUTATIONS):
        log = workload_logs.har()
        one = rng.choice(log["log"]["entries"])
        posted = json.loads(one["request"]["postData"]["text"])
        one["request"]["postData"]["text"] = mutated(posted, rng).decode("utf-8", "replace")
        answer = one["response"]["content"]["text"].encode()
        one["response"]["content"]["text"] = mutate_bytes(answer, rng).decode("utf-8", "replace")
        path = tmp_path / "m.har"
        path.write_bytes(encoded(log))
        check(IMPORTERS["har"].read(path), f"mutation {number}")


def test_no_mutation_of_a_history_escapes(tmp_path: Path) -> None:
    rng = random.Random("mutations of aider")
    for number in range(MUTATIONS):
        path = tmp_path / "m.aider.chat.history.md"
        path.write_bytes(mutate_bytes(workload_logs.AIDER.encode(), rng))
        check(IMPORTERS["aider"].read(path), f"mutation {number}")


@pytest.mark.parametrize(
    ("what", "key"),
    [
        ("mooncake", b'"input_length": 1000'),
        ("aiperf", b'"output_length": 100'),
        ("dynamo", b'"input_length": 1024'),
        ("tracelab", b'"input_tokens_total": 9000'),
        ("atif", b'"prompt_tokens": 2000'),
        ("events", b'"input_tokens": 10'),
        ("litellm", b'"prompt_tokens": 800'),
        ("payloads", b'"prompt_tokens": 700'),
    ],
)
@pytest.mark.parametrize("nonsense", [b"-5", b"1e300", b'"many"', b"123456789012345678901234567890"])
def test_an_incredible_count_is_reported(what: str, key: bytes, nonsense: bytes, tmp_path: Path) -> None:
    importer, suffix, made = LOGS[what]
    path = tmp_path / f"m{suffix}"
    path.write_bytes(encoded(made()).replace(key, key.partition(b":")[0] + b": " + nonsense))
    assert any("not a credible count" in p.reason for p in IMPORTERS[importer].read(path).problems)


@pytest.mark.parametrize("what", sorted(LOGS))
def test_nothing_and_nonsense_are_said_to_be_that(what: str, tmp_path: Path) -> None:
    importer, suffix, _ = LOGS[what]
    path = tmp_path / f"m{suffix}"
    for data in (b"", b"\n", b"null", b"[1]", b'{"a": 1}', b"\xff\xfe{"):
        path.write_bytes(data)
        result = IMPORTERS[importer].read(path)
        assert result.traces == ()
        assert result.problems, data
