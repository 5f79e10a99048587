"""Breaks in real recordings. What providers counted as cached says independently where the prompts part."""

from pathlib import Path

import pytest

from windtunnel.traces.breakers import find
from windtunnel.traces.sources import load

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
OPENAI_UNIT = 128
"""Cached tokens are reported in multiples of this."""


def breaks(path):
    if not (TRACES / path).exists():
        pytest.skip(f"{path} of ../shared/traces is not here")
    return [(trace, found) for trace in load([str(TRACES / path)]).traces for found in find(trace).breaks]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("codex/tracelab-2026.jsonl", [(5, 9_216), (7, 10_368)]),
        (
            "codex/localpush/rollout-2026-02-23T12-47-42-019c8a53-a0dd-7130-bcd7-95445d84846a.jsonl",
            [(23, 17_024), (67, 55_168)],
        ),
    ],
)
def test_codex_drops_reasoning_where_its_provider_stopped_finding_tokens(path, expected):
    found = breaks(path)
    assert [(b.call, b.culprit) for _, b in found] == [(call, "dropped_reasoning") for call, _ in expected]
    for (_, b), (_, cached) in zip(found, expected, strict=True):
        assert b.cached_tokens == cached
        assert 0 <= b.common_tokens - cached < OPENAI_UNIT
        assert b.lost_tokens == min(b.before_tokens, b.prompt_tokens) - b.common_tokens
        assert (b.old.what, b.new.what) == ("reasoning", "text")
        assert b.old.text is None, "its words were never logged"
        assert b.old.filler


def test_reasoning_that_costs_half_a_prompt():
    found = breaks("codex/localpush/rollout-2026-02-23T12-47-42-019c8a53-a0dd-7130-bcd7-95445d84846a.jsonl")
    assert [b.lost_tokens for _, b in found] == [38_189, 49_963]


def test_compactions_of_claude_code_opencode_and_cline():
    found = [b for _, b in breaks("claude-code/spotter") if b.culprit == "compaction"]
    assert [(b.call, b.against, b.detail) for b in found] == [(103, 101, "229 messages became 3")]
    assert found[0].prompt_tokens == 33_960

    opencode = [b for _, b in breaks("opencode/local-run-1.18.33-subagents/opencode.db")]
    assert [(b.culprit, b.prompt_tokens) for b in opencode] == [("compaction", 1_142), ("compaction", 9_001)]
    assert opencode[0].detail == "the request for the summary has a prompt of its own"

    cline = [b for _, b in breaks("cline/ui_messages-coregems.scrubbed.json")]
    assert [b.culprit for b in cline] == ["compaction"] * 5
    assert (cline[0].common_tokens, cline[0].cached_tokens) == (8_096, 8_096)


def test_parts_that_no_log_holds_are_not_given_a_name():
    found = [b for _, b in breaks("claude-code/spotter") if b.culprit != "compaction"]
    assert [(b.call, b.culprit, b.common_tokens, b.cached_tokens) for b in found] == [
        (31, "not_recorded", 21_460, 21_460),
        (153, "not_recorded", 21_460, 21_460),
    ]
    assert "the provider found 21,460 tokens in its cache" in found[0].detail


@pytest.mark.parametrize(
    "path",
    [
        "claude-code/entire-2.0.64.jsonl",
        "claude-code/entire-2.1.42-opus46.jsonl",
        "claude-code/tracelab-2026.jsonl",
        "gemini",
        "qwen-code/local-run",
        "swe-agent",
        "har/pi-via-mitmproxy-12.3.1.har",
    ],
)
def test_sessions_that_only_extend_give_none(path):
    assert breaks(path) == []
