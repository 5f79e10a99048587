"""What is not told of the time until a first token is drawn as not told."""

import numpy as np
import pytest

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results.lanes import RANK, read
from windtunnel.simulator.results.lanes import paint as painted
from windtunnel.simulator.results.untold import FIRST, SHOWN, Untold, mark

NS = 1_000_000_000


def call(
    end: float, first: float | None, sent: float | None = 0.0, *, agent: int = 0, thread: int = 0, **more
) -> CallEnd:
    t = {"t": end, "t_intended": sent or 0.0, "t_sent": sent, "t_first": first, "t_end": end}
    times = {name: None if value is None else round(value * NS) for name, value in t.items()}
    return CallEnd(agent=agent, session="a", thread=thread, call=0, request_id="r", **times, **more)


def drawn(*calls: CallEnd, columns: int = 10) -> list[str]:
    """By agent one letter a second: `p` prefill, `q` queue, `d` decode, `f` waits for its first token."""
    untold, lanes = Untold(), read(calls)
    for one in calls:
        untold.apply(one)
    now = columns * 1000
    cells = painted([lane.within(0, now, now) for lane in lanes], 0, 1000, columns)
    untold.mark(cells, [(agent, ()) for agent in range(len(lanes))], 0, 1000)
    return ["".join("." if rank == 0 else SHOWN[rank][0] for rank in row) for row in cells]


def test_a_call_that_was_cut_before_its_first_token_was_queued_or_prefilled():
    known = call(4, 3, queued_s=2.0)
    cut = call(9, None, 5, cut=True, failure="cut")
    assert drawn(known, cut) == ["qqpd.ffff."]


def test_so_was_a_call_that_ended_without_saying_before_its_first_token():
    calls = call(4, 3), call(9, 7, 5, agent=1)
    assert drawn(*calls) == ["fffd......", ".....ffdd."]
    # The same when another one tells.
    assert drawn(*calls, call(10, 9, 8, agent=2, queued_s=1.0))[:2] == ["fffd......", ".....ffdd."]
    assert drawn(call(4, 3, queued_s=0.0)) == ["pppd......"]
    assert drawn(call(4, None, None, failure="refused")) == ["qqqq......"], "it was never sent"


def test_the_time_before_it_was_sent_and_what_other_calls_tell_stay():
    other = call(9, 9, 5, thread=1, queued_s=1.0)
    assert drawn(call(4, None, 1), other) == [".fff.qppp."]


@pytest.mark.parametrize(("start", "found"), [(0, 3), (9_999, 2), (30_000, 0)])
def test_only_what_may_reach_beyond_a_time_is_looked_at(start: int, found: int):
    untold = Untold()
    for one in (call(3, None, 1), call(9, 8, 6, thread=2), call(20, 12, 7)):
        untold.apply(one)
    spans = untold.spans(0, start)
    assert spans == [(1000, 3000), (6000, 8000), (7000, 12000)][3 - found :]
    assert untold.spans(0, 0, thread=2) == [(6000, 8000)]
    assert untold.spans(1, 0) == []


@pytest.mark.parametrize("told", [False, True])
def test_a_call_under_way_has_not_told_yet(told: bool):
    untold = Untold()
    if told:
        untold.apply(call(1, 1, queued_s=0.5))
    cells = np.array([[RANK["prefill"], RANK["prefill"], RANK["decode"]]], dtype=np.int8)
    untold.mark(cells, [(0, [(1000, 2000)])], 0, 1000)
    assert cells[0].tolist() == [RANK["prefill"] if told else FIRST, FIRST, RANK["decode"]]


def test_nothing_but_prefill_becomes_untold():
    cells = np.array([[RANK["prefill"], RANK["decode"], RANK["tool"], RANK["failed"], 0]], dtype=np.int8)
    mark(cells, [[(0, 5000)]], 0, 1000)
    assert cells[0].tolist() == [FIRST, RANK["decode"], RANK["tool"], RANK["failed"], 0]
