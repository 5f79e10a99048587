"""Parsing many live streams without holding the event loop: a little at a time, reads always in between.

Arrival times are taken on the read path, so parsing late distorts nothing, but parsing long does: when many streams end
at once, finishing them in one go would delay the reads of all others by milliseconds.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Protocol

from windtunnel.agents.endless import Watch
from windtunnel.agents.http import RawStream
from windtunnel.agents.sse import Parsed, Parser

_SLICE_NS = 250_000
"""Longest time spent parsing before the loop looks at its sockets again, give or take one step."""
_STEP_PIECES = 32
_BACKLOG = 256
"""Pieces; more than wait for a look, unless they come faster than they are parsed."""
_STEP_FREES = 4
_MOST_STEPS = 512
_STEP_BYTES = 65_536
"""A step ends with the piece that fills this: a long line comes in pieces as large as a read."""


class Live(Protocol):
    """A stream that is followed while it runs."""

    @property
    def raw(self) -> RawStream: ...

    @property
    def tokens(self) -> int:
        """Output tokens seen so far."""
        ...

    def look(self) -> tuple[int, str]:
        """Output tokens seen so far, and the last characters generated."""
        ...

    def tail_of(self, tokens: int) -> str:
        """The last characters of the first `tokens` tokens, as many as were seen so far."""
        ...

    def rest(self) -> Parsed:
        """What a stream that was given up had said."""
        ...


class Readings(Protocol):
    """What follows the streams of a run: `Reader`, or what reads them in other processes."""

    def open(self, raw: RawStream) -> Live: ...

    async def finish(self, raw: RawStream) -> Parsed: ...

    def forget(self, raw: RawStream) -> None: ...

    async def catch_up(self) -> None: ...

    def tokens_of(self, followed: Sequence[Live | None]) -> list[int]:
        """Output tokens seen so far of each; 0 where nothing is followed yet."""
        ...


class Reading:
    """One stream and its parser."""

    __slots__ = ("_bytes", "_result", "_watch", "parser", "raw")

    def __init__(self, raw: RawStream, *, keep_text: bool) -> None:
        self.raw = raw
        self.parser = Parser(keep_text=keep_text)
        self._watch = Watch()
        self._bytes = 0
        """Parsed so far."""
        self._result: asyncio.Future[Parsed] | None = None

    @property
    def tokens(self) -> int:
        return self.parser.tokens_so_far

    @property
    def tail(self) -> str:
        return self.parser.tail

    def look(self) -> tuple[int, str]:
        return self.parser.tokens_so_far, self.parser.tail

    def tail_of(self, tokens: int) -> str:
        del tokens
        return self.parser.tail

    def rest(self) -> Parsed:
        """Everything a given-up stream had received; of a flood, how it began."""
        for _ in range(_MOST_STEPS):
            if self.step():
                break
        return self.parser.finish(self.raw.failure, self.raw.detail)

    def step(self) -> bool:
        """Parse a few pieces; True when that was all there is for now."""
        if self.parser.used:
            del self.parser.used[-_STEP_FREES:]
            return False
        pieces = self.raw.take(_STEP_PIECES)
        sizes = [len(data) for _, data in pieces]
        most = _fitting(sizes)
        self._bytes += sum(sizes[:most])
        self.parser.feed_all(pieces[:most] if most < len(pieces) else pieces)
        if most < len(pieces):
            self.raw.pieces[:0] = pieces[most:]
            return False
        return len(pieces) < _STEP_PIECES and not self.parser.used

    def judge(self, now: int) -> None:
        """Give up a stream that goes on without end; `now` in ns."""
        raw = self.raw
        if raw.give_up is None:
            return
        size = self._bytes
        if len(raw.pieces) > _BACKLOG:
            late = [len(data) for _, data in raw.pieces[-_STEP_PIECES:]]
            size += len(raw.pieces) * sum(late) // len(late)
        if (found := self._watch.verdict(raw, self.parser, size, now)) is not None:
            raw.give_up(*found)
            raw.pieces = []  # of what is too much the rest is not looked at

    async def result(self, reader: "Reader") -> Parsed:
        """What the stream said, once it has ended and its turn has come."""
        self._result = asyncio.get_running_loop().create_future()
        reader.enqueue(self)
        return await self._result

    def conclude(self) -> None:
        """Hand over the result, if the stream has ended and somebody waits for it."""
        if self._result is not None and not self._result.done():
            self._result.set_result(self.parser.finish(self.raw.failure, self.raw.detail))

    def abandon(self, error: BaseException) -> None:
        if self._result is not None and not self._result.done():
            if isinstance(error, asyncio.CancelledError):
                self._result.cancel()
            else:
                self._result.set_exception(error)


def _fitting(sizes: Sequence[int]) -> int:
    """How many pieces of these sizes are a step: up to and with the one that fills it."""
    if sum(sizes) <= _STEP_BYTES:
        return len(sizes)
    size = 0
    for number, one in enumerate(sizes, 1):
        size += one
        if size > _STEP_BYTES:
            return number
    return len(sizes)


class Reader:
    """All streams of a run. `open` one as it starts, `finish` it when it ended, `catch_up` before showing progress."""

    def __init__(self, *, keep_text: bool = True, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self.live: dict[str, Reading] = {}
        """By request id: the streams not finished."""
        self._keep_text = keep_text
        self._now = now_ns
        self._ended: deque[Reading] = deque()
        self._worker: asyncio.Task[None] | None = None

    def open(self, raw: RawStream) -> Reading:
        """Follow a stream from its start; fits `StreamClient.stream(on_start=...)`."""
        reading = self.live[raw.request_id] = Reading(raw, keep_text=self._keep_text)
        return reading

    async def finish(self, raw: RawStream) -> Parsed:
        """Everything that a stream said, after it ended. It is no longer live."""
        reading = self.live[raw.request_id]
        try:
            return await reading.result(self)
        finally:
            del self.live[raw.request_id]

    def forget(self, raw: RawStream) -> None:
        """A stream was given up: it is no longer live."""
        self.live.pop(raw.request_id, None)

    def tokens_of(self, followed: Sequence[Live | None]) -> list[int]:
        """Output tokens seen so far of each; 0 where nothing is followed yet."""
        return [0 if one is None else one.tokens for one in followed]

    async def catch_up(self) -> None:
        """Parse what the live streams have received so far, so that `tokens_so_far` and `tail` are current."""
        until = self._now() + _SLICE_NS
        for reading in list(self.live.values()):
            while not reading.step():
                until = await self._breathe(until)
                reading.judge(self._now())  # what comes faster than it is parsed would never let this end
            until = await self._breathe(until)
            reading.judge(self._now())

    def enqueue(self, reading: Reading) -> None:
        """Conclude an ended stream in its turn."""
        self._ended.append(reading)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._conclude())
            self._worker.add_done_callback(self._give_up)

    async def _conclude(self) -> None:
        until = self._now() + _SLICE_NS
        while self._ended:
            reading = self._ended[0]
            while not reading.step():
                until = await self._breathe(until)
            reading.conclude()
            self._ended.popleft()
            until = await self._breathe(until)

    def _give_up(self, worker: asyncio.Task[None]) -> None:
        """A parser that raised is a bug: whoever waits gets it, instead of waiting for ever."""
        error = asyncio.CancelledError() if worker.cancelled() else worker.exception()
        while error is not None and self._ended:
            self._ended.popleft().abandon(error)

    async def _breathe(self, until: int) -> int:
        """Let the loop run when the slice is used up; the end of the slice that follows."""
        if self._now() < until:
            return until
        await asyncio.sleep(0)
        return self._now() + _SLICE_NS
