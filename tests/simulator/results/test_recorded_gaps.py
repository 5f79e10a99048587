"""Sessions of a recording count as far as their calls show that they went on; nobody knows more of them."""

from typing import Any

import pytest

from windtunnel.agents.events import (
    CallEnd,
    CallStart,
    Event,
    Phase,
    RunEnd,
    RunStart,
    SessionEnd,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.summary import summarise

S = 1_000_000_000
RECORDING = {"kind": "recording"}
BEGIN: tuple[Event, ...] = (
    RunStart(t=0, agents=0, wall_clock=0.0),
    Phase(t=0, phase="steady"),
    SessionStart(t=0, agent=0, session="s", trace="s", title="", copy=0, calls_total=0, turns_total=0),
)
END: tuple[Event, ...] = (
    SessionEnd(t=100 * S, agent=0, session="s", status="completed"),
    Phase(t=100 * S, phase="done"),
    RunEnd(t=100 * S, status="completed"),
)
ORDER = (CallEnd, WaitStart, WaitEnd, CallStart)
"""Of events at one time."""


def call(number: int, start: int, end: int, thread: int = 0) -> list[Event]:
    where: dict[str, Any] = {"agent": 0, "session": "s", "thread": thread, "call": number, "request_id": f"r{number}"}
    where["expected_prompt_tokens"] = 0
    begun = {"turn": 1, "turns": 0, "t_intended": start * S}
    times = {"t_intended": start * S, "t_sent": start * S, "t_end": end * S}
    return [CallStart(t=start * S, **where, **begun), CallEnd(t=end * S, **where, **times)]


def wait(cause: str, start: int, end: int | None, thread: int = 0) -> list[Event]:
    """`end` is when the next call of the thread begins; None where none does."""
    where: dict[str, Any] = {"agent": 0, "session": "s", "thread": thread, "call": 9, "cause": cause}
    begun = WaitStart(t=start * S, seconds=None, **where)
    return [begun] if end is None else [begun, WaitEnd(t=end * S, **where)]


def told(*parts: list[Event], end: tuple[Event, ...] = END) -> list[Event]:
    own = sorted((e for part in parts for e in part), key=lambda e: (e.t, ORDER.index(type(e))))
    return [*BEGIN, *own, *end]


WENT_ON = (call(0, 0, 2), wait("tool", 2, 5), call(1, 5, 7), wait("human", 7, 8), call(2, 8, 9), wait("tool", 9, None))
"""3 s in a tool and 1 s of a person's are known; what is after the 9th second is not."""


@pytest.mark.parametrize("end", [END, (Phase(t=100 * S, phase="done"),)], ids=["over", "killed"])
def test_the_summary_counts_what_the_next_call_shows(end: tuple[Event, ...]) -> None:
    summary = summarise(RECORDING, told(*WENT_ON, end=end))
    assert (summary.in_tool_mean, summary.waiting_mean, summary.live_mean) == (0.03, 0.01, 0.09)
    assert summary.duty_cycle == round(5 / 9, 9)
    assert summary.tool_wait_s.n == 1


def test_a_session_that_made_one_call_has_no_more_than_that() -> None:
    summary = summarise(RECORDING, told(call(0, 0, 2), wait("tool", 2, None)))
    assert (summary.in_tool_mean, summary.waiting_mean, summary.duty_cycle) == (0.0, 0.0, 1.0)


def test_sessions_of_a_run_are_known_to_their_ends() -> None:
    summary = summarise({}, told(*WENT_ON))
    assert (summary.in_tool_mean, summary.waiting_mean, summary.live_mean) == (0.94, 0.01, 1.0)


def test_the_live_view_counts_the_same_where_it_was() -> None:
    fold = Fold(RECORDING)
    fold.apply_all(told(*WENT_ON))
    assert (fold.trust.in_tool_s, fold.trust.waiting_s) == (3.0, 1.0)
    assert fold.series.amounts("in_tool", [0, 2 * S, 5 * S, 100 * S]) == [0.0, 3.0, 0.0]
    assert fold.series.amounts("waiting", [0, 7 * S, 8 * S, 100 * S]) == [0.0, 1.0, 0.0]


def test_a_tool_that_runs_beside_a_sub_agent_counts_where_nothing_is_in_flight() -> None:
    """The main agent's tool runs from 2 to 9; a sub-agent's calls are in flight from 3 to 4 and from 6 to 7."""
    sub = (call(1, 3, 4, 1), wait("tool", 4, 6, 1), call(2, 6, 7, 1))
    events = told(call(0, 0, 2), wait("tool", 2, 9), *sub, call(3, 9, 10))
    fold, summary = Fold(RECORDING), summarise(RECORDING, events)
    fold.apply_all(events)
    assert (fold.trust.in_tool_s, fold.trust.waiting_s) == (5.0, 0.0)
    assert (summary.in_tool_mean, summary.waiting_mean) == (0.05, 0.0)
