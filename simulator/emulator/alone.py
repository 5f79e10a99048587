"""The step of one long prompt: it is the only one to be walked through, and takes all that the decoding ones leave.

An engine that is short of blocks is busy with little else, one such step after the other. What is decided and booked is
what the scheduler's walk would have: this is that walk where it is known to end at once.
"""

from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.kv import KvCache
from windtunnel.simulator.emulator.step import Step

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.scheduler import Scheduler


def alone(scheduler: "Scheduler") -> Step | None:
    """The next step, decided and booked, where it is such a one for sure; else None, and nothing has changed.

    For full attention alone, without drafts, with parked requests that are only counted (`tally`).
    """
    parking, kv, number = scheduler.parking, scheduler.kv, scheduler.counters.steps
    if parking is None or (tally := parking.tally) is None or len(parking.awake) != 1 or type(kv) is not KvCache:
        return None
    request, count = parking.awake[0], parking.count
    new = scheduler.limits.max_num_batched_tokens - count
    before = request.computed
    if (
        not request.prefilling
        or scheduler.limits.long_prefill_token_threshold
        or new <= 0
        or before + new >= request.known
        or request.placeholders
        or scheduler.running[-1] is not request
        or number in parking.calendar
    ):
        return None
    net, peak = tally.beat.sums(number)
    if peak + kv.wanted(request, new) > scheduler.pool.free_count:
        return None

    parking.context += count
    parking.windowed += parking.rising
    if count:
        if net or peak:
            scheduler.pool.ahead(net, peak)
        tally.passes(request, number)
    grown = kv.grow(request, new)
    assert grown
    tally.decided()
    after = request.computed = before + new
    request.in_flight += new
    request.steady = 0

    step = Step(number)
    step.add(request, new, 0)
    step.resumes = step.prefilling = True
    step.sequences, step.tokens = count + 1, count + new
    step.context, step.longest, step.chunks = parking.context + after, after, 1
    step.work = new * (before + new / 2)
    step.windowed = parking.windowed
    if window := scheduler.limits.window:
        step.windowed += min(after, window + new - 1)
        step.work_windowed = new * min(before + new / 2, window)
    scheduler.flying.append(step)
    scheduler.counters.steps += 1
    return step
