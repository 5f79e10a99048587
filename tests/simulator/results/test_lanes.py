"""What agents did over time: exact stretches, one state where several hold, pictures of columns, bounded memory."""

import numpy as np
import pytest

from windtunnel.agents.events import CallEnd, CallStart, SessionEnd, SessionStart, WaitEnd, WaitStart
from windtunnel.simulator.results import lanes as of_lanes
from windtunnel.simulator.results.lanes import RANK, STATES, Lane, mark_failures, paint, read, runs, together

NS = 1_000_000_000


def ns(t):
    return round(t * NS)


def begin(t, agent=0, session="a"):
    return SessionStart(t=ns(t), agent=agent, session=session, trace="", title="", copy=0, calls_total=9, turns_total=9)


def finish(t, status="completed", agent=0, session="a"):
    return SessionEnd(t=ns(t), agent=agent, session=session, status=status)


def started(t, thread=0, call=0, agent=0):
    return CallStart(
        t=ns(t), agent=agent, session="a", thread=thread, call=call, turn=1, turns=9, request_id="r",
        t_intended=ns(t), expected_prompt_tokens=10,
    )  # fmt: skip


def ended(t, sent, first, thread=0, call=0, agent=0, intended=None, **more):
    return CallEnd(
        t=ns(t), agent=agent, session="a", thread=thread, call=call, request_id="r",
        t_intended=ns(sent if intended is None else intended), t_sent=ns(sent), t_first=ns(first), t_end=ns(t), **more,
    )  # fmt: skip


def wait(t, until, cause="tool", thread=0, call=0):
    key = {"agent": 0, "session": "a", "thread": thread, "call": call, "cause": cause}
    return WaitStart(t=ns(t), seconds=until - t, **key), WaitEnd(t=ns(until), **key)


def drawn(lane, start, step, columns, now, **more):
    """One letter a column, by the first letter of the state; seconds."""
    found = lane.within(start * 1000, (start + step * columns) * 1000, now * 1000, **more)
    cells = paint([found], start * 1000, step * 1000, columns)
    mark_failures(cells, [lane], start * 1000, step * 1000)
    return "".join("." if rank == 0 else STATES[rank][0] for rank in cells[0])


def test_a_session_in_exact_stretches():
    events = [begin(0), *wait(1, 4), started(4), ended(9, 5, 7, intended=4), finish(10)]
    (lane,) = read(events)
    assert drawn(lane, 0, 1, 12, 12) == "wtttqppddwdd"  # wait, tool, queue, prefill, decode, wait, done
    assert drawn(lane, 0, 1, 12, 12, thread=0) == ".tttqppdd..."
    assert lane.threads(0, 20_000) == [0]


def test_of_threads_at_once_the_one_that_uses_the_engine_is_shown():
    events = [begin(0), started(0), ended(2, 0, 0), *wait(2, 10, "subagent")]
    events[4:4] = [started(3, thread=2), ended(6, 3, 5, thread=2), *wait(6, 9, thread=2)]
    (lane,) = read(sorted(events, key=lambda e: e.t))
    assert drawn(lane, 0, 1, 10, 10) == "ddwppdtttw"
    assert drawn(lane, 0, 1, 10, 10, thread=0) == "ddwwwwwwww"
    assert drawn(lane, 0, 1, 10, 10, thread=2) == "...ppdttt."
    assert lane.threads(0, 10_000) == [0, 2]
    assert lane.threads(0, 2_500) == [0]


def test_what_goes_on_is_shown_as_far_as_it_is_known():
    lane = Lane()
    for event in (begin(0), started(2)):
        lane.apply(event)
    assert drawn(lane, 0, 1, 8, 6) == "wwppppp."
    assert drawn(lane, 0, 1, 8, 6, seen={0: (RANK["decode"], 4000)}) == "wwppddd."
    assert drawn(lane, 0, 1, 8, 6, seen={0: (RANK["queue"], 2000)}) == "wwqqqqq."
    assert lane.settled(6000) == 2000
    lane.apply(ended(6, 2, 5))
    assert drawn(lane, 0, 1, 8, 6) == "wwpppdw."
    assert lane.settled(6000) == 6000


def test_the_longest_state_of_a_column_and_every_failure():
    events = [begin(0), started(1), ended(6, 1, 2), started(7), ended(9, 7, 8.5, failure="http_500")]
    (lane,) = read(events)
    assert drawn(lane, 0, 5, 2, 10) == "df"
    assert lane.failed(0, 10_000) == [9000]


def test_the_engines_queue_is_shown_where_the_server_told_it():
    (lane,) = read([begin(0), started(2), ended(9, 2, 6, queued_s=3.0)])
    assert drawn(lane, 0, 1, 10, 10) == "wwqqqpdddw"
    (lane,) = read([begin(0), started(2), ended(9, 2, 6, queued_s=30.0)])
    assert drawn(lane, 0, 1, 10, 10) == "wwqqqqdddw", "no longer than until its first token"
    (lane,) = read([begin(0), started(2), ended(9, 2, 6)])
    assert drawn(lane, 0, 1, 10, 10) == "wwppppdddw", "where it is not told, that is part of the prefill"
    (lane,) = read([begin(0), started(2), ended(9, 2, 6, queued_s=1.0, prefilled_s=1.0)])
    assert drawn(lane, 0, 1, 10, 10) == "wwqqqpdddw", "on its way to the queue it is no prefill either"


def test_a_session_that_was_cut_short_ends_what_it_did():
    opened, _ = wait(2, 9)
    (lane,) = read([begin(0), opened, finish(5, "failed"), begin(8, session="b")])
    assert drawn(lane, 0, 1, 10, 10) == "wwtttfffww"


def test_several_agents_as_one_row():
    rows = [[RANK[s] for s in names] for names in (
        ("decode", "tool", "idle", "idle"), ("decode", "tool", "wait", "idle"), ("tool", "decode", "idle", "idle"),
        ("wait", "failed", "idle", "idle"),
    )]  # fmt: skip
    merged = together(np.array(rows, dtype=np.int8))
    assert [STATES[rank] for rank in merged] == ["decode", "failed", "wait", "idle"]


def test_equal_neighbours_are_joined():
    cells = np.array([0, 8, 8, 7, 0, 4], dtype=np.int8)
    assert runs(cells) == [(1, 2, 8), (3, 1, 7), (5, 1, 4)]


def test_many_agents_are_painted_as_if_each_was_alone():
    random = np.random.default_rng(3)
    found = []
    for _ in range(20):
        starts = np.sort(random.integers(0, 90_000, 40))
        found.append((starts, starts + random.integers(1, 9_000, 40), random.integers(1, len(STATES), 40)))
    at_once = paint(found, 5_000, 700, 100)
    for row, mine in zip(at_once, found, strict=True):
        assert (row == paint([mine], 5_000, 700, 100)[0]).all()
    # And as a plain walk through every millisecond says.
    starts, ends, ranks = found[7]
    for column in range(100):
        seconds = [0] * len(STATES)
        for t in range(5_000 + column * 700, 5_700 + column * 700):
            held = [rank for a, b, rank in zip(starts, ends, ranks, strict=True) if a <= t < b]
            seconds[max(held, default=0)] += 1
        seconds[0] = 0
        assert seconds[at_once[7][column]] == max(seconds)


def test_hours_cost_no_more_than_what_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(of_lanes, "KEPT", 400)
    monkeypatch.setattr(of_lanes, "COARSE", 50)
    lane = Lane()
    lane.apply(begin(0))
    for i in range(3000):
        for event in (started(10 * i), ended(10 * i + 6, 10 * i, 10 * i + 1), *wait(10 * i + 6, 10 * i + 9)):
            lane.apply(event)
    assert len(lane) <= 401
    assert drawn(lane, 29_900, 1, 20, 30_000) == "pdddddtttw" * 2
    long_ago = drawn(lane, 0, 300, 90, 30_000)
    assert set(long_ago) <= {"d", "t"}, "nothing of the past is blank"
    assert long_ago.count("d") > 80


def test_a_recorded_session_is_drawn_as_far_as_it_is_known_to_have_gone_on():
    lane = Lane()
    asks = WaitStart(t=ns(2), agent=0, session="a", thread=0, call=1, cause="tool", seconds=None)
    done = SessionEnd(t=ns(9), agent=0, session="a", status="completed", known_t=ns(2))
    for event in (begin(0), started(0), ended(2, 0, 1), asks, done):
        lane.apply(event)
    assert drawn(lane, 0, 1, 6, 9) == "pddddd"
