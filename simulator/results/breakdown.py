"""Where a call's time went, part by part; the parts add up to the call.

Every part says how it is known: `measured` by a clock, `derived` by a rule that stands beside it, or `unknown`. What is
not known stays one part of its own and is never spread over the others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from windtunnel.agents.events import CallEnd, EngineSample, Event, WaitEnd, WaitStart
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.miss_words import said
from windtunnel.simulator.results.misses import CallCache

Basis = Literal["measured", "derived", "unknown"]
Name = Literal[
    "rate_cap",
    "client",
    "front",
    "queue",
    "prefill_new",
    "prefill_missed",
    "prefill_diverged",
    "prefill",
    "first_token",
    "one_piece",
    "decode",
    "held_up",
    "tool",
    "human",
    "subagent",
]
WORDS: dict[str, str] = {
    "rate_cap": "waiting for the request-rate cap",
    "client": "waiting for the client itself",
    "front": "before and behind the queue: HTTP, tokenizing",
    "queue": "in the engine's queue",
    "prefill_new": "prefill of new tokens",
    "prefill_missed": "prefill of tokens that should have been cached",
    "prefill_diverged": "prefill of history that the client had changed",
    "prefill": "prefill: of new tokens or of lost ones",
    "first_token": "until the first token: queue or prefill",
    "one_piece": "answered in one piece: queue, prefill or decode",
    "decode": "decode",
    "held_up": "decode held up by other requests' prefill",
    "tool": "tools",
    "human": "a person",
    "subagent": "a sub-agent",
}
BEFORE: Mapping[str, Name] = {"tool": "tool", "human": "human", "subagent": "subagent"}
"""Causes of waits between a thread's calls."""
NOBODY_WAITED = "no request waited in any scrape around it"
NOT_CACHED_TOLD = "what was neither queue nor decode; the engine does not say what was cached"
BY_TOKENS = "time of the prefill, by tokens"
NEITHER = "what neither the queue nor the time from scheduling to the first token was, as the engine tells them"
TOGETHER_S = 0.0005
"""Chunks that came within it were read at once: no step of an engine is that short."""
LONG_GAP = 2.0
"""A gap between two chunks that is longer than this many usual ones was made by something else than decoding."""
USUAL_SHARE = 0.1
"""The usual gap of a run: this quantile of all gaps. Decoding alone makes the shortest ones."""


class Part(Struct, frozen=True):
    name: Name
    seconds: float
    basis: Basis
    rule: str = ""
    """How it was derived."""
    cause: str = ""
    """Why tokens had to be computed again."""


class CallTime(Struct, frozen=True):
    session: str
    thread: int
    call: int
    agent: int
    t_s: float
    """Intended, s since the run's origin."""
    parts: tuple[Part, ...]
    before: tuple[Part, ...] = ()
    """The thread's waits that led to it, measured: tools, a person, a sub-agent. No part of the call."""

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)


class Waiting:
    """What the engine's scrapes say about its queue."""

    def __init__(self, samples: Iterable[EngineSample] = ()) -> None:
        self._times: list[int] = []
        self._waiting: list[float] = []
        for sample in samples:
            self.add(sample)

    def add(self, sample: EngineSample) -> None:
        if sample.waiting is not None:
            self._times.append(sample.t)
            self._waiting.append(sample.waiting)

    def empty(self, start: int, end: int) -> bool:
        """Nobody waited in the last scrape before, in all within, and in the first one after [start, end]."""
        first = max(0, bisect_right(self._times, start) - 1)
        last = bisect_left(self._times, end) + 1
        seen = self._waiting[first:last]
        return bool(seen) and self._times[first] <= start and last <= len(self._times) and not any(seen)


Waits = Mapping[tuple[str, int, int], tuple[Part, ...]]
"""By (session, thread, call that comes after)."""


def waits_of(events: Iterable[Event]) -> Waits:
    """What each call's thread waited for before it."""
    began: dict[tuple[str, int, int, str], int] = {}
    found: dict[tuple[str, int, int], tuple[Part, ...]] = {}
    for event in events:
        if isinstance(event, WaitStart):
            began[event.session, event.thread, event.call, event.cause] = event.t
        elif isinstance(event, WaitEnd):
            start = began.pop((event.session, event.thread, event.call, event.cause), None)
            if start is not None and event.cause in BEFORE and event.t > start:
                key = (event.session, event.thread, event.call)
                part = Part(BEFORE[event.cause], (event.t - start) / NS, "measured")
                found[key] = (*found.get(key, ()), part)
    return found


def break_down(
    calls: Sequence[CallEnd],
    samples: Iterable[EngineSample] | Waiting,
    caches: Mapping[tuple[str, int], CallCache],
    waits: Waits | None = None,
) -> list[CallTime]:
    """The parts of each completed call. `caches`: what `misses.read` says, by (session, call)."""
    waiting = samples if isinstance(samples, Waiting) else Waiting(samples)
    waited = waits or {}
    usual = usual_gap_s(calls)
    return [
        CallTime(
            call.session,
            call.thread,
            call.call,
            call.agent,
            call.t_intended / NS,
            tuple(p for p in _parts(call, waiting, caches.get((call.session, call.call)), usual) if p.seconds > 0),
            waited.get((call.session, call.thread, call.call), ()),
        )
        for call in calls
        if of_call.completed(call) and call.t_sent is not None and call.t_first is not None
    ]


def usual_gap_s(calls: Sequence[CallEnd]) -> float | None:
    """Seconds between two chunks when nothing but decoding happens; None where no call came in several chunks."""
    apart = [gaps[gaps > TOGETHER_S] for call in calls if len(gaps := of_call.gaps_s(call))]
    gaps = np.concatenate(apart) if apart else np.empty(0)
    return float(np.quantile(gaps, USUAL_SHARE)) if len(gaps) else None


def _parts(call: CallEnd, waiting: Waiting, cache: CallCache | None, usual: float | None) -> list[Part]:
    assert call.t_sent is not None
    assert call.t_first is not None
    parts = [Part("rate_cap", call.throttled_ns / NS, "measured")]
    parts.append(Part("client", (call.t_sent - call.t_intended - call.throttled_ns) / NS, "measured"))
    if of_call.in_one_piece(call):
        return [*parts, Part("one_piece", (of_call.ended_ns(call) - call.t_sent) / NS, "unknown")]
    parts += _until_first(call, waiting, cache)
    return parts + _decode(call, usual)


def _until_first(call: CallEnd, waiting: Waiting, cache: CallCache | None) -> list[Part]:
    assert call.t_sent is not None
    assert call.t_first is not None
    whole = (call.t_first - call.t_sent) / NS
    if call.queued_s is not None:
        queue = Part("queue", min(call.queued_s, whole), "measured")
    elif waiting.empty(call.t_sent, call.t_first):
        queue = Part("queue", 0.0, "derived", NOBODY_WAITED)
    else:
        return [Part("first_token", whole, "unknown")]
    front = Part("front", min(of_call.front_s(call), whole - queue.seconds), "derived", NEITHER)
    left = whole - queue.seconds - front.seconds
    if cache is None:
        return [front, queue, Part("prefill", left, "derived", NOT_CACHED_TOLD)]
    computed = cache.fresh + cache.missed + cache.diverged
    if not computed:
        return [front, queue, Part("prefill_new", left, "derived", BY_TOKENS)]
    again = said(cache.cause, cache.gap_s)
    return [
        front,
        queue,
        Part("prefill_new", left * cache.fresh / computed, "derived", BY_TOKENS),
        Part("prefill_missed", left * cache.missed / computed, "derived", BY_TOKENS, again),
        Part("prefill_diverged", left * cache.diverged / computed, "derived", BY_TOKENS, cache.culprit or ""),
    ]


def _decode(call: CallEnd, usual: float | None) -> list[Part]:
    """From the first token to the end; what long gaps have above the usual one is a part of its own."""
    assert call.t_first is not None
    whole = (of_call.ended_ns(call) - call.t_first) / NS
    gaps = of_call.gaps_s(call)
    if usual is None or not len(gaps):
        return [Part("decode", whole, "measured")]
    long = gaps[gaps > LONG_GAP * usual]
    held = min(float(long.sum()) - usual * len(long), whole)
    rule = f"gaps above {LONG_GAP:g} usual ones of {usual * 1000:.1f} ms"
    return [Part("decode", whole - held, "measured"), Part("held_up", held, "derived", rule)]


def until_first(time: CallTime) -> CallTime:
    """The same without what came after the first token, and without answers of which that is not known."""
    later = ("decode", "held_up", "one_piece")
    return replace(time, parts=tuple(part for part in time.parts if part.name not in later))


def shares(times: Iterable[CallTime]) -> dict[str, float]:
    """Each part's share of all calls' time; they add up to 1."""
    seconds: dict[str, float] = {}
    for time in times:
        for part in time.parts:
            seconds[part.name] = seconds.get(part.name, 0.0) + part.seconds
    whole = sum(seconds.values())
    return {name: value / whole for name, value in sorted(seconds.items(), key=lambda item: -item[1])} if whole else {}
