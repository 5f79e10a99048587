"""The engine as the live view shows it: the latest scrape, and how its counters grew."""

from windtunnel.agents.events import EngineSample, GpuSample
from windtunnel.simulator.results.breakdown import Waiting
from windtunnel.simulator.results.facts import growth


class EngineView:
    """Growth is counted inside the measured window once it is open, before that since the first scrape."""

    def __init__(self) -> None:
        self.latest: EngineSample | None = None
        self.busy: EngineSample | None = None
        """The latest scrape that found requests running."""
        self.gpus: dict[int, GpuSample] = {}
        """Latest sample of each GPU."""
        self._first: EngineSample | None = None
        self._base: EngineSample | None = None
        self._in_window = False
        self.queue = Waiting()
        """Whether requests waited, over time."""

    def add(self, sample: EngineSample, *, steady: bool) -> None:
        if self._first is None:
            self._first = self._base = sample
        if steady and not self._in_window:
            self._base, self._in_window = sample, True
        self.latest = sample
        if sample.running:
            self.busy = sample
        self.queue.add(sample)

    @property
    def first(self) -> EngineSample | None:
        return self._first

    @property
    def preemptions(self) -> float:
        """Of the run so far; 0 where not reported."""
        if self._first is None or self.latest is None:
            return 0.0
        return growth(self._first, self.latest, "preemptions") or 0.0

    @property
    def hit_ratio(self) -> float | None:
        hits, queries = self.grown("prefix_hits"), self.grown("prefix_queries")
        return hits / queries if hits is not None and queries else None

    @property
    def acceptance_length(self) -> float | None:
        accepted, drafts = self.grown("spec_accepted"), self.grown("spec_drafts")
        return 1 + accepted / drafts if accepted is not None and drafts else None

    def grown(self, counter: str) -> float | None:
        """Growth of a counter of `EngineSample`; None where not reported."""
        if self._base is None or self.latest is None:
            return None
        return growth(self._base, self.latest, counter)
