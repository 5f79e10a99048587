"""What the calls in flight have come to: a quarter of a second's progress is made of it."""

import asyncio
from collections.abc import Sequence

from windtunnel.agents import events as ev
from windtunnel.agents.clock import Clock
from windtunnel.agents.reading import Readings
from windtunnel.simulator.run.counts import Counts
from windtunnel.simulator.run.lane import ActiveCall

TAIL_CHARS = 120
SLICE_NS = 250_000
"""Longest time that looking at the calls in flight holds the event loop, give or take one call."""


class Looks:
    def __init__(self, reader: Readings, counts: Counts, clock: Clock, *, text: bool) -> None:
        """`text`: what was generated last is shown."""
        self._reader = reader
        self._counts = counts
        self._clock = clock
        self._text = text
        self._exact = counts.told
        """What was last said of all counts, where that is the same for all."""
        self.tokens = 0
        """Output tokens of calls in flight that were seen since this was last set to 0."""

    async def at(self, calls: Sequence[ActiveCall], began: int) -> list[tuple[ActiveCall, ev.AgentProgress]]:
        """What each has come to, a slice of them at a time: the sockets are looked at in between."""
        seen = []
        now_ns = self._clock.now_ns
        until = now_ns() + SLICE_NS
        for active in calls:
            if now_ns() >= until:
                await asyncio.sleep(0)
                until = now_ns() + SLICE_NS
            if not active.over:
                seen.append((active, self._one(active, began)))
        return seen

    def _one(self, active: ActiveCall, began: int) -> ev.AgentProgress:
        reading = active.reading
        state: ev.AgentState = "queue"
        tokens, tail, exact = 0, "", True
        if reading is not None:
            tokens, tail = reading.look()
            if tail:
                tail = tail[-TAIL_CHARS:] if self._text else ""
            state = "decode" if tokens else "prefill"
            exact = not tokens or self._counts.exact(reading, began)
        self.tokens += tokens - active.counted
        active.counted = tokens
        return ev.AgentProgress(active.agent, active.thread, active.call, state, tokens, tail, exact)

    def now(self, calls: Sequence[ActiveCall]) -> tuple[list[ev.AgentProgress], bool]:
        """The same where nothing arrives meanwhile, and whether all counts are exact: thousands of looks make an hour.

        So only what has changed is made anew.
        """
        exact = self._counts.told
        changed, self._exact = exact != self._exact, exact
        counts, text = self._reader.tokens_of([active.reading for active in calls]), self._text
        for active, tokens in zip(calls, counts, strict=True):
            if tokens == active.counted and active.told and not changed:
                continue
            reading = active.reading
            if reading is None:
                continue
            active.told = True
            if tokens:
                self.tokens += tokens - active.counted
                active.counted = tokens
                tail = reading.tail_of(tokens)[-TAIL_CHARS:] if text else ""
                active.shown = ev.AgentProgress(active.agent, active.thread, active.call, "decode", tokens, tail, exact)
            else:
                active.shown = ev.AgentProgress(active.agent, active.thread, active.call, "prefill", 0)
        return [active.shown for active in calls], exact or not any(counts)
