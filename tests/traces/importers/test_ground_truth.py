"""Every recorded session against its independent answer, in one place: an answer is compared or it is explained.

What a difference means stands in `EXPLAINED`, with both values; a difference that is not there fails, and so does an
explanation of a difference that is gone. The tests of each format look closer.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported

from .ground_truth import FOLDERS, TOGETHER, expected, measured

Answers = dict[str, dict[str, Any]]
Import = Callable[[str], Imported]

CLAUDE_RUN = "claude-code/local-run-2.1.332-async-subagents"
SPOTTER = "claude-code/spotter/258c7280-ae70-4798-800f-63464d01a85d"
FLAT = "claude-code/codemie-flat/-tmp-private"
CODEX_RUN = "codex/local-run-0.171.0-subagents"
CODEX_DAY = f"{CODEX_RUN}/sessions/2026/11/29"
LOCALPUSH = "codex/localpush/rollout-2026-02-23T"
OPENCODE_RUN = "opencode/local-run-1.18.33-subagents"
SPAN_S = 0.003
"""Records that only close a turn follow the last answer by a few milliseconds."""
ESTIMATED = 0.05
"""Share by which an estimate may move when the estimator is tuned."""


class Because(NamedTuple):
    theirs: float
    ours: float
    why: str
    estimate: bool = False
    """Ours is an estimate."""


def placeholder(theirs: int, ours: int) -> Because:
    return Because(
        theirs,
        ours,
        "Claude Code logged the count of the stream's first event for some answers, a few tokens for a long text: no "
        "stop reason came with them. Estimates of the visible text stand in their place, marked so",
        estimate=True,
    )


CLOSING = "the log goes on after the last answer and the last tool, with records that close the turn"
SUMMED_UP = (
    "the request that wrote a compaction's summary left no line: it is rebuilt from the boundary and the summary"
)
EXPLAINED: dict[str, dict[str, Because]] = {
    "claude-code/entire-2.0.64.jsonl": {"completion": placeholder(12_098, 13_499)},
    "claude-code/entire-2.0.76-badline-2models.jsonl": {"completion": placeholder(16_426, 24_724)},
    "claude-code/entire-2.0.76-compact.jsonl": {
        "completion": placeholder(2_038, 6_361),
        "calls": Because(12, 13, SUMMED_UP),
        "prompt": Because(1_304_003, 1_461_874, SUMMED_UP, estimate=True),
        "max_prompt": Because(154_992, 157_871, SUMMED_UP, estimate=True),
    },
    "claude-code/entire-2.1.17-apierror.jsonl": {"completion": placeholder(146, 14_670)},
    "claude-code/entire-2.1.29-growing-1.jsonl": {
        "main_completion": placeholder(492, 15_127),
        "calls": Because(
            125,
            132,
            "a sub-agent seen as progress lacks its last request; the tool's result in the parent has its answer and its "
            "usage: 7 of the 8 had ended",
        ),
        "max_prompt": Because(82_238, 94_818, "the answer is of the main thread; a sub-agent's prompts grew larger"),
        "span_s": Because(8_720.189, 8_801.542, "a sub-agent's progress goes on after the main thread's last line"),
    },
    "claude-code/entire-2.1.29-growing-2.jsonl": {
        "main_completion": placeholder(581, 16_570),
        "calls": Because(138, 146, "as in the earlier snapshot; all 8 sub-agents had ended"),
        "max_prompt": Because(88_149, 94_818, "the answer is of the main thread; a sub-agent's prompts grew larger"),
    },
    "claude-code/entire-2.1.42-opus46.jsonl": {"completion": placeholder(4_448, 9_107)},
    "claude-code/derived-truncated-tail.jsonl": {"completion": placeholder(3_346, 6_605)},
    "claude-code/viewer-5c0375b4.jsonl": {"completion": placeholder(3_629, 5_879)},
    f"{SPOTTER}.jsonl": {"completion": placeholder(38_908, 53_915)},
    f"{SPOTTER}/subagents/agent-a881341.jsonl": {"completion": placeholder(3, 1_115)},
    f"{SPOTTER}/subagents/agent-acompact-fffbd0.jsonl": {"completion": placeholder(6, 3_219)},
    f"{FLAT}/agent-36541525.jsonl": {"completion": placeholder(3, 4_769)},
    f"{FLAT}/4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl": {
        "completion": placeholder(1_046, 5_829),
        "span_s": Because(45.873, 79.251, "the answer is of the main file; a sub-agent of the session ended later"),
    },
    f"{LOCALPUSH}12-47-42-019c8a53-a0dd-7130-bcd7-95445d84846a.jsonl": {
        "span_s": Because(4_181.332, 3_257.068, "the log ends with a prompt that was never answered"),
    },
    f"{CODEX_DAY}/rollout-2026-11-29T12-45-25-01a22756-bd11-7013-8775-fdfa016dd7c1.jsonl": {
        "span_s": Because(6.438, 6.422, CLOSING),
    },
    f"{CODEX_DAY}/rollout-2026-11-29T12-45-26-01a22756-c0b9-7963-9a38-65e7bc6c726e.jsonl": {
        "span_s": Because(2.454, 2.441, CLOSING),
    },
    f"{CODEX_DAY}/rollout-2026-11-29T12-45-26-01a22756-c125-77c3-9d8a-0128800462d4.jsonl": {
        "span_s": Because(2.486, 2.421, CLOSING),
    },
    f"{CODEX_DAY}/rollout-2026-11-29T12-45-30-01a22756-cefa-7682-8622-c6cf3e7d95cc.jsonl": {
        "calls": Because(
            2,
            3,
            "the turn was interrupted while a third request was under way: the scripted model's log has it. It is a call "
            "that was aborted, with its inputs and times and without usage",
        ),
        "prompt": Because(12_723, 19_482, "with the interrupted request's prompt, estimated", estimate=True),
        "max_prompt": Because(6_702, 6_759, "the interrupted request's prompt, estimated", estimate=True),
    },
    f"{CODEX_RUN}/wire.jsonl": {
        "prompt": Because(386_261, 386_100, "the interrupted request's usage is in no log; estimated", estimate=True),
        "cached": Because(279_168, 273_632, "the interrupted request's usage is in no log"),
        "completion": Because(902, 855, "the interrupted request's usage is in no log"),
    },
    "qwen-code/local-run/chats/00f287c5-0867-45ca-81b0-17145e76d27c.jsonl": {
        "span_s": Because(28.094, 28.008, "the telemetry's end of the response; it was written down 0.09 s later"),
    },
    "cline/sdk-fixture/success.messages.json": {
        "calls": Because(1, 2, "the answer counts messages with figures; the first has none, but a model wrote it"),
        "prompt": Because(21, 29, "with that call's prompt, estimated", estimate=True),
        "completion": Because(8, 30, "with that call's output, estimated", estimate=True),
        "first_prompt": Because(21, 8, "that call comes first", estimate=True),
    },
    "cline/ui_messages-coregems.scrubbed.json": {
        "span_s": Because(9_161.382, 9_161.209, "the client's own entries follow the last answer"),
    },
    "cline/local-run-3.0.65-errors/wire.jsonl": {
        "reasoning": Because(173, 0, "the log has reasoning inside the output and does not say how much"),
    },
    "pi/large-session.jsonl": {
        "prompt": Because(
            47_526_750,
            49_027_285,
            "14 requests were stopped before usage came: the log has zeros, but they carried a prompt. It is estimated",
            estimate=True,
        ),
        "span_s": Because(9_661.43, 9_661.436, "a message's own time lies a few ms before that of its line"),
    },
    f"{OPENCODE_RUN}/wire.jsonl": {
        "calls": Because(17, 16, "opencode stores nothing of the request that asked for a title"),
        "prompt": Because(243_711, 243_087, "without the title's request"),
        "completion": Because(862, 844, "without the title's request"),
    },
    "atif/claude-code-codemie-subagent.trajectory.json": {
        "completion": placeholder(11_944, 12_075),
    },
    "aider/zen.aider.chat.history.md": {
        "sessions": Because(4, 0, "none of the runs holds an answer of a model: commands only. It is said"),
    },
    "aider/monochromatic.aider.chat.history.md": {
        "sessions": Because(4, 0, "none of the runs holds an answer of a model: aborted before it. It is said"),
    },
}
ABSENT = {
    "agentic-swarm-bench/trivial-qa__boiling-point.jsonl": "a vendor's own format without answers or times; not kept",
}
"""Answers of which the file is not there."""
RUNS = {"har/wire.jsonl": "har/pi-via-mitmproxy-12.3.1.har"}
"""What to import for a log of the wire, where it is not the folder around it."""
BESIDE = {
    "INDEX.md": "about the folder",
    "ground_truth.json": "the answers",
    "mooncake/README.md": "about the format",
    "codex/localpush/manifest.json": "its author's own counts",
    f"{CLAUDE_RUN}/projects": "a sub-agent's description (.meta.json), read with its session",
    "cline/local-run-3.0.65-errors/db/sessions.db": "an index of the sessions beside it",
    "cline/local-run-3.0.65-errors/sessions/1795956540620_5pr3y/1795956540620_5pr3y.json": "the session's description",
    "cline/sdk-fixture/1784094124598_rruoq.json": "the session's description",
    f"{OPENCODE_RUN}/run-format-json.stdout.jsonl": "what a command printed: parts without their requests",
    "openhands/local-run-sdk-1.58.2/eb17ac200cb74f1f9ecb0a4e92823922": "the conversation of the wire log beside it",
    "openhands/v1.11.5-base_state.json": "a state before the first request",
}
"""Files that have no answer, by their path or a folder of them."""


def source(name: str) -> str:
    """What to import for an answer."""
    return RUNS.get(name, str(Path(name).parent)) if Path(name).name == "wire.jsonl" else name


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_answer_is_compared_or_explained(folder: str, recorded: Path, answers: Answers, imported: Import) -> None:
    names = [name for name in answers if name.partition("/")[0] == folder]
    assert names
    wrong: list[str] = []
    for name in names:
        theirs, result = expected(name, answers), imported(source(name))
        ours = measured(result.traces)
        assert {"calls", "sessions", "main_calls"} & set(theirs), name
        explained = EXPLAINED.get(name, {})
        assert set(explained) <= set(theirs), name
        wrong += [f"{name}: {w}" for w in differences(theirs, ours, explained)]
        if not ours["calls"]:
            assert result.problems, f"{name}: nothing was imported and nothing was said"
    assert not wrong, "\n" + "\n".join(wrong)


def differences(theirs: dict[str, float], ours: dict[str, float], explained: dict[str, Because]) -> list[str]:
    out = []
    for figure, value in theirs.items():
        known, got = explained.get(figure), ours.get(figure)
        slack = SPAN_S if figure == "span_s" else 0.0
        same = got is not None and abs(got - value) <= slack + 1e-9
        if known is None:
            out += [] if same else [f"{figure} is {got}, the answer says {value}"]
        elif known.theirs != value:
            out.append(f"{figure}: the explanation is of {known.theirs}, the answer says {value}")
        elif same:
            out.append(f"{figure}: the difference that is explained is gone")
        elif got != pytest.approx(known.ours, rel=ESTIMATED if known.estimate else 1e-6, abs=SPAN_S):
            out.append(f"{figure} is {got}, explained was {known.ours}")
    return out


def test_no_answer_is_left(recorded: Path, answers: Answers) -> None:
    left = {name for name in answers if name.partition("/")[0] not in FOLDERS}
    assert left == set(ABSENT)
    assert not [name for name in ABSENT if (recorded / name).exists()]


def test_every_explanation_is_of_an_answer(answers: Answers) -> None:
    assert set(EXPLAINED) | set(ABSENT) | set(RUNS) | set(TOGETHER) <= set(answers)
    assert all(because.why for table in EXPLAINED.values() for because in table.values())


def test_every_file_has_an_answer_or_is_known(recorded: Path, answers: Answers) -> None:
    files = {str(p.relative_to(recorded)) for p in recorded.rglob("*") if p.is_file()}
    beside = {f for f in files if any(f == known or f.startswith(f"{known}/") for known in BESIDE)}
    assert files - beside - set(answers) == set()
    assert [known for known in BESIDE if not any(f == known or f.startswith(f"{known}/") for f in beside)] == []


def test_every_import_is_sound(recorded: Path, answers: Answers, imported: Import) -> None:
    """Prompts add up to the recorded sizes, references hold, and a log that gives nothing says why."""
    for name in answers:
        if name in ABSENT:
            continue
        result = imported(source(name))
        assert result.traces or result.problems, name
        for trace in result.traces:
            # the client itself started the warm-up agents of the flat layout
            found = [f for f in faults(trace) if not (name.startswith(FLAT) and f.endswith("is started by no call"))]
            assert found == [], name
