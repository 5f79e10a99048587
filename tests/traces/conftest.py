"""Hand-made traces that the tests of this room share."""

from pathlib import Path

import pytest

from windtunnel.traces.model import (
    Block,
    Call,
    Header,
    Message,
    Params,
    Thread,
    ToolCall,
    ToolRun,
    ToolSet,
    Trace,
    Usage,
    Wait,
    digest_of,
)

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of recorded sessions beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    return SHARED


def block(i: int, tokens: int, text: str | None = None, **more) -> Block:
    return Block(
        i, digest_of("hand", str(i)), "prose", tokens, text=text, chars=len(text or ""), mark="recorded", **more
    )


@pytest.fixture
def small() -> Trace:
    """Three main calls, a sub-agent of one call joined by the last, every kind of line."""
    blocks = (
        block(0, 100, filler=True),
        block(1, 50, filler=True),
        block(2, 20, "please fix it"),
        block(3, 8, '{"path": "a.py"}'),
        block(4, 30, "x = 1\n"),
        block(5, 12, "thinking"),
        block(6, 5, "done"),
        block(7, 40, "sub system"),
        block(8, 9, 'sub answer \u00e4\u4e2d\U0001f600 \\ "quoted"\n'),
        block(9, 70, None, media="image/png"),
    )
    messages = (
        Message(0, "system", (1,)),
        Message(1, "user", (2,)),
        Message(2, "assistant", reasoning=(5,), tool_calls=(ToolCall("t1", "Read", 3), ToolCall("t2", "Task", 3))),
        Message(3, "tool", (4, 9), tool_call_id="t1", name="Read"),
        Message(4, "user", (7,)),
        Message(5, "assistant", (8,)),
        Message(6, "tool", (8,), tool_call_id="t2", name="Task"),
        Message(7, "assistant", (6,)),
        Message(8, "user", (2,)),
        Message(9, "assistant", (6,)),
    )
    params = Params(temperature=0.5, top_p=0.9, top_k=40, max_tokens=512, reasoning_effort="high")
    calls = (
        Call(
            0,
            0,
            (0, 1),
            tools=0,
            output=2,
            usage=Usage(170, 0, 28, 12),
            start_s=0.0,
            first_s=1.0,
            end_s=2.0,
            stop="tool_use",
            model="m",
            params=params,
        ),
        Call(1, 1, (4,), output=5, usage=Usage(40, None, 9), start_s=2.5, end_s=4.0, stop="end_turn"),
        Call(
            2,
            0,
            (2, 3, 6),
            base=0,
            keep=2,
            tools=0,
            output=7,
            usage=Usage(307, 170, 5),
            start_s=4.5,
            end_s=5.0,
            stop="end_turn",
            joins=(1,),
            marks={"completion": "estimated"},
        ),
        Call(
            3,
            0,
            (7, 8),
            base=2,
            keep=5,
            tools=0,
            output=9,
            usage=Usage(332, 300, 5),
            start_s=65.0,
            end_s=66.5,
            aborted=True,
            kind="compaction",
        ),
    )
    return Trace(
        header=Header(
            "s1",
            agent="hand",
            agent_version="1",
            models=("m",),
            source="test",
            started_at=1.5,
            title="small",
            notes=("a", "b"),
        ),
        blocks=blocks,
        messages=messages,
        toolsets=(ToolSet(0, ("Read", "Task"), 0),),
        threads=(Thread(0), Thread(1, 0, 0, 0.5, "t2", "sub", background=False)),
        calls=calls,
        tool_runs=(ToolRun(0, "t1", "Read", 2.0, 2.1, error=True), ToolRun(0, "t2", "Task", 2.0, 4.2, thread=1)),
        waits=(
            Wait(2, "tool", 0.1, ("Read",)),
            Wait(2, "subagent", 2.1),
            Wait(2, "client", 0.3, mark="derived"),
            Wait(3, "human", None),
        ),
    )
