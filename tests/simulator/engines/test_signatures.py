"""Reasons of failed starts are found in time, whatever a log holds."""

import time

import pytest

from windtunnel.simulator.emulator import flags
from windtunnel.simulator.engines import signatures
from windtunnel.simulator.engines.base import Answer, root_of
from windtunnel.simulator.engines.probe import chunks
from windtunnel.traces.errors import UsageError


def test_a_log_of_very_long_lines_is_read_in_time():
    noise = "".join(chr(33 + i % 90) for i in range(3000))
    log = f"{noise}\n{'x' * 100_000}\nValueError: no such thing\n"
    began = time.perf_counter()
    assert "no such thing" in signatures.reason(log, 7)
    assert time.perf_counter() - began < 1


def test_answers_nested_too_deep_are_no_json():
    deep = b'{"a":' * 200_000
    assert Answer(200, deep).record() == {}
    assert chunks(b"data: " + deep + b"\n\n") == []


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("HTTP://h:9/v1/chat/completions", "http://h:9"),
        ("https://host/prefix/v1", "https://host/prefix"),
        ("h:8000", "http://h:8000"),
    ],
)
def test_the_root_of_what_a_person_types(url, root):
    assert root_of(url) == root


@pytest.mark.parametrize(
    "url", ["http://h:99999", "http://h:abc", "http://[::1", "ftp://h", "http://h/v1?x=1", "", "://"]
)
def test_what_is_no_url_is_said_before_anything_is_asked(url):
    with pytest.raises(UsageError):
        root_of(url)


def test_a_negative_context_is_refused():
    with pytest.raises(UsageError, match="--max-model-len must be at least 1, not -5"):
        flags.parse(["--max-model-len", "-5"])
    assert flags.parse(["--max-model-len", "auto"]).limits.max_model_len > 0
