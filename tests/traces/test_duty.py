import pytest
from msgspec.structs import replace

from windtunnel.traces.duty import Busy, busy, duty


def test_gaps_between_requests_whoever_sends_them(small):
    """The sub-agent's call runs while the main agent waits: 2.0 to 2.5, 4.0 to 4.5 and 5 to 65 s are idle."""
    assert busy(small) == Busy(2.0 + 1.5 + 0.5 + 1.5, 5.5, (0.5, 0.5, 60.0))


def test_the_cap_decides_how_busy_a_session_is(small):
    found = duty([busy(small)])
    assert [d.cap_s for d in found] == [0.0, 10.0, 60.0, None]
    assert [d.length_s for d in found] == [5.5, 16.5, 66.5, 66.5]
    assert [d.duty_cycle for d in found] == [1.0, pytest.approx(5.5 / 16.5, abs=1e-4), *[pytest.approx(0.0827)] * 2]


def test_calls_side_by_side_count_once_for_the_cycle_and_twice_in_flight(small):
    calls = (*small.calls[:1], replace(small.calls[1], start_s=0.0, end_s=2.0))
    (only,) = duty([busy(replace(small, calls=calls))], [None])
    assert (only.duty_cycle, only.in_flight) == (1.0, 2.0)


def test_sessions_are_weighted_by_their_length():
    (both,) = duty([Busy(1.0, 1.0, (9.0,)), Busy(90.0, 90.0, ())], [None])
    assert both.duty_cycle == 0.91


def test_without_times_nothing_is_said(small):
    blind = tuple(replace(c, end_s=None) for c in small.calls)
    assert busy(replace(small, calls=blind)) is None
    assert duty([]) == []
