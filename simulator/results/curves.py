"""One run as curves: its throughput over time and its latencies, call by call."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results import figures
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.lines import CHUNKS, COARSE, Outline
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.tally import Tally
from windtunnel.simulator.results.validity import is_recording

MOST_STEPS = 4000
LATENCIES = ("ttft_s", "tpot_s", "e2e_s", "makespan_s")
"""Keys of `Curves.latencies`."""

Values = NDArray[np.float64]


class Curves(Struct, frozen=True):
    step_s: float
    """Seconds from one of `rates` to the next, the first one at the run's start."""
    rates: Values
    """Output tokens/s of all agents, by arrival."""
    window: tuple[float, float] | None
    """The measured stretch, s since the run's start."""
    latencies: dict[str, Values]
    """Metric to the window's values, ascending, s: of each call, `makespan_s` of each whole session."""


def curves(tally: Tally) -> Curves:
    step, edges = _steps(tally)
    tokens, _ = np.histogram(tally.arrivals.times / NS, bins=edges, weights=tally.arrivals.counts)
    return _of(tally, step, edges, tokens)


def outlined(folder: RunFolder) -> Curves:
    """The same in half the time: arrivals not chunk by chunk, but by the sums that the run told of as it went on."""
    events = list(folder.events(leave_out=(CHUNKS, COARSE)))
    told = [(event.t, event.output_tokens) for event in events if isinstance(event, Outline)]
    tally = Tally(folder.run, events)
    step, edges = _steps(tally)
    if len(told) < len(edges):
        return curves(Tally(folder.run, folder.events()))
    times, sums = np.array([(tally.first_t, 0), *told], dtype=np.float64).T
    return _of(tally, step, edges, np.diff(np.interp(edges, times / NS, sums)))


def _steps(tally: Tally) -> tuple[float, Values]:
    length = max(tally.end_t / NS, 1.0)
    step = max(1.0, length / MOST_STEPS)
    return step, np.arange(0.0, length + step, step)


def _of(tally: Tally, step: float, edges: Values, tokens: Values) -> Curves:
    """`tokens` arrived between each edge (s) and the next."""
    length = max(tally.end_t / NS, 1.0)
    sizes = np.minimum(edges[1:], length) - edges[:-1]
    whole = sizes > step / 4  # the last step counts what it holds, and not where that is next to nothing
    of_calls = {"ttft_s": of_call.ttft_s, "tpot_s": of_call.tpot_s, "e2e_s": of_call.e2e_s}
    found = {
        name: [v for call in tally.window_calls if (v := figure(call)) is not None] for name, figure in of_calls.items()
    }
    # A recorded session ends when the recording does: how long it took is not known.
    found["makespan_s"] = [] if is_recording(tally.run) else figures.makespans_s(tally)
    window = tally.window
    return Curves(
        step_s=step,
        rates=(tokens[whole] / sizes[whole]),
        window=None if window is None else (window.start / NS, window.end / NS),
        latencies={name: np.sort(np.array(values, dtype=np.float64)) for name, values in found.items()},
    )


def pooled(runs: Sequence[Curves], name: str) -> Values:
    """A latency of several runs together, ascending."""
    parts = [run.latencies[name] for run in runs]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0)


def mean_rates(runs: Sequence[Curves], length_s: float, steps: int) -> list[float | None]:
    """Output tokens/s of several runs over [0, length_s) in `steps` equal parts: the mean of those that reach there."""
    sums, counts = np.zeros(steps), np.zeros(steps)
    for run in runs:
        middles = (np.arange(len(run.rates)) + 0.5) * run.step_s
        at = np.minimum((middles / length_s * steps).astype(int), steps - 1)
        mine, n = np.bincount(at, run.rates, steps), np.bincount(at, minlength=steps)
        reach = min(steps, int(np.ceil(len(run.rates) * run.step_s / length_s * steps)))
        known = n > 0
        # Parts finer than the run's own steps take the value that holds there.
        index = np.minimum(((np.arange(steps) + 0.5) / steps * length_s / run.step_s).astype(int), len(run.rates) - 1)
        values = np.where(known, mine / np.maximum(n, 1), run.rates[index] if len(run.rates) else 0.0)
        sums[:reach] += values[:reach]
        counts[:reach] += 1
    return [float(s / c) if c else None for s, c in zip(sums, counts, strict=True)]
