"""How much of the KV cache was used since a prefix was: what was used last goes last, so that with less nothing goes.

Everything a call reads or writes is used: its prompt and its answer. Calls of a thread use the same, so that each
thread counts once, by its longest call.
"""

from bisect import bisect_left
from collections.abc import Sequence

from windtunnel.agents.events import CallEnd, CallStart
from windtunnel.simulator.results.calls import ended_ns

KEPT_CALLS = 4096
"""Of a run that goes on; what is older counts as unused."""
Thread = tuple[str, int]
Use = tuple[int, int, Thread, int]
"""(ended, sent, thread, tokens)."""


def thread_of(event: CallEnd | CallStart) -> Thread:
    return event.session, event.thread


def _use(end: CallEnd) -> Use:
    prompt = end.prompt_tokens if end.prompt_tokens is not None else end.expected_prompt_tokens
    return ended_ns(end), end.t_sent or 0, thread_of(end), prompt + (end.completion_tokens or 0)


class Touched:
    """Of all calls where they are known, else of those that have ended (`end`) or are under way (`start`)."""

    def __init__(self, calls: Sequence[CallEnd] = ()) -> None:
        self._uses = sorted(map(_use, calls))
        self._longest = max((ended - sent for ended, sent, _, _ in self._uses), default=0)
        self._open: dict[Thread, tuple[int, int]] = {}
        """(sent, tokens) of calls under way."""

    def start(self, event: CallStart) -> None:
        self._open[thread_of(event)] = event.t, event.expected_prompt_tokens

    def end(self, event: CallEnd) -> None:
        """Calls end one after the other."""
        self._open.pop(thread_of(event), None)
        if event.t_sent is None:
            return
        use = _use(event)
        self._uses.append(use)
        self._longest = max(self._longest, use[0] - use[1])
        if len(self._uses) > 2 * KEPT_CALLS:
            del self._uses[:KEPT_CALLS]

    def over(self, most: float, begin: int, until: int, mine: Thread, tokens: int) -> bool:
        """Whether the calls under way between two moments, and `mine` with its `tokens`, use more than `most`.

        Without a bound (`most` < 0): whether anybody else's were.
        """
        used: dict[Thread, int] = {}
        total = tokens if most >= 0 else 0
        for thread, (sent, length) in self._open.items():
            if thread != mine and sent <= until:
                total += self._more(used, thread, length)
        at = bisect_left(self._uses, (begin,))
        while total <= max(0.0, most) and at < len(self._uses):
            ended, sent, thread, length = self._uses[at]
            if ended - self._longest > until:
                break
            if thread != mine and sent <= until:
                total += self._more(used, thread, length)
            at += 1
        return total > max(0.0, most)

    @staticmethod
    def _more(used: dict[Thread, int], thread: Thread, length: int) -> int:
        """By how much a thread's longest call grows."""
        before = used.get(thread, 0)
        used[thread] = max(before, length)
        return used[thread] - before
