"""The emulator without a socket: what sends a replay's requests, and what follows their streams, in one process.

It stands where `StreamClient` and `Reader` stand in a run over HTTP and gives the driver what those give: when a
request was sent, when each chunk came and with how many tokens, what the usage said. The engine's steps lie on the
virtual clock's time: between two of the client's timers they are computed in one go, up to a request's end at most.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, cast

from windtunnel.agents import events as ev
from windtunnel.agents.clock import Cancellable, VirtualClock
from windtunnel.agents.failures import Failure, http_failure
from windtunnel.agents.http import RawStream, shorten
from windtunnel.agents.reading import Live
from windtunnel.agents.sse import CountedBy, Parsed
from windtunnel.simulator.emulator.acceptance import Acceptance
from windtunnel.simulator.emulator.ask import Refusal
from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.script import Inventory, Unread, Words
from windtunnel.simulator.run.bodies import Bodies, Wanted
from windtunnel.simulator.run.spoken import Speech, Spoken

FAR = 1 << 62
"""ns; no run lasts so long."""


class Tells(NamedTuple):
    """What the engine's flags let it say beside a usage."""

    cached: bool = True
    queue: bool = True
    """And how long a call prefilled."""


class Stream:
    """One request from its sending to its end; fits `reading.Live`."""

    __slots__ = (
        "_core",
        "_keep_text",
        "_tells",
        "done",
        "raw",
        "request",
        "script",
        "spoken",
        "wanted",
    )

    def __init__(self, raw: RawStream, core: Core, tells: Tells, *, keep_text: bool) -> None:
        self.raw = raw
        self._core = core
        self._tells = tells
        self.request: Request | None = None
        self.script: Words | Unread | None = None
        self.wanted: Wanted | None = None
        self.done: asyncio.Future[None] | None = None
        self.spoken: Spoken | None = None
        self._keep_text = keep_text

    @property
    def tokens(self) -> int:
        request = self.request
        if request is None:
            return 0
        return self._core.tokens(request) if request.parked else request.produced

    def look(self) -> tuple[int, str]:
        request = self.request
        if request is None:
            return 0, ""
        tokens = self._core.tokens(request)
        return tokens, "" if self.spoken is None else self.spoken.tail(tokens)

    def tail_of(self, tokens: int) -> str:
        return "" if self.spoken is None else self.spoken.tail(tokens)

    def rest(self) -> Parsed:
        return self.parsed()

    def parsed(self) -> Parsed:
        """What an HTTP client had read of the stream so far, by the fields it had asked for."""
        request, wanted = self.request, self.wanted
        if request is None or wanted is None:
            return Parsed()
        given = self._core.collect(request)
        times, counts = given.ends, given.counts
        ask, options, tokens = wanted.ask, wanted.ask.stream_options, len(request.output)
        ended = request.finished is not None and self.raw.failure is None
        usage = options is not None and bool(options.include_usage)
        growing = usage and options is not None and bool(options.continuous_usage_stats)
        ids = bool(ask.return_token_ids)
        scheduled = request.scheduled_at if self._tells.queue else None
        told = (usage and ended) or (growing and tokens > 0)
        counted_by: CountedBy = "chunks"
        if tokens:
            counted_by = "token_ids" if ids else "usage_deltas" if growing else "usage_spread" if told else "chunks"
        spoken = self.spoken
        visible = None if spoken is None else spoken.first_visible
        return Parsed(
            t_first=times[0] if times else None,
            t_first_visible=None if visible is None or visible >= tokens else times[_chunk_of(visible, counts)],
            t_last=times[-1] if times else None,
            prompt_tokens=request.prompt_tokens if told else None,
            cached_tokens=(request.hit or 0) if usage and ended and self._tells.cached else None,
            completion_tokens=tokens if told or (ids and tokens) else None,
            usage_reported=told,
            queued_s=None if scheduled is None else (scheduled - request.queued_at) / 1e9,
            prefilled_s=None if scheduled is None or not times else (times[0] - scheduled) / 1e9,
            finish=request.finished if ended else None,
            text=spoken.text(tokens) if spoken is not None and self._keep_text else "",
            token_ids=cast("Sequence[int]", self.script.first(tokens)) if ids and self.script is not None else (),
            chunk_t=times,
            chunk_n=counts,
            counted_by=counted_by,
            ended=ended,
        )


def _chunk_of(token: int, counts: Sequence[int]) -> int:
    """The first tokens say something as a rule."""
    return next(chunk for chunk, end in enumerate(accumulate(counts)) if end > token)


class Direct:
    """Both halves of the client's side, `Streams` and `Readings`, over one `Core`."""

    blocked = 0
    """There is no socket that could be."""

    def __init__(
        self,
        core: Core,
        bodies: Bodies,
        speech: Speech,
        inventory: Inventory,
        acceptance: Acceptance | None,
        clock: VirtualClock,
        *,
        keep_text: bool,
        front: Callable[[int], int] = lambda _: 0,
        tells: Tells = Tells(),  # noqa: B008 -- it cannot change
    ) -> None:
        """`front`: ns that a prompt of so many tokens takes on its way to the scheduler."""
        self._tells = tells
        self.core = core
        self._bodies = bodies
        self._speech = speech
        self._inventory = inventory
        self._acceptance = acceptance
        self._clock = clock
        self._keep_text = keep_text
        self._open: dict[str, Stream] = {}
        """By request id: what somebody still follows."""
        self._front = front
        self._running: dict[Request, Stream] = {}
        self._uncounted: dict[Request, Stream] = {}
        """Whose prompt the engine has not counted yet, which it does with the first token."""
        self._coming: set[Request] = set()
        """Of these, those on their way to the scheduler."""
        self._prompt_tokens = self._generated = self._finished = 0
        clock.drive(self.run)

    # What the driver uses: Streams.

    async def stream(
        self,
        path: str,
        parts: Sequence[bytes],
        *,
        request_id: str,
        headers: Sequence[tuple[str, str]] = (),
        on_start: Callable[[RawStream], None] | None = None,
    ) -> RawStream:
        """As `StreamClient.stream`; `headers` change nothing."""
        del headers
        now = self._clock.now_ns()
        raw = RawStream(request_id=request_id, t_start=now)
        if on_start is not None:
            on_start(raw)
        raw.t_write = raw.t_sent = now
        stream = self._open.get(request_id) or Stream(raw, self.core, self._tells, keep_text=False)
        try:
            request = self._request(path, parts, stream, now)
        except Refusal as refusal:
            raw.status = refusal.status
            raw.failure, raw.detail = http_failure(refusal.status), shorten(str(refusal))
            raw.t_headers = raw.t_end = now
            return raw
        raw.status = 200
        stream.done = asyncio.get_running_loop().create_future()
        self._running[request] = self._uncounted[request] = stream
        coming = self._send(request, now)
        try:
            await stream.done
        finally:
            if raw.t_end is None:
                raw.failure, raw.t_end = Failure.ABORTED.value, self._clock.now_ns()
                del self._running[request]
                if coming is not None and request in self._coming:
                    coming.cancel()
                    self._coming.remove(request)
                else:
                    self.core.abort(request)
                self._finished += 1
                self._generated += len(request.output)
                if self._uncounted.pop(request, None) is not None and request.output:
                    self._prompt_tokens += request.prompt_tokens
        return raw

    def _send(self, request: Request, now: int) -> Cancellable | None:
        way = self._front(request.prompt_tokens)
        if way <= 0:
            self.core.submit(request, now)
            return None
        self._coming.add(request)
        return self._clock.call_at(now + way, self._enter, request)

    def _enter(self, request: Request) -> None:
        self._coming.remove(request)
        self.core.submit(request, self._clock.now_ns())

    def _request(self, path: str, parts: Sequence[bytes], stream: Stream, now: int) -> Request:
        wanted = self._bodies.read(path, parts, stream.raw.request_id.rpartition("-")[0])
        ask = wanted.ask
        seed = self._bodies.seed_of(ask)
        script: Words | Unread
        ends: int | None = None
        if self._keep_text or self._acceptance is not None or not ask.ignore_eos:
            script = Words(wanted.prompt, seed, self._inventory, digest=wanted.digest, acceptance=self._acceptance)
            ends = None if ask.ignore_eos else script.natural_length(wanted.least)
        else:
            script = Unread(wanted.prompt, wanted.hashes, self._bodies.block_size)
        request = Request(
            stream.raw.request_id,
            wanted.prompt,
            script,
            wanted.most,
            block_size=self._bodies.block_size,
            ends=ends,
            salt=ask.cache_salt,
            priority=ask.priority,
            arrival=now,
            hashes=wanted.hashes,
        )
        stream.request, stream.wanted, stream.script = request, wanted, script
        if isinstance(script, Words):
            ids = script.first(request.ends)  # drawn at once: a part at a time takes longer
            if self._keep_text:
                stream.spoken = self._speech.spoken(ids)
        return request

    async def close(self) -> None:
        """Nothing is open."""

    # What the driver uses: Readings.

    def open(self, raw: RawStream) -> Stream:
        stream = self._open[raw.request_id] = Stream(raw, self.core, self._tells, keep_text=self._keep_text)
        return stream

    async def finish(self, raw: RawStream) -> Parsed:
        return self._open.pop(raw.request_id).parsed()

    def forget(self, raw: RawStream) -> None:
        self._open.pop(raw.request_id, None)

    async def catch_up(self) -> None:
        """Nothing is left unread."""

    def tokens_of(self, followed: Sequence[Live | None]) -> list[int]:
        """Of all at once: a fleet is asked thousands of times an hour, and most of it may wait."""
        return self.core.tokens_of([one.request if one else None for one in cast("Sequence[Stream | None]", followed)])

    def pulse(self) -> int:
        """How many steps have ended: what a call has got changes with them alone."""
        return self.core.steps_ended

    def session_over(self, front: str) -> None:
        """The ids of its requests begin so; none will come any more."""
        self._bodies.forget(front)

    # The engine's side.

    def run(self, until: int | None) -> int | None:
        """Compute the steps that end by `until`; the time of the first that ended a request, where one did."""
        last = FAR if until is None else until
        due = self.core.due
        if due is None or due > last:
            return None
        over = self.core.run(last)
        if not over:
            return None
        for request in over:
            self._end(self._running.pop(request))
        return self.core.ended

    def _end(self, stream: Stream) -> None:
        assert stream.request is not None
        assert stream.done is not None
        self._finished += 1
        self._generated += len(stream.request.output)
        if self._uncounted.pop(stream.request, None) is not None:
            self._prompt_tokens += stream.request.prompt_tokens
        stream.raw.t_end = stream.raw.t_headers = self.core.ended
        if not stream.done.done():
            stream.done.set_result(None)

    def sample(self, t: int) -> ev.EngineSample:
        """The engine's counters as its metrics page tells them; `t` is ns since the run's origin."""
        scheduler = self.core.scheduler
        counters = scheduler.counters
        drafted = scheduler.limits.speculative_tokens > 0
        generated = self._generated + sum(self.core.tokens_of(self._running))
        for request, stream in list(self._uncounted.items()):
            if stream.tokens:
                del self._uncounted[request]
                self._prompt_tokens += request.prompt_tokens
        return ev.EngineSample(
            t=t,
            scrape_ms=0.0,
            running=float(len(scheduler.running)),
            waiting=float(len(scheduler.waiting) + len(scheduler.loading)),
            kv_usage=scheduler.pool.usage,
            preemptions=float(counters.preemptions),
            prefix_queries=float(counters.queries),
            prefix_hits=float(counters.hits),
            prompt_tokens=float(self._prompt_tokens),
            generation_tokens=float(generated),
            spec_drafts=float(counters.drafts) if drafted else None,
            spec_draft_tokens=float(counters.draft_tokens) if drafted else None,
            spec_accepted=float(counters.accepted_tokens) if drafted else None,
            requests_finished=float(self._finished),
        )
