"""What a row says that no event tells: the engine's queue, a running call's first token, and how slow an agent is."""

import pytest
from fake_run import NS
from msgspec.structs import replace

from windtunnel.agents.events import (
    AgentProgress,
    AgentState,
    CallEnd,
    CallStart,
    EngineSample,
    Event,
    Progress,
    SessionStart,
)
from windtunnel.simulator.results.fold import Fold
from windtunnel.tui.rows import IN_QUEUE, in_engine_queue
from windtunnel.tui.screens.help import FIGURES
from windtunnel.tui.snapshot import Plans, view_of
from windtunnel.tui.theme import UNICODE, plain
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.agents import arranged, columns, head, row_line


def began(agent: int) -> SessionStart:
    return SessionStart(
        t=0, agent=agent, session=f"s{agent}", trace="t", title=f"claude/{agent}", copy=0, calls_total=9, turns_total=9
    )


def sent(t: float, agent: int, thread: int = 0, call: int = 0) -> CallStart:
    return CallStart(
        t=int(t * NS),
        agent=agent,
        session=f"s{agent}",
        thread=thread,
        call=call,
        turn=1 + call,
        turns=9,
        request_id=f"{agent}-{thread}-{call}",
        t_intended=int(t * NS),
        expected_prompt_tokens=1000,
    )


def ended(t: float, start: float, agent: int, recorded_s: float | None, call: int = 0) -> CallEnd:
    return CallEnd(
        t=int(t * NS),
        agent=agent,
        session=f"s{agent}",
        thread=0,
        call=call,
        request_id=f"{agent}-0-{call}",
        t_intended=int(start * NS),
        t_sent=int(start * NS),
        t_first=int(start * NS) + NS // 10,
        t_last=int(t * NS),
        t_end=int(t * NS),
        prompt_tokens=1000,
        completion_tokens=100,
        recorded_latency_s=recorded_s,
    )


def seen(t: float, *agents: AgentProgress) -> Progress:
    return Progress(t=int(t * NS), output_tokens=0, prompt_tokens=0, in_flight=1, in_tool=0, waiting=0, agents=agents)


def scrape(t: float, waiting: float | None) -> EngineSample:
    return EngineSample(t=int(t * NS), scrape_ms=0.5, running=2.0, waiting=waiting)


def shown(*events: Event, end: bool = False) -> View:
    fold, plans = Fold(), Plans()
    for event in events:
        fold.apply(event)
        plans.apply(event)
    head = View(run="r", agents=len(fold.agents))
    return view_of(
        head, fold, plans, ending="interrupted" if end else None, silent_s=None, summary=None, speed="real time 1.0x"
    )


FLEET = (*(began(a) for a in range(4)), *(sent(1 + a / 10, a) for a in range(4)))
GENERATES = seen(2, AgentProgress(0, 0, 0, "decode", 1))


def states(view: View) -> list[AgentState]:
    return [row.state for row in view.rows]


def test_the_newest_calls_without_a_token_are_in_the_engines_queue() -> None:
    """The engine says how many requests wait; it admits in the order of arrival."""
    view = shown(*FLEET, GENERATES, scrape(2, 2.0))
    assert states(view) == ["decode", "prefill", "queue", "queue"]
    assert view.rows[2].doing.text == IN_QUEUE
    assert view.rows[2].ttft_open
    assert view.states() == {"decode": 1, "prefill": 1, "queue": 2}


@pytest.mark.parametrize(
    ("events", "prefilling"),
    [
        ((scrape(2, 0.0),), 3),
        ((scrape(2, None),), 3),
        ((), 3),
        ((scrape(2, 2.0), seen(8, AgentProgress(0, 0, 0, "decode", 9))), 3),
        ((scrape(2, 9.0),), 0),
    ],
    ids=["none waits", "not reported", "no scrape", "an old scrape", "preempted ones wait too"],
)
def test_without_word_of_the_engine_nothing_is_worked_out(events: tuple[Event, ...], prefilling: int) -> None:
    view = shown(*FLEET, GENERATES, *events)
    assert states(view)[0] == "decode"
    assert states(view).count("prefill") == prefilling


def test_an_agent_with_another_call_in_the_engine_does_not_queue() -> None:
    fold = Fold()
    fold.apply_all([began(0), began(1), sent(1, 0), sent(2, 1), sent(3, 0, thread=1)])
    assert in_engine_queue(fold.agents, scrape(3, 1.0), 3 * NS) == frozenset()
    assert in_engine_queue(fold.agents, scrape(3, 2.0), 3 * NS) == {1}
    assert in_engine_queue(fold.agents, scrape(3, 3.0), 3 * NS) == {0, 1}


def test_a_running_call_shows_its_own_first_token_and_the_cache_of_the_one_before_in_grey() -> None:
    """Seen with 6 tokens at 2 s and 26 a quarter later: the first came at 1.9375 s."""
    before = (began(0), sent(0.1, 0), ended(0.9, 0.1, 0, None))
    six, more = (AgentProgress(0, 0, 1, "decode", n) for n in (6, 26))
    view = shown(*before, sent(1, 0, call=1), seen(2, six), seen(2.25, more))
    (row,) = view.rows
    assert row.ttft_s == pytest.approx(0.9375)
    assert row.ttft_about
    assert row.cached_old
    line = row_line(row, columns(120, 32), 120, UNICODE)
    assert "~0.94" in plain(line)
    over = shown(*before, sent(1, 0, call=1), seen(2, six), seen(2.25, more), ended(3, 1, 0, None, call=1)).rows[0]
    assert (over.ttft_s, over.ttft_about, over.cached_old) == (pytest.approx(0.1), False, False)


def test_the_slowest_agent_is_found_by_its_time_over_the_recorded_time() -> None:
    events: list[Event] = [began(a) for a in range(3)]
    for agent, length in enumerate((2.0, 6.0, 3.0)):
        events += [sent(0, agent), ended(length, 0, agent, None if agent == 2 else 2.0)]
    rows = shown(*events).rows
    assert [row.slow for row in rows] == [1.0, 3.0, None]
    assert [row.call_s for row in rows] == [2.0, 6.0, 3.0]
    assert [row.agent for row in arranged(rows, "slow", False)] == [1, 0, 2]
    spec = columns(120, 32)
    names = plain(head(spec, "slow", False, 120, UNICODE))
    end = names.index("vs rec") + len("vs rec")
    assert [plain(row_line(row, spec, 120, UNICODE))[:end].split()[-1] for row in rows] == ["1.0x", "3.0x", "s"]


def test_a_narrow_screen_shows_what_it_is_sorted_by() -> None:
    assert "vs rec" not in plain(head(columns(80, 32, "agent"), "agent", False, 80, UNICODE))
    names = plain(head(columns(80, 32, "slow"), "slow", False, 80, UNICODE))
    assert "vs rec▾" in names
    assert "doing" not in names


@pytest.mark.parametrize(("ttft", "text"), [(0.5, "~0.50"), (12.44, "~12.4"), (140.0, "~140")])
def test_an_estimate_fits_the_narrow_column(ttft: float, text: str) -> None:
    row = Row(agent=0, state="decode", title="x", turn=1, turns=2, ttft_s=ttft, ttft_about=True, rate=12.0)
    assert f" {text:>5} " in plain(row_line(row, columns(80, 32), 80, UNICODE))


def test_a_row_says_that_its_figures_are_of_sub_agents_too() -> None:
    """As long as its session goes on; what a sub-agent's running call shows has a sign of its own."""
    calls = [sent(1, 0), ended(3, 1, 0, None)]
    own = shown(began(0), *calls)
    assert not own.rows[0].mixed
    running = shown(began(0), *calls, sent(4, 0, thread=2, call=1))
    assert (running.rows[0].mixed, running.rows[0].thread) == (False, 2)
    over = replace(ended(6, 4, 0, None, call=1), thread=2)
    mixed = shown(began(0), *calls, sent(4, 0, thread=2, call=1), over, sent(7, 0, call=2))
    assert (mixed.rows[0].mixed, mixed.rows[0].thread) == (True, 0)
    again = shown(began(0), *calls, sent(4, 0, thread=2, call=1), over, began(0))
    assert not again.rows[0].mixed


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Row(agent=0, title="pi/readme"), "pi/readme       "),
        (Row(agent=0, title="pi/readme", mixed=True), "pi/readme +↳    "),
        (Row(agent=0, title="claude/fix-importer", mixed=True), "claude/fix-i… +↳"),
        (Row(agent=0, title="claude/fix-importer", mixed=True, thread=12), "claude/fix-…/↳12"),
    ],
)
def test_whose_calls_a_row_tells_is_never_cut_off(row: Row, text: str) -> None:
    line = plain(row_line(row, columns(100, 32), 100, UNICODE))
    assert text in line
    assert len(line) <= 100


def test_the_sign_is_explained() -> None:
    assert dict(FIGURES)["+LINK"].startswith("the session had sub-agents")
