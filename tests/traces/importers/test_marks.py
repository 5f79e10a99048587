"""Each figure of every recorded session says where it comes from: stated, computed by a rule, guessed, or not known."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import Imported, import_path
from windtunnel.traces.model import Call

Import = Callable[[str], Imported]
Row = tuple[str, str, str, str, str]

FIGURES = ("prompt", "cached", "completion", "start", "end")
FORMATS: dict[str, Row] = {
    "claude-code": ("recorded", "recorded", "estimated", "derived", "recorded"),
    "codex": ("recorded", "recorded", "recorded", "derived", "recorded"),
    "gemini": ("recorded", "recorded", "derived", "derived", "recorded"),
    "qwen-code": ("recorded", "recorded", "recorded", "derived", "recorded"),
    "cline": ("recorded", "recorded", "recorded", "derived", "recorded"),
    "opencode": ("recorded", "recorded", "recorded", "derived", "derived"),
    "openhands": ("recorded", "recorded", "recorded", "derived", "recorded"),
    "swe-agent": ("estimated", "unknown", "estimated", "unknown", "unknown"),
    "mini-swe-agent": ("recorded", "recorded", "recorded", "9 derived, 1 estimated", "recorded"),
    "pi": ("439 recorded, 14 unknown", "439 recorded, 14 unknown", "439 recorded, 14 unknown", "recorded", "recorded"),
    "mooncake": ("recorded", "unknown", "recorded", "recorded", "unknown"),
    "aiperf": ("2 recorded, 12 derived", "unknown", "recorded", "2 recorded, 12 unknown", "unknown"),
    "weka-kv-cache-tester": ("recorded", "unknown", "recorded", "recorded", "derived"),
    "tracelab": ("recorded", "recorded", "recorded", "derived", "recorded"),
    "otel": ("recorded", "recorded", "recorded", "4 derived, 1 unknown", "recorded"),
    "atif": ("recorded", "recorded", "recorded", "2 derived, 8 unknown", "derived"),
    "litellm": ("recorded", "recorded", "recorded", "derived", "recorded"),
    "har": ("recorded", "recorded", "recorded", "recorded", "derived"),
}
"""Marks by format, as most of its files have them."""
CLAUDE_RUN = (
    "claude-code/local-run-2.1.332-async-subagents/projects/-home-dev-projects-claude2-proj/"
    "b03b2e51-d564-4f13-a9ca-f9d833b9a7ff"
)
FLAT = "claude-code/codemie-flat/-tmp-private"
SPOTTER = "claude-code/spotter/258c7280-ae70-4798-800f-63464d01a85d"
WEKA = "weka-kv-cache-tester/trace"
ALL_RECORDED: Row = ("recorded", "recorded", "recorded", "recorded", "recorded")


def outputs(completion: str) -> Row:
    """Claude Code up to 2.1.157: the output count of some calls is a placeholder."""
    return ("recorded", "recorded", completion, "derived", "recorded")


def progress(kept: int, added: int, completion: str) -> Row:
    """The last request of each sub-agent that is seen as progress: what its parent's log repeats of it."""
    both = f"{kept} recorded, {added} derived"
    return (both, both, completion, "derived", both)


FILES: dict[str, Row] = {
    "claude-code/entire-2.0.64.jsonl": outputs("51 recorded, 15 estimated"),
    # with a request for a summary that is rebuilt
    "claude-code/entire-2.0.76-compact.jsonl": (
        "12 recorded, 1 estimated", "12 recorded, 1 unknown", "3 recorded, 10 estimated", "derived",
        "12 recorded, 1 derived",
    ),
    "claude-code/entire-2.0.76-badline-2models.jsonl": outputs("41 recorded, 43 estimated"),
    "claude-code/entire-2.1.29-growing-1.jsonl": progress(125, 7, "2 recorded, 130 estimated"),
    "claude-code/entire-2.1.29-growing-2.jsonl": progress(138, 8, "2 recorded, 144 estimated"),
    "claude-code/entire-2.1.42-opus46.jsonl": outputs("6 recorded, 26 estimated"),
    "claude-code/derived-truncated-tail.jsonl": outputs("4 recorded, 15 estimated"),
    "claude-code/viewer-5c0375b4.jsonl": outputs("17 recorded, 3 estimated"),
    "claude-code/tracelab-2026.jsonl": outputs("recorded"),
    f"{SPOTTER}.jsonl": outputs("129 recorded, 27 estimated"),
    # one of the flat layout's agents ran on a service that does not tell what was cached
    f"{FLAT}/4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl": (
        "recorded", "8 recorded, 1 unknown", "7 recorded, 2 estimated", "derived", "recorded",
    ),
    f"{FLAT}/agent-50243ee8.jsonl": ("recorded", "unknown", "recorded", "derived", "recorded"),
    # since 2.1.332 a request has a record of its own
    f"{CLAUDE_RUN}.jsonl": ALL_RECORDED,
    f"{CLAUDE_RUN}/subagents/agent-a27cc872a4204b1b2.jsonl": ALL_RECORDED,
    f"{CLAUDE_RUN}/subagents/agent-a7a58eca87ba11a3a.jsonl": ALL_RECORDED,
    f"{CLAUDE_RUN}/subagents/agent-ac018fe4594dd1cdf.jsonl": ALL_RECORDED,
    # a request that the user's stop cut off
    (
        "codex/local-run-0.171.0-subagents/sessions/2026/11/29/"
        "rollout-2026-11-29T12-45-30-01a22756-cefa-7682-8622-c6cf3e7d95cc.jsonl"
    ): (*(("2 recorded, 1 unknown",) * 3), "derived", "2 recorded, 1 derived"),
    # output and thoughts are counted apart: a sum where there were thoughts
    "gemini/session-2026-01-16T11-01-file-ops-37b7abef.json": outputs("3 recorded, 6 derived"),
    "gemini/local-run-0.61.0/chats/session-2026-11-29T12-46-10ef9c99.jsonl": outputs("7 recorded, 3 derived"),
    # the first answer has no figures and what came before it no time
    "cline/sdk-fixture/success.messages.json": (
        "1 recorded, 1 unknown", "1 recorded, 1 unknown", "1 recorded, 1 estimated", "unknown", "recorded",
    ),
    # what the window shows: an answer ends when the next entry begins
    "cline/ui_messages-coregems.scrubbed.json": ("recorded", "recorded", "recorded", "derived", "derived"),
    "mini-swe-agent/local.traj.json": ("estimated", "unknown", "estimated", "unknown", "unknown"),
    # a sub-agent's times count from its start, which is its end less its duration
    f"{WEKA}_0277.json": ("recorded", "unknown", "recorded", "9 recorded, 44 derived", "derived"),
    f"{WEKA}_0282.json": ("recorded", "unknown", "recorded", "49 recorded, 54 derived", "derived"),
    f"{WEKA}_0010.json": ("recorded", "unknown", "recorded", "122 recorded, 50 derived", "derived"),
    "atif/claude-code-codemie-subagent.trajectory.json": (
        "recorded", "recorded", "15 recorded, 2 estimated", "2 derived, 15 unknown", "derived",
    ),
}  # fmt: skip
"""Files that differ from the rest of their format."""
NO_ANSWER = "openhands/local-run-sdk-1.58.2"
"""A conversation that only the wire answers for."""


def value(call: Call, figure: str) -> float | None:
    times = {"start": call.start_s, "end": call.end_s, "first": call.first_s}
    return times[figure] if figure in times else getattr(call.usage, figure)  # type: ignore[no-any-return]


def marks(calls: list[Call], figure: str) -> str:
    found = Counter("unknown" if value(c, figure) is None else c.marks.get(figure, "recorded") for c in calls)
    order = [mark for mark in ("recorded", "derived", "estimated", "unknown") if found[mark]]
    return order[0] if len(order) == 1 else ", ".join(f"{found[mark]} {mark}" for mark in order)


@pytest.mark.parametrize("folder", FORMATS)
def test_figures_are_marked_as_the_source_has_them(
    folder: str, recorded: Path, answers: dict[str, Any], imported: Import
) -> None:
    names = [n for n in (*answers, NO_ANSWER) if n.partition("/")[0] == folder and Path(n).name != "wire.jsonl"]
    seen = 0
    for name in names:
        calls = [c for t in imported(name).traces for c in t.calls]
        seen += bool(calls)
        if calls:
            assert tuple(marks(calls, f) for f in FIGURES) == FILES.get(name, FORMATS[folder]), name
        # a mark is of a figure that is there
        assert [(c.id, f) for c in calls for f in c.marks if value(c, f) is None] == [], name
    assert seen


def test_every_difference_is_of_a_file(answers: dict[str, Any]) -> None:
    assert set(FILES) <= set(answers)
    assert [name for name, row in FILES.items() if FORMATS[name.partition("/")[0]] == row] == []


def test_no_placeholder_is_left(recorded: Path, answers: dict[str, Any], imported: Import) -> None:
    """An output count of Claude Code that came without a stop reason is never far below the text beside it."""
    checked = 0
    for name in answers:
        if name.startswith(("claude-code/", "atif/")) and not name.endswith("wire.jsonl"):
            for trace in imported(name).traces:
                for call in trace.calls:
                    if call.output is None or call.stop is not None or call.marks.get("completion") == "estimated":
                        continue
                    written = sum(trace.blocks[b].chars for b in trace.message_blocks(trace.messages[call.output]))
                    # no tokenizer makes tokens of more than eight characters on average of such text
                    assert written / 8 <= max(2 * (call.usage.completion or 0), 8), (name, call.id)
                    checked += 1
    assert checked > 100


def test_what_the_log_lacks_of_a_prompt_is_filler(recorded: Path, imported: Import) -> None:
    """A Claude Code log holds a few hundred of the first prompt's tokens (up to 2.1.157)."""
    for name in ("claude-code/entire-2.0.64.jsonl", "claude-code/tracelab-2026.jsonl", "codex/tracelab-2026.jsonl"):
        (trace,) = imported(name).traces
        first = trace.calls[0]
        blocks = [trace.blocks[b] for m in first.append for b in trace.message_blocks(trace.messages[m])]
        filler = sum(b.tokens for b in blocks if b.filler)
        assert 0.2 * (first.usage.prompt or 0) < filler < (first.usage.prompt or 0)
        assert all(b.text is None and b.mark == "derived" for b in blocks if b.filler)


@pytest.mark.parametrize("name", ["claude-code/tracelab-2026.jsonl", "codex/tracelab-2026.jsonl"])
def test_without_times_the_waits_are_unknown(name: str, recorded: Path, imported: Import, tmp_path: Path) -> None:
    """Their causes and tools are known still; a replay fills them with the tools' usual times."""
    records = [json.loads(line) for line in (recorded / name).read_text().splitlines() if line.strip()]
    path = tmp_path / Path(name).name
    path.write_text("".join(json.dumps({k: v for k, v in r.items() if k != "timestamp"}) + "\n" for r in records))
    result = import_path(path)
    (trace,), (timed,) = result.traces, imported(name).traces
    assert len(trace.calls) == len(timed.calls)
    assert {(c.start_s, c.end_s) for c in trace.calls} == {(None, None)}
    assert {(w.seconds, w.mark) for w in trace.waits} == {(None, "estimated")}
    causes = [(w.before, w.cause, w.tools) for w in trace.waits]
    assert causes == [(w.before, w.cause, w.tools) for w in timed.waits if w.cause in ("tool", "human")]
    assert any("timestamp" in p.reason for p in result.problems)
