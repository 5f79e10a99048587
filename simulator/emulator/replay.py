"""Requests played through the engine's core at virtual time: no clock, no HTTP, no event loop.

Open loop: requests arrive at their own times. Closed loop: a fixed number is in flight, and the next one arrives the
moment one ends, as clients with a fixed concurrency do.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.request import Request, Script

FAR = 1 << 62
"""A time that never comes, ns."""
NS = 1_000_000_000
COLUMNS = ("asked", "scheduled", "first", "last", "output", "prompt", "hit")
"""Of `Played`: what is told of each request."""
Times = NDArray[np.int64]
Floats = NDArray[np.float64]


class Ask(Struct, frozen=True):
    """One request before it is sent."""

    prompt: Tokens
    output: int
    """Tokens to generate, exactly."""
    at: int = 0
    """Arrival, ns; of no account in a closed loop."""
    hashes: list[int] | None = None
    """Those of the prompt's full blocks, where they are known."""


class Played(Struct, frozen=True):
    """What became of the requests, in the order in which they arrived. Times in ns."""

    asked: Times
    scheduled: Times
    first: Times
    last: Times
    output: NDArray[np.int64]
    prompt: NDArray[np.int64]
    hit: NDArray[np.int64]
    """Prompt tokens found in the prefix cache."""
    preemptions: int
    steps: int

    @property
    def ttft_s(self) -> Floats:
        return (self.first - self.asked) / NS

    @property
    def tpot_s(self) -> Floats:
        """Per token after the first; 0 for an output of one token."""
        return (self.last - self.first) / NS / np.maximum(self.output - 1, 1)

    @property
    def e2e_s(self) -> Floats:
        return (self.last - self.asked) / NS


class Fill:
    """An output of one token repeated."""

    def __init__(self, token: int) -> None:
        self._token = token

    def tokens(self, start: int, stop: int) -> list[int]:
        return [self._token] * (stop - start)


class Accepting(Fill):
    """The same where drafts are made: each position accepts with its own probability, if all before it did."""

    def __init__(self, token: int, acceptance: tuple[float, ...]) -> None:
        super().__init__(token)
        self._acceptance = acceptance
        self._drawn = np.empty(0)
        self._rng = np.random.Generator(np.random.Philox(key=token))

    def accepted(self, position: int, drafted: int) -> int:
        while len(self._drawn) < position + drafted:
            self._drawn = np.concatenate([self._drawn, self._rng.random(256)])
        for number, probability in enumerate(self._acceptance[:drafted]):
            if self._drawn[position + number] >= probability:
                return number
        return drafted


def play(
    core: Core,
    asks: Iterable[Ask],
    *,
    concurrency: int | None = None,
    counted: int | None = None,
    script: Callable[[int], Script] = Fill,
) -> Played:
    """Play all of `asks` to their ends on a lazy core; with a `concurrency` in a closed loop.

    With `counted` the loop stops once that many first requests have ended, and only those are told of: what comes
    after them keeps the engine as busy as before. `script` makes the output of the request with that number. It should
    differ between requests, or their outputs would share blocks.
    """
    queue = iter(asks)
    made: list[Request] = []
    size = core.scheduler.limits.hash_block_size

    def submit(ask: Ask, now: int) -> None:
        number = len(made)
        request = Request(
            str(number),
            ask.prompt,
            script(number),
            ask.output,
            block_size=size,
            arrival=now,
            hashes=ask.hashes,
        )
        made.append(request)
        core.submit(request, now)

    if concurrency is None:
        _open(core, queue, submit)
    else:
        _closed(core, queue, submit, concurrency, lambda: counted is not None and _ended(made, counted))
    return _gather(core, made[:counted])


def _open(core: Core, queue: Iterator[Ask], submit: Callable[[Ask, int], None]) -> None:
    coming = next(queue, None)
    while coming is not None or core.due is not None:
        if coming is not None and (core.due is None or core.due > coming.at):
            submit(coming, coming.at)
            coming = next(queue, None)
            continue
        _advance(core, FAR if coming is None else coming.at)


def _closed(
    core: Core,
    queue: Iterator[Ask],
    submit: Callable[[Ask, int], None],
    concurrency: int,
    enough: Callable[[], bool],
) -> None:
    for _, ask in zip(range(concurrency), queue, strict=False):
        submit(ask, 0)
    while core.due is not None:
        finished = _advance(core, FAR)
        if finished and enough():
            return
        for _, ask in zip(range(finished), queue, strict=False):
            submit(ask, core.ended)


def _ended(made: list[Request], counted: int) -> bool:
    return len(made) >= counted and all(request.finished is not None for request in made[:counted])


def _advance(core: Core, until: int) -> int:
    """The steps that end by `until`, to the first that ends a request; how many it ends."""
    over = core.run(until)
    for request in over:
        ends = core.collect(request).ends
        request.first_at, request.last_at = ends[0], ends[-1]
    return len(over)


def _gather(core: Core, made: list[Request]) -> Played:
    def column(values: Iterable[int]) -> Times:
        return np.fromiter(values, dtype=np.int64, count=len(made))

    counters = core.scheduler.counters
    return Played(
        asked=column(request.arrival for request in made),
        scheduled=column(request.scheduled_at or 0 for request in made),
        first=column(request.first_at for request in made),
        last=column(request.last_at for request in made),
        output=column(request.ends for request in made),
        prompt=column(request.prompt_tokens for request in made),
        hit=column(request.hit or 0 for request in made),
        preemptions=counters.preemptions,
        steps=counters.steps,
    )
