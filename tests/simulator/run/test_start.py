"""Lanes that are due together start one after another: the first call of one is not late by the preparation of all."""

from windtunnel.agents import events as ev

from .conftest import chain


def test_a_lane_asks_before_the_next_but_one_begins(replay):
    run = replay(chain(calls=1), agents=20, ramp_s=0.0, sessions=20)
    told = [(e.agent, type(e)) for e in run.events if isinstance(e, ev.SessionStart | ev.CallStart)]
    place = {entry: number for number, entry in enumerate(told)}
    assert len(told) == 40
    assert [agent for agent, kind in told if kind is ev.SessionStart] == list(range(20))
    for agent in range(18):
        assert place[agent, ev.CallStart] < place[agent + 2, ev.SessionStart]
