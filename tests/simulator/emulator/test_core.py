"""The loop over steps: order of scheduling and returning, synchronous and one step ahead."""

import numpy as np

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.facts import gpu, model
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler
from windtunnel.simulator.emulator.steptime import StepTime

FAR = 1 << 62


class Same:
    def tokens(self, start: int, stop: int) -> list[int]:
        return list(range(start, stop))


def core(*, asynchronous: bool, blocks: int = 100) -> Core:
    limits = Limits(num_gpu_blocks=blocks, max_model_len=4096, max_num_batched_tokens=512)
    times = StepTime(gpu("b200"), model("llama-3.1-8b"), Mode(asynchronous=asynchronous))
    return Core(Scheduler(limits), times, asynchronous=asynchronous)


def ask(key: str, prompt: int, out: int, **more: int) -> Request:
    ids = np.arange(prompt, dtype=np.uint32) + 1000 * len(key) + ord(key[0])
    return Request(key, ids, Same(), out, block_size=16, **more)


def test_an_idle_engine_starts_at_once_and_steps_follow_without_gaps() -> None:
    engine = core(asynchronous=False)
    assert engine.due is None
    engine.submit(ask("a", 32, 3), 1000)
    assert engine.due is not None
    ends = []
    while engine.due is not None:
        due = engine.due
        turn = engine.turn()
        assert turn.ended == due
        ends.append(due)
    assert len(ends) == 3
    gaps = np.diff([1000, *ends])
    assert gaps[1] == gaps[2] or abs(gaps[1] - gaps[2]) < 1000


def test_asynchronous_scheduling_admits_an_arrival_one_step_later() -> None:
    joined = {}
    for asynchronous in (False, True):
        engine = core(asynchronous=asynchronous)
        engine.submit(ask("a", 32, 20), 0)
        engine.turn()
        late = ask("b", 32, 2)
        engine.submit(late, engine.due - 1)
        steps = 0
        while not late.output:
            engine.turn()
            steps += 1
        joined[asynchronous] = steps
    assert joined == {False: 2, True: 3}


def test_a_known_length_costs_no_extra_step_and_a_stop_token_one() -> None:
    counts = {}
    for asynchronous in (False, True):
        for ends in (None, 5):
            engine = core(asynchronous=asynchronous)
            request = ask("a", 32, 5 if ends is None else 50, ends=ends) if ends else ask("a", 32, 5)
            engine.submit(request, 0)
            while engine.due is not None:
                engine.turn()
            assert len(request.output) == 5
            assert request.finished == ("stop" if ends else "length")
            counts[asynchronous, ends] = engine.scheduler.counters.steps
    assert counts == {(False, None): 5, (False, 5): 5, (True, None): 5, (True, 5): 6}


def test_output_in_flight_when_its_request_is_preempted_is_delivered_once() -> None:
    # Seven usable blocks, two requests of 48 tokens and 40 outputs: they cannot both stay.
    engine = core(asynchronous=True, blocks=8)
    one, two = ask("a", 47, 40), ask("bb", 47, 40)
    engine.submit(one, 0)
    engine.submit(two, 0)
    got: dict[str, list[int]] = {"a": [], "bb": []}
    while engine.due is not None:
        for output in engine.turn().outputs:
            got[output.request.key] += output.tokens
    assert engine.scheduler.counters.preemptions > 0
    assert got == {"a": list(range(40)), "bb": list(range(40))}
    assert engine.scheduler.pool.free_count == 7


def test_aborting_everything_in_flight_leaves_an_idle_engine() -> None:
    engine = core(asynchronous=True)
    requests = [ask(key, 64, 30) for key in "abc"]
    for request in requests:
        engine.submit(request, 0)
    engine.turn()
    for request in requests:
        assert engine.abort(request)
    while engine.due is not None:
        assert engine.turn().outputs == []
    assert engine.scheduler.pool.free_count == 99
    engine.submit(ask("dddd", 16, 1), 10**9)
    assert engine.turn().outputs[0].finished == "length"


def test_resetting_with_preemption_loses_no_token() -> None:
    engine = core(asynchronous=True)
    request = ask("a", 64, 30)
    engine.submit(request, 0)
    for _ in range(5):
        engine.turn()
    assert not engine.reset_prefix_cache()
    assert engine.reset_prefix_cache(preempt=True)
    got = list(request.output)
    while engine.due is not None:
        for output in engine.turn().outputs:
            got += output.tokens
    assert got == list(range(30))


def test_times_of_the_first_scheduling_are_kept() -> None:
    engine = core(asynchronous=False)
    one = ask("a", 480, 3)
    engine.submit(one, 7)
    two = ask("bb", 480, 3)
    engine.submit(two, 8)
    first = engine.due
    engine.turn()
    assert one.scheduled_at == 7
    assert two.scheduled_at == first
