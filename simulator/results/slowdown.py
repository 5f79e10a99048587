"""How much slower the same calls are than when their session has the engine to itself."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from windtunnel.agents.events import CallEnd, Event, SessionStart
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.distribution import distribution
from windtunnel.simulator.results.facts import history_of
from windtunnel.simulator.results.summary_model import Distribution

Work = tuple[str, int]
"""(trace, call)."""


FOLLOWS = (
    *("num_gpu_blocks", "kv_cache_size", "kv_cache_max_concurrency", "kv_cache_memory", "max_total_num_tokens"),
    *("port", "host", "seed", "served_model_name", "api_key", "instance_id", "log", "path", "dist_init_addr"),
)
"""Parts of the last word of such a setting's name."""
SHOWN, LONGEST = 4, 60
"""Differences that are told, and characters of a value."""


class Slowdown(Struct, frozen=True, kw_only=True):
    """Over the calls that both runs completed: time together / time alone."""

    calls: int
    e2e: Distribution | None
    ttft: Distribution | None
    work: float | None
    """Of the calls' times summed up: what a session's makespan grows by, waits apart."""
    emulated: bool
    """The run alone was emulated."""
    differs: tuple[str, ...] = ()
    """What the run alone had otherwise, each as `NAME: ITS VALUE, not THE RUN'S`: the slowdown is partly of that."""


def slowdown(
    together: Iterable[Event], alone: Iterable[Event], *, emulated: bool, differs: tuple[str, ...] = ()
) -> Slowdown:
    """`alone`: events of a run with one agent; `differs`: see `differences`."""
    crowd, single = _times(together), _times(alone)
    common = [(mine, single[work]) for work, all_mine in crowd.items() if work in single for mine in all_mine]
    pairs = [(ours, _mean(theirs)) for ours, theirs in common]
    return Slowdown(
        calls=len(pairs),
        e2e=distribution([ours[0] / theirs[0] for ours, theirs in pairs if theirs[0] > 0]),
        ttft=distribution([ours[1] / theirs[1] for ours, theirs in pairs if theirs[1] > 0]),
        work=sum(ours[0] for ours, _ in pairs) / whole if (whole := sum(theirs[0] for _, theirs in pairs)) else None,
        emulated=emulated,
        differs=differs,
    )


def differences(alone: Mapping[str, Any], together: Mapping[str, Any]) -> tuple[str, ...]:
    """In what the engines of two runs differ, by their run.json: engine, version, model, GPU, and resolved settings."""
    one, other = (known if isinstance(known := run.get("engine"), dict) else {} for run in (alone, together))
    found = [
        _against(name, one.get(key), other.get(key))
        for name, key in (("engine", "name"), ("its version", "version"), ("model", "model"))
        if one.get(key) != other.get(key)
    ]
    whose, their = (known if isinstance(known := run.get("emulation"), dict) else {} for run in (one, other))
    if one.get("emulated") is not other.get("emulated"):
        found.append(_against("emulated", one.get("emulated") is True, other.get("emulated") is True))
    elif whose.get("gpu") != their.get("gpu"):
        found.append(_against("GPU", whose.get("gpu"), their.get("gpu")))
    elif not one.get("emulated") and alone.get("host") != together.get("host"):
        found.append(_against("machine of the client", alone.get("host"), together.get("host")))
    if one.get("name") != other.get("name"):  # settings have other names there
        return tuple(found)
    settings, others = (known if isinstance(known := run.get("resolved"), dict) else {} for run in (one, other))
    # Another version may just tell more.
    same = one.get("version") == other.get("version")
    names = settings.keys() | others.keys() if same else settings.keys() & others.keys()
    told = [(name, settings.get(name), others.get(name)) for name in sorted(names) if not _follows(name)]
    return (*found, *(_against(name, mine, theirs) for name, mine, theirs in told if mine != theirs))


def _follows(name: str) -> bool:
    """Whether a setting is what others made of it, or says nothing of speed: room that was found, names, places."""
    last = name.rsplit(".", 1)[-1]
    return any(word in last for word in FOLLOWS)


def _against(name: str, mine: Any, theirs: Any) -> str:
    one, other = ("unknown" if value is None else str(value)[:LONGEST] for value in (mine, theirs))
    return f"{name}: {one}, not {other}"


def in_words(found: Slowdown | None) -> list[str]:
    """For people; nothing where there is none."""
    if found is None:
        return []
    if found.e2e is None or found.ttft is None or found.work is None:
        return ["", "slowdown against running alone: the two runs have no call in common"]
    label = "emulated" if found.emulated else "measured"
    whole = f"whole call p50 {found.e2e.p50:.2f}x, p90 {found.e2e.p90:.2f}x"
    first = f"first token p50 {found.ttft.p50:.2f}x, p90 {found.ttft.p90:.2f}x"
    said = [
        "",
        f"slowdown against running alone ({label}, {found.calls:,} calls): {found.work:.2f}x of the calls' time",
        f"  {whole}; {first}",
    ]
    if found.differs:
        more = len(found.differs) - SHOWN
        said.append("  the run alone was on another engine, so this is partly the engine's:")
        said += [f"    {told}" for told in found.differs[:SHOWN]]
        said += [f"    and {more} more (--json)"] if more > 0 else []
    return said


def same_work(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether traces that both runs have are the same ones, with outputs of the same lengths. Engines may differ: see
    `differences`.
    """
    mine, theirs = (
        {trace.get("id"): trace.get("fingerprint") for trace in run.get("traces") or () if isinstance(trace, dict)}
        for run in (one, other)
    )
    dials = [
        [history_of(run), config.get("lengths")]
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
