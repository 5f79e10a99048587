"""Running lazily, with undisturbed requests parked, gives exactly what walking through every step gives."""

import gc
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.crowd import Crowd
from windtunnel.simulator.emulator.kv import KvCache
from windtunnel.simulator.emulator.kv_grouped import GroupedKv
from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler

FAR = 1 << 62
PLAIN: tuple[Group, ...] = ()
GROUPED = (
    (Group("window", 16, window=128), Group("full", 16)),
    (Group("full", 16), Group("window", 16, window=64, count=2)),
    (Group("mamba", 64, count=3), Group("full", 64)),
    (Group("mamba", 64, count=2, checkpoints=True), Group("full", 64)),
)


class Pace:
    """Step times that depend on everything a step says about itself, so that a wrong sum shows."""

    def of(self, step: Any) -> float:
        return self.seconds(step.sequences, step.tokens, step.context, step.windowed) + 1e-9 * step.work

    def seconds(self, sequences: int, tokens: int, context: int, windowed: int = 0) -> float:
        return 0.004 + 1e-5 * sequences + 3e-6 * tokens + 1e-8 * context + 3e-8 * windowed


class Said:
    """Output tokens that say whose they are, and drafts of which some are accepted."""

    def __init__(self, base: int) -> None:
        self.base = base

    def tokens(self, start: int, stop: int) -> list[int]:
        return list(range(self.base + start, self.base + stop))

    def accepted(self, position: int, drafted: int) -> int:
        return (position * 7919 + self.base) % 11 % (drafted + 1)


def requests(rng: np.random.Generator, count: int, longest: int, size: int) -> list[tuple[int, Request]]:
    at, made = 0, []
    shared = rng.integers(0, 1000, size=64).astype(np.uint32)
    for i in range(count):
        at += int(rng.integers(0, 300_000_000)) * int(rng.random() < 0.7)
        fresh = rng.integers(0, 1000, size=int(rng.integers(1, longest // 3))).astype(np.uint32)
        prompt = np.concatenate([shared, fresh]) if rng.random() < 0.8 else fresh
        out = int(rng.integers(1, longest - len(prompt)))
        ends = int(rng.integers(1, 250)) if rng.random() < 0.7 else None
        priority = int(rng.integers(3))
        made.append(
            (
                at,
                Request(
                    str(i), prompt, Said(1000 * (i % 3)), out, block_size=size, arrival=i, ends=ends, priority=priority
                ),
            )
        )
    return made


def repeated(rng: np.random.Generator, count: int, longest: int, size: int) -> list[tuple[int, Request]]:
    """Requests that others repeat, or go on from, while they are running and afterwards."""
    at, made, texts = 0, [], [(np.arange(20, dtype=np.uint32), 0)]
    for i in range(count):
        at += int(rng.integers(0, 300_000_000)) * int(rng.random() < 0.6)
        prompt, base = texts[int(rng.integers(len(texts)))]
        chance = rng.random()
        if chance < 0.2:
            prompt, base = rng.integers(0, 1000, size=int(rng.integers(1, longest // 4))).astype(np.uint32), 1000 * i
        elif chance < 0.65:
            said = int(rng.integers(0, 200))
            more = rng.integers(0, 1000, size=int(rng.integers(0, 40)))
            prompt, base = np.concatenate([prompt, np.arange(base, base + said), more]).astype(np.uint32), base + said
        prompt = prompt[: longest - 20]
        texts.append((prompt, base))
        out = int(rng.integers(1, longest - len(prompt)))
        ends = int(rng.integers(1, 400)) if rng.random() < 0.7 else None
        request = Request(str(i), prompt, Said(base), out, block_size=size, arrival=i, ends=ends, priority=i % 3)
        made.append((at, request))
    return made


def eager(core: Core, asks: list[tuple[int, Request]], aborts: dict[int, str]) -> dict[str, list[Any]]:
    got: dict[str, list[Any]] = {request.key: [] for _, request in asks}

    def turn() -> list[Request]:
        turn = core.turn()
        for o in turn.outputs:
            got[o.request.key].append((turn.ended, o.tokens))
        return [o.request for o in turn.outputs if o.finished]

    got["known"] = drive(core, asks, aborts, lambda until: turn())
    return got


def lazy(core: Core, asks: list[tuple[int, Request]], aborts: dict[int, str]) -> dict[str, list[Any]]:
    got = {"known": drive(core, asks, aborts, core.run)}
    for _, request in asks:
        given = core.collect(request)
        tokens = iter(given.tokens)
        got[request.key] = [
            (e, [next(tokens) for _ in range(n)]) for e, n in zip(given.ends, given.counts, strict=True)
        ]
    return got


def drive(
    core: Core,
    asks: list[tuple[int, Request]],
    aborts: dict[int, str],
    advance: Callable[[int], list[Request]],
) -> list[Any]:
    """Play to the end; what was known at each arrival and abort."""
    by_key = {request.key: request for _, request in asks}
    known: list[Any] = []
    events = sorted([*((at, 0, r.key) for at, r in asks), *((at, 1, key) for at, key in aborts.items())])
    while events or core.due is not None:
        upcoming = events[0][0] if events else FAR
        if core.due is None or upcoming < core.due:
            at, kind, key = events.pop(0)
            known.append(snapshot(core.scheduler))
            if kind == 0:
                core.submit(by_key[key], at)
            else:
                core.abort(by_key[key])
            continue
        advance(upcoming - 1)
    return known


def snapshot(scheduler: Scheduler) -> tuple[Any, ...]:
    if scheduler.parking is not None:
        scheduler.parking.settle()
    running = [(r.key, r.known, r.computed, r.placeholders, r.in_flight) for r in scheduler.running]
    return deepcopy(scheduler.counters), running, scheduler.pool.usage


def state(core: Core, asks: list[tuple[int, Request]]) -> dict[str, Any]:
    pool = core.scheduler.pool
    return {
        "counters": core.scheduler.counters,
        # Which of the blocks without a key is which does not matter, and no number either.
        "order": [None if key is None else (key, found) for _, key, found in pool.queue()],
        "cached": pool.cached_blocks,
        "requests": [(r.hit, r.created, r.preemptions, r.finished, r.scheduled_at) for _, r in asks],
    }


Asked = Callable[[np.random.Generator, int, int, int], list[tuple[int, Request]]]


def play(
    play: Callable[..., Any], seed: int, drafts: int = 0, *, grouped: bool = False, asked: Asked = requests
) -> tuple[Any, Any, Counter[str]]:
    rng = np.random.default_rng(seed)
    longest = int(rng.choice([600, 2000]))
    asynchronous = bool(rng.random() < 0.6)
    groups = GROUPED[int(rng.integers(len(GROUPED)))] if grouped else PLAIN
    limits = Limits(
        groups=groups,
        block_size=groups[-1].block_size if groups else 16,
        num_gpu_blocks=int(rng.choice([longest // 16 + 24, 160, 300, 4000])),
        max_model_len=longest,
        max_num_seqs=int(rng.choice([3, 16, 64])),
        max_num_batched_tokens=int(rng.choice([512, 700])),
        long_prefill_token_threshold=int(rng.choice([0, 0, 100])),
        window=int(rng.choice([0, 128])),
        priority=bool(rng.random() < 0.3),
        speculative_tokens=drafts,
        lookahead=drafts if rng.random() < 0.6 else 0,
        draft_slots=int(drafts and rng.random() < 0.3),
    )
    asks = asked(rng, 40, longest, limits.hash_block_size)
    aborts = {asks[i][0] + int(rng.integers(2, 10**9)): str(i) for i in range(0, 40, 9)}
    core = Core(Scheduler(limits, asynchronous=asynchronous), Pace(), asynchronous=asynchronous, lazy=play is lazy)
    got = play(core, asks, aborts)
    return got, state(core, asks), Counter(preempted=core.scheduler.counters.preemptions, seed=1)


@pytest.mark.parametrize(("drafts", "grouped"), [(0, False), (1, False), (3, False), (0, True), (3, True)])
def test_running_lazily_equals_walking_through_every_step(drafts: int, grouped: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in (1, 3, 6):
        walked, expected, _ = play(eager, seed, drafts, grouped=grouped)
        ran, state, counts = play(lazy, seed, drafts, grouped=grouped)
        assert state == expected, seed
        assert ran == walked, seed
        seen += counts
    assert seen["preempted"] > 0


@pytest.mark.parametrize("grouped", [False, True])
def test_running_lazily_finds_what_requests_in_flight_have_in_common(grouped: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in (4, 5, 7):
        walked, expected, _ = play(eager, seed, grouped=grouped, asked=repeated)
        ran, state, counts = play(lazy, seed, grouped=grouped, asked=repeated)
        assert state == expected, seed
        assert ran == walked, seed
        assert expected["counters"].hits > 1000
        seen += counts
    assert grouped or seen["preempted"] > 0


@pytest.mark.parametrize(("grouped", "fewer"), [(False, 4), (True, 1.5)])
def test_who_surely_finds_no_room_is_not_looked_up_again(
    grouped: bool, fewer: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: Counter[str] = Counter()
    least = Crowd._least
    for kind, kv in (("plain", KvCache), ("grouped", GroupedKv)):
        find = kv.find

        def counted(self: Any, request: Request, kind: str = kind, find: Any = find) -> Any:
            lookups[f"{kind} {asking}"] += 1
            return find(self, request)

        monkeypatch.setattr(kv, "find", counted)
    for seed in (2, 3, 19):
        asking = "always"
        monkeypatch.setattr(Crowd, "_least", lambda _: 0)
        walked, expected, _ = play(eager, seed, grouped=grouped, asked=repeated)
        asking = "seldom"
        monkeypatch.setattr(Crowd, "_least", least)
        assert play(eager, seed, grouped=grouped, asked=repeated)[:2] == (walked, expected), seed
        asking = "lazily"
        assert play(lazy, seed, grouped=grouped, asked=repeated)[:2] == (walked, expected), seed
    kind = "grouped" if grouped else "plain"
    assert lookups[f"{kind} always"] > fewer * lookups[f"{kind} seldom"] > 0
    assert lookups[f"{kind} lazily"] <= lookups[f"{kind} seldom"]


def test_an_answer_is_decided_without_a_walk_between_its_prompt_and_its_end() -> None:
    """Two steps are decided one by one for each of these, and one when an idle engine begins; the rest is foreseen."""
    limits = Limits(groups=GROUPED[0], num_gpu_blocks=4000, max_model_len=4000, window=128)
    core = Core(Scheduler(limits), Pace(), lazy=True)
    walked, schedule = [], core.scheduler.schedule

    def counted() -> Any:
        walked.append(core.scheduler.counters.steps)
        return schedule()

    core.scheduler.schedule = counted  # type: ignore[method-assign]
    asks = [Request(str(i), np.full(500, i, dtype=np.uint32), Said(1000 * i), 300, block_size=16) for i in range(4)]
    for i, request in enumerate(asks):
        core.submit(request, 1000 * i)
    over: list[Request] = []
    while core.due is not None:
        over += core.run(FAR)
    assert over == asks
    assert core.scheduler.counters.steps > 300
    assert len(walked) <= 6
    given = core.collect(asks[0])
    assert len(given.ends) == sum(given.counts) == 300
    assert list(given.ends) == sorted(given.ends)


def test_what_was_cached_and_evicted_is_not_left_to_the_collector() -> None:
    rng = np.random.default_rng(0)
    core = Core(Scheduler(Limits(groups=GROUPED[0], num_gpu_blocks=200, window=128)), Pace(), lazy=True)
    gc.collect()
    gc.disable()
    try:
        for i in range(30):
            prompt = rng.integers(0, 1000, size=700).astype(np.uint32)
            core.submit(Request(str(i), prompt, Said(0), 100, block_size=16), core.due or 0)
            while core.due is not None:
                core.run(FAR)
        assert gc.collect() == 0
    finally:
        gc.enable()
