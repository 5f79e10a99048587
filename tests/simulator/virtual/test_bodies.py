"""Bodies read with what is remembered of their threads are those read from scratch."""

import random

import msgspec
import numpy as np
import pytest

from windtunnel.agents.clock import VirtualClock
from windtunnel.agents.ids import packed_ids
from windtunnel.agents.prompt import PACKED
from windtunnel.simulator.emulator.ask import Refusal
from windtunnel.simulator.emulator.blocks import chain_hashes, salt_seed
from windtunnel.simulator.emulator.build import core_of
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.script import Inventory, hasher
from windtunnel.simulator.emulator.template import Template
from windtunnel.simulator.emulator.tokenizer import builtin
from windtunnel.simulator.run.bodies import Bodies
from windtunnel.simulator.run.direct import Direct
from windtunnel.simulator.run.spoken import Speech

from .conftest import SMALL

SETTINGS = parse(SMALL.split()[1:])
TAIL = b'],"max_tokens":5,"ignore_eos":true,"stream":true}'


def bodies():
    return Bodies(SETTINGS, Template(builtin()), builtin())


def by_ids(messages):
    """As a session joins its prompt."""
    return [b'{"model":"llama-3.1-8b",' + PACKED, *map(packed_ids, messages), TAIL]


def test_prompts_of_a_thread_that_grows_turns_back_and_branches():
    rng = random.Random(1)
    read, messages = bodies(), []
    for _ in range(60):
        if messages and rng.random() < 0.3:
            del messages[rng.randrange(len(messages)) :]
        messages += [[rng.randrange(90_000) for _ in range(rng.randrange(1, 70))] for _ in range(rng.randrange(1, 3))]
        wanted = read.read("/v1/completions", by_ids(messages), f"s-{rng.randrange(2)}")
        ids = np.array([token for message in messages for token in message], dtype=np.uint32)
        assert wanted.prompt.tolist() == ids.tolist()
        assert list(wanted.hashes) == chain_hashes(ids, 16, salt_seed(None))
        digest = hasher(0)
        digest.update(ids.tobytes())
        assert wanted.digest == digest.digest()
        assert wanted.most == 5


def test_nothing_is_kept_of_a_session_that_is_over():
    read = bodies()
    wanted = [read.read("/v1/completions", by_ids([[n, 2, 3] * 30]), f"r-s{n}-0") for n in (1, 11)]
    read.forget("r-s1-")
    assert list(read._threads) == ["r-s11-0"]
    assert read._held == 90
    again = read.read("/v1/completions", by_ids([[1, 2, 3] * 30]), "r-s1-0")
    assert list(again.hashes) == list(wanted[0].hashes) != list(wanted[1].hashes)


def test_chat_prompts_are_hashed_up_to_where_they_differ():
    read, template = bodies(), Template(builtin())
    messages = [{"role": "system", "content": "You help. " * 90}]
    for turn in range(6):
        messages.append({"role": "user", "content": f"Turn {turn}: " + "look at this file " * 20})
        if turn == 4:
            messages[1]["content"] = "Something else."
        body = msgspec.json.encode({"model": "llama-3.1-8b", "messages": messages, "max_tokens": 5})
        wanted = read.read("/v1/chat/completions", [body[:9], body[9:]], "s-0")
        raw = [msgspec.Raw(msgspec.json.encode(message)) for message in messages]
        ids = template.render(raw, None)
        assert wanted.prompt.tolist() == ids.tolist()
        assert list(wanted.hashes) == chain_hashes(ids, 16, salt_seed(None))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (by_ids([[1] * 9000]), "maximum context length"),
        ([b'{"model":"other","prompt":[1]}'], "does not exist"),
        ([b'{"model":'], "truncated"),
    ],
)
def test_what_the_emulator_refuses_is_a_failed_request(parts, said):
    with pytest.raises(Refusal, match=said):
        bodies().read("/v1/completions", parts, "s-0")
    clock = VirtualClock()
    direct = Direct(
        core_of(SETTINGS, lazy=True), bodies(), Speech(builtin()), Inventory.of(builtin()), None, clock, keep_text=True
    )
    raw = clock.run(direct.stream("/v1/completions", parts, request_id="s-0-0"))
    assert raw.failure in ("http_400", "http_404")
    assert said in raw.detail
    assert raw.t_end == raw.t_sent == 0
