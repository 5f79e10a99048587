"""Whether the first of the waiting requests surely goes on waiting: a crowded engine would ask that in every step."""

from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.rhythm import NEVER

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.scheduler import Scheduler


class Crowd:
    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler
        self._windows = sum(group.count for group in scheduler.limits.groups if group.kind == "window")

    def stays(self) -> bool:
        """Whether it does, in the step that is being decided, of which the running ones have their part."""
        pool = self._scheduler.pool
        return pool.free_count < self._least()

    def few(self) -> int:
        """With fewer free blocks than this before a step it does, whatever that step's decoding gives back."""
        return self._least() - self._windows * len(self._scheduler.running)

    def _least(self) -> int:
        """Free blocks without which it does not come to run; 0 where that is not known."""
        scheduler = self._scheduler
        if len(scheduler.running) >= scheduler.limits.max_num_seqs:
            return NEVER
        first, kv = scheduler.waiting[0], scheduler.kv
        least = kv.lacking(first, beside=bool(scheduler.running))
        tally = scheduler.parking.tally if scheduler.parking is not None else None
        # Blocks that are only counted are made findable where its prompt goes on with them.
        if least and tally is not None and kv.lack is not None and tally.meets(first, kv.lack.matched):
            return 0
        return least
