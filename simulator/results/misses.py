"""Where a run's prompt tokens came from, and why the cache missed what it could have held.

Every prompt token of a completed call is one of four: cached by the engine; sent before in this run and not found
(missed); at a place that the thread's last prompt covered and this one changed (diverged); or new. "Sent before" is the
run's own figure (`expected_cached_tokens`), in the engine's match unit.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from windtunnel.agents.events import CallEnd, CallStart, EngineSample, Event, SessionStart
from windtunnel.simulator.results.calls import NS, completed, ended_ns, front_s
from windtunnel.simulator.results.ceiling import ceiling
from windtunnel.simulator.results.counters import Counters
from windtunnel.simulator.results.miss_words import Cause
from windtunnel.simulator.results.touched import Touched
from windtunnel.simulator.results.validity import is_recording
from windtunnel.traces.breakers import Break

ACCURACY = 0.01
"""On routes with a template the tokens of a beginning are planned, not counted; a smaller share says nothing."""
USUAL_UNIT = 128
"""Tokens: engines have blocks of 16 to 64, OpenAI's API counts cached tokens by 128."""
ROOM = 0.5
"""Of the KV cache: with less used since, nothing had to go. Several kinds of state fill it sooner than tokens say."""
FULL = 0.9
"""Of the KV cache: with as much used since, something had to. In between nothing tells."""
MOMENT_NS = 50_000_000
"""Too short for an engine to compute a prompt that others have to make room for."""


RETENTION_S = 300.0
"""Providers keep a prefix for five minutes after its last use, longer only where they are asked to or have room (the
prompt caching guides of Anthropic and OpenAI)."""
OFF_CALLS = 8
"""While a run goes on, caching is held for off only after so many calls of which none found anything."""
RECENT_CALLS = 512
"""Whose prompts may still be computed when another call is sent, in a run that goes on."""


def diverged(before: int, prompt: int, matched: int, unit: int) -> int:
    """Tokens lost to a change: what an earlier prompt of `before` tokens would have given beyond what was matched."""
    return max(0, min(before, prompt - 1) // unit * unit - matched)


class CallCache(Struct, frozen=True):
    """The cache's part in one call. Tokens; `cached` + `missed` + `diverged` + `fresh` = `prompt`."""

    session: str
    trace: str
    agent: int
    thread: int
    call: int
    t_s: float
    """Sent, s since the run's origin."""
    first: bool
    """The thread's first call in this run."""
    prompt: int
    cached: int
    missed: int
    diverged: int
    fresh: int
    cause: Cause | None = None
    gap_s: float | None = None
    """Since the thread's last call ended."""
    culprit: str | None = None


class CacheReport(Struct, frozen=True):
    unit: int
    """Match unit, tokens."""
    calls: tuple[CallCache, ...]
    unknown: int
    """Completed calls without the engine's count of prompt or cached tokens."""
    unit_known: bool = True
    """Else `unit` is 1."""

    def total(self, field: str) -> int:
        return sum(getattr(call, field) for call in self.calls)


Breaks = Mapping[tuple[str, int], Break]
"""By trace id and call."""


def read(
    events: Iterable[Event],
    unit: int,
    breaks: Breaks,
    *,
    exact: bool = False,
    kv_tokens: int | None = None,
    provided: bool = False,
    unit_known: bool = True,
) -> CacheReport:
    """All completed calls of a run in the order in which they were sent.

    `exact`: prompts were token ids. `kv_tokens`: what the cache holds; None where the engine does not say.
    `provided`, `unit_known`: see there.
    """
    traces: dict[str, str] = {}
    ends: list[CallEnd] = []
    sent: list[CallEnd] = []
    """Failed and cut ones too."""
    preemptions = _Preemptions()
    for event in events:
        if isinstance(event, SessionStart):
            traces[event.session] = event.trace
        elif isinstance(event, CallEnd) and completed(event) and event.t_sent is not None:
            ends.append(event)
        elif isinstance(event, EngineSample):
            preemptions.add(event)
        if isinstance(event, CallEnd) and event.t_sent is not None:
            sent.append(event)
    ends.sort(key=lambda e: (e.t_sent or 0, e.seq))
    known = [e for e in ends if e.prompt_tokens is not None and e.cached_tokens is not None]
    known_by = _Known(preemptions, _first_tokens(ends), Touched(sent))
    reader = _Reader(unit, traces, breaks, known_by, exact=exact, kv_tokens=kv_tokens)
    reader.provided, reader.unit_known = provided, unit_known
    reader.off = not any(e.cached_tokens for e in known)
    return CacheReport(unit, tuple(reader.call(e) for e in known), len(ends) - len(known), unit_known)


class Live:
    """The same of a run that goes on: each call as it ends, by what is known then. No traces are compared."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._computing: deque[tuple[int, int]] = deque(maxlen=RECENT_CALLS)
        self._preemptions = _Preemptions()
        self._touched = Touched()
        known = _Known(self._preemptions, self._computing, self._touched)
        self._reader = _Reader(1, {}, {}, known, exact=False, kv_tokens=None)
        self._calls = 0
        self._found = False
        self._run: Mapping[str, Any] | None = None
        self.learn(run)

    def learn(self, run: Mapping[str, Any]) -> None:
        """What `run.json` says about the engine, which it may not know from the start."""
        if run is not self._run:
            self._run = run
            self._reader.learn(*settings(run))
            self._reader.provided, self._reader.unit_known = provided(run), unit_known(run)

    def sample(self, sample: EngineSample) -> None:
        self._preemptions.add(sample)

    def call_start(self, start: CallStart) -> None:
        self._touched.start(start)

    def session_end(self, session: str) -> None:
        self._reader.forget(session)

    def call_end(self, end: CallEnd) -> CallCache | None:
        """None where the call did not complete, or the engine did not say."""
        self._touched.end(end)
        if not completed(end) or end.t_sent is None:
            return None
        self._computing.append((end.t_sent, end.t_first if end.t_first is not None else ended_ns(end)))
        if end.prompt_tokens is None or end.cached_tokens is None:
            return None
        self._calls += 1
        self._found = self._found or bool(end.cached_tokens)
        self._reader.off = self.off()
        return self._reader.call(end)

    def off(self, *, over: bool = False) -> bool:
        """Whether nothing was ever found, which is judged by all calls once the run is over."""
        return not self._found and (over or self._calls >= OFF_CALLS)


def settings(run: Mapping[str, Any]) -> tuple[int, bool, int | None]:
    """The match unit, whether prompts were token ids, and what the KV cache holds."""
    engine = run.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    unit, holds = engine.get("block_size"), engine.get("kv_tokens")
    return (
        unit if isinstance(unit, int) and unit > 0 else 1,
        run.get("route") == "tokens",
        holds if isinstance(holds, int) else None,
    )


def unit_known(run: Mapping[str, Any]) -> bool:
    """Whether the engine of a recording said its match unit; a run plans with the one it has."""
    engine = run.get("engine")
    return not is_recording(run) or (isinstance(engine, dict) and bool(engine.get("block_size")))


def provided(run: Mapping[str, Any]) -> bool:
    """Whether the server is nobody's engine that is known: a provider's, with other people's traffic on it."""
    engine = run.get("engine")
    return is_recording(run) and not (isinstance(engine, dict) and engine.get("name"))


class _Preemptions:
    """When the engine's counter grew."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._counters = Counters()

    def add(self, sample: EngineSample) -> None:
        if sample.preemptions is None:
            return
        before = self._counters.grown("preemptions") or 0
        self._counters.add(sample)
        if (self._counters.grown("preemptions") or 0) > before:
            self._times.append(sample.t)

    def between(self, begin: int, end: int) -> bool:
        return bisect_right(self._times, end) > bisect_right(self._times, begin)


def _first_tokens(ends: list[CallEnd]) -> list[tuple[int, int]]:
    """(sent, first token) of every call: until then its prompt is not wholly in the cache."""
    return [(e.t_sent or 0, e.t_first if e.t_first is not None else ended_ns(e)) for e in ends]


class _Known(Struct, frozen=True):
    """What the other calls, and the engine, tell about one call."""

    preemptions: _Preemptions
    computing: Collection[tuple[int, int]]
    """(sent, first token)."""
    touched: Touched


class _Reader:
    def __init__(
        self,
        unit: int,
        traces: dict[str, str],
        breaks: Breaks,
        known: _Known,
        *,
        exact: bool,
        kv_tokens: int | None,
    ) -> None:
        self.traces = traces
        self.breaks = breaks
        self._by = known
        self.off = False
        """Nothing was ever found."""
        self.provided = False
        """See `provided`: what others send is not seen."""
        self.unit_known = True
        self._computed = 0
        """Tokens since the run began; each call may leave a part of a unit."""
        self.learn(unit, exact, kv_tokens)
        self._prompts: dict[tuple[str, int], int] = {}
        self._ended: dict[tuple[str, int], int] = {}
        """When the last call of each session's thread ended, ns."""
        self._first: dict[tuple[str, int], int] = {}
        """When it had its first token."""
        self._kept: dict[tuple[str, int], int] = {}
        """Tokens of its prompt."""

    def learn(self, unit: int, exact: bool, kv_tokens: int | None) -> None:
        self.unit, self.exact = unit, exact
        self._room = -1.0 if kv_tokens is None else ROOM * kv_tokens
        """Tokens that can be used before the first must go; -1 where that is not known."""
        self._full = -1.0 if kv_tokens is None else FULL * kv_tokens

    def forget(self, session: str) -> None:
        """Of a session that is over nothing more is asked."""
        for key in [key for key in self._ended if key[0] == session]:
            del self._ended[key]
            self._first.pop(key, None)
            self._kept.pop(key, None)

    def call(self, end: CallEnd) -> CallCache:
        prompt, cached = end.prompt_tokens or 0, min(end.cached_tokens or 0, end.prompt_tokens or 0)
        last = self._ended.get((end.session, end.thread))
        found = self.breaks.get((self.traces.get(end.session, ""), end.call))
        missed = max(0, min(ceiling(end) or 0, prompt) - cached)
        lost = self._diverged(end, found, cached + missed)
        gap = None if last is None or end.t_sent is None else max(0, end.t_sent - last) / NS
        self._computed += prompt - cached + (end.completion_tokens or 0) + self.unit
        if self.breaks:
            self._prompts[end.session, end.call] = prompt
        cause = self._cause(end, missed, last) if missed else None
        self._ended[end.session, end.thread] = ended_ns(end)
        self._first[end.session, end.thread] = end.t_first if end.t_first is not None else ended_ns(end)
        self._kept[end.session, end.thread] = prompt
        return CallCache(
            session=end.session,
            trace=self.traces.get(end.session, ""),
            agent=end.agent,
            thread=end.thread,
            call=end.call,
            t_s=(end.t_sent or 0) / NS,
            first=last is None,
            prompt=prompt,
            cached=cached,
            missed=missed,
            diverged=lost,
            fresh=prompt - cached - missed - lost,
            cause=cause,
            gap_s=gap,
            culprit=found.culprit if found is not None and lost else None,
        )

    def _diverged(self, end: CallEnd, found: Break | None, matched: int) -> int:
        """Tokens up to which the earlier prompt, as the engine counted it, would have matched."""
        before = None if found is None else self._prompts.get((end.session, found.against))
        if found is None or before is None:
            return 0
        return diverged(before, end.prompt_tokens or 0, matched, self.unit)

    def _doubt(self, end: CallEnd) -> float:
        """Tokens by which the end of what was sent before may lie elsewhere than planned."""
        if self.exact:
            return 0
        prompt = end.prompt_tokens or 0
        return max(ACCURACY * prompt, abs(end.expected_prompt_tokens - prompt) if end.expected_prompt_tokens else 0)

    def _cause(self, end: CallEnd, missed: int, last: int | None) -> Cause:
        if self.off:
            return "caching_off"
        if missed < self.unit + self._doubt(end):
            return "rounding"
        if not self.unit_known and missed < USUAL_UNIT + self._doubt(end):
            return "part_of_block"
        sent = end.t_sent or 0
        if self._is_computed(end, sent):
            return "still_computing"
        if self.provided:
            return "expired" if last is not None and sent - last > RETENTION_S * NS else "unknown"
        if self._by.preemptions.between(last if last is not None else sent, ended_ns(end)):
            return "preempted"
        if self._room > self._computed or self._is_tail(end):
            return "not_kept"
        if last is None and self._room >= 0:
            return "unknown"
        return self._gone(end, sent, last)

    def _is_tail(self, end: CallEnd) -> bool:
        """Whether just the answer to the thread's last prompt is missing: windows and states stay where prompts end."""
        kept, cached = self._kept.get((end.session, end.thread)), end.cached_tokens or 0
        return kept is not None and 0 < cached <= kept <= cached + 2 * self.unit

    def _is_computed(self, end: CallEnd, sent: int) -> bool:
        """Whether a prompt with this beginning was under way: of a first call any, else the thread's own."""
        own = self._first.get((end.session, end.thread))
        if own is not None:
            return sent < own
        return any(begin <= sent < first and begin != sent for begin, first in self._by.computing)

    def _gone(self, end: CallEnd, sent: int, last: int | None) -> Cause:
        """Of what the thread's last call had in the cache when it ended."""
        first = end.t_first if end.t_first is not None else ended_ns(end)
        looked_up = first
        if end.queued_s is not None:
            looked_up = min(first, sent + round((end.queued_s + front_s(end)) * NS))
        thread = end.session, end.thread
        since = last or 0, looked_up, thread, end.prompt_tokens or 0
        if not self._by.touched.over(self._room, *since):
            return "not_kept" if self._room >= 0 else "unknown"
        if self._full >= 0 and not self._by.touched.over(self._full, *since):
            return "unknown"
        gap = sent if last is None else max(0, sent - last)
        waited = 0 if end.queued_s is None else looked_up - sent
        return "evicted_in_queue" if gap < max(waited, MOMENT_NS) else "evicted"
