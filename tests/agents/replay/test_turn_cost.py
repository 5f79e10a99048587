"""A turn joins ready bytes: its cost does not grow with the text."""

import statistics
import time

import pytest

from windtunnel.agents.expected import PrefixIndex, Trail
from windtunnel.agents.isolation import make_tag
from windtunnel.agents.prompt import Conversation, Options, Output, Rendering, prepare
from windtunnel.traces.text import Calibration, stored

from .conftest import agent_session


@pytest.fixture(scope="module")
def long_session():
    return agent_session(300, 11, result=290, name="long")


@pytest.mark.parametrize("route", ["chat", "tokens"])
def test_preparing_a_turn_of_a_long_session_costs_microseconds(long_session, route):
    known = stored()
    calibration = Calibration("ids", known.ratio, known.costs, ids=tuple(range(1000, 3000)))
    began = time.perf_counter()
    prepared = prepare(long_session, route, Rendering(calibration, tag_tokens=12))
    preparation = time.perf_counter() - began
    assert max(long_session.prompt_tokens().values()) > 150_000
    index, trail = PrefixIndex(16), Trail()
    talk = Conversation(prepared, Options("m", tag=make_tag("run", "long", 0)))
    turns, matches, ends, size = [], [], [], 0
    for call in long_session.calls:
        out = Output("x" * 500, token_ids=list(range(prepared.pinned[call.id])))
        t0 = time.perf_counter()
        body = talk.body(call.id)
        t1 = time.perf_counter()
        index.sent(trail, body.kept_pieces, body.added_pieces, body.expected_prompt_tokens)
        t2 = time.perf_counter()
        index.generated(trail, talk.ended(call.id, out))
        t3 = time.perf_counter()
        turns.append(t1 - t0)
        matches.append(t2 - t1)
        ends.append(t3 - t2)
        size = max(size, body.length)
    body_us, match_us, end_us = (statistics.median(x) * 1e6 for x in (turns, matches, ends))
    print(
        f"\n{route}: 300 calls, {size / 1e3:.0f} kB body: a turn {body_us:.0f} us, expected hits {match_us:.1f} us, "
        f"an output {end_us:.0f} us (medians); prepared in {preparation:.2f} s"
    )
    assert body_us < 200
    assert match_us < 200
    assert end_us < 500


def test_a_prepared_session_is_linear_in_its_text(long_session):
    prepared = prepare(long_session, "chat", Rendering(stored()))
    nodes, waiting = 0, [prepared.leaves[0]]
    held = 0
    root = prepared.leaves[0]
    while root.parent is not None:
        root = root.parent
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += node.children.values()
        nodes += 1
        held += len(node.head) + len(node.body)
    assert nodes == 1 + len(long_session.messages) - 1  # the last output is in no prompt
    body = Conversation(prepared, Options("m")).body(299)
    assert held == pytest.approx(body.length, rel=0.01)
