"""What is compared: each metric with its direction, its unit, and how it is read from a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.experiments.statistics import Better
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.metrics import METRICS
from windtunnel.simulator.results.summary_model import STATISTICS, Distribution, Summary
from windtunnel.traces.errors import UsageError

Key = tuple[str, int, int]
"""(session, thread, call): the same work in every run of the same sessions and seed."""
Calls = Mapping[Key, CallEnd]

DEFAULT = (
    "output_tokens_per_s",
    "session_equivalents_per_hour",
    "ttft_s.p50",
    "ttft_s.p90",
    "tpot_s.p50",
    "e2e_s.paired",
    "makespan_s.p50",
    "stall_s_per_agent",
)
"""The first one is what the budget of blocks is spent on. Those that no run reports (a makespan needs sessions that are
played from their first call to their last) are left out."""
_PAIRED: Mapping[str, Callable[[CallEnd], float | None]] = {
    "ttft_s": of_call.ttft_s,
    "tpot_s": of_call.tpot_s,
    "e2e_s": of_call.e2e_s,
}


class Metric(Struct, frozen=True):
    """`name` is a summary's metric, `statistic` one of its figures, or `paired`: the mean over the calls that both runs
    completed, so that a run which got further is not judged by other calls.
    """

    name: str
    statistic: str | None

    def __str__(self) -> str:
        return self.name if self.statistic is None else f"{self.name}.{self.statistic}"

    @property
    def better(self) -> Better:
        if self.name == "slo":
            return "higher"
        return METRICS[self.name].better or "lower"

    @property
    def seconds(self) -> bool:
        return self.name == "stall_s_per_agent" or (self.name.endswith("_s") and not self.name.endswith("_per_s"))

    def of(self, summary: Summary, calls: Calls) -> float | None:
        """The figure of one run by itself; of `paired` the mean over its own calls."""
        if self.statistic == "paired":
            return _mean(calls.values(), _PAIRED[self.name])
        if self.name == "slo":
            return None if summary.slo is None else summary.slo.share
        value = getattr(summary, self.name)
        if isinstance(value, Distribution):
            value = getattr(value, self.statistic or "mean")
        return None if value is None else float(value)

    def both(self, base: tuple[Summary, Calls], other: tuple[Summary, Calls]) -> tuple[float | None, float | None]:
        """The figures of two runs of one block, over the same calls where the metric is paired."""
        if self.statistic != "paired":
            return self.of(*base), self.of(*other)
        per_call = _PAIRED[self.name]
        common = [
            key
            for key in base[1].keys() & other[1].keys()
            if per_call(base[1][key]) is not None and per_call(other[1][key]) is not None
        ]
        return _mean((base[1][key] for key in common), per_call), _mean((other[1][key] for key in common), per_call)


def parse(text: str) -> Metric:
    """`ttft_s.p90`, `e2e_s.paired`, `output_tokens_per_s`; UsageError for anything else."""
    name, _, statistic = text.partition(".")
    if text == "slo.share" or (statistic == "paired" and name in _PAIRED):
        return Metric(name, statistic)
    if name not in METRICS or name not in Summary.__struct_fields__:
        raise UsageError(f"'{text}' is no metric: known are {', '.join((*METRICS, 'slo.share'))}")
    if METRICS[name].distribution != bool(statistic) or (statistic and statistic not in STATISTICS):
        wanted = ", ".join((*STATISTICS, *(("paired",) if name in _PAIRED else ())))
        raise UsageError(
            f"'{text}' needs one of {wanted} after the metric's name, like {name}.p50"
            if METRICS[name].distribution
            else f"'{text}' is one number: write {name}"
        )
    return Metric(name, statistic or None)


def chosen(texts: Sequence[str]) -> tuple[Metric, ...]:
    """What is compared, by name; UsageError for a metric of which neither more nor less is better."""
    found = tuple(parse(text) for text in texts or DEFAULT)
    for metric in found:
        if metric.name != "slo" and METRICS[metric.name].better is None:
            raise UsageError(
                f"'{metric}' cannot be compared: neither more nor less of it is better; take another metric"
            )
    return found


def _mean(calls: Iterable[CallEnd], figure: Callable[[CallEnd], float | None]) -> float | None:
    known = [value for call in calls if (value := figure(call)) is not None]
    return fmean(known) if known else None
