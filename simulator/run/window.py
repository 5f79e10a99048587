"""When the measured window opens and closes.

Steady state is defined by time (not by a number of requests): every lane has started, every lane has ended its warm-up
calls, and no lane has run dry. The window opens at the moment the last of these becomes true and closes when
`--duration` has passed or when the first thing that may no longer start was wanted (a drain is not steady state).
"""

from collections.abc import Callable

from windtunnel.agents.events import PhaseName
from windtunnel.simulator.run.config import Warmup

NS = 1_000_000_000
WARMUP_LIMIT_S = 900.0
"""A run with a duration gives up waiting for its warm-up after this, or after five windows if that is longer."""


class Window:
    """Phases of a run. `enter(phase, at_ns, note)` is called once for each phase that begins."""

    def __init__(
        self, agents: int, warmup: Warmup, duration_s: float | None, enter: Callable[[PhaseName, int, str | None], None]
    ) -> None:
        self._warmup = warmup
        self._duration_ns = None if duration_s is None else round(duration_s * NS)
        self._enter = enter
        self._left = dict.fromkeys(range(agents), warmup.calls or 0)
        self._unstarted = agents
        self._phase: PhaseName = "starting"
        self._began = 0
        self.deadline: int | None = None
        """When the run must stop by itself (ns), known once the window is open or the warm-up's limit is set."""

    @property
    def phase(self) -> PhaseName:
        return self._phase

    @property
    def wake(self) -> int | None:
        """Next moment (ns) at which `tick` has something to do."""
        if self._phase == "warmup" and self._warmup.seconds is not None:
            opens = self._began + round(self._warmup.seconds * NS)
            return opens if self.deadline is None else min(opens, self.deadline)
        return self.deadline

    def begin(self, now: int) -> None:
        self._began = now
        if self._duration_ns is not None:
            self.deadline = now + max(round(WARMUP_LIMIT_S * NS), 5 * self._duration_ns)
        self._go("warmup", now)

    def lane_started(self, now: int) -> None:
        self._unstarted -= 1
        self._check(now)

    def call_ended(self, agent: int, now: int) -> None:
        if self._left.get(agent):
            self._left[agent] -= 1
            self._check(now)

    def dry(self, now: int) -> None:
        """A lane wanted a session or a call that may not start any more."""
        if self._phase in ("warmup", "steady"):
            self._go("draining", now)

    def end(self, now: int) -> None:
        if self._phase != "done":
            self._go("done", now)

    def tick(self, now: int) -> bool:
        """Called at `wake`; True when the run's time is over."""
        self._check(now)
        return self.deadline is not None and now >= self.deadline

    def _check(self, now: int) -> None:
        if self._phase != "warmup" or self._unstarted:
            return
        if self._warmup.seconds is not None:
            ready = now >= self._began + round(self._warmup.seconds * NS)
        else:
            ready = not any(self._left.values())
        if ready:
            self._go("steady", now)
            if self._duration_ns is not None:
                self.deadline = now + self._duration_ns

    def _go(self, phase: PhaseName, now: int, note: str | None = None) -> None:
        self._phase = phase
        self._enter(phase, now, note)
