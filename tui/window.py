"""A stretch of the run as the timeline shows it: every agent's state by column, and what the engine did.

Columns lie at whole multiples of their step, so that a column that is over never changes while the window moves on;
those that were painted are kept.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol

import numpy as np
from msgspec import Struct

from windtunnel.agents.events import CallStart
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.fold_rows import IN_FLIGHT, SENT, Agent
from windtunnel.simulator.results.lanes import MS, RANK, Cells, mark_failures, paint_lanes
from windtunnel.simulator.results.untold import Span, Untold
from windtunnel.tui.view import Engine, View

LADDER_MS = (
    *(50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000),
)
"""Lengths that a column can have, by zooming."""
COARSE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
FINE = tuple(i / 10 for i in range(10, 101))
"""Lengths with which a run is made to fit, times a power of ten; one that grows changes them seldom."""


class Place(Struct, frozen=True):
    """Which stretch is shown. Times are ms since the run's origin."""

    start: int
    step: int
    columns: int

    @property
    def end(self) -> int:
        return self.start + self.step * self.columns

    def column(self, t: int) -> int:
        """Where a moment is; outside of the window it is less than 0, or `columns` and more."""
        return (t - self.start) // self.step


class Moment(Struct, frozen=True):
    """The engine and the agents over one column. None where nothing was told."""

    out: float | None = None
    """Output tokens/s."""
    prompt: float | None = None
    kv: float | None = None
    """0-1."""
    running: float | None = None
    waiting: float | None = None
    """Requests in the engine's queue."""
    preempted: float | None = None
    """Requests, within the column."""
    in_flight: float | None = None
    in_tool: float | None = None
    idle: float | None = None
    """Agents that wait for something else."""


class Window(Struct, frozen=True):
    """What is drawn."""

    place: Place
    began: int = 0
    """When the run began, ms since its origin."""
    now: int = 0
    cells: tuple[bytes, ...] = ()
    """By agent: ranks of `untold.SHOWN`, one a column."""
    out: tuple[float | None, ...] = ()
    """Output tokens/s, two values a column."""
    kv: tuple[float | None, ...] = ()
    moment: Moment = Moment()
    """At the cursor."""


def seen(agent: Agent) -> dict[int, tuple[int, int]]:
    """How far an agent's calls under way are, as `Lane.within` wants it."""
    return {
        thread: (RANK[activity.state], activity.since // MS)
        for thread, activity in agent.activities.items()
        if activity.state in IN_FLIGHT
    }


class Planned(Protocol):
    """What calls were planned to be, and which of those that ended do not tell their time in the queue."""

    @property
    def calls(self) -> Mapping[tuple[int, int], CallStart]: ...

    @property
    def untold(self) -> Untold: ...


def under_way(agent: Agent, plans: Planned, now: int, thread: int | None = None) -> list[Span]:
    """Until the first token, of calls that have not ended: how long they were queued is told when they do."""
    number = agent.row.agent
    return [
        (call.t // MS, now + 1 if activity.state == "prefill" else activity.since // MS)
        for of, activity in agent.activities.items()
        if activity.state in SENT and thread in (None, of) and (call := plans.calls.get((number, of))) is not None
    ]


class Painter:
    """Paints windows of one run, keeping the columns that are over."""

    def __init__(self) -> None:
        self._fold: Fold | None = None
        self._step = 0
        self._first = self._final = 0
        """Columns since the origin that are kept: [first, final)."""
        self._cells: Cells = np.zeros((0, 0), dtype=np.int8)

    def window(self, fold: Fold, plans: Planned, view: View, place: Place, cursor: int | None) -> Window:
        """`cursor`: ms since the origin; None is now."""
        now = fold.t // MS
        return Window(
            place=place,
            began=fold.started_t // MS,
            now=now,
            cells=tuple(row.tobytes() for row in self.cells(fold, plans, place, now)),
            out=_rates(fold, "output", place.start, place.step / 2, 2 * place.columns),
            kv=_rates(fold, "kv", place.start, float(place.step), place.columns),
            moment=self._moment(fold, view, place, now, cursor),
        )

    def _moment(self, fold: Fold, view: View, place: Place, now: int, cursor: int | None) -> Moment:
        if cursor is None and view.ending is None:
            return _now(view)
        at = cursor if cursor is not None else max(fold.started_t // MS, now - 1)
        return moment(fold, at // place.step * place.step, place.step, last=cursor is None)

    def cells(self, fold: Fold, plans: Planned, place: Place, now: int) -> Cells:
        """Agents x columns."""
        step, first = place.step, place.start // place.step
        last = first + place.columns
        agents = len(fold.agents)
        kept: Cells = np.zeros((agents, 0), dtype=np.int8)
        same = self._fold is fold and self._step == step and len(self._cells) == agents
        if same and self._first <= first < self._final:
            kept = self._cells[:, first - self._first : min(last, self._final) - self._first]
        begin = first + kept.shape[1]
        lanes = [agent.lane for agent in fold.agents]
        fresh = paint_lanes(lanes, map(seen, fold.agents), now, begin * step, step, last - begin)
        rows = [(agent.row.agent, under_way(agent, plans, now)) for agent in fold.agents]
        plans.untold.mark(fresh, rows, begin * step, step)
        mark_failures(fresh, lanes, begin * step, step)
        cells = np.concatenate([kept, fresh], axis=1)
        settled = min((lane.settled(now) for lane in lanes), default=now)
        self._fold, self._step, self._cells = fold, step, cells
        self._first, self._final = first, max(first, min(last, settled // step))
        return cells


def _rates(fold: Fold, name: str, start: float, step: float, columns: int) -> tuple[float | None, ...]:
    """A column of the fold's history, per second or as a mean; None where nothing is known."""
    low, high = _reached(fold, name)
    edges = [min(max((start + i * step) * MS, low), high) for i in range(columns + 1)]
    if not len(fold.series) or high <= low:
        return (None,) * columns
    amounts = zip(fold.series.amounts(name, edges), pairwise(edges), strict=True)
    return tuple(amount * 1000 * MS / (b - a) if b > a else None for amount, (a, b) in amounts)


def _reached(fold: Fold, name: str) -> tuple[int, int]:
    """From when to when something is known of it, ns. The history's last step is not over yet."""
    low, high = fold.started_t, fold.t
    if name in {"kv", "running", "queued"}:
        first, last = fold.engine.first, fold.engine.latest
        field = {"kv": "kv_usage", "queued": "waiting"}.get(name, name)
        if first is None or last is None or getattr(last, field) is None:
            return 0, 0
        low, high = first.t, last.t
    elif name in {"output", "prompt"}:
        high = fold.progress_t or fold.t
    return low, high // fold.series.step_ns * fold.series.step_ns


def moment(fold: Fold, start: int, step: int, *, last: bool = False) -> Moment:
    """One column, from `start` on; both in ms. `last`: of each figure the latest whole column in which it is known.

    Of a measured run that is the window's last one: what comes after it is no figure of the run.
    """
    until = fold.window[1] if fold.window is not None else None

    def one(name: str) -> float | None:
        at = start
        if last:
            known = min(_reached(fold, name)[1], until if until is not None else fold.t)
            at = max(fold.started_t // MS // step, min(start // step, known // MS // step - 1)) * step
        return _rates(fold, name, at, step, 1)[0]

    told = fold.engine.latest is not None and fold.engine.latest.preemptions is not None
    grown = fold.series.amounts("preempted", [start * MS, (start + step) * MS])[0] if len(fold.series) else 0.0
    return Moment(
        out=one("output"),
        prompt=one("prompt"),
        kv=one("kv"),
        running=one("running"),
        waiting=one("queued"),
        preempted=grown if told else None,
        in_flight=one("in_flight"),
        in_tool=one("in_tool"),
        idle=one("waiting"),
    )


def _now(view: View) -> Moment:
    engine: Engine = view.engine
    return Moment(
        out=view.out_rate,
        prompt=view.in_rate,
        kv=engine.kv_usage,
        running=engine.running,
        waiting=engine.waiting,
        in_flight=view.in_flight,
        in_tool=view.in_tool,
        idle=view.waiting,
    )


def fitting(began: int, now: int, columns: int, *, over: bool) -> int:
    """The shortest step with which the whole run fits."""
    need = max(LADDER_MS[0], (now - began + 1) / max(1, columns - 1))
    power = 10 ** math.floor(math.log10(need))
    length: float = next(f for f in (FINE if over else COARSE) if f * power >= need) * power
    return round(length)


def steps_from(step: int, by: int) -> int:
    """The next rung of the ladder up (coarser) or down."""
    at = bisect_right(LADDER_MS, step) if by > 0 else bisect_left(LADDER_MS, step) - 1
    return LADDER_MS[max(0, min(len(LADDER_MS) - 1, at))]


def latest(began: int, now: int, step: int, columns: int) -> int:
    """Start of the window that ends with the present column, or begins with the run where all of it fits."""
    first, last = began // step, now // step
    return max(first, last - columns + 1) * step
