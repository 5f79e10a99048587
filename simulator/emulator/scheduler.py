"""vLLM's V1 scheduler as pure code: which request computes how many tokens in the next step.

Time does not occur here. `schedule` decides a step and books it, `complete` returns its tokens; the engine calls them
in turn, or `schedule` one step ahead of `complete` for asynchronous scheduling. `stretch` and `skip` do the work of
many equal decode steps at once. Rules are those of vLLM 0.32 (v1/core/sched); each has a test.
"""

from bisect import insort
from collections import deque

from msgspec import Struct

from windtunnel.simulator.emulator.kv import KvCache
from windtunnel.simulator.emulator.request import FinishReason, Request


class Limits(Struct, frozen=True):
    """What bounds a step; names are vLLM's."""

    num_gpu_blocks: int
    block_size: int = 16
    max_model_len: int = 131_072
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    long_prefill_token_threshold: int = 0
    enable_prefix_caching: bool = True
    scheduler_reserve_full_isl: bool = True
    """Admit a request only when all its known tokens fit, not just its first chunk."""
    watermark: float = 0.0
    """Share of the blocks kept free when a request is admitted beside others."""
    priority: bool = False
    """Order by (priority, arrival) instead of first come, first served."""
    window: int = 0
    """Sliding window of the model's windowed layers, tokens; 0 without. Counted, not freed."""
    speculative_tokens: int = 0
    """Most draft tokens verified in one step of a request; 0 without speculation."""
    lookahead: int = 0
    """Room reserved beyond what is computed, tokens: drafts of mtp, eagle and draft_model are written there."""
    drops_last_block: bool = False
    """The last matched block of a prefix is computed again: mtp and eagle need its hidden states."""


class Step:
    """One step of the engine: which requests compute how many tokens, and the sums its time depends on."""

    __slots__ = (
        "admitted",
        "chunks",
        "context",
        "counts",
        "requests",
        "sampling",
        "tokens",
        "windowed",
        "work",
        "work_windowed",
    )

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.counts: list[int] = []
        self.admitted: list[Request] = []
        """Those that run for the first time."""
        self.sampling: list[tuple[Request, int]] = []
        """Requests that get a token from this step, with their preemption count when it was scheduled."""
        self.tokens = 0
        self.context = 0
        """Sum of the contexts that the step's attention reads, tokens; shared blocks count for each reader."""
        self.windowed = 0
        """The same with each context capped at the sliding window."""
        self.chunks = 0
        """Requests that compute more than one token."""
        self.work = 0.0
        """Sum over the chunks of n * (c + n / 2) for n new tokens on a context of c."""
        self.work_windowed = 0.0

    @property
    def pure_decode(self) -> bool:
        return self.tokens == len(self.requests)


class Output(Struct, frozen=True):
    """What one step returned for one request."""

    request: Request
    tokens: list[int]
    finished: FinishReason | None
    first: bool


class Counters(Struct):
    """Totals since the start, counted as vLLM counts them."""

    queries: int = 0
    """Tokens looked up in the prefix cache, once a request, at its first admission."""
    hits: int = 0
    preemptions: int = 0
    steps: int = 0


class Scheduler:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.kv = KvCache(limits)
        self.pool = self.kv.pool
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.counters = Counters()

    # Requests come and go.

    def add(self, request: Request) -> None:
        self._queue(request, front=False)

    def abort(self, request: Request) -> bool:
        """End a request from outside; False when it had ended already."""
        if request.finished is not None:
            return False
        request.finished = "abort"
        (self.running if request in self.running else self.waiting).remove(request)
        self.kv.free(request)
        return True

    def reset_prefix_cache(self, *, preempt: bool = False) -> bool:
        """Forget what is cached; refused while requests hold blocks, unless they are preempted for it."""
        if preempt:
            while self.running:
                self._preempt(Step(), 0)
        return self.pool.reset()

    # One step.

    def schedule(self) -> Step | None:
        """Decide and book the next step; None when no request can compute anything."""
        step = Step()
        limits = self.limits
        crowd = len(self.running) + len(self.waiting)
        threshold = limits.long_prefill_token_threshold if crowd > 1 else 0
        budget, preempted = self._schedule_running(step, limits.max_num_batched_tokens, threshold)
        if not preempted:
            self._schedule_waiting(step, budget, threshold)
        if not step.requests:
            return None
        self._book(step)
        return step

    def complete(self, step: Step) -> list[Output]:
        """The step's results return: tokens are appended, finished requests free their blocks."""
        outputs: list[Output] = []
        finished = False
        for request, preemptions in step.sampling:
            if request.finished is not None:
                continue
            first = not request.output
            tokens = request.append(1)
            # Output that was in flight when its request was preempted is still delivered; the bookkeeping began anew.
            if preemptions == request.preemptions:
                request.placeholders -= 1
                self.kv.cache(request, request.computed - request.placeholders)
            if first:
                held = min(self.kv.cached(request), request.prompt_tokens)
                request.created = max(0, held - (request.hit or 0))
            if len(request.output) >= request.ends:
                request.finished = request.reason
                finished = True
                if preemptions != request.preemptions:
                    self.waiting.remove(request)
                self.kv.free(request)
            outputs.append(Output(request, tokens, request.finished, first))
        if finished:
            self.running = [request for request in self.running if request.finished is None]
        return outputs

    # Many equal steps.

    def stretch(self) -> int:
        """How many steps from here on would each compute one token for every running request and nothing else."""
        running, limits = self.running, self.limits
        if not running or len(running) > limits.max_num_batched_tokens:
            return 0
        if self.waiting and len(running) < limits.max_num_seqs:
            return 0
        steps = limits.max_model_len
        window = limits.window
        for request in running:
            # A first token is no step like the others, even where all but one of the prompt's tokens were cached.
            if not request.output or request.known + request.placeholders - request.computed != 1:
                return 0
            steps = min(steps, request.ends - len(request.output) - max(1, request.placeholders))
            if request.computed < window:
                steps = min(steps, window - request.computed)
        return max(self.kv.fits(running, steps), 0)

    def skip(self, steps: int) -> list[list[int]]:
        """Do the bookkeeping of `steps` equal decode steps; each running request's new tokens, in running order."""
        self.kv.extend(self.running, steps)
        produced: list[list[int]] = []
        for request in self.running:
            produced.append(request.append(steps))
            request.computed += steps
        self.kv.fill(self.running, steps)
        self.counters.steps += steps
        return produced

    # The two passes of a step.

    def _schedule_running(self, step: Step, budget: int, threshold: int) -> tuple[int, bool]:
        running, longest = self.running, self.limits.max_model_len
        preempted = False
        index = 0
        while index < len(running) and budget > 0:
            request = running[index]
            index += 1
            in_flight = request.placeholders
            # Asynchronous: a step that already runs brings this request's last token.
            if in_flight and request.computed + 2 - in_flight >= request.prompt_tokens + request.max_tokens:
                continue
            new = request.known + in_flight - request.computed
            if 0 < threshold < new:
                new = threshold
            new = min(new, budget, longest - request.computed - 1)
            if new <= 0:
                continue
            while not self.kv.grow(request, new):
                preempted = True
                victim, freed, before = self._preempt(step, index)
                budget += freed
                index -= before
                if victim is request:
                    return budget, True
            step.requests.append(request)
            step.counts.append(new)
            budget -= new
        return budget, preempted

    def _schedule_waiting(self, step: Step, budget: int, threshold: int) -> None:
        waiting, limits = self.waiting, self.limits
        while waiting and budget > 0 and len(self.running) < limits.max_num_seqs:
            request = waiting[0]
            found = self.kv.find(request)
            hit = found.tokens
            new = request.known - hit
            if 0 < threshold < new:
                new = threshold
            new = min(new, budget)
            if not self.kv.admit(request, found, new, beside=bool(self.running)):
                break
            waiting.popleft()
            self.running.append(request)
            request.computed = hit
            if request.preemptions == 0:
                step.admitted.append(request)
                request.hit = hit
                if limits.enable_prefix_caching:
                    self.counters.queries += request.known
                    self.counters.hits += hit
            step.requests.append(request)
            step.counts.append(new)
            budget -= new

    def _book(self, step: Step) -> None:
        window = self.limits.window
        for request, new in zip(step.requests, step.counts, strict=True):
            before = request.computed
            after = request.computed = before + new
            step.tokens += new
            step.context += after
            if window:
                step.windowed += min(after, window + new - 1)
            if new > 1:
                step.chunks += 1
                step.work += new * (before + new / 2)
                step.work_windowed += new * min(before + new / 2, window)
            if after >= request.known + request.placeholders:
                request.placeholders += 1
                step.sampling.append((request, request.preemptions))
        self.counters.steps += 1

    def _preempt(self, step: Step, passed: int) -> tuple[Request, int, int]:
        """Put a running request back to the queue.

        Returns it, the budget it gives back, and 1 if it came before the request that the walk has just `passed`.
        """
        running = self.running
        place = len(running) - 1
        if self.limits.priority:
            place = max(range(len(running)), key=lambda i: (running[i].priority, running[i].arrival))
        victim = running.pop(place)
        freed = 0
        if victim in step.requests:
            at = step.requests.index(victim)
            del step.requests[at]
            freed = step.counts.pop(at)
        self.kv.free(victim)
        victim.computed = 0
        victim.placeholders = 0
        victim.preemptions += 1
        self.counters.preemptions += 1
        self._queue(victim, front=True)
        return victim, freed, int(place < passed - 1)

    def _queue(self, request: Request, *, front: bool) -> None:
        if self.limits.priority:
            insort(self.waiting, request, key=lambda r: (r.priority, r.arrival))
        elif front:
            self.waiting.appendleft(request)
        else:
            self.waiting.append(request)
