"""The step loop as pure code over times: no clock, no I/O.

Whoever owns the clock submits requests, asks when the current step ends (`due`), and calls `turn` then. Steps follow
each other at exact times, however late `turn` is called. With asynchronous scheduling the next step is already decided
when one begins, as in vLLM: a request that arrives meanwhile joins one step later.
"""

from array import array
from collections.abc import Iterable, Sequence

from msgspec import Struct

from windtunnel.simulator.emulator.offload import OffloadKv
from windtunnel.simulator.emulator.parking import Parking
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.rhythm import NEVER
from windtunnel.simulator.emulator.scheduler import Output, Scheduler, Step
from windtunnel.simulator.emulator.steptime import StepTime


class Turn(Struct, frozen=True):
    """What a finished step returned."""

    ended: int
    """ns."""
    tokens: int
    """Computed in the step."""
    outputs: list[Output]


class Given(Struct, frozen=True):
    """What a request got since it was last asked for."""

    ends: "array[int]"
    """ns; when each step that brought tokens ended."""
    counts: list[int]
    """How many tokens each of them brought."""
    request: Request
    taken: int
    """Output tokens that it had got by then."""

    @property
    def tokens(self) -> Sequence[int]:
        """Those that these steps brought."""
        return self.request.script.tokens(self.taken, self.taken + sum(self.counts))


class Core:
    """`lazy`: driven by `run`; otherwise by `turn`, which hands out every token at its step."""

    def __init__(
        self,
        scheduler: Scheduler,
        steptime: StepTime,
        *,
        asynchronous: bool = True,
        lazy: bool = False,
        parks: bool = True,
    ) -> None:
        """`parks` False: with `lazy`, every step is computed by itself all the same."""
        self.scheduler = scheduler
        self.steptime = steptime
        self.asynchronous = asynchronous
        scheduler.asynchronous = asynchronous
        if lazy:
            scheduler.parking = Parking(scheduler, parks=parks)
        self._glides = scheduler.parking is not None and scheduler.parking.through is not None
        self._ring = [Step() for _ in range(3)]
        """Steps that nobody is walked through for; at most two are in flight."""
        self._transfers = scheduler.kv if isinstance(scheduler.kv, OffloadKv) else None
        self.due: int | None = None
        """When the running step ends, or what a waiting engine loads has arrived, ns; None while idle."""
        self._ends: array[int] = array("q")
        """When each step ended, by its number, ns."""
        self._running: Step | None = None
        self._ahead: Step | None = None
        """The step after the running one, where it is decided ahead."""

    def submit(self, request: Request, now: int) -> None:
        """A request comes to the scheduler at `now`; an idle engine begins a step for it at once."""
        request.queued_at = now
        self.scheduler.add(request)
        if self._running is None:
            self._begin(now)

    def abort(self, request: Request) -> bool:
        return self.scheduler.abort(request)

    def reset_prefix_cache(self, *, preempt: bool = False) -> bool:
        """Forget what is cached; with `preempt` running requests begin anew and what is in flight for them is lost."""
        if preempt:
            if self.scheduler.parking is not None:
                self.scheduler.parking.rouse()
            for step in (self._running, self._ahead):
                if step is not None:
                    step.sampling.clear()
            if self._ahead is not None:
                self.scheduler.drop(self._ahead)
            self._ahead = None
        return self.scheduler.reset_prefix_cache(preempt=preempt)

    def turn(self) -> Turn:
        """The running step ends, and the next one begins at that very time."""
        step, ended = self._running, self.due
        assert ended is not None
        outputs = self.scheduler.complete(step) if step is not None else []
        self._begin(ended)
        return Turn(ended, step.tokens if step is not None else 0, outputs)

    def run(self, until: int) -> list[Request]:
        """Steps that end by `until`, up to and with the first that ends a request; the requests that it ended.

        What a request got is kept for `collect`. Times, tokens and bookkeeping are those of calling `turn` in a loop.
        """
        complete, times = self.scheduler.complete, self._ends
        while (ended := self.due) is not None and ended <= until:
            step = self._running
            if step is None:
                self._begin(ended)
                continue
            if self._glides and not step.requests:
                over = self._glide(step, ended, until)
                if over:
                    return over
                if (ended := self.due) is None or ended > until:
                    continue
                step = self._running
                if step is None:
                    continue
            times.extend([ended] * (step.number + 1 - len(times)))
            outputs = complete(step)
            self._begin(ended)
            over = [output.request for output in outputs if output.finished]
            if over:
                return over
        return []

    @property
    def ended(self) -> int:
        """With `lazy`: when the latest step ended, ns."""
        return self._ends[-1]

    @property
    def steps_ended(self) -> int:
        """With `lazy`: how many there were so far."""
        return len(self._ends)

    def tokens(self, request: Request) -> int:
        """With `lazy`: how many output tokens a request has got, without taking them."""
        scheduler = self.scheduler
        if not request.parked or scheduler.parking is None:
            return request.produced
        if scheduler.limits.speculative_tokens:
            scheduler.parking.settle(request)
            return request.produced
        return request.produced + max(0, scheduler.returned - request.returned_from)

    def tokens_of(self, requests: Iterable[Request | None]) -> list[int]:
        """`tokens` of each; 0 for None."""
        if self.scheduler.limits.speculative_tokens:
            return [0 if request is None else self.tokens(request) for request in requests]
        returned = self.scheduler.returned
        return [
            0
            if request is None
            else request.produced + returned - request.returned_from
            if request.parked and returned > request.returned_from
            else request.produced
            for request in requests
        ]

    def collect(self, request: Request) -> Given:
        """With `lazy`: what a request got since the last such call, or since its beginning."""
        if request.parked and self.scheduler.parking is not None:
            self.scheduler.parking.settle(request)
        times, got, request.got = self._ends, request.got, []
        ends, counts = array("q"), []
        for start, stop, gains in got:
            ends += times[start:stop]
            counts += gains or [1] * (stop - start)
        taken, request.taken = request.taken, request.produced
        return Given(ends, counts, request, taken)

    def _glide(self, step: Step, ended: int, until: int) -> list[Request]:
        """Steps that end by `until` and return without a walk, up to the first that ends a request; those it ended.

        `step` is the running one and ends at `ended`.
        """
        scheduler, times, of, ring = self.scheduler, self._ends, self.steptime.of, self._ring
        parking, counters, waiting = scheduler.parking, scheduler.counters, scheduler.waiting
        assert parking is not None
        through, ahead = parking.through, self._ahead
        assert through is not None
        over: list[Request] = []
        times.extend([ended] * (step.number - len(times)))
        while ended <= until and not step.requests and not over:
            if ahead is not None and not ahead.requests and not (waiting and parking.awake):
                step, ahead, ended = self._sail(step, ahead, ended, until)
                if ended > until:
                    break
            times.append(ended)
            scheduler.returned = step.number + 1
            over = through.returns(step.number)
            number = counters.steps
            if self.asynchronous and ahead is None:
                scheduler.flying, self._ahead = [], None
                self._begin(ended)
                return over
            now = ended
            if ahead is not None:
                step, ended = ahead, now + round(of(ahead) * 1e9)
            if (waiting and not self._crowded(number)) or not through.decides(number):
                scheduler.flying = [] if ahead is None else [ahead]
                decided = self._schedule(now)
            else:
                decided = ring[number % 3]
                if decided.requests:
                    decided = ring[number % 3] = Step()
                decided.number = number
                decided.sequences = decided.tokens = parking.count
                decided.context, decided.windowed = parking.context, parking.windowed
                counters.steps = number + 1
            if ahead is not None:
                ahead = decided
            elif decided is not None:
                step, ended = decided, now + round(of(decided) * 1e9)
            else:
                self._running = self.due = None
                return over
        self._running, self._ahead, self.due = step, ahead, ended
        scheduler.flying = [step] if ahead is None else [step, ahead]
        return over

    def _sail(self, step: Step, ahead: Step, ended: int, until: int) -> tuple[Step, Step, int]:
        """Steps in which nothing happens at all; the running one, the one decided ahead, and when the former ends."""
        scheduler, times, ring, seconds = self.scheduler, self._ends, self._ring, self.steptime.seconds
        parking = scheduler.parking
        assert parking is not None
        assert parking.through is not None
        books, count, rising = parking.through.books, parking.count, parking.rising
        number = first = scheduler.counters.steps
        quiet = parking.through.quiet_until()
        if number >= quiet or not count:
            return step, ahead, ended
        few = NEVER
        if scheduler.waiting:
            few, quiet = scheduler.crowd.few(), min(quiet, parking.through.sheds_at)
        pool = scheduler.pool
        context, windowed = parking.context, parking.windowed
        while ended <= until and number < quiet and pool.surely_free < few and books(number):
            times.append(ended)
            begun = seconds(count, count, context, windowed) if number > first else self.steptime.of(ahead)
            ended += round(begun * 1e9)
            number += 1
            context += count
            windowed += rising
        if number == first:
            return step, ahead, ended
        step = ahead
        for decided in range(max(first, number - 2), number):
            step, ahead = ahead, ring[decided % 3]
            if ahead.requests:
                ahead = ring[decided % 3] = Step()
            behind = number - 1 - decided
            ahead.number, ahead.sequences, ahead.tokens = decided, count, count
            ahead.context, ahead.windowed = context - behind * count, windowed - behind * rising
        parking.context, parking.windowed = context, windowed
        scheduler.counters.steps, scheduler.returned = number, number - 2
        return step, ahead, ended

    def _crowded(self, number: int) -> bool:
        """Whether nobody who waits comes to run in step `number`, as far as that can be said before it is decided."""
        parking, crowd = self.scheduler.parking, self.scheduler.crowd
        assert parking is not None
        return not parking.awake and number not in parking.calendar and self.scheduler.pool.free_count < crowd.few()

    def _begin(self, now: int) -> None:
        step = self._ahead or self._schedule(now)
        self._ahead = None
        self._running = step
        if step is None:
            self.due = None
            if self._transfers is not None:
                self._transfers.launch(now)
                self.due = self._transfers.arrival
            return
        self.due = now + round(self.steptime.of(step) * 1e9)
        if self.asynchronous:
            self._ahead = self._schedule(now)

    def _schedule(self, now: int) -> Step | None:
        transfers = self._transfers
        if transfers is not None:
            transfers.advance(now)
        step = self.scheduler.schedule()
        if transfers is not None:
            transfers.launch(now)
        if step is not None:
            for request in step.admitted:
                request.scheduled_at = now
        return step
