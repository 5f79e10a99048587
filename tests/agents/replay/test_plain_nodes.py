"""A message that needs nothing but its text is written by a shorter way: to the same bytes, pieces and tokens."""

import random
from collections import Counter

import pytest

from windtunnel.agents import normalise
from windtunnel.agents.nodes import leaves
from windtunnel.agents.normalise import ChatTree
from windtunnel.agents.rendering import Rendering
from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Block, Call, Header, Message, Thread, ToolCall, Trace, Usage
from windtunnel.traces.text import stored

NAMES = ["dark-theme", "fix-importer", "flaky-test", library.recorded()[0]]


def nodes(trace, rendering):
    """All that was rendered, in the order of the calls; and how many messages went the shorter way."""
    changes = Counter()
    tree = ChatTree(trace, rendering, changes)
    seen, out = set(), []
    for leaf in leaves(trace, tree):
        node = leaf
        while node is not None and id(node) not in seen:
            seen.add(id(node))
            fields = {name: getattr(node, name) for name in node.__slots__ if name not in ("parent", "children")}
            out.append((fields, None if node.parent is None else node.parent.message))
            node = node.parent
    return out, +changes


def odd(seed):
    """A session in which anything may follow anything."""
    rng = random.Random(seed)
    blocks, messages = [], []
    for number in range(60):
        role = rng.choice(["user", "assistant", "tool", "tool", "system"])
        calls = ()
        if role == "assistant" and rng.random() < 0.6:
            blocks.append(Block(len(blocks), f"a{len(blocks)}", "json", 9))
            calls = (ToolCall(f"c{rng.randint(0, 3)}", "Bash", len(blocks) - 1),)
        told = []
        for _ in range(rng.choice([1, 1, 1, 0, 2])):
            text = rng.choice([None, None, "", "a recorded text"])
            blocks.append(Block(len(blocks), f"b{len(blocks)}", "prose", rng.choice([0, 1, 3, 12, 80]), 0, text))
            told.append(len(blocks) - 1)
        answers = f"c{rng.randint(0, 3)}" if role == "tool" else None
        messages.append(Message(number, role, tuple(told), tool_calls=calls, tool_call_id=answers))
    outputs = [m.id for m in messages if m.role == "assistant"]
    whole = tuple(range(60))
    calls = [Call(n, 0, whole[:at], output=at, usage=Usage(completion=5)) for n, at in enumerate(outputs)]
    return Trace(Header("odd"), tuple(blocks), tuple(messages), threads=(Thread(0),), calls=tuple(calls))


@pytest.mark.parametrize("tokens", [(0, 0), (6, 9), (0, 9)])
@pytest.mark.parametrize("overhead", [{}, {"default_system": 7, "fixed_overhead": 0}, {"system_first": True}])
@pytest.mark.parametrize("name", [*NAMES, *range(12)])
def test_both_ways_lead_to_the_same(name, overhead, tokens, monkeypatch):
    trace = odd(name) if isinstance(name, int) else read_trace(library.path(name)).traces[0]
    rendering = Rendering(stored(), salt_tokens=tokens[0], tag_tokens=tokens[1], **overhead)
    taken = []

    def counted(*args, **more):
        node = plain(*args, **more)
        taken.append(node is not None)
        return node

    plain = normalise.plain_node
    monkeypatch.setattr(normalise, "plain_node", counted)
    shorter = nodes(trace, rendering)
    assert isinstance(name, int) or sum(taken) > len(taken) / 4
    monkeypatch.setattr(normalise, "plain_node", lambda *args, **more: None)
    assert shorter == nodes(trace, rendering)
