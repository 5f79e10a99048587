"""512 prompts of 200 KB are ready in under a second, and a turn joins bytes that are there already.

CPU time is measured, and allowed several times of what it takes, so that a busy machine does not fail it.
"""

import time

import pytest

from windtunnel.agents.prompt import Conversation, Options, prepare
from windtunnel.agents.rendering import Rendering
from windtunnel.simulator.run.prepare import tagged, uncollected
from windtunnel.traces.model import Block, Call, Header, Message, Thread, Trace, Usage, digest_of
from windtunnel.traces.text import stored

LANES, BYTES = 512, 200_000
LIMIT_S = 2.2
KINDS = ("prose", "code", "json")


def session(name, messages):
    """A session of one call, whose prompt has so many messages."""
    each = round(BYTES / sum(stored().ratio[kind] for kind in KINDS) * len(KINDS) / messages)
    roles = ["system", *("user" if n % 2 else "assistant" for n in range(1, messages)), "assistant"]
    blocks = [Block(n, digest_of(name, str(n)), KINDS[n % 3], each) for n in range(messages + 1)]
    return Trace(
        Header(name, shape_only=True),
        tuple(blocks),
        tuple(Message(n, role, (n,)) for n, role in enumerate(roles)),
        threads=(Thread(0),),
        calls=(Call(0, 0, tuple(range(messages)), output=messages, usage=Usage(completion=each)),),
    )


def spent(traces):
    """CPU time from traces to the bodies of all lanes' first requests, s; and those bodies' lengths."""
    began = time.process_time()
    with uncollected():
        prepared = [prepare(trace, "chat", Rendering(stored(), tag_tokens=8)) for trace in traces]
    bodies = []
    for lane in range(LANES):
        one = prepared[lane % len(prepared)]
        options = tagged(Options("m"), "run", one.trace.header.id, lane // len(prepared))
        bodies.append(Conversation(one, options).body(0).parts)
    return time.process_time() - began, bodies


@pytest.mark.parametrize("messages", [3, 60])
def test_of_sessions_that_are_all_different(messages):
    took, bodies = spent([session(f"a{messages} {n}", messages) for n in range(LANES)])
    assert took < LIMIT_S
    assert min(sum(map(len, parts)) for parts in bodies) > 0.9 * BYTES
    assert len({b"".join(parts) for parts in bodies}) == LANES


def test_of_lanes_that_share_sessions_of_many_messages():
    took, bodies = spent([session(f"b{n}", 60) for n in range(64)])
    assert took < LIMIT_S
    assert min(sum(map(len, parts)) for parts in bodies) > 0.9 * BYTES
    assert len({b"".join(parts) for parts in bodies}) == LANES


def test_another_request_of_a_prepared_session_costs_next_to_nothing():
    prepared = prepare(session("c", 60), "chat", Rendering(stored(), tag_tokens=8))
    began = time.process_time()
    for copy in range(LANES):
        body = Conversation(prepared, tagged(Options("m"), "run", "c", copy)).body(0)
    took = time.process_time() - began
    assert took < 0.5
    assert sum(map(len, body.parts)) > 0.9 * BYTES
