"""Leaping over equal decode steps gives exactly what stepping gives."""

import numpy as np
import pytest

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.facts import gpu, model
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler
from windtunnel.simulator.emulator.steptime import StepTime


class Counting:
    """Output tokens that say whose they are and which."""

    def __init__(self, base: int) -> None:
        self.base = base

    def tokens(self, start: int, stop: int) -> list[int]:
        return list(range(self.base + start, self.base + stop))


def play(
    *, leap: bool, asynchronous: bool, blocks: int, name: str, seqs: int = 64, seed: int = 7
) -> tuple[list, list, dict]:
    rng = np.random.default_rng(seed)
    served = model(name)
    limits = Limits(
        num_gpu_blocks=blocks, max_model_len=4096, max_num_seqs=seqs, max_num_batched_tokens=512, window=served.window
    )
    core = Core(Scheduler(limits), StepTime(gpu("h200"), served, Mode(asynchronous=asynchronous)), asynchronous=asynchronous)
    arrivals = []
    at = 0
    shared = rng.integers(0, 1000, size=64).astype(np.uint32)
    for i in range(40):
        at += int(rng.integers(0, 400_000_000))
        prompt = np.concatenate([shared, rng.integers(0, 1000, size=int(rng.integers(1, 600))).astype(np.uint32)])
        request = Request(
            str(i),
            prompt,
            Counting(1000 * (i % 3)),
            int(rng.integers(1, 300)),
            block_size=16,
            arrival=i,
            ends=int(rng.integers(1, 250)),
        )
        arrivals.append((at, request))
    events: list = []
    leaps = 0
    queue = list(arrivals)
    while queue or core.due is not None:
        upcoming = queue[0][0] if queue else 1 << 62
        if core.due is None or upcoming < core.due:
            at, request = queue.pop(0)
            core.submit(request, at)
            continue
        jump = core.leap(upcoming - 1) if leap else None
        if jump is not None:
            leaps += len(jump.ends)
            for i, end in enumerate(jump.ends):
                events += [(end, r.key, tokens[i], None) for r, tokens in zip(jump.requests, jump.tokens, strict=True)]
            continue
        turn = core.turn()
        events += [(turn.ended, o.request.key, o.tokens[0], o.finished) for o in turn.outputs]
    scheduler = core.scheduler
    state = {
        "counters": scheduler.counters,
        "order": hash(tuple(scheduler.pool.free_order())),
        "cached": scheduler.pool.cached_blocks,
        "leaps": leaps,
    }
    return events, [(r.hit, r.created, r.preemptions) for _, r in arrivals], state


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("blocks", "seqs"), [(4000, 64), (120, 64), (400, 4)])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b"])
def test_leaping_equals_stepping(asynchronous: bool, blocks: int, seqs: int, name: str) -> None:
    slow = play(leap=False, asynchronous=asynchronous, blocks=blocks, name=name, seqs=seqs)
    fast = play(leap=True, asynchronous=asynchronous, blocks=blocks, name=name, seqs=seqs)
    assert fast[2].pop("leaps") > 100
    slow[2].pop("leaps")
    assert fast == slow
    if blocks == 120:
        assert slow[2]["counters"].preemptions > 0
