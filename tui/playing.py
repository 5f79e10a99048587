"""Playing a run again: which moment of it is shown, how fast it goes on, and whether it stands still."""

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""Seconds of the run in a second; what faster and slower go through."""
REPLAY = 10.0
"""The speed with which a finished run begins to be played again, whichever key asks for it."""
STEP_S = 10.0
"""One step forward or back at speed 1; at other speeds so much of the viewer's time."""


class Playing:
    """Times are seconds: of the run (`moment`), and of the clock that is given as `now`."""

    def __init__(self, speed: float | None, at_s: float | None) -> None:
        self.speed = speed if speed is not None else 1.0
        self.paused = speed is None
        """Without a speed the run stands still at the moment asked for."""
        self._moment = max(0.0, at_s or 0.0)
        """Reached when the clock was set last."""
        self._since: float | None = None

    def moment_s(self, now: float) -> float:
        """What is shown; the clock begins to run when it is asked for the first time."""
        if self._since is None:
            self._since = now
        return self._moment if self.paused else self._moment + (now - self._since) * self.speed

    def pause(self, now: float) -> None:
        """Stand still, or go on."""
        self.set(self.moment_s(now), now)
        self.paused = not self.paused

    def change(self, by: int, now: float) -> None:
        """The next faster (+1) or slower (-1) speed."""
        self.set(self.moment_s(now), now)
        others = [s for s in SPEEDS if (s > self.speed if by > 0 else s < self.speed)]
        if others:
            self.speed = others[0] if by > 0 else others[-1]

    def set(self, moment: float, now: float) -> None:
        self._moment, self._since = max(0.0, moment), now

    @property
    def step_s(self) -> float:
        return STEP_S * max(1.0, self.speed)

    @property
    def label(self) -> str:
        """For the header: `replay 10x`, or that it stands still."""
        return f"replay {self.speed:g}x{' paused' if self.paused else ''}"
