"""How much an engine's counters grew from scrape to scrape, also where the engine was restarted in between."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results.summary_model import EngineDelta

COUNTERS = (*EngineDelta.__struct_fields__, "step_s", "behind_s")
Values = Sequence[float | None]
_values = attrgetter(*COUNTERS)


class Counters:
    """The growth over all samples that were added.

    Summed over the rises between samples, as Prometheus' `increase()` does: after a drop the new value counts from 0.
    An engine's counters begin anew together: where one fell, those count from 0 too that have outgrown what they were.
    Replicas are held apart where samples tell them apart. What was counted between the last sample before a restart and
    the restart is lost.
    """

    def __init__(self, samples: Iterable[EngineSample] = ()) -> None:
        self.restarts: list[int] = []
        """When samples showed that counters had begun anew, ns since the origin."""
        self._first: EngineSample | None = None
        self._last: EngineSample | None = None
        self._known: dict[str, Values] = {}
        """The latest values of each replica; of `""` the sums."""
        self._before: dict[str, float] = {}
        """What counters had come to when they began anew."""
        for sample in samples:
            self.add(sample)

    def add(self, sample: EngineSample) -> None:
        now: dict[str, Values] = {"": _values(sample)}
        for name, values in (sample.apart or {}).items():
            now[name] = [values.get(counter) for counter in COUNTERS]
        if self._first is None:
            self._first = sample
        self._last = sample
        replicas = len(now) > 1 and len(self._known) > 1
        anew = False
        for name, old in self._known.items():
            new = now.get(name)
            fell = new is None or _fell(old, new)
            if fell and bool(name) == replicas:
                anew = True
                for counter, value in zip(COUNTERS, old, strict=True):
                    if value is not None:
                        self._before[counter] = self._before.get(counter, 0) + value
            elif new is not None and not fell and None in new:
                now[name] = [a if b is None else b for a, b in zip(old, new, strict=True)]
        self._known = now
        if anew:
            self.restarts.append(sample.t)

    def grown(self, counter: str) -> float | None:
        """None where the first sample or the last does not report it."""
        if self._first is None or self._last is None:
            return None
        before, after = getattr(self._first, counter), getattr(self._last, counter)
        if before is None or after is None:
            return None
        grown: float = after - before + self._before.get(counter, 0)
        return grown if grown >= 0 else None


def _fell(old: Values, new: Values) -> bool:
    for a, b in zip(old, new, strict=True):  # noqa: SIM110 -- a loop takes 0.6 of the time, at each of an hour's samples
        if a is not None and b is not None and b < a:
            return True
    return False


def growth(before: EngineSample, after: EngineSample, counter: str) -> float | None:
    """From one sample to the next."""
    return Counters((before, after)).grown(counter)
