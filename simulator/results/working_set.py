"""How much context the live sessions have together: what a KV cache must hold for none of it to be computed again."""

from collections.abc import Iterable

import numpy as np

from windtunnel.agents.events import CallEnd, Event, SessionEnd
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.calls import NS


def working_set(events: Iterable[Event], length: float, bins: int) -> list[tuple[float, float]]:
    """(s, tokens) at the edges of `bins` equal parts of `length` seconds.

    The context of every live session's threads, as of their last call: what the KV cache would have to hold.
    """
    steps: list[tuple[int, int]] = []
    held: dict[tuple[str, int], int] = {}
    for event in events:
        if isinstance(event, CallEnd) and of_call.completed(event):
            context = (of_call.prompt_tokens(event) or event.expected_prompt_tokens) + (event.completion_tokens or 0)
            key = (event.session, event.thread)
            steps.append((of_call.ended_ns(event), context - held.get(key, 0)))
            held[key] = context
        elif isinstance(event, SessionEnd):
            mine = [key for key in held if key[0] == event.session]
            steps += [(event.t, -held.pop(key)) for key in mine]
    edges = np.linspace(0, length, bins + 1) * NS
    times = np.array([t for t, _ in steps], dtype=np.float64)
    growth = np.cumsum([change for _, change in steps]) if steps else np.zeros(0)
    at = np.searchsorted(times, edges, side="right")
    return [
        (edge / NS, float(growth[i - 1]) if i else 0.0) for edge, i in zip(edges.tolist(), at.tolist(), strict=True)
    ]
