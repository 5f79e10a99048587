"""How much slower the same calls are than when their session has the engine to itself."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from windtunnel.agents.events import CallEnd, Event, SessionStart
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.distribution import distribution
from windtunnel.simulator.results.summary_model import Distribution

Work = tuple[str, int]
"""(trace, call)."""


class Slowdown(Struct, frozen=True, kw_only=True):
    """Over the calls that both runs completed: time together / time alone."""

    calls: int
    e2e: Distribution | None
    ttft: Distribution | None
    work: float | None
    """Of the calls' times summed up: what a session's makespan grows by, waits apart."""
    emulated: bool
    """The run alone was emulated."""


def slowdown(together: Iterable[Event], alone: Iterable[Event], *, emulated: bool) -> Slowdown:
    """`alone`: events of a run with one agent on the same engine."""
    crowd, single = _times(together), _times(alone)
    common = [(mine, single[work]) for work, all_mine in crowd.items() if work in single for mine in all_mine]
    pairs = [(ours, _mean(theirs)) for ours, theirs in common]
    return Slowdown(
        calls=len(pairs),
        e2e=distribution([ours[0] / theirs[0] for ours, theirs in pairs if theirs[0] > 0]),
        ttft=distribution([ours[1] / theirs[1] for ours, theirs in pairs if theirs[1] > 0]),
        work=sum(ours[0] for ours, _ in pairs) / whole if (whole := sum(theirs[0] for _, theirs in pairs)) else None,
        emulated=emulated,
    )


def same_work(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether traces that both runs have are the same ones, with outputs of the same lengths. Engines may differ."""
    mine, theirs = (
        {trace.get("id"): trace.get("fingerprint") for trace in run.get("traces") or () if isinstance(trace, dict)}
        for run in (one, other)
    )
    dials = [
        [run.get("history"), config.get("history"), config.get("lengths")]
        for run in (one, other)
        if isinstance(config := run.get("config"), dict)
    ]
    return all(mine[trace] == theirs[trace] for trace in mine.keys() & theirs.keys()) and all(
        dial == dials[0] for dial in dials
    )


def is_alone(run: Mapping[str, Any], together: Mapping[str, Any]) -> bool:
    """Whether a run is one of a single agent that did some of the same work. Engines may differ."""
    known = [_ids(one) for one in (run, together)]
    return (
        run.get("agents") == 1
        and together.get("agents") != 1
        and bool(known[0] & known[1])
        and same_work(run, together)
    )


def _ids(run: Mapping[str, Any]) -> set[Any]:
    return {trace.get("id") for trace in run.get("traces") or () if isinstance(trace, dict)}


def times_alone(events: Iterable[Event]) -> dict[Work, float]:
    """Seconds of each call of a run of one agent; of one that was made several times their mean."""
    return {work: _mean(times)[0] for work, times in _times(events).items()}


def _times(events: Iterable[Event]) -> dict[Work, list[tuple[float, float]]]:
    """(whole call, first token) in seconds, of the completed calls after warm-up."""
    traces: dict[str, str] = {}
    found: dict[Work, list[tuple[float, float]]] = {}
    for event in events:
        if isinstance(event, SessionStart):
            traces[event.session] = event.trace
        elif isinstance(event, CallEnd) and of_call.completed(event) and not event.warmup:
            whole, first = of_call.e2e_s(event), of_call.ttft_s(event)
            if whole is not None and first is not None:
                found.setdefault((traces.get(event.session, ""), event.call), []).append((whole, first))
    return found


def _mean(times: list[tuple[float, float]]) -> tuple[float, float]:
    whole, first = np.mean(times, axis=0).tolist()
    return whole, first
