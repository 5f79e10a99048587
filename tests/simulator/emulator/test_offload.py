"""The host tier: what is copied there, found there, given up; requests that wait for it."""

from typing import Any

import numpy as np

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.facts import gpu, model
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.offload import HostTier, OffloadKv
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler
from windtunnel.simulator.emulator.steptime import StepTime


class Same:
    def tokens(self, start: int, stop: int) -> list[int]:
        return list(range(start, stop))


def core(*, blocks: int, host: int, seconds: float = 0.001, asynchronous: bool = False, **more: Any) -> Core:
    limits = Limits(
        num_gpu_blocks=blocks,
        max_model_len=2048,
        max_num_batched_tokens=512,
        offload_blocks=host,
        offload_block_s=seconds,
        **more,
    )
    times = StepTime(gpu("b200"), model("llama-3.1-8b"), Mode(asynchronous=asynchronous))
    return Core(Scheduler(limits), times, asynchronous=asynchronous)


def ask(key: str, first: int, prompt: int, out: int = 4) -> Request:
    return Request(key, np.arange(first, first + prompt, dtype=np.uint32), Same(), out, block_size=16)


def serve(engine: Core, request: Request, at: int) -> int:
    """When it is over, with nothing else going on."""
    engine.submit(request, at)
    while engine.due is not None:
        at = engine.turn().ended
    assert request.finished == "length"
    return at


def test_the_least_recently_used_piece_gives_way_and_none_that_is_in_use() -> None:
    host = HostTier(4)
    assert host.store([1, 2, 3]) == [1, 2, 3]
    assert host.state(1) == "coming"
    host.stored([1, 2, 3])
    assert host.state(1) == "there"
    # A request that used them is over: its first block is given up last.
    host.used([1, 2, 3])
    assert host.store([9]) == [9]
    assert host.store([8]) == [8]
    assert host.state(3) == "missing"
    host.load([2])
    assert host.store([7]) == [7]
    assert [host.state(key) for key in (1, 2)] == ["missing", "there"]
    # 2 is being read, the others are being written.
    assert host.store([6]) is None
    host.loaded([2])
    assert host.store([6]) == [6]
    assert host.state(2) == "missing"


def test_what_is_asked_for_does_not_give_way_to_the_rest_of_it() -> None:
    host = HostTier(2)
    host.store([1])
    host.stored([1])
    assert host.store([1, 2, 3]) is None
    assert host.state(1) == "there"


def test_a_prompt_that_the_gpu_lost_is_loaded_from_the_host() -> None:
    # 20 blocks of the GPU hold one conversation; the host keeps both.
    engine = core(blocks=21, host=100)
    first = ask("a", 0, 256)
    at = serve(engine, first, 0)
    at = serve(engine, ask("b", 5000, 256), at)
    again = ask("a2", 0, 260)
    begin = at
    at = serve(engine, again, at)
    # All of its 16 blocks but those that the GPU still has: a millisecond each, then one step at least.
    counters = engine.scheduler.counters
    local = counters.hits
    assert again.hit == 256
    assert local + counters.external_hits == 256
    assert counters.external_hits >= 192
    assert counters.queries == 256 + 256 + 260
    assert counters.external_queries == 256 + 256 + 260 - local
    assert again.scheduled_at is not None
    assert again.scheduled_at - begin == counters.external_hits // 16 * 1_000_000
    assert engine.scheduler.pool.free_count == 20


def test_without_a_host_tier_it_is_computed_again() -> None:
    engine = core(blocks=21, host=0)
    at = serve(engine, ask("a", 0, 256), 0)
    at = serve(engine, ask("b", 5000, 256), at)
    again = ask("a2", 0, 260)
    serve(engine, again, at)
    assert again.hit is not None
    assert again.hit < 64
    assert engine.scheduler.counters.external_queries == 0


def test_only_prompts_are_offloaded() -> None:
    engine = core(blocks=40, host=100)
    serve(engine, ask("a", 0, 100, 100), 0)
    kv = engine.scheduler.kv
    assert isinstance(kv, OffloadKv)
    assert len(kv.host) == 100 // 16


def test_others_run_while_a_request_waits_for_its_load() -> None:
    engine = core(blocks=64, host=100, seconds=0.1)
    at = serve(engine, ask("a", 0, 256), 0)
    for i in range(4):
        at = serve(engine, ask(f"b{i}", 5000 * (i + 1), 256), at + 10**10)
    again, other = ask("a2", 0, 256), ask("c", 90_000, 100)
    at += 10**10
    engine.submit(again, at)
    engine.submit(other, at)
    assert [request.key for request in engine.scheduler.loading] == ["a2"]
    order = []
    while engine.due is not None:
        order += [output.request.key for output in engine.turn().outputs if output.finished]
    assert order == ["c", "a2"]
    # All 16 blocks came back, and the last token was computed once more.
    assert again.hit == 256
    assert engine.scheduler.counters.hits + engine.scheduler.counters.external_hits == 256


def test_a_load_that_two_want_is_made_once() -> None:
    engine = core(blocks=64, host=100)
    at = serve(engine, ask("a", 0, 256), 0)
    for i in range(4):
        at = serve(engine, ask(f"b{i}", 5000 * (i + 1), 256), at + 10**10)
    one, two = ask("a2", 0, 260), ask("a3", 0, 260)
    engine.submit(one, at + 10**10)
    engine.submit(two, at + 10**10)
    assert list(engine.scheduler.waiting) == [two]
    while engine.due is not None:
        engine.turn()
    counters = engine.scheduler.counters
    assert one.hit == two.hit == 256
    # The second one found them on the GPU.
    assert counters.external_hits == 256 - (counters.hits - 256)
    assert counters.hits >= 256


def test_an_aborted_load_frees_its_blocks() -> None:
    engine = core(blocks=21, host=100)
    at = serve(engine, ask("a", 0, 256), 0)
    at = serve(engine, ask("b", 5000, 256), at)
    again = ask("a2", 0, 260)
    engine.submit(again, at)
    assert engine.scheduler.loading == [again]
    assert engine.abort(again)
    while engine.due is not None:
        engine.turn()
    assert engine.scheduler.pool.free_count == 20
    assert serve(engine, ask("a3", 0, 260), at + 10**9)
