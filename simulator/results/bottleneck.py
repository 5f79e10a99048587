"""What holds a run back, in one word with its evidence.

The parts of all calls' time are given to what makes them: waiting in the queue to the batch limit or to a full KV
cache, whichever the engine's own figures show; computing evicted tokens again to the KV cache, and tokens that a prefix
cache would have held, in which nothing was ever found, to that one; other prefill to compute; decoding to bandwidth.
Who waits while neither is reached waits for other prompts to be computed, and so does who decodes and is held up by
them: both are given to what those prompts are, evicted ones or new ones, unless the steps are so small that their
budget is what the queue waits for. The largest is the bottleneck, also where the client was late: that makes times
doubtful and is told beside it. Time of which nothing is known stays unknown.
"""

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import Any, Literal

from msgspec import Struct

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results.breakdown import CallTime, shares
from windtunnel.simulator.results.miss_words import CAUSES, Cause
from windtunnel.simulator.results.misses import CallCache
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.text import count, percent
from windtunnel.simulator.results.validity import CPU_LIMIT, LAG_LIMIT_S

Kind = Literal[
    "client", "front", "prefix_cache", "kv_capacity", "batch", "prefill_budget", "prefill_compute", "decode", "unknown"
]
WORDS: dict[str, str] = {
    "client": "the client",
    "front": "the engine's front: HTTP and tokenizing",
    "prefix_cache": "a prefix cache without a hit",
    "kv_capacity": "KV capacity",
    "batch": "the batch limit",
    "prefill_budget": "scheduling: the token budget of a step",
    "prefill_compute": "prefill compute",
    "decode": "decode bandwidth",
    "unknown": "not known",
}
FULL = 0.85
"""KV use above which a request that waits, waits for blocks."""
AT_LIMIT = 0.98
"""Of --max-num-seqs."""
ENOUGH = 2048
"""Tokens of a step that keep a GPU busy with prefill (vLLM's smallest default): more at once are no sooner done."""
OFTEN = 0.3
"""Of the scrapes: where somebody waited in as many, time that was queue or prefill is more likely queue."""
HELD_UP = 0.05
"""Of the calls' time: below it decode that prompts hold up is not worth a line."""
ROUNDED = 0.05
"""Of the prompt tokens: what is lost to the cache's match unit below it is not worth a line."""
TOLD = 0.005
"""A share below it would be told as 0%."""
LIMITS = ("scheduler_config.max_num_seqs", "server_args.max_running_requests", "props.total_slots")
"""How many requests may run at once, as engines name it."""
CLIENT_LATE = frozenset(("client_lag", "client_cpu"))
"""Reasons of a run whose times are doubtful because its client was late."""
LOST = ("evicted", CAUSES["preempted"])
"""What a part's cause says of tokens that had to make room."""
MADE_ROOM: tuple[Cause, ...] = ("evicted", "evicted_in_queue", "preempted")
"""The same of a call's."""
UNFOUND: tuple[Cause, ...] = ("caching_off",)


def again(calls: Iterable[CallCache]) -> float:
    """Share of the prompt tokens computed for these calls that had to make room before; 0 where none is known."""
    return _missed_for(MADE_ROOM, calls)


def never_found(calls: Iterable[CallCache]) -> float:
    """The same share of tokens that had been sent before, in a run of which no call found anything."""
    return _missed_for(UNFOUND, calls)


def _missed_for(causes: Collection[Cause], calls: Iterable[CallCache]) -> float:
    lost = computed = 0
    for call in calls:
        computed += call.prompt - call.cached
        lost += call.missed if call.cause in causes else 0
    return lost / computed if computed else 0.0


class Bottleneck(Struct, frozen=True, kw_only=True):
    kind: Kind
    words: str
    share: float
    """Of all calls' time; with the part that is only likely to be this, which `shares` has as unknown."""
    shares: dict[str, float]
    """What each kind took; adds up to 1."""
    parts: dict[str, float]
    """The parts themselves."""
    evidence: tuple[str, ...]


def find(
    summary: Summary,
    times: Sequence[CallTime],
    samples: Sequence[EngineSample],
    *,
    working_set: float | None,
    settings: dict[str, Any],
    evicted: float = 0.0,
    unfound: float = 0.0,
    but: Collection[str] = (),
) -> Bottleneck:
    """Of the measured window's calls and scrapes. `working_set`: its peak in tokens; `settings`: resolved ones.

    `evicted`: see `again`, `unfound`: see `never_found`, of all calls that others may have stood behind. `but`: what is
    known not to be it.
    """
    parts = shares(times)
    waited = [s for s in samples if s.waiting]
    queue_kind = _queue_kind(waited, settings, summary)
    lost, off = _lost(times, LOST), _lost(times, (CAUSES["caching_off"],))
    missed, held = parts.get("prefill_missed", 0.0), parts.get("held_up", 0.0)
    given: dict[str, float] = {
        "client": parts.get("client", 0.0) + parts.get("rate_cap", 0.0),
        "front": parts.get("front", 0.0),
        "prefix_cache": off + unfound * held,
        "kv_capacity": lost + evicted * held,
        "prefill_compute": parts.get("prefill_new", 0.0)
        + parts.get("prefill_diverged", 0.0)
        + parts.get("prefill", 0.0)
        + (1 - evicted - unfound) * held
        + missed
        - lost
        - off,
        "decode": parts.get("decode", 0.0),
        "unknown": parts.get("first_token", 0.0) + parts.get("one_piece", 0.0),
    }
    behind = _behind(queue_kind, settings, evicted, unfound)
    for name, share in behind.items():
        given[name] = given.get(name, 0.0) + share * parts.get("queue", 0.0)
    likely = dict(given)
    if samples and len(waited) >= OFTEN * len(samples) and "unknown" not in behind:
        unknown, likely["unknown"] = parts.get("first_token", 0.0), parts.get("one_piece", 0.0)
        for name, share in behind.items():
            likely[name] += share * unknown
    left = [name for name in likely if name not in but and likely[name] > 0] or list(likely)
    kind: Any = max(left, key=lambda name: likely[name]) if times else "unknown"
    return Bottleneck(
        kind=kind,
        words=WORDS[kind],
        share=likely[kind],
        shares={name: value for name, value in sorted(given.items(), key=lambda item: -item[1]) if value > 0},
        parts=parts,
        evidence=tuple(_evidence(kind, summary, samples, waited, working_set, settings, parts, lost, evicted, unfound)),
    )


def busy_client(summary: Summary) -> bool:
    """Whether the client's own work is what makes it late, so that more processes help."""
    return summary.client_cpu is not None and summary.client_cpu > CPU_LIMIT


def late_client(summary: Summary) -> str:
    """By how much the client was late, and what held it up; empty where the run is not held invalid for it."""
    if not CLIENT_LATE.intersection(summary.invalid_reasons):
        return ""
    lag, cpu, stolen = summary.client_lag_s, summary.client_cpu, summary.host_stolen
    said = "the client was late: single times may be too long"
    if lag is not None:
        said = (
            f"the client was late, by {_ms(lag.p50)} at p50 and {_ms(lag.p99)} at p99 (the limit is "
            f"{_ms(LAG_LIMIT_S)}): single times may be too long by as much"
        )
    if cpu is None:
        return f"{said}; what held it up is not known"
    own = f"{said}; it used {cpu:.0%} of a core itself"
    if busy_client(summary):
        return f"{own}, above the limit of {CPU_LIMIT:.0%}"
    host = f" (the host took {percent(stolen)} of the cores' time)" if stolen is not None and stolen >= TOLD else ""
    return f"{own}: the machine was busy with others{host}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _queue_kind(waited: Sequence[EngineSample], settings: dict[str, Any], summary: Summary) -> str:
    """Why requests wait, by what the engine showed while some did."""
    limit = _limit(settings)
    if not waited:
        return "prefill_budget"
    if isinstance(limit, int | float):
        at_limit = sum((s.running or 0) >= AT_LIMIT * limit for s in waited) / len(waited)
        if at_limit >= 0.5:
            return "batch"
    full = sum((s.kv_usage or 0) >= FULL for s in waited) / len(waited)
    if full >= OFTEN or summary.engine.preemptions:
        return "kv_capacity"
    # What is left over is the budget only where the two other limits were seen not to be reached.
    known = isinstance(limit, int | float) and any(s.kv_usage is not None for s in waited)
    return "prefill_budget" if known else "unknown"


def _behind(queue_kind: str, settings: dict[str, Any], evicted: float, unfound: float) -> dict[str, float]:
    """What the time in the queue is given to, as shares of it.

    With `evicted` of all prompt tokens being ones that had to make room, so much of what stands in front is, too; so
    with `unfound`.
    """
    budget = settings.get("scheduler_config.max_num_batched_tokens")
    if queue_kind != "prefill_budget" or not isinstance(budget, int) or budget < ENOUGH:
        return {queue_kind: 1.0}
    return {"kv_capacity": evicted, "prefix_cache": unfound, "prefill_compute": 1 - evicted - unfound}


def _limit(settings: dict[str, Any]) -> Any:
    return next((settings[name] for name in LIMITS if settings.get(name) is not None), None)


def _lost(times: Sequence[CallTime], causes: Sequence[str]) -> float:
    """Share of time that computing tokens again took which were missing for these causes."""
    whole = sum(time.seconds for time in times)
    seconds = sum(
        part.seconds
        for time in times
        for part in time.parts
        if part.name == "prefill_missed" and any(word in part.cause for word in causes)
    )
    return seconds / whole if whole else 0.0


def _evidence(
    kind: str,
    summary: Summary,
    samples: Sequence[EngineSample],
    waited: Sequence[EngineSample],
    working_set: float | None,
    settings: dict[str, Any],
    parts: dict[str, float],
    lost: float,
    evicted: float,
    unfound: float,
) -> list[str]:
    said: list[str] = []
    engine = summary.engine
    held = parts.get("held_up", 0.0)
    if kind == "prefix_cache":
        said += _off(settings, unfound) + _rounded_away(summary, settings)
        if unfound * held > HELD_UP:
            said.append(f"{unfound * held:.0%} of the calls' time is decode that such prompts hold up")
    if kind == "kv_capacity":
        # Sessions of one call hold no context between calls: then it is what runs that fills the cache.
        if engine.kv_tokens and (working_set or 0) < engine.kv_tokens and waited:
            full = [s.kv_usage for s in waited if s.kv_usage is not None]
            use = f" at a KV use of {fmean(full):.0%}" if full else ""
            said.append(f"requests wait in {_share(waited, samples)} of the scrapes{use}")
        elif working_set and engine.kv_tokens:
            said.append(
                f"the live sessions' contexts reach {working_set:,.0f} tokens, the cache holds {engine.kv_tokens:,}"
            )
        if evicted >= TOLD:
            said.append(f"{evicted:.0%} of the prompt tokens that were computed had been evicted or preempted before")
        if lost >= TOLD:
            said.append(f"{lost:.0%} of the calls' time computes again what was evicted or preempted")
        if evicted * held > HELD_UP:
            said.append(f"{evicted * held:.0%} of the calls' time is decode that such prompts hold up")
        if engine.preemptions:
            said.append(count(round(engine.preemptions), "preemption"))
    if kind == "batch":
        limit = _limit(settings)
        said.append(f"requests wait in {_share(waited, samples)} of the scrapes while {limit} run, which is the limit")
    if kind == "prefill_budget":
        budget = settings.get("scheduler_config.max_num_batched_tokens")
        said.append(f"requests wait in {_share(waited, samples)} of the scrapes below the limits of batch and KV cache")
        if budget is not None:
            said.append(f"a step takes {budget:,} tokens at most")
    if kind == "prefill_compute":
        if summary.prompt_tokens_per_s is not None and summary.cache_hit_ratio is not None:
            new = summary.prompt_tokens_per_s * (1 - summary.cache_hit_ratio)
            out = summary.output_tokens_per_s
            beside = "" if out is None else f" beside {out:,.0f} output tokens"
            said.append(f"{new:,.0f} prompt tokens a second are computed{beside}")
        if (others := (1 - evicted - unfound) * held) > HELD_UP:
            said.append(f"{others:.0%} of the calls' time is decode that other prompts hold up")
        said += _off(settings, None) + _rounded_away(summary, settings)
    if kind == "decode" and summary.tpot_s is not None:
        running = "" if engine.running is None else f" at {_running(engine.running)}"
        said.append(f"{summary.tpot_s.p50 * 1000:.1f} ms a token{running}")
    if kind == "client":
        if parts.get("rate_cap", 0.0) > 0.01:
            said.append(f"{parts['rate_cap']:.0%} of the calls' time waits for --rate")
        if parts.get("client", 0.0) > 0.01:
            said.append(f"{parts['client']:.0%} of the calls' time passes before the client sends them")
    if parts.get("first_token", 0.0) >= TOLD:
        said.append(
            f"of {parts['first_token']:.0%} of the calls' time it is not known whether it was queue or prefill; "
            f"somebody waited in {_share(waited, samples)} of the scrapes"
        )
    if parts.get("one_piece", 0.0) >= TOLD:
        said.append(
            f"{parts['one_piece']:.0%} of the calls' time is answers in one piece, not streamed: prefill and decode "
            "are not told apart"
        )
    if parts.get("prefill", 0.0) >= TOLD:
        said.append("the engine does not say what was cached: what is prefilled may be new or lost")
    return said


def _off(settings: dict[str, Any], unfound: float | None) -> list[str]:
    """Of the prefix cache: whether it is on, and what of the computed tokens it might have held."""
    on = settings.get("prefix_caching")
    if unfound is None:
        return ["prefix caching is off"] if on is False else []
    state: dict[bool | None, str] = {
        False: "prefix caching is off",
        True: "prefix caching is on, and no call found anything in it",
    }
    before = f"{unfound:.0%} of the prompt tokens that were computed had been sent before"
    return [f"{state.get(on, 'no call found anything in it')}: {before}"]


def _rounded_away(summary: Summary, settings: dict[str, Any]) -> list[str]:
    exact, whole, unit = (
        summary.expected_cache_hit_ratio_exact,
        summary.expected_cache_hit_ratio,
        settings.get("block_size"),
    )
    if exact is None or whole is None or exact - whole < ROUNDED:
        return []
    unit_of = "its match unit" if unit is None else f"its match unit of {unit:,} tokens"
    return [f"{exact - whole:.0%} of the prompt tokens had been sent before, and {unit_of} leaves them no place in it"]


def _running(mean: float) -> str:
    return count(round(mean), "running request") if mean >= 1 else "less than one running request in the mean"


def _share(part: Sequence[Any], whole: Sequence[Any]) -> str:
    return f"{len(part) / len(whole):.0%}" if whole else "none"
