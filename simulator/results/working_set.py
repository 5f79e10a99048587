"""How much context the live sessions have together: what a KV cache must hold for none of it to be computed again."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from windtunnel.agents.events import CallEnd, CallStart, Event, SessionEnd
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.calls import NS


class WorkingSet:
    """`tokens` is the context of every live session's threads: from a call's start on the prompt that it should have,
    from its end on the prompt that it had and what was generated.

    What a thread's first prompt had in common with earlier ones, a system prompt mostly, is counted once: with the
    thread that brought it, or, when all that brought something of their own are gone, as the longest such beginning.
    Where agents of several kinds live together that leaves out the beginnings of those whose first thread is gone.
    """

    def __init__(self) -> None:
        self._own = 0
        self._held: dict[str, dict[int, int]] = {}
        """Session to thread to tokens."""
        self._shared: dict[tuple[str, int], int] = {}
        """Tokens that a thread began with and others had before it."""
        self._beginnings: Counter[int] = Counter()
        """How many live threads began with so many."""
        self._unknown: set[tuple[str, int]] = set()

    @property
    def tokens(self) -> int:
        common = 0 if self._beginnings[0] else max(self._beginnings, default=0)
        return self._own + common

    @property
    def known(self) -> bool:
        """Whether every thread that has sent a call has a context: a recording learns a prompt's length at its end."""
        return not self._unknown

    def call_start(self, event: CallStart) -> int:
        """The change in tokens."""
        if event.expected_prompt_tokens > 0:
            shared = min(event.expected_cached_tokens or 0, event.expected_prompt_tokens)
            return self._set(event.session, event.thread, event.expected_prompt_tokens, shared)
        if not self._held.get(event.session, {}).get(event.thread):
            self._unknown.add((event.session, event.thread))
        return 0

    def call_end(self, event: CallEnd) -> int:
        """The change in tokens; 0 where the call was not completed."""
        self._unknown.discard((event.session, event.thread))
        if not of_call.completed(event):
            return 0
        context = (of_call.prompt_tokens(event) or event.expected_prompt_tokens) + (event.completion_tokens or 0)
        return self._set(event.session, event.thread, context, 0)

    def _set(self, session: str, thread: int, context: int, shared: int) -> int:
        """`shared` is of a thread that was not there yet."""
        before, threads, key = self.tokens, self._held.setdefault(session, {}), (session, thread)
        if thread not in threads:
            self._shared[key] = shared
            self._beginnings[shared] += 1
        began = self._shared[key]
        self._own += max(0, context - began) - max(0, threads.get(thread, began) - began)
        threads[thread] = context
        return self.tokens - before

    def session_end(self, event: SessionEnd) -> int:
        before = self.tokens
        for thread, context in self._held.pop(event.session, {}).items():
            began = self._shared.pop((event.session, thread))
            self._own -= max(0, context - began)
            self._beginnings[began] -= 1
            if not self._beginnings[began]:
                del self._beginnings[began]
        return self.tokens - before


def working_set(events: Iterable[Event], length: float, bins: int) -> list[tuple[float, float]]:
    """(s, tokens) at the edges of `bins` equal parts of `length` seconds."""
    steps: list[tuple[int, int]] = []
    held = WorkingSet()
    for event in events:
        if isinstance(event, CallStart):
            if change := held.call_start(event):
                steps.append((event.t, change))
        elif isinstance(event, CallEnd):
            if change := held.call_end(event):
                steps.append((of_call.ended_ns(event), change))
        elif isinstance(event, SessionEnd) and (change := held.session_end(event)):
            steps.append((event.t, change))
    edges = np.linspace(0, length, bins + 1) * NS
    times = np.array([t for t, _ in steps], dtype=np.float64)
    growth = np.cumsum([change for _, change in steps]) if steps else np.zeros(0)
    at = np.searchsorted(times, edges, side="right")
    return [
        (edge / NS, float(growth[i - 1]) if i else 0.0) for edge, i in zip(edges.tolist(), at.tolist(), strict=True)
    ]
