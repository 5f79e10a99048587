"""Requests that decode undisturbed are parked: as long as nothing but their counts changes, nothing is done for them.

A parked request is part of every step. When it would next take a block, fill one or end is known in advance; until
then the steps it was in are counted, not walked through, and what they brought is booked when it is looked at. So a
step costs as much as happens in it, whatever the size of its batch. All decisions are those of the scheduler's walk
over all running requests; where one of them could touch a parked request, all are woken and the walk is made.
"""

from bisect import insort
from itertools import pairwise
from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.step import Step

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.scheduler import Scheduler

_STEADY = 2
"""So many equal steps in a row, then all that is in flight for a request is of the same kind."""
_WORTH = 2
"""Parking for fewer steps than this costs more than it spares."""
_FORESEEN = 64
"""Most steps with drafts that are looked ahead."""


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
        if limits.speculative_tokens and not limits.lookahead and not scheduler.asynchronous:
            # How many drafts there are is seen from step to step.
            self._parks = False
        self._drafts = limits.speculative_tokens
        self._width = 1 + self._drafts
        self._depth = 2 if scheduler.asynchronous else 1
        self._rising = 0
        self._calendar: dict[int, list[Request]] = {}
        """Step number to those that something happens to in it; some have been woken since."""
        self._changes: dict[int, int] = {}
        """Step number to the growth of `context`, with speculation."""

    # Within a step's decision.

    def walk(self, number: int, budget: int, threshold: int) -> tuple[list[Request], int]:
        """Whom step `number` has to walk through, and the budget that the others leave."""
        looks = self._begin(number)
        slots = self._limits.draft_slots
        left = budget - self.count * (self._width + slots)
        if self.count and self._cuts(left, threshold, slots):
            self.rouse()
            return self._scheduler.running, budget
        return (sorted([*self.awake, *looks], key=_order) if looks else self.awake), left

    def _begin(self, number: int) -> list[Request]:
        """Step `number` is being decided: wake whom it is due for.

        Returns those that only need a look at their blocks; they stay parked.
        """
        looks: list[Request] = []
        for request in self._calendar.pop(number, ()):
            if not request.parked or request.alarm != number:
                continue
            request.alarm = -1
            self._settle(request)
            if self._width == 1 and self._ahead(request) >= 0:
                looks.append(request)
                if request.rising and request.computed >= self._limits.window:
                    request.rising = False
                    self._rising -= 1
            else:
                self._wake(request)
        self.context += self._changes.pop(number, 0) if self._drafts else self.count
        self.windowed += self._rising
        return looks

    def looked(self, request: Request, number: int) -> None:
        """Its blocks were seen to in step `number`: it goes on."""
        self._await(request, number + 1 + self._quiet(request))

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
                self._settle(request)
                self._show(request)
                if step is not None and before is not None and request.order < before.order:
                    step.add(request, self._width, self._drafts)
                    request.drafts = 0
        if step is not None and before is not None:
            step.sort()
        self.awake = list(running)
        self.count = self.context = self.windowed = self._rising = 0
        self._calendar.clear()
        self._changes.clear()

    def book(self, step: Step) -> None:
        """The step is decided: the parked ones are part of it, and who has become steady joins them."""
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
        for request, new, drafts in zip(step.requests, step.counts, step.drafted, strict=True):
            if new != self._width or drafts != self._drafts or request.prefilling or request in step.padded:
                request.steady = 0
                continue
            request.steady = request.steady + 1 if request.scheduled_from == step.number else 1
            request.scheduled_from = step.number + 1
            # One step less is in flight after an engine that had nothing to schedule ahead.
            full = request.placeholders == self._depth * self._width
            if full and request.steady >= _STEADY and request.proposes is None:
                quiet = self._quiet(request)
                if quiet >= _WORTH:
                    self._park(request, step.number, quiet)

    # One request.

    def join(self, request: Request) -> None:
        request.steady = 0
        self.awake.append(request)

    def leave(self, request: Request) -> None:
        """It no longer runs, or is about to be changed from outside: it is brought up to date and awake no more."""
        if request.parked:
            self._settle(request)
            self._wake(request)
        self.awake.remove(request)

    def settle(self, request: Request | None = None) -> None:
        """Bring a request up to date, or all and the counters with them; they stay parked."""
        for one in self._scheduler.running if request is None else (request,):
            if one.parked:
                self._settle(one)

    def _park(self, request: Request, number: int, quiet: int) -> None:
        request.parked = True
        request.quiet = quiet
        request.returned_from = request.parked_from = number + 1
        self.awake.remove(request)
        self.count += 1
        self.context += request.computed
        path = request.path
        for step in range(1, quiet + 1 if self._drafts else 0):
            self._changes[number + step] = self._changes.get(number + step, 0) + path[step] - path[step - 1]
        window = self._limits.window
        if window:
            self.windowed += window + self._drafts if self._drafts else min(request.computed, window)
            request.rising = request.computed < window
            self._rising += request.rising
        self._await(request, number + 1 + quiet)

    def _await(self, request: Request, number: int) -> None:
        request.alarm = number
        self._calendar.setdefault(number, []).append(request)

    def _settle(self, request: Request) -> None:
        """Book what happened to a parked request since it was last looked at."""
        scheduler, width = self._scheduler, self._width
        scheduled = scheduler.counters.steps - request.scheduled_from
        returned = max(0, scheduler.returned - request.returned_from)
        request.scheduled_from += scheduled
        brought = returned
        if returned:
            start = request.returned_from
            request.returned_from = scheduler.returned
            if self._drafts:
                at = start - request.parked_from + self._depth
                path = request.path[at : at + returned + 1]
                brought = path[-1] - path[0]
                each = [after - before for before, after in pairwise(path)]
                for tokens in each:
                    scheduler.counters.verified(tokens - 1, self._drafts, self._drafts)
                request.counts += each
            else:
                request.counts += [1] * returned
            request.steps.extend(range(start, scheduler.returned))
            request.append(brought)
        request.computed += scheduled * width - returned * width + brought
        request.placeholders += (scheduled - returned) * width
        request.in_flight += (scheduled - returned) * width

    def _wake(self, request: Request) -> None:
        """Out of the parked ones, at the end of the last scheduled step; it has been settled."""
        self.count -= 1
        window = self._limits.window
        if self._drafts:
            path, last = request.path, request.scheduled_from - request.parked_from
            self.context -= request.prompt_tokens + path[last] - 1 + self._depth * self._width
            for step in range(last + 1, request.quiet + 1):
                self._changes[request.parked_from - 1 + step] -= path[step] - path[step - 1]
        else:
            self.context -= request.computed
        if window:
            self.windowed -= window + self._drafts if self._drafts else min(request.computed, window)
            self._rising -= request.rising
        self._show(request)
        insort(self.awake, request, key=_order)

    def _show(self, request: Request) -> None:
        """Steps in flight name it from now on."""
        request.parked = request.rising = False
        for step in self._scheduler.flying:
            if step.number >= request.returned_from:
                step.add(request, self._width, self._drafts)
                insort(step.sampling, (request, request.preemptions, self._drafts), key=_place)

    def _quiet(self, request: Request) -> int:
        """In how many steps after the one being decided nothing happens to a request but that it decodes."""
        if self._drafts:
            return self._quiet_drafts(request)
        room, kept, until = self._scheduler.kv.bounds(request)
        known = request.known
        return max(min(self._ahead(request), room - known - self._depth + 1, kept - known, until - known - 1), 0)

    def _ahead(self, request: Request) -> int:
        """The same but for its blocks; negative if the step being decided is itself not like the one before."""
        limits, done = self._limits, len(request.output)
        ahead = min(request.ends - done - 2, limits.max_model_len - request.known - self._depth)
        if self._depth > 1:
            ahead = min(ahead, request.max_tokens - done - 2)
        if request.computed < limits.window:
            ahead = min(ahead, limits.window - request.computed)
        return ahead

    def _quiet_drafts(self, request: Request) -> int:
        """With drafts: what will be accepted is known, so where each step begins is, too."""
        limits, width, depth = self._limits, self._width, self._depth
        if limits.window and request.computed < limits.window + self._drafts:
            return 0
        room, kept, until = self._scheduler.kv.bounds(request)
        room, known = min(room, limits.max_model_len - 1), request.prompt_tokens
        # No further than to the end of the room that it has.
        path = request.path = self._foresee(request, min(request.ends, room - known))
        quiet = 0
        for step in range(1, len(path) - 1):
            after, then = path[step], path[step + 1]
            if then >= request.ends or known + after >= min(until, kept + 1):
                break
            if known + after - 1 + depth * width > room:
                break
            if depth > 1 and (after + 1 >= request.max_tokens or known + then - 1 >= until):
                break
            quiet = step
        return quiet

    def _foresee(self, request: Request, last: int) -> list[int]:
        """Output tokens after each of the next steps to return, to `last` of them."""
        at = len(request.output)
        path = [at]
        accepts, drafts = request.accepts, self._drafts
        while at < last and len(path) < _FORESEEN:
            at += 1 + (accepts(at, drafts) if accepts else 0)
            path.append(at)
        return path


def _order(request: Request) -> int:
    return request.order


def _place(entry: tuple[Request, int, int]) -> int:
    return entry[0].order
