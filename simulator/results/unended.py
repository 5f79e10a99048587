"""What calls without an end had come to: their run was killed or goes on, and only its progress tells."""

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from windtunnel.agents.events import CallStart, Progress
from windtunnel.simulator.results.calls import Counts, Times
from windtunnel.simulator.results.files import open_regular
from windtunnel.simulator.results.lines import KNOWN_TYPES, UNREADABLE
from windtunnel.simulator.results.tail import Tail

Looks = Callable[[int], Generator[Progress, None, None]]
"""Gives the run's progress events since a time (ns), in order; earlier ones may come, too."""

_BLOCK = 1 << 22
_START = b'\n{"type":"progress"'
_OTHERS = tuple(sorted(KNOWN_TYPES - {"progress"}))


class Unended(Struct, frozen=True):
    """Of the calls that a progress event has seen generate."""

    times: Times
    """When their tokens arrived (ns): between two looks at even distances, for no more is known."""
    counts: Counts
    prompts: tuple[tuple[int, int | None], ...] = ()
    """(about when the first token came, expected prompt tokens) of each; a recorder expects nothing: None."""
    exact: bool = True
    """The server told every count, and all of it was parsed."""
    last: int | None = None
    """When was looked last; None where nobody did."""

    @property
    def output(self) -> int:
        return round(float(self.counts.sum()))

    @property
    def prompt(self) -> int | None:
        known = [tokens for _, tokens in self.prompts if tokens is not None]
        return sum(known) if known else None


NOTHING = Unended(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))


class _Call(Struct, gc=False):
    expected: int
    begun: int
    looked: int
    """When it was seen last, or sent."""
    looks: int = 0
    """Number of the look at which it was seen last."""
    tokens: int = 0
    exact: bool = True


def read(calls: Iterable[CallStart], looks: Looks, until: int) -> Unended:
    """Follow `calls` through the looks up to `until` (ns)."""
    found = {(call.agent, call.thread, call.call): _Call(call.expected_prompt_tokens, call.t, call.t) for call in calls}
    if not found:
        return NOTHING
    times: list[Times] = []
    prompts: list[tuple[int, int | None]] = []
    last, number = None, 0
    with closing(looks(min(call.begun for call in found.values()))) as told:
        for look in told:
            if look.t > until:
                break
            last, number = look.t, number + 1
            for seen in look.agents:
                key = seen.agent, seen.thread, seen.call
                call = found.get(key)
                if call is None or look.t < call.begun:
                    continue
                if call.looks and call.looks != number - 1:
                    # It was over, and the line of its end is lost: this is another one of the lane.
                    del found[key]
                    continue
                if seen.tokens > call.tokens:
                    if not call.tokens:
                        prompts.append((_between(call.looked, look.t, 1)[0].item(), call.expected or None))
                    times.append(_between(call.looked, look.t, seen.tokens - call.tokens))
                    call.tokens = seen.tokens
                call.looks, call.looked, call.exact = number, look.t, seen.exact
    arrived = np.concatenate(times) if times else NOTHING.times
    exact = all(call.exact for call in found.values())
    return Unended(arrived, np.ones(len(arrived)), tuple(prompts), exact, last)


def _between(start: int, end: int, tokens: int) -> Times:
    return start + ((np.arange(tokens) + 0.5) * ((end - start) / tokens)).astype(np.int64)


def held(events: Iterable[object]) -> Looks:
    """Those among events that are at hand."""
    return lambda since: (event for event in events if isinstance(event, Progress) and event.t >= since)


def stored(path: Path, agents: int | None) -> Looks:
    """Those in a file of events, read from near the first that is wanted on: most bytes of a long run come before."""

    def looks(since: int) -> Generator[Progress, None, None]:
        tail = Tail(path, _OTHERS, agents=agents, start=_place(path, since))
        try:
            while events := tail.poll(_BLOCK):
                yield from (event for event in events if isinstance(event, Progress))
        finally:
            tail.close()

    return looks


class _Timed(Struct):
    t: int


def _place(path: Path, since: int) -> int:
    """Where the last line begins that is a progress before then; looked for from the end."""
    try:
        with open_regular(path) as file:
            at = path.stat().st_size
            rest = b""
            """A line's end, which begins in the block before."""
            while at > 0:
                size, at = min(at, _BLOCK), max(0, at - _BLOCK)
                file.seek(at)
                data = file.read(size) + rest
                end = len(data)
                while (begin := data.rfind(_START, 0, end) + 1) > 0:
                    stop = data.find(b"\n", begin)
                    if stop > 0 and _time(data[begin:stop], since) < since:
                        return at + begin
                    end = begin
                rest = data[: max(0, data.find(b"\n") + 1)]
    except FileNotFoundError:
        pass
    return 0


def _time(line: bytes, unknown: int) -> int:
    try:
        return msgspec.json.decode(line, type=_Timed).t
    except UNREADABLE:
        return unknown
