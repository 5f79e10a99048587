"""What a page shows of a run, read once from its folder: series over time, distributions, where each agent was."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.agents.events import CallEnd, EngineSample, Event, SessionEnd, SessionStart, WaitEnd, WaitStart
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.tally import Tally
from windtunnel.simulator.results.working_set import working_set

BINS = 240
COLUMNS = 900
"""Resolution of the timeline of agents."""
MOST_LANES = 64
STATES = ("idle", "waiting", "tool", "decode", "prefill")
"""Of a lane; where several hold at once the last one of these is shown."""
_RANK = {name: rank for rank, name in enumerate(STATES)}


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
    """(agent, [(first column, columns, state)]); COLUMNS columns over the run's length."""
    lanes_left_out: int


def gather(path: Path) -> Gathered:
    """Read a run folder; UsageError where it is none."""
    folder = RunFolder.open(path)
    events = list(folder.events())
    tally = Tally(folder.run, events)
    summary = folder.summary() or summarise(folder.run, events)
    length = max(tally.end_t / NS, 1e-9)
    engine = folder.run.get("engine")
    kv_tokens = engine.get("kv_tokens") if isinstance(engine, dict) else None
    kv_tokens = kv_tokens if isinstance(kv_tokens, int) else None
    tokens, per_agent = _rates(tally, length)
    agents = sorted({session.start.agent for session in tally.sessions.values()})
    shown = agents[:MOST_LANES]
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
        lanes=_lanes(events, shown, tally.end_t),
        lanes_left_out=len(agents) - len(shown),
    )


def _usage(samples: Sequence[EngineSample], kv_tokens: int | None) -> list[tuple[float, float | None]]:
    """KV cache in use by scrape; of a long run with many scrapes the largest of as many neighbours as needed."""
    if kv_tokens is None:
        return []
    used = [(s.t / NS, None if s.kv_usage is None else s.kv_usage * kv_tokens) for s in samples]
    each = -(-len(used) // COLUMNS)
    parts = [used[first : first + each] for first in range(0, len(used), each or 1)]
    return [(part[0][0], max((value for _, value in part if value is not None), default=None)) for part in parts]


def _rates(tally: Tally, length: float) -> tuple[list[tuple[float, float]], list[tuple[float, float | None]]]:
    edges = np.linspace(0, length, BINS + 1)
    width = length / BINS
    tokens, _ = np.histogram(tally.arrivals.times / NS, bins=edges, weights=tally.arrivals.counts)
    flying = np.zeros(BINS)
    for call in tally.calls:
        if call.t_sent is not None:
            _cover(flying, call.t_sent / NS / width, of_call.ended_ns(call) / NS / width)
    middles = edges[:-1] + width / 2
    rates = tokens / width
    each = [None if f < 0.05 else float(r / f) for r, f in zip(rates, flying, strict=True)]
    return list(zip(middles.tolist(), rates.tolist(), strict=True)), list(zip(middles.tolist(), each, strict=True))


def _cover(bins: NDArray[np.float64], start: float, end: float) -> None:
    """Add to each bin the share of it that [start, end) covers, in bins."""
    first, last = int(start), min(int(end), len(bins) - 1)
    if first >= len(bins):
        return
    if first == last:
        bins[first] += end - start
        return
    bins[first] += first + 1 - start
    bins[first + 1 : last] += 1
    bins[last] += end - last


def _lanes(events: Iterable[Event], agents: Sequence[int], end: int) -> list[tuple[int, list[tuple[int, int, str]]]]:
    """What each agent did in each column; of several states in a column the one that ranks highest."""
    place = {agent: row for row, agent in enumerate(agents)}
    grid = np.zeros((len(agents), COLUMNS), dtype=np.int8)

    def paint(agent: int, start: int, stop: int, state: str) -> None:
        row = place.get(agent)
        if row is not None and stop > start:
            a, b = int(start * COLUMNS // max(1, end)), int(-(-stop * COLUMNS // max(1, end)))
            cells = grid[row, a : max(b, a + 1)]
            np.maximum(cells, _RANK[state], out=cells)

    waits: dict[tuple[int, str, int, int, str], int] = {}
    began: dict[str, SessionStart] = {}
    for event in events:
        match event:
            case SessionStart():
                began[event.session] = event
            case SessionEnd():
                start = began.pop(event.session, None)
                if start is not None:
                    paint(event.agent, start.t, event.t, "waiting")
            case WaitStart():
                waits[event.agent, event.session, event.thread, event.call, event.cause] = event.t
            case WaitEnd():
                since = waits.pop((event.agent, event.session, event.thread, event.call, event.cause), None)
                if since is not None and event.cause == "tool":
                    paint(event.agent, since, event.t, "tool")
            case CallEnd() if event.t_sent is not None:
                over = of_call.ended_ns(event)
                first = event.t_first if event.t_first is not None else over
                paint(event.agent, event.t_sent, first, "prefill")
                paint(event.agent, first, over, "decode")
            case _:
                pass
    for start in began.values():
        paint(start.agent, start.t, end, "waiting")
    return [(agent, _runs(grid[row])) for agent, row in place.items()]


def _runs(cells: NDArray[np.int8]) -> list[tuple[int, int, str]]:
    """Equal neighbours joined; idle ones left out."""
    cuts = np.flatnonzero(np.diff(cells)) + 1
    starts = [0, *cuts.tolist()]
    ends = [*cuts.tolist(), len(cells)]
    return [(a, b - a, STATES[cells[a]]) for a, b in zip(starts, ends, strict=True) if cells[a]]
