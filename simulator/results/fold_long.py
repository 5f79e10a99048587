"""The fold of a long run that is over: its past is read in outline, its end in full, and both are the same to look at.

What agents had generated at each moment of calls that ended long ago is seen by nobody, and is most of a run's bytes.
"""

from typing import Any, cast

from windtunnel.agents.events import Progress
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.lines import Outline, Seen

GAUGE_NS = NS
"""Agents' states are looked at so often where the history has steps of many seconds."""


class LongFold(Fold):
    """Takes `lines.Outline` beside all other events."""

    def __init__(self, run: dict[str, Any] | None = None) -> None:
        super().__init__(run)
        self._handlers[Outline] = self._outline
        self._seen: frozenset[Seen] = frozenset()
        self._shown: tuple[Seen, ...] = ()
        self._in_outline = False

    @property
    def output_tokens(self) -> int:
        """In outline as the last progress told it."""
        last = self._last_progress
        return last.output_tokens if self._in_outline and last is not None else super().output_tokens

    def _outline(self, event: Outline) -> None:
        self.gauge_ns, self._in_outline = GAUGE_NS, True
        self.approximate = not event.parsed
        if event.agents != self._shown:
            self._shown, before, self._seen = event.agents, self._seen, frozenset(event.agents)
            for seen in self._seen - before:
                agent = self._agent(seen.agent)
                if agent.would_change(seen.thread, seen.call, seen.state):
                    self._count(event.t)
                    self._change(agent, agent.becomes, event.t, seen.thread, seen.state)
        # It has all that is asked for there.
        self._flows(cast("Progress", event))

    def _progress(self, event: Progress) -> None:
        self.gauge_ns, self._in_outline = Fold.gauge_ns, False
        super()._progress(event)
