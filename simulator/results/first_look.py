"""What a long run that is over was like, without reading all of it.

Its figures are in `summary.json`; the last state of every agent is in the end of `events.jsonl`; the past between is
looked at in some hundred places, which is enough for a graph: tokens are told as sums since the start, so that between
two places nothing is missed, and gauges stand for the time until the next place. Whoever wants more reads the rest.
"""

import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from windtunnel.agents.events import (
    AgentState,
    CallEnd,
    EngineSample,
    Event,
    Progress,
    RunStart,
    SessionEnd,
    SessionStart,
)
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.ceiling import ceiling
from windtunnel.simulator.results.counters import growth
from windtunnel.simulator.results.files import open_regular
from windtunnel.simulator.results.fold import SERIES, Fold
from windtunnel.simulator.results.lines import decode_lines
from windtunnel.simulator.results.series import Series
from windtunnel.simulator.results.store import EVENTS_FILE, RunFolder

LONG_BYTES = 24 << 20
"""Smaller ones are read within about a second."""
PLACES = 320
PLACE_BYTES = 1 << 16
MOST_BYTES = 1 << 22
"""Where a line is longer than a place, so much is read for it."""
HEAD_BYTES = 1 << 18
TAIL_BYTES = 4 << 20
TAILS = 8
"""At most so many times as much is read of the end."""
BACK_BYTES = 192 << 20
"""Before the end so much is searched for the beginnings of the last sessions."""
_SESSION = b'\n{"type":"session_'


def is_long(folder: RunFolder) -> bool:
    """Whether reading all events would keep somebody waiting."""
    try:
        return (folder.path / EVENTS_FILE).stat().st_size > LONG_BYTES
    except OSError:
        return False


def first_look(folder: RunFolder) -> tuple[Fold, list[Event]]:
    """A fold with the run's past from some places of it and its end in full, and the events of the end."""
    path = folder.path / EVENTS_FILE
    with open_regular(path) as file:
        fd, size = file.fileno(), os.fstat(file.fileno()).st_size
        head = _lines(fd, 0, HEAD_BYTES, path)
        start = next((event for event in head if isinstance(event, RunStart)), None)
        agents = start.agents if start is not None else 0
        tail, tail_at = _tail(fd, size, agents, path)
        past = Past(start.t if start is not None else 0)
        past.take(head)
        step = max(1, tail_at // PLACES)
        for at in range(step, tail_at, step):
            past.take(_lines(fd, at, PLACE_BYTES, path))
        begun = _sessions(fd, tail_at, agents, path)
    fold = Fold(folder.run)
    if start is not None:
        fold.apply(start)
    fold.go_on_from(past.series, past.t, past.progress)
    fold.apply_all(begun)
    fold.apply_all(tail)
    return fold, [*begun, *tail]


def _sessions(fd: int, before: int, agents: int, path: Path) -> list[Event]:
    """The last beginning of a session of each agent before this place, and its end where it has one there."""
    found: list[Event] = []
    begun: set[int] = set()
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
        at = before
        while len(begun) < max(1, agents):
            at = data.rfind(_SESSION, max(0, before - BACK_BYTES), at)
            if at < 0:
                break
            end = data.find(b"\n", at + 1) + 1
            for event in decode_lines(data[at + 1 : end], str(path), 0, [], agents=agents or None) if end else ():
                if isinstance(event, SessionStart | SessionEnd) and event.agent not in begun:
                    found.append(event)
                    if isinstance(event, SessionStart):
                        begun.add(event.agent)
    return found[::-1]


def _tail(fd: int, size: int, agents: int, path: Path) -> tuple[list[Event], int]:
    """The end of the file and where it begins: so much that every agent has a whole call there, within reason."""
    tail: list[Event] = []
    at, seen = size, set[int]()
    while at > 0 and len(seen) < max(1, agents) and size - at < TAILS * TAIL_BYTES:
        begin, data = _whole_lines(fd, max(0, at - TAIL_BYTES), min(at, TAIL_BYTES))
        if not data:
            break
        events = decode_lines(data, str(path), 0, [], agents=agents or None)
        seen |= {e.agent for e in events if isinstance(e, CallEnd) and e.completion_tokens is not None}
        tail[:0] = events
        at = begin
    return tail, at


def _lines(fd: int, at: int, count: int, path: Path) -> list[Event]:
    """The events of the whole lines among `count` bytes from `at` on; of more bytes where a line is longer."""
    while True:
        _, data = _whole_lines(fd, at, count)
        if data or count >= MOST_BYTES:
            return decode_lines(data, str(path), 0, []) if data else []
        count *= 4


def _whole_lines(fd: int, at: int, count: int) -> tuple[int, bytes]:
    """The whole lines among `count` bytes from `at` on, and where the first one begins."""
    data = os.pread(fd, count, at)
    begin = data.find(b"\n") + 1 if at else 0
    return at + begin, data[begin : data.rfind(b"\n") + 1]


class Past:
    """The history made of places. `take` gets the events of each, in order."""

    def __init__(self, began: int) -> None:
        self.series = Series(SERIES)
        self.t = began
        """Up to where the history goes, ns since the origin."""
        self.progress: Progress | None = None
        self._engine: EngineSample | None = None
        self._context = 0.0
        """Tokens of a session, mean of the latest calls."""

    def take(self, events: Iterable[Event]) -> None:
        events = list(events)
        told = [event for event in events if isinstance(event, Progress)]
        if not told or told[-1].t <= self.t:
            return
        progress, last, seconds = told[-1], self.progress, (told[-1].t - self.t) / NS
        amounts: defaultdict[str, float] = defaultdict(float)
        amounts["output"] = max(0, progress.output_tokens - (last.output_tokens if last is not None else 0))
        amounts["prompt"] = max(0, progress.prompt_tokens - (last.prompt_tokens if last is not None else 0))
        for seen in told:
            for name, value in _gauges(seen):
                amounts[name] += value * seconds / len(told)
        calls = [event for event in events if isinstance(event, CallEnd) and event.prompt_tokens]
        for name, tokens in _cached(calls):
            amounts[name] += tokens
        if calls:
            self._context = sum((c.prompt_tokens or 0) + (c.completion_tokens or 0) for c in calls) / len(calls)
        live = progress.in_flight + progress.in_tool + progress.waiting
        amounts["held"] = self._context * live * seconds
        engine = next((e for e in reversed(events) if isinstance(e, EngineSample)), None)
        if engine is not None:
            for name, gauge in (("running", engine.running), ("queued", engine.waiting), ("kv", engine.kv_usage)):
                if gauge is not None:
                    amounts[name] += gauge * seconds
            if self._engine is not None:
                amounts["preempted"] += growth(self._engine, engine, "preemptions") or 0.0
            self._engine = engine
        for name, amount in amounts.items():
            self.series.add(name, self.t, progress.t, amount)
        self.t, self.progress = progress.t, progress


def _gauges(progress: Progress) -> Iterator[tuple[str, float]]:
    """How many agents were in each state. Agents that have not begun or are done are not told of."""
    states: Counter[AgentState] = Counter(seen.state for seen in progress.agents)
    yield from (("in_flight", progress.in_flight), ("in_tool", progress.in_tool), ("waiting", progress.waiting))
    yield from (("tool", progress.in_tool), ("wait", max(0, progress.waiting - states["queue"])))
    for state in ("decode", "prefill", "queue"):
        yield state, states[state]


def _cached(calls: Iterable[CallEnd]) -> Iterator[tuple[str, float]]:
    """Prompt tokens of the calls that ended here, as a sample of all."""
    for call in calls:
        if call.cached_tokens is not None and call.prompt_tokens:
            yield "known_prompt", call.prompt_tokens
            yield "cached", call.cached_tokens
            yield "missed", max(0, (ceiling(call) or 0) - call.cached_tokens)
