"""Late acknowledgements: only where the server does not wait for them, which one stream finds out."""

import asyncio
import socket
import sys
from itertools import pairwise

import pytest

from windtunnel.agents.acks import Acks, Lateness

MS = 1_000_000
BODY = [b'{"model":"m","stream":true}']


class FakeSocket:
    """A kernel that stays in the dialogue as long as `keeps` says."""

    family = socket.AF_INET

    def __init__(self, *, keeps=True):
        self.keeps = keeps
        self.late = False
        self.sets = self.gets = 0

    def setsockopt(self, _level, _option, value):
        self.sets += 1
        self.late = not value

    def getsockopt(self, _level, _option):
        self.gets += 1
        self.late &= self.keeps
        return int(not self.late)


class FakeFlow:
    def __init__(self, *, keeps=True):
        self.lateness = Lateness()
        self.arrived = 0
        self.socket = FakeSocket(keeps=keeps)
        self.transport = self
        self.closing = False

    def is_closing(self):
        return self.closing

    def get_extra_info(self, name):
        return self.socket if name == "socket" else None


def look(acks, flows, ms, *, flowing=True):
    for flow in flows:
        flow.arrived = ms * MS if flowing else 0
    acks.look(flows, ms * MS)


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="TCP_QUICKACK is Linux's")


@linux
def test_one_stream_tries_and_then_all_do():
    acks, flows = Acks(), [FakeFlow() for _ in range(3)]
    look(acks, flows, 1000)
    assert [flow.socket.sets for flow in flows] == [1, 0, 0]
    look(acks, flows, 1100)
    assert not acks.safe
    look(acks, flows, 1200)
    assert acks.safe
    assert [flow.socket.late for flow in flows] == [True, True, True]
    look(acks, flows, 1450)
    assert [flow.socket.gets for flow in flows] == [2, 0, 0]  # looked at seldom from now on
    look(acks, flows, 3200)
    assert [flow.socket.gets for flow in flows] == [3, 1, 1]


@linux
def test_a_server_that_waits_is_left_alone_after_three_streams():
    acks, flows = Acks(), [FakeFlow(keeps=False) for _ in range(5)]
    for turn in range(20):
        look(acks, flows, 1000 + 250 * turn)
    assert sum(flow.socket.sets for flow in flows) == 3
    assert acks.hopeless
    assert not acks.safe


@linux
def test_who_tried_and_ended_leaves_the_try_to_another():
    acks, flows = Acks(), [FakeFlow(), FakeFlow()]
    look(acks, flows, 1000)
    flows[0].lateness.since = 0  # its answer ended
    look(acks, flows[1:], 1250)
    assert flows[1].socket.sets == 1


@linux
def test_what_does_not_flow_is_not_set_and_proves_nothing():
    acks, flows = Acks(), [FakeFlow(), FakeFlow()]
    look(acks, flows, 1000, flowing=False)
    assert flows[0].socket.sets == 0
    look(acks, flows, 1250)
    look(acks, flows, 1900, flowing=False)
    assert not acks.safe
    flows[1].closing = True
    look(acks, flows[1:], 2000)
    assert flows[1].socket.sets == 0


@linux
def test_a_connection_whose_way_does_wait_is_left_alone_where_others_do_not():
    acks, good, bad = Acks(), FakeFlow(), FakeFlow(keeps=False)
    for turn in range(3):
        look(acks, [good], 1000 + 250 * turn)
    assert acks.safe
    for turn in range(40):
        look(acks, [good, bad], 2000 + 2000 * turn)
    assert bad.socket.sets == 2
    assert good.socket.sets == 1
    assert not acks.hopeless


@linux
@pytest.mark.parametrize("waits", [False, True])
def test_a_real_server_that_waits_for_acknowledgements_is_told_from_one_that_does_not(run, talk, say, waits):
    """A chunk each 10 ms; where Nagle's algorithm is on, all but a few come as they do without us."""
    chunks, gap_s = 90, 0.01

    async def script(_request, writer):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not waits)
        writer.write(say.head)
        for _ in range(chunks):
            writer.write(say.chunked(*say.words("a")[:1], end=False))
            await asyncio.sleep(gap_s)
        writer.write(say.chunked(*say.words("b", usage=chunks + 1)))
        return False

    async def main():
        async with talk(script) as (client, _):
            raws = await asyncio.gather(*(client.stream("/v1/x", BODY, request_id=f"r-{i}") for i in range(8)))
            return client._acks, [[t for t, _ in raw.take()] for raw in raws]

    acks, times = run(main())
    assert acks.safe is not waits
    late = [b - a for one in times for a, b in pairwise(one) if b - a > 30 * MS]
    if waits:
        assert acks._failed > 0
    assert len(late) <= 7  # three tries, and a hiccup of this machine; it would be two of each stream
