"""Requests that decode undisturbed are parked: as long as nothing but their counts changes, nothing is done for them.

A parked request is part of every step. When it would next take a block, fill one or end is known in advance; until
then the steps it was in are counted, not walked through, and what they brought is booked when it is looked at. So a
step costs as much as happens in it, whatever the size of its batch. All decisions are those of the scheduler's walk
over all running requests; where one of them could touch a parked request, all are woken and the walk is made.
"""

from bisect import insort
from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.course import Course, Growth
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.rhythm import NEVER
from windtunnel.simulator.emulator.step import Step
from windtunnel.simulator.emulator.tally import Tally
from windtunnel.simulator.emulator.through import ENDS, Through

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.scheduler import Scheduler

_STEADY = 2
"""So many equal steps in a row, then all that is in flight for a request is of the same kind."""
_WORTH = 2
"""Parking for fewer steps than this costs more than it spares."""


class Parking:
    def __init__(self, scheduler: "Scheduler", *, parks: bool = True) -> None:
        """`parks` False: nobody is parked; every step walks through its whole batch."""
        limits = scheduler.limits
        self.count = 0
        """Parked requests."""
        self.context = 0
        """Sum of their contexts in the last scheduled step, tokens."""
        self.windowed = 0
        """The same with each capped at the sliding window."""
        self.awake: list[Request] = []
        """Running requests that are not parked, in running order."""
        self._scheduler = scheduler
        self._limits = limits
        # Where even one token for each may exceed the budget, all stay awake.
        fits = (limits.max_num_seqs + 1) * (1 + limits.speculative_tokens + limits.draft_slots)
        self._parks = parks and fits <= limits.max_num_batched_tokens and not limits.offload_blocks
        if limits.speculative_tokens:
            # Without scheduling ahead n-grams are looked up anew for each step; a threshold may cut drafts off.
            self._parks &= bool(limits.lookahead) or scheduler.asynchronous
            self._parks &= not 0 < limits.long_prefill_token_threshold <= limits.speculative_tokens
        self._drafts = limits.speculative_tokens
        self._width = 1 + self._drafts
        self._depth = 2 if scheduler.asynchronous else 1
        self.rising = 0
        """Parked requests whose context is shorter than the sliding window."""
        self.calendar: dict[int, list[Request]] = {}
        """Step number to those that something happens to in it; some have been woken since."""
        self._returns: dict[int, list[Request]] = {}
        """Step number to those of which it fills a block when it returns."""
        self._growth = Growth()
        """Of `context`, with speculation."""
        counts = self._parks and scheduler.kv.beats and not self._drafts
        self.tally = Tally(scheduler, self, self._depth) if counts else None
        """Of those whose blocks are only counted."""
        self.through = Through(scheduler, self, self.tally, self._depth) if self.tally is not None else None
        """For those that are parked to their end."""

    # Within a step's decision.

    def walk(self, number: int, budget: int, threshold: int) -> tuple[list[Request], int]:
        """Whom step `number` has to walk through, and the budget that the others leave."""
        slots = self._limits.draft_slots
        if self.through is not None and self.through.decides(number):
            return [], budget - self.count * (self._width + slots)
        looks = self._begin(number)
        left = budget - self.count * (self._width + slots)
        if self.count and self._cuts(left, threshold, slots):
            self.rouse()
            return self._scheduler.running, budget
        if self.tally is not None:
            met = self.tally.walk(number, looks)
            if met is None:
                self.rouse()
                return self._scheduler.running, budget
            looks = met
        return (sorted([*self.awake, *looks], key=_order) if looks else self.awake), left

    def _begin(self, number: int) -> list[Request]:
        """Step `number` is being decided: wake whom it is due for.

        Returns those that only need a look at their blocks; they stay parked.
        """
        looks: list[Request] = []
        for request in self.calendar.pop(number, ()):
            if not request.parked or request.alarm != number:
                continue
            request.alarm = -1
            if self.through is not None and request.ends_at >= 0 and number >= request.wakes_at:
                self.through.leave(request)
                continue
            if (rhythm := request.rhythm) is not None and self.tally is not None and number < request.wakes_at:
                if rhythm.rises_at == number:
                    request.rising = False
                    self.rising -= 1
                if rhythm.gives_at == number:
                    self.tally.gives(request, rhythm)
                if rhythm.opens == number:
                    looks.append(request)
                else:
                    self.tally.remind(request, rhythm)
                continue
            self.update(request)
            if number < request.wakes_at:
                looks.append(request)
                if request.rising and request.computed >= self._limits.window:
                    request.rising = False
                    self.rising -= 1
            else:
                self._wake(request)
        if self.tally is not None:
            looks += self.tally.sheds(number)
        self.context += self._growth.at(number) if self._drafts else self.count
        self.windowed += self.rising
        return looks

    def looked(self, request: Request, number: int) -> None:
        """Its blocks were seen to in step `number`: it goes on."""
        if request.course is None:
            self.wait(request, number + 1 + self._quiet(request, request.wakes_at - number - 1))
        else:
            self._follow(request, request.course, number)

    def due(self, number: int) -> list[tuple[Request, int, int]]:
        """Parked requests of which step `number`, which returns, fills a block, or that end with it.

        In a form as `Step.sampling` has.
        """
        waiting = self._returns.pop(number, ()) if self._returns else ()
        due = [(r, r.preemptions, -1) for r in waiting if r.parked and r.returns_at == number]
        if self.through is not None:
            due += [(request, request.preemptions, ENDS) for request in self.through.over(number)]
        return due

    def offer(self, request: Request, number: int) -> None:
        """Step `number` returns, and such a block becomes findable."""
        request.returns_at = -1
        self.update(request)
        self._scheduler.kv.cache(request, request.computed - request.placeholders)
        assert request.course is not None
        self._follow(request, request.course, number + self._depth - 1)

    def _cuts(self, budget: int, threshold: int, slots: int) -> bool:
        """Whether a request awake would have to share the budget with a parked one that is behind it."""
        for request in self.awake:
            wanted = request.known + request.placeholders - request.computed + request.drafts
            if 0 < threshold < wanted:
                wanted = threshold
            if wanted >= budget - slots:
                behind = next((r for r in reversed(self._scheduler.running) if r.parked), None)
                return behind is not None and behind.order > request.order
            budget -= wanted + slots
        return False

    def rouse(self, step: Step | None = None, before: Request | None = None) -> None:
        """Wake all; those that run `before` this request have been part of the `step` being decided."""
        running = self._scheduler.running
        for request in running:
            if request.parked:
                self.update(request)
                if request.rhythm is not None and self.tally is not None:
                    self.tally.write(request, leaves=True)
                part = not request.left
                self._show(request)
                if step is not None and before is not None and part and request.order < before.order:
                    step.add(request, self._width, self._drafts)
                    request.drafts = 0
        if step is not None and before is not None:
            step.sort()
        self.awake = list(running)
        self.count = self.context = self.windowed = self.rising = 0
        self.calendar.clear()
        self._returns.clear()
        if self.through is not None:
            self.through.clear()
        self._growth.clear()
        if self.tally is not None:
            self.tally.clear()

    def book(self, step: Step) -> None:
        """The step is decided: the parked ones are part of it, and who has become steady joins them."""
        if self.tally is not None:
            self.tally.decided()
        count = self.count
        if count:
            step.sequences += count
            step.tokens += count * self._width
            step.drafts += count * self._drafts
            step.context += self.context
            step.windowed += self.windowed
            step.drafting += count if self._drafts else 0
        if not self._parks:
            return
        through: list[Request] = []
        for request, new, drafts in zip(step.requests, step.counts, step.drafted, strict=True):
            if request.prefilling:
                request.steady = 0
                continue
            if new != self._width or drafts != self._drafts or request in step.padded:
                request.steady = 0
                if self.through is not None and self.through.begins(request, step.number, new):
                    through.append(request)
                continue
            request.steady = request.steady + 1 if request.scheduled_from == step.number else 1
            request.scheduled_from = step.number + 1
            # One step less is in flight after an engine that had nothing to schedule ahead.
            full = request.placeholders == self._depth * self._width
            if full and request.steady >= _STEADY and request.proposes is None:
                ahead = self._chart(request, step.number) if self._drafts else self._ahead(request)
                if self.tally is not None and ahead >= _WORTH:
                    request.rhythm = self._scheduler.kv.rhythm(request, step.number, self._depth)
                quiet = ahead if request.rhythm is not None or self._drafts else self._quiet(request, ahead)
                if quiet >= _WORTH:
                    self._park(request, step.number, ahead, quiet)
        for request in through:
            step.release(request)

    # One request.

    def join(self, request: Request) -> None:
        request.steady = 0
        self.awake.append(request)

    def leave(self, request: Request) -> None:
        """It no longer runs, or is about to be changed from outside: it is brought up to date and awake no more."""
        if request.parked:
            self.update(request)
            if not request.produced:
                request.created = None
            self._wake(request)
        self.awake.remove(request)

    def settle(self, request: Request | None = None) -> None:
        """Bring a request up to date, or all and the counters with them; they stay parked."""
        for one in self._scheduler.running if request is None else (request,):
            if one.parked:
                self.update(one)
                self.note(one)

    def _park(self, request: Request, number: int, ahead: int, quiet: int) -> None:
        """For `ahead` steps after step `number`, where `quiet` ones are without a look at its blocks."""
        request.parked = True
        request.wakes_at = number + 1 + ahead
        request.returned_from = request.noted_from = number + 1
        self.awake.remove(request)
        self.count += 1
        self.context += request.computed
        window = self._limits.window
        if window:
            self.windowed += window + self._drafts if self._drafts else min(request.computed, window)
            request.rising = request.computed < window
            self.rising += request.rising
        if request.rhythm is not None and self.tally is not None:
            self.tally.count(request, request.rhythm)
        elif request.course is None:
            self.wait(request, number + 1 + quiet)
        else:
            self._growth.add(number + 1, request.course.growth(1))
            self._follow(request, request.course, number)

    def _follow(self, request: Request, course: Course, number: int) -> None:
        """Wait for what comes next on its course, as of step `number`."""
        done = number - course.start + 1
        room, kept, until = self._scheduler.kv.bounds(request)
        look = min(course.look(done, room, kept, until), course.last)
        self.wait(request, number - done + look)
        if self._depth > 1:
            full = course.full(done, until)
            # What was in flight before it was parked is walked through when it returns.
            if full <= look and (step := course.start - 1 - self._depth + full) >= course.start:
                request.returns_at = step
                self._returns.setdefault(step, []).append(request)

    def wait(self, request: Request, number: int) -> None:
        request.alarm = number
        self.calendar.setdefault(number, []).append(request)

    def update(self, request: Request) -> None:
        """Book what happened to a parked request since it was last looked at."""
        scheduler, width = self._scheduler, self._width
        steps = scheduler.counters.steps
        if request.left:
            steps = min(steps, request.ends_at + 1)
        scheduled = steps - request.scheduled_from
        returned = max(0, scheduler.returned - request.returned_from)
        request.scheduled_from += scheduled
        brought = returned
        if returned:
            start = request.returned_from
            request.returned_from = scheduler.returned
            if request.course is not None:
                at = start - request.course.start + self._depth
                brought = sum(request.course.gains[at : at + returned])
            request.advance(brought)
        request.computed += scheduled * width - returned * width + brought
        request.placeholders += (scheduled - returned) * width
        if returned and request.chunk:
            request.in_flight -= request.chunk - width
            request.chunk = 0
        request.in_flight += (scheduled - returned) * width

    def note(self, request: Request) -> None:
        """Which steps brought it tokens and how many, and what of its drafts was verified, as far as it is settled."""
        start, stop = request.noted_from, request.returned_from
        if start == stop:
            return
        request.noted_from = stop
        if request.course is None:
            request.got.append((start, stop, None))
        else:
            gains = request.course.verified(stop)
            request.got.append((start, stop, gains))
            self._scheduler.counters.all_verified(gains, self._drafts)

    def _wake(self, request: Request) -> None:
        """Out of the parked ones, at the end of the last scheduled step; it has been settled."""
        if request.rhythm is not None and self.tally is not None:
            self.tally.write(request, leaves=True)
        window = self._limits.window
        if request.left:
            self._show(request)
            insort(self.awake, request, key=_order)
            return
        self.count -= 1
        if request.course is not None:
            last = request.scheduled_from - request.course.start
            self.context -= request.course.context(last)
            self._growth.add(request.scheduled_from, -request.course.growth(last + 1))
        else:
            self.context -= request.computed
        if window:
            self.windowed -= window + self._drafts if self._drafts else min(request.computed, window)
            self.rising -= request.rising
        self._show(request)
        insort(self.awake, request, key=_order)

    def _show(self, request: Request) -> None:
        """Steps in flight name it from now on."""
        self.note(request)
        request.parked = request.rising = False
        request.course = None
        before = request.ends_at + 1 if request.left else NEVER
        request.ends_at, request.left = -1, False
        for step in self._scheduler.flying:
            if request.returned_from <= step.number < before:
                step.add(request, request.chunk or self._width, self._drafts)
                request.chunk = 0
                insort(step.sampling, (request, request.preemptions, self._drafts), key=_place)

    def _quiet(self, request: Request, ahead: int) -> int:
        """In how many steps of `ahead` after the one being decided nothing happens but that a request decodes."""
        room, kept, until = self._scheduler.kv.bounds(request)
        known = request.known
        if request.computed < self._limits.window:
            ahead = min(ahead, self._limits.window - request.computed)
        return max(min(ahead, room - known - self._depth + 1, kept - known, until - known - 1), 0)

    def _ahead(self, request: Request) -> int:
        """In how many steps it goes on, whatever happens to its blocks."""
        limits, done = self._limits, request.produced
        ahead = min(request.ends - done - 2, limits.max_model_len - request.known - self._depth)
        if self._depth > 1:
            ahead = min(ahead, request.max_tokens - done - 2)
        return ahead

    def _chart(self, request: Request, number: int) -> int:
        """With drafts: its course from step `number` on; how many steps it is to the first walked through again."""
        limits, drafts = self._limits, self._drafts
        if request.ends - request.produced < (self._depth + _WORTH) * self._width:
            return 0
        if limits.window and request.computed < limits.window + drafts:
            return 0
        request.course = Course(request, limits, self._depth, number + 1)
        if request.course.last <= _WORTH:
            request.course = None
            return 0
        return request.course.last - 1


def _order(request: Request) -> int:
    return request.order


def _place(entry: tuple[Request, int, int]) -> int:
    return entry[0].order
