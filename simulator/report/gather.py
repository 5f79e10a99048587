"""What a page shows of a run, read once from its folder: series over time, distributions, where each agent was."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results import lanes as of_lanes
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.damage import in_words, judged
from windtunnel.simulator.results.eventless import doubted, with_events, without_events
from windtunnel.simulator.results.lines import CHUNKS
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.tally import Tally
from windtunnel.simulator.results.untold import SHOWN, Untold
from windtunnel.simulator.results.working_set import working_set
from windtunnel.simulator.view import so_far
from windtunnel.traces.model import Problem

BINS = 240
COLUMNS = 900
"""Resolution of the timeline of agents."""
MOST_LANES = 64
NOT_DRAWN = ("progress", "heartbeat")
"""Types of events that nothing of the page comes from, and most bytes of a long run."""
LONG_BYTES = 100_000_000
"""Of events: from here on the chunks of calls are not read and each call's tokens are spread evenly over its stream. In
a run as long as that a bin is longer than a call's rhythm."""
_DRAWN = {
    "decode": "decode",
    "prefill": "prefill",
    "first": "first",
    "tool": "tool",
    "queue": "queue",
    "wait": "waiting",
    "failed": "failed",
}


class Gathered(Struct, frozen=True):
    path: Path
    run: dict[str, Any]
    summary: Summary
    length_s: float
    window: tuple[float, float] | None
    """s since the run's start."""
    tokens_per_s: list[tuple[float, float]]
    """(s, output tokens a second), by arrival."""
    per_agent: list[tuple[float, float | None]]
    """(s, output tokens a second for each request in flight)."""
    kv: list[tuple[float, float | None]]
    """(s, tokens of the KV cache in use)."""
    working_set: list[tuple[float, float]]
    """(s, tokens of context of all live sessions)."""
    kv_tokens: int | None
    latencies: dict[str, NDArray[np.float64]]
    """Metric to the window's values, ascending, s."""
    lanes: list[tuple[int, list[tuple[int, int, str]]]]
    """(agent, [(first column, columns, state)]); `first`: nobody knows whether it was queue or prefill."""
    lanes_step_s: float
    """Of a column; there are COLUMNS at most."""
    lanes_left_out: int
    damage: str = ""
    """What of the events could not be read, and where; empty where all could."""


def gather(path: Path) -> Gathered:
    """Read a run folder; UsageError where it is none."""
    folder = RunFolder.open(path)
    problems: list[Problem] = []
    summary = folder.summary()
    short = summary is not None and folder.event_bytes() >= LONG_BYTES
    unwanted = () if summary is None else (*NOT_DRAWN, CHUNKS) if short else NOT_DRAWN
    events = list(folder.events(problems, leave_out=unwanted))
    tally = Tally(folder.run, events)
    gone = without_events(folder)
    if summary is None:
        with_events(folder)
    summary = judged(summary or summarise(folder.run, events), problems)
    if gone:
        summary = doubted(summary)
    if state(folder, time.time()) == "running":
        summary = so_far(summary)
    length = max(tally.end_t / NS, 1e-9)
    engine = folder.run.get("engine")
    kv_tokens = engine.get("kv_tokens") if isinstance(engine, dict) else None
    kv_tokens = kv_tokens if isinstance(kv_tokens, int) else None
    tokens, per_agent = _rates(tally, length, spread=short)
    agents = sorted({session.start.agent for session in tally.sessions.values()})
    shown = agents[:MOST_LANES]
    lanes, untold = of_lanes.read(events), Untold()
    for event in events:
        untold.apply(event)
    return Gathered(
        path=path,
        run=folder.run,
        summary=summary,
        length_s=length,
        window=None if tally.window is None else (tally.window.start / NS, tally.window.end / NS),
        tokens_per_s=tokens,
        per_agent=per_agent,
        kv=_usage(tally.engine, kv_tokens),
        working_set=working_set(events, length, BINS),
        kv_tokens=kv_tokens,
        latencies={
            name: np.sort([value for call in tally.window_calls if (value := figure(call)) is not None])
            for name, figure in (("ttft_s", of_call.ttft_s), ("tpot_s", of_call.tpot_s), ("e2e_s", of_call.e2e_s))
        },
        lanes=_lanes(lanes, untold, shown, tally.end_t),
        lanes_step_s=lanes_step_ms(tally.end_t) / 1000,
        lanes_left_out=len(agents) - len(shown),
        damage=gone or in_words(problems),
    )


def _usage(samples: Sequence[EngineSample], kv_tokens: int | None) -> list[tuple[float, float | None]]:
    """KV cache in use by scrape; of a long run with many scrapes the largest of as many neighbours as needed."""
    if kv_tokens is None:
        return []
    used = [(s.t / NS, None if s.kv_usage is None else s.kv_usage * kv_tokens) for s in samples]
    each = -(-len(used) // COLUMNS)
    parts = [used[first : first + each] for first in range(0, len(used), each or 1)]
    return [(part[0][0], max((value for _, value in part if value is not None), default=None)) for part in parts]


def _rates(
    tally: Tally, length: float, *, spread: bool
) -> tuple[list[tuple[float, float]], list[tuple[float, float | None]]]:
    edges = np.linspace(0, length, BINS + 1)
    width = length / BINS
    if not spread:
        tokens, _ = np.histogram(tally.arrivals.times / NS, bins=edges, weights=tally.arrivals.counts)
    else:
        spans = [
            (c.t_first, of_call.ended_ns(c) if c.t_last is None else c.t_last, of_call.output_tokens(c) or 0)
            for c in tally.calls
            if c.t_first is not None
        ]
        tokens = _covered(spans, edges)
    sent = [(c.t_sent, of_call.ended_ns(c)) for c in tally.calls if c.t_sent is not None]
    flying = _covered([(start, end, (end - start) / NS) for start, end in sent], edges) / width
    middles = edges[:-1] + width / 2
    rates = tokens / width
    each = [None if f < 0.05 else float(r / f) for r, f in zip(rates, flying, strict=True)]
    return list(zip(middles.tolist(), rates.tolist(), strict=True)), list(zip(middles.tolist(), each, strict=True))


def _covered(spans: Sequence[tuple[int, int, float]], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """What falls between each two edges (s) of amounts that are spread evenly over (first ns, last ns, amount)."""
    if not spans:
        return np.zeros(len(edges) - 1)
    first, last, amount = np.array(spans, dtype=np.float64).T
    first, lasts = first / NS, np.maximum((last - first) / NS, 1e-9)
    before = [float((amount * np.clip((edge - first) / lasts, 0, 1)).sum()) for edge in edges]
    return np.diff(before)


def lanes_step_ms(end: int) -> int:
    """Of a run that ends at `end` ns, ms of a column of the timeline."""
    return max(1, -(-end // of_lanes.MS // COLUMNS))


def _lanes(
    lanes: Sequence[of_lanes.Lane], untold: Untold, agents: Sequence[int], end: int
) -> list[tuple[int, list[tuple[int, int, str]]]]:
    """What each agent did for most of each column; failures always."""
    chosen = [lanes[agent] for agent in agents]
    now = end // of_lanes.MS
    step = lanes_step_ms(end)
    cells = of_lanes.paint([lane.within(0, step * COLUMNS, now) for lane in chosen], 0, step, COLUMNS)
    untold.mark(cells, [(agent, ()) for agent in agents], 0, step)
    of_lanes.mark_failures(cells, chosen, 0, step)
    return [
        (
            agent,
            [
                (first, columns, _DRAWN[state])
                for first, columns, rank in of_lanes.runs(row)
                if (state := SHOWN[rank]) in _DRAWN
            ],
        )
        for agent, row in zip(agents, cells, strict=True)
    ]
