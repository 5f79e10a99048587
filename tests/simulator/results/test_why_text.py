"""Whatever a trace holds, the figures of a break fit together and its lines keep to the width."""

import random

import pytest

from windtunnel.simulator.results.why_text import Paper, one_break
from windtunnel.traces.breakers import find
from windtunnel.traces.culprits import CULPRITS
from windtunnel.traces.model import Block, Call, Header, Message, Thread, ToolCall, ToolSet, Trace, Usage, digest_of

TEXTS = (
    "<system-reminder>x</system-reminder>",
    "2026-11-29 10:00",
    "x-anthropic-billing-header: a",
    "a" * 50,
    "a" * 40,
    '{"a":1,"b":2}',
    '{"b":2,"a":1}',
    '{"a":1,"b":2,"cache_control":{}}',
    "gitStatus:\n M a",
    "",
    "[1,2]",
    "\x1b[0m\u4f60",
)


def made_up(seed):
    r = random.Random(seed)
    count = r.randint(1, 12)

    def block(number):
        text = r.choice(TEXTS)
        kept = None if r.random() < 0.3 else text
        return Block(
            number,
            digest_of(text if r.random() < 0.8 else str(number)),
            r.choice(["json", "prose"]),
            r.randint(0, 30),
            len(text),
            kept,
            filler=kept is None and r.random() < 0.5,
            media="image/png" if r.random() < 0.1 else None,
        )

    def some(most):
        return tuple(r.randrange(count) for _ in range(r.randint(0, most)))

    def message(number):
        calls = tuple(ToolCall("t", r.choice("AB"), b) for b in some(2))
        return Message(number, r.choice(["system", "user", "assistant", "tool"]), some(3), some(1), calls)

    messages = [message(i) for i in range(r.randint(1, 10))]
    toolsets = [ToolSet(i, tuple(r.sample("ABCD", r.randint(0, 4))), r.randrange(count)) for i in range(3)]
    calls, lengths = [], []
    for number in range(r.randint(1, 14)):
        base = r.randrange(number) if number and r.random() < 0.8 else None
        keep = 0 if base is None else r.randint(0, lengths[base])
        added = tuple(r.randrange(len(messages)) for _ in range(r.randint(0, 3)))
        lengths.append(keep + len(added))
        calls.append(
            Call(
                number,
                r.randint(0, 2),
                added,
                base,
                keep,
                r.choice([None, 0, 1, 2]),
                r.choice([None, r.randrange(len(messages))]),
                Usage(cached=r.choice([None, 0, 30])),
                kind=r.choice(["turn", "turn", "auxiliary", "compaction"]),
            )
        )
    blocks = tuple(block(i) for i in range(count))
    threads = (Thread(0), Thread(1, 0), Thread(2, 0))
    return Trace(Header("made-up"), blocks, tuple(messages), tuple(toolsets), threads, tuple(calls))


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_figures_fit_together_and_lines_keep_to_the_width(start):
    seen = set()
    for seed in range(start, start + 100):
        for found in find(made_up(seed)).breaks:
            seen.add(found.culprit)
            assert 0 <= found.common_tokens <= found.prompt_tokens
            assert 0 < found.lost_tokens <= found.prompt_tokens - found.common_tokens
            assert found.against < found.call
            assert max(map(len, one_break(found, Paper(60)))) <= 60
    assert len(seen) > 5
    assert seen <= set(CULPRITS)
