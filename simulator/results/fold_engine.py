"""The engine as the live view shows it: the latest scrape, and how its counters grew."""

from windtunnel.agents.events import EngineSample, GpuSample
from windtunnel.simulator.results.breakdown import Waiting
from windtunnel.simulator.results.counters import Counters


class EngineView:
    """Growth is counted inside the measured window once it is open, before that since the first scrape."""

    def __init__(self) -> None:
        self.latest: EngineSample | None = None
        self.busy: EngineSample | None = None
        """The latest scrape that found requests running."""
        self.gpus: dict[int, GpuSample] = {}
        """Latest sample of each GPU."""
        self.counters = Counters()
        """Of the run so far."""
        self._shown = self.counters
        self.first: EngineSample | None = None
        self._in_window = False
        self.queue = Waiting()
        """Whether requests waited, over time."""

    def add(self, sample: EngineSample, *, steady: bool) -> None:
        self.first = self.first or sample
        if steady and not self._in_window:
            self._shown, self._in_window = Counters(), True
        self.counters.add(sample)
        if self._in_window:
            self._shown.add(sample)
        self.latest = sample
        if sample.running:
            self.busy = sample
        self.queue.add(sample)

    @property
    def preemptions(self) -> float:
        """Of the run so far; 0 where not reported."""
        return self.counters.grown("preemptions") or 0.0

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
        return self._shown.grown(counter)
