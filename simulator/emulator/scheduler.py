"""vLLM's V1 scheduler as pure code: which request computes how many tokens in the next step.

Time does not occur here. `schedule` decides a step and books it, `complete` returns its tokens; the engine calls them
in turn, or `schedule` one step ahead of `complete` for asynchronous scheduling. With `parking` requests that decode
undisturbed are only counted. Rules are those of vLLM 0.32 (v1/core/sched); each has a test.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence

from windtunnel.simulator.emulator.alone import alone
from windtunnel.simulator.emulator.crowd import Crowd
from windtunnel.simulator.emulator.kv import Hit
from windtunnel.simulator.emulator.kv_grouped import cache_of
from windtunnel.simulator.emulator.offload import OffloadKv
from windtunnel.simulator.emulator.parking import Parking
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.step import Counters, Limits, Output, Step
from windtunnel.simulator.emulator.through import ENDS

__all__ = ["Counters", "Limits", "Output", "Scheduler", "Step"]


class Scheduler:
    def __init__(self, limits: Limits, *, asynchronous: bool = False) -> None:
        self.limits = limits
        self.asynchronous = asynchronous
        """Whether `schedule` is called one step ahead of `complete`."""
        self.kv = cache_of(limits)
        self.pool = self.kv.pool
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.loading: list[Request] = []
        """Requests that hold blocks and wait for what the host tier has of them."""
        self.counters = Counters()
        self._blank: set[Request] = set()
        """Those whose drafts are zeros."""
        self.returned = 0
        """Number of the next step to return; steps are numbered from 0."""
        self.flying: list[Step] = []
        """Scheduled and not returned."""
        self.parking: Parking | None = None
        """Set: who decodes undisturbed is not walked through, and what it gets is seen when it is asked for."""
        self._orders = 0
        self.crowd = Crowd(self)

    # Requests come and go.

    def add(self, request: Request) -> None:
        self._queue(request, front=False)

    def abort(self, request: Request) -> bool:
        """End a request from outside; False when it had ended already."""
        if request.finished is not None:
            return False
        if request in self.running:
            if self.parking is not None:
                self.parking.leave(request)
            self.running.remove(request)
        else:
            (self.loading if request in self.loading else self.waiting).remove(request)
        request.finished = "abort"
        self.kv.free(request)
        return True

    def reset_prefix_cache(self, *, preempt: bool = False) -> bool:
        """Forget what is cached; refused while requests hold blocks, unless they are preempted for it."""
        if preempt:
            if self.parking is not None:
                self.parking.rouse()
            while self.running:
                self._preempt(Step(self.counters.steps), 0)
        return self.pool.reset()

    # One step.

    def schedule(self) -> Step | None:
        """Decide and book the next step; None when no request can compute anything."""
        if (lonely := alone(self)) is not None:
            return lonely
        parking, limits = self.parking, self.limits
        step = Step(self.counters.steps)
        self.kv.begin(asynchronous=self.asynchronous)
        crowd = len(self.running) + len(self.waiting) + len(self.loading)
        threshold = limits.long_prefill_token_threshold if crowd > 1 else 0
        budget, preempted = self._schedule_running(step, limits.max_num_batched_tokens, threshold)
        step.resumes = bool(step.requests) or bool(parking and parking.count)
        if parking is not None and parking.tally is not None:
            parking.tally.passed()
        if not preempted:
            if self.loading:
                budget = self._schedule_loaded(step, budget, threshold)
            self._schedule_waiting(step, budget, threshold)
        empty = not step.requests and not (parking and parking.count)
        if not empty:
            self._book(step)
        if isinstance(self.kv, OffloadKv):
            self.kv.booked(step.requests)
        return None if empty else step

    def complete(self, step: Step) -> list[Output]:
        """The step's results return: tokens are appended, finished requests free their blocks."""
        outputs, finished = list[Output](), False
        self.drop(step)
        if isinstance(self.kv, OffloadKv):
            self.kv.returned()
        sampling, parking = step.sampling, self.parking
        if parking is not None and (due := parking.due(step.number)):
            sampling = sorted([*sampling, *due], key=lambda entry: entry[0].order)
        for request, preemptions, drafts in sampling:
            if request.finished is not None:
                continue
            if drafts == ENDS and parking is not None and parking.through is not None:
                parking.through.end(request)
                finished = True
                outputs.append(Output(request, [], request.finished, False))
                continue
            if request.parked and parking is not None and drafts < 0:
                parking.offer(request, step.number)
                continue
            first = not request.produced
            # Output that was in flight when its request was preempted is still delivered; the bookkeeping began anew.
            current = preemptions == request.preemptions
            accepted = self._verify(step, request, drafts, current=current) if drafts else 0
            brought = min(1 + accepted, request.ends - request.produced)
            tokens: Sequence[int] = ()
            if parking is None:
                tokens = request.append(brought)
            else:
                request.advance(brought)
            if current:
                request.placeholders -= brought
                if self.asynchronous and request.rhythm is None:
                    self.kv.cache(request, request.computed - request.placeholders)
            if first:
                request.created = self.kv.created(request)
            if request.produced >= request.ends:
                request.finished = request.reason
                finished = True
                if not current:
                    self.waiting.remove(request)
                self.kv.free(request)
                if current and self.parking is not None:
                    self.parking.leave(request)
            outputs.append(Output(request, tokens, request.finished, first))
            if parking is not None:
                request.got.append((step.number, step.number + 1, [brought]))
        if finished:
            self.running = [request for request in self.running if request.finished is None]
        if self.limits.speculative_tokens and not self.asynchronous:
            self._draft(step)
        return outputs

    def drop(self, step: Step) -> None:
        """The step is no longer in flight."""
        self.flying.remove(step)
        self.returned = step.number + 1
        for request, count in zip(step.requests, step.counts, strict=True):
            request.in_flight -= count

    def _verify(self, step: Step, request: Request, drafts: int, *, current: bool) -> int:
        """How many of the drafts were accepted; the others' room is taken back."""
        accepted = 0 if request in step.padded else request.accepted(drafts)
        self.counters.verified(accepted, drafts, self.limits.speculative_tokens)
        if current:
            request.computed -= drafts - accepted
            request.placeholders -= drafts - accepted
        return accepted

    def _draft(self, step: Step) -> None:
        """New drafts for the requests that got tokens: known here, as the next step is scheduled after this one."""
        most, limits = self.limits.speculative_tokens, self.limits
        # Drafters without a KV cache of their own do not look when one sequence comes close to the longest: zeros
        # stand for the drafts of the whole batch, and all are rejected.
        far = limits.lookahead > 0 or step.longest + most <= limits.max_model_len
        self._blank.clear()
        for request, _, _ in step.sampling:
            if request.finished is None:
                request.drafts = request.drafted(most) if far else most
                if not far:
                    self._blank.add(request)

    # The two passes of a step.

    def _schedule_running(self, step: Step, budget: int, threshold: int) -> tuple[int, bool]:
        limits, parking, whole = self.limits, self.parking, budget
        longest, slots = limits.max_model_len, limits.draft_slots
        walk, budget = (self.running, budget) if parking is None else parking.walk(step.number, budget, threshold)
        preempted = False
        index = 0
        while index < len(walk) and budget > slots:
            request = walk[index]
            if parking is not None and parking.tally is not None and parking.count:
                if parking.tally.passes(request, step.number):
                    index += 1
                    continue
                if request.rhythm is not None:
                    parking.rouse(step, request)
                    walk, index = self.running, self.running.index(request)
                    budget = whole - sum(step.counts) - slots * len(step.counts)
            index += 1
            in_flight = request.placeholders
            # Asynchronous: a step that already runs brings this request's last token, even if it rejects all drafts.
            if in_flight and request.computed + 2 - in_flight >= request.prompt_tokens + request.max_tokens:
                continue
            ready = request.known + in_flight - request.computed
            new = ready + request.drafts
            if 0 < threshold < new:
                new = threshold
            # Who is parked has its part of the budget already.
            left = new if request.parked else budget - slots
            new = self.kv.clip(request, request.computed, min(new, left, longest - request.computed - 1))
            if new <= 0:
                continue
            while not self.kv.grow(request, new):
                if parking is not None and parking.count:
                    # A victim is needed: any of them may be it.
                    parking.rouse(step, request)
                    walk, index = self.running, self.running.index(request) + 1
                    budget = whole - sum(step.counts) - slots * len(step.counts)
                    continue
                if isinstance(self.kv, OffloadKv) and self.running[self._last()].in_flight:
                    # Its blocks would not come free before that step has returned.
                    return budget, preempted
                preempted = True
                victim, freed, before = self._preempt(step, index)
                budget += freed
                index -= before
                if victim is request:
                    return budget, True
            if request.parked and parking is not None:
                parking.looked(request, step.number)
                continue
            step.add(request, new, max(0, new - ready))
            if request in self._blank:
                step.padded.append(request)
            step.prefilling |= request.prefilling
            request.drafts = 0
            budget -= new + slots
        return budget, preempted

    def _schedule_waiting(self, step: Step, budget: int, threshold: int) -> None:
        waiting, limits, slots, skipped = self.waiting, self.limits, self.limits.draft_slots, list[Request]()
        tally = self.parking.tally if self.parking is not None else None
        if not waiting or budget <= slots or len(self.running) >= limits.max_num_seqs or self.crowd.stays():
            return
        while waiting and budget > slots and len(self.running) < limits.max_num_seqs:
            request = waiting[0]
            found = self.kv.find(request) if tally is None else tally.find(request)
            if found.waits:
                skipped.append(waiting.popleft())
                continue
            hit = found.tokens
            if found.external:
                if not self._load(request, found):
                    break
                continue
            new, drafts = self._first(step, request, hit, budget - slots, threshold)
            if not new or not self.kv.admit(request, found, new, beside=bool(self.running)):
                break
            waiting.popleft()
            request.computed = hit
            if request.preemptions == 0:
                step.admitted.append(request)
                self._count(request, hit, 0)
            self._run(step, request, new, drafts)
            budget -= new + slots
        waiting.extendleft(reversed(skipped))

    def _schedule_loaded(self, step: Step, budget: int, threshold: int) -> int:
        """Those whose load has ended go before all that wait; the budget they leave, none where one finds no room."""
        kv, slots = self.kv, self.limits.draft_slots
        assert isinstance(kv, OffloadKv)
        for request in list(self.loading):
            if budget <= slots or len(self.running) >= self.limits.max_num_seqs:
                break
            if not kv.ready(request):
                continue
            new, drafts = self._first(step, request, request.computed, budget - slots, threshold)
            if not new or not kv.resume(request, new, beside=bool(self.running)):
                return 0
            self.loading.remove(request)
            if request.preemptions == 0:
                step.admitted.append(request)
            self._run(step, request, new, drafts)
            budget -= new + slots
        return budget

    def _load(self, request: Request, found: Hit) -> bool:
        """Begin to load what the host tier has of the first waiting request, if its blocks find room."""
        others = [one for one in self.running if one.prefilling] + self.loading
        assert isinstance(self.kv, OffloadKv)
        if not self.kv.load(request, found, others, beside=bool(self.running)):
            return False
        self.loading.append(self.waiting.popleft())
        if request.preemptions == 0:
            self._count(request, found.tokens, found.external)
        return True

    def _first(self, step: Step, request: Request, hit: int, budget: int, threshold: int) -> tuple[int, int]:
        """How many tokens a request that comes to run computes after its first `hit`, and how many of them pad it."""
        new, drafts = request.known - hit, 0
        if self.limits.speculative_tokens and new == 1 and not step.prefilling and (step.resumes or hit):
            # One token only: filled up to the size of its fellows, so that the batch stays a uniform one.
            most = self.limits.speculative_tokens
            drafts = most if hit + most + 2 <= self.limits.max_model_len else 0
            new += drafts
            if drafts and new > budget:
                return 0, 0
        elif 0 < threshold < new:
            new = threshold
        wanted = min(new, budget)
        new = self.kv.clip(request, hit, wanted)
        return (1, 0) if drafts and new < wanted else (new, drafts)

    def _count(self, request: Request, hit: int, external: int) -> None:
        request.hit = hit + external
        if self.limits.enable_prefix_caching:
            self.counters.queries += request.known
            self.counters.hits += hit
            if self.limits.offload_blocks:
                self.counters.external_queries += request.known - hit
                self.counters.external_hits += external

    def _run(self, step: Step, request: Request, new: int, drafts: int) -> None:
        step.add(request, new, drafts)
        if drafts:
            step.padded.append(request)
        request.prefilling = request.computed + new < request.known
        self.running.append(request)
        request.order = self._orders
        self._orders += 1
        if self.parking is not None:
            self.parking.join(request)

    def _book(self, step: Step) -> None:
        window = self.limits.window
        most = self.limits.speculative_tokens if self.asynchronous else 0
        for request, new, drafts in zip(step.requests, step.counts, step.drafted, strict=True):
            before = request.computed
            after = request.computed = before + new
            request.in_flight += new
            step.tokens += new
            step.drafts += drafts
            step.context += after
            step.longest = max(step.longest, after)
            if window:
                step.windowed += min(after, window + new - 1)
            if new > 1 + drafts:
                step.chunks += 1
                step.work += new * (before + new / 2)
                step.work_windowed += new * min(before + new / 2, window)
            request.prefilling = after < request.known + request.placeholders
            if not request.prefilling:
                request.placeholders += 1 + drafts
                # Asynchronous: the next step is scheduled before this one's drafts are known, with room for all.
                request.drafts = most
                step.sampling.append((request, request.preemptions, drafts))
        if self.limits.speculative_tokens:
            step.drafting = len(step.sampling)
        step.sequences = len(step.requests)
        self.flying.append(step)
        self.counters.steps += 1
        if self.parking is not None:
            self.parking.book(step)

    def _preempt(self, step: Step, passed: int) -> tuple[Request, int, int]:
        """Put a running request back to the queue.

        Returns it, the budget it gives back, and 1 if it came before the request that the walk has just `passed`.
        """
        place = self._last()
        victim = self.running.pop(place)
        if self.parking is not None:
            self.parking.leave(victim)
        freed = 0
        if victim in step.requests:
            freed = step.remove(victim) + self.limits.draft_slots
        self.kv.free(victim)
        victim.computed = 0
        victim.placeholders = 0
        victim.drafts = 0
        victim.preemptions += 1
        self.counters.preemptions += 1
        self._queue(victim, front=True)
        return victim, freed, int(place < passed - 1)

    def _last(self) -> int:
        """Place of the running request that gives way first."""
        running = self.running
        if self.limits.priority:
            return max(range(len(running)), key=lambda i: (running[i].priority, running[i].arrival))
        return len(running) - 1

    def _queue(self, request: Request, *, front: bool) -> None:
        if self.limits.priority:
            insort(self.waiting, request, key=lambda r: (r.priority, r.arrival))
        elif front:
            self.waiting.appendleft(request)
        else:
            self.waiting.append(request)
