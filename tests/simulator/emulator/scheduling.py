"""What tests of the scheduler start from: blocks of 4 tokens, outputs 1000, 1001, ..., one step at a time."""

from collections.abc import Sequence

import numpy as np

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler, Step


class Same:
    """Output tokens 1000, 1001, ... whoever asks."""

    def tokens(self, start: int, stop: int) -> list[int]:
        return list(range(1000 + start, 1000 + stop))


def make(blocks: int = 100, *, seqs: int = 8, budget: int = 64, size: int = 4, **more: object) -> Scheduler:
    limits = {"num_gpu_blocks": blocks, "block_size": size, "max_model_len": 1000, "max_num_seqs": seqs}
    return Scheduler(Limits(**(limits | {"max_num_batched_tokens": budget} | more)))


def ask(key: str, prompt: int | Sequence[int], out: int = 4, *, size: int = 4, **more: object) -> Request:
    """A request; a number of tokens stands for tokens that nobody else has."""
    ids = (
        [int.from_bytes(key.encode()) % 4000 * 1000 + i for i in range(prompt)]
        if isinstance(prompt, int)
        else list(prompt)
    )
    return Request(key, np.array(ids, dtype=np.uint32), Same(), out, block_size=size, **more)


def batch(step: Step | None) -> dict[str, int]:
    return {} if step is None else {r.key: n for r, n in zip(step.requests, step.counts, strict=True)}


def turn(scheduler: Scheduler) -> dict[str, int]:
    """One synchronous step; what it computed."""
    step = scheduler.schedule()
    if step is not None:
        scheduler.complete(step)
    return batch(step)


def finish(scheduler: Scheduler) -> int:
    steps = 0
    while turn(scheduler):
        steps += 1
        assert steps < 10_000
    return steps
