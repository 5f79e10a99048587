"""Time that moves when a test says so."""


class Clocks:
    """Unix time and a monotonic clock, both in seconds."""

    def __init__(self) -> None:
        self.wall = 1_764_000_100.0
        self.monotonic = 0.0
