"""The cap on requests per second.

`asyncio-throttle` counts by `time.monotonic` and lets every waiter poll. Here its log of admissions stands on the run's
clock, who came first goes first, and each is woken when it is due: late wake-ups do not add up to a lower rate.
"""

import asyncio

from asyncio_throttle.throttler import Throttler

from windtunnel.agents.clock import Clock

NS = 1_000_000_000


class RateCap(Throttler):
    """One admission per 1/`per_s` seconds, not `per_s` in one burst at the start of each second."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        super().__init__(1, period=1 / per_s)
        self._clock = clock
        self._turn = asyncio.Lock()

    async def acquire(self) -> None:
        async with self._turn:
            due = self._clock.now_ns()
            if len(self._task_logs) >= self.rate_limit:
                due = max(due, round(self._task_logs.popleft() + self.period * NS))
                await self._clock.sleep_until(due)
            self._task_logs.append(due)
