"""What benchmark clients send at a fixed concurrency: the lengths, how many requests, which prompts are the same.

Published figures say lengths and concurrency; means depend on the rest of it as well: all first requests arrive at
once, and prompts that repeat are found in the prefix cache.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from windtunnel.simulator.emulator.replay import Ask, Floats


class Client(Struct, frozen=True):
    shortest: float
    """Lengths are drawn evenly between this share of the nominal ones and these."""
    waves: int
    """Requests over concurrency."""
    entries: int | None
    """Different prompts; None: as many as requests."""
    source: str
    known: float = 0.0
    """Share of each prompt that was sent before: by a first wave, a session for each in flight. The first half of the
    waves is not counted: those prompts still meet the first wave's."""


RANDOM = Client(
    0.8,
    10,
    None,
    "InferenceX (its benchmark scripts: --random-range-ratio 0.8, ten prompts for each of --max-concurrency)",
)
"""Random lengths, every prompt another: the client behind published 1k/1k, 1k/8k and 8k/1k figures."""
REPEATED = Client(1.0, 10, 100, "assumed: a client of fixed lengths with 100 different prompts (AIPerf's default)")
FIXED = Client(1.0, 10, None, "assumed: fixed lengths, every prompt another")
AGENTIC = Client(1.0, 4, None, "assumed: sessions whose prompts share nine tenths with the one before", 0.9)
AGAIN = Client(1.0, 4, None, "the same prompt again and again", 1.0)
CLIENTS = {"random": RANDOM, "repeated": REPEATED, "fixed": FIXED, "agentic": AGENTIC, "again": AGAIN}

_PLAYED = 2
"""Waves of different prompts that are played: the later ones are like the second."""


def asks(
    client: Client, concurrency: int, tokens_in: int, tokens_out: int, block_size: int, seed: int = 0
) -> Iterator[Ask]:
    """The requests in the order in which they are sent, with one wave more than is counted."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    count = counted(client, concurrency) + concurrency
    entries = client.entries or count
    lengths = [
        rng.integers(max(1, int(n * client.shortest)), n + 1, size=count).tolist() for n in (tokens_in, tokens_out)
    ]
    for number, prompt, output in zip(range(count), *lengths, strict=True):
        if client.known:
            yield _session(client.known, number, concurrency, prompt, output, block_size)
            continue
        entry = number % entries
        # A block is told from others by its number alone; where entries repeat, lengths are all the same.
        hashes = list(range(entry << 24, (entry << 24) + prompt // block_size))
        yield Ask(np.broadcast_to(np.uint32(entry), (prompt,)), output, hashes=hashes)


def _session(known: float, number: int, concurrency: int, prompt: int, output: int, block_size: int) -> Ask:
    """The first of a session is what all its prompts begin with."""
    blocks, before = prompt // block_size, int(prompt * known) // block_size
    hashes = list(range((number % concurrency) << 24, ((number % concurrency) << 24) + before))
    if number < concurrency:
        return Ask(np.broadcast_to(np.uint32(0), (before * block_size or prompt,)), 1, hashes=hashes)
    hashes += range((concurrency + number) << 24, ((concurrency + number) << 24) + blocks - before)
    return Ask(np.broadcast_to(np.uint32(0), (prompt,)), output, hashes=hashes)


def counted(client: Client, concurrency: int) -> int:
    """Requests that figures are taken of."""
    every = client.entries or client.known
    return concurrency * (client.waves if every else min(client.waves, _PLAYED))


def weights(client: Client, concurrency: int) -> Floats:
    """How much each of them counts in a mean: the second wave stands for the later ones that are not played."""
    count = counted(client, concurrency)
    if client.known:
        return np.where(np.arange(count) < count // 2, 0.0, 1.0)
    later = (client.waves - 1) * concurrency / (count - concurrency)
    return np.where(np.arange(count) < concurrency, 1.0, later)
