"""What the scheduler's decisions are made of: the limits, one step, what it returned, the totals."""

from collections.abc import Sequence
from math import gcd

from msgspec import Struct, field

from windtunnel.simulator.emulator.kv_layout import Group
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
    draft_slots: int = 0
    """Budget that each scheduled request costs on top of its tokens: 1 with a draft model, else 0."""

    groups: tuple[Group, ...] = ()
    """KV groups in vLLM's order; empty: one of full attention with blocks of `block_size`."""
    prefix_cache_retention_interval: int | None = 0
    """Every how many tokens windowed and Mamba groups keep a state to be found again; 0: only at the ends of prompts
    and where prompts part, None: at every block."""
    offload_blocks: int = 0
    """Blocks of the host tier that KV is offloaded to; for one group of full attention."""
    offload_block_s: float = 0.0
    """Seconds that a block takes between the host tier and the GPU, one way."""

    @property
    def hash_block_size(self) -> int:
        """Tokens for each of a request's hashes."""
        return gcd(*(group.block_size for group in self.groups)) if self.groups else self.block_size


class Step:
    """One step of the engine: which requests compute how many tokens, and the sums its time depends on."""

    __slots__ = (
        "admitted",
        "chunks",
        "context",
        "counts",
        "drafted",
        "drafting",
        "drafts",
        "longest",
        "number",
        "padded",
        "prefilling",
        "requests",
        "resumes",
        "sampling",
        "sequences",
        "tokens",
        "windowed",
        "work",
        "work_windowed",
    )

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.requests: list[Request] = []
        """Those that the step had to be walked through for; parked ones are only counted below."""
        self.counts: list[int] = []
        self.admitted: list[Request] = []
        """Those that run for the first time."""
        self.drafted: list[int] = []
        """For each request, how many of its tokens are drafts to be verified."""
        self.padded: list[Request] = []
        """Those whose drafts only fill up the batch, so that all are rejected."""
        self.sampling: list[tuple[Request, int, int]] = []
        """Requests that get tokens from this step: preemption count when it was scheduled, drafts verified."""
        self.sequences = 0
        self.tokens = 0
        """Computed in the step, drafts included."""
        self.drafts = 0
        """Draft tokens verified in the step."""
        self.drafting = 0
        """Sequences for which new drafts are made after the step."""
        self.context = 0
        """Sum of the contexts that the step's attention reads, tokens; shared blocks count for each reader."""
        self.longest = 0
        """The longest of those contexts."""
        self.windowed = 0
        """The same with each context capped at the sliding window."""
        self.chunks = 0
        """Requests that compute more than one token which are not drafts."""
        self.work = 0.0
        """Sum over the chunks of n * (c + n / 2) for n new tokens on a context of c."""
        self.work_windowed = 0.0
        self.resumes = False
        """A request that ran before is part of it."""
        self.prefilling = False
        """A request that ran before computes prompt tokens."""

    def add(self, request: Request, tokens: int, drafts: int) -> None:
        self.requests.append(request)
        self.counts.append(tokens)
        self.drafted.append(drafts)

    def sort(self) -> None:
        """Into running order."""
        order = sorted(range(len(self.requests)), key=lambda at: self.requests[at].order)
        self.requests = [self.requests[at] for at in order]
        self.counts = [self.counts[at] for at in order]
        self.drafted = [self.drafted[at] for at in order]

    def remove(self, request: Request) -> int:
        """Take a request out that was added; its tokens."""
        at = self.requests.index(request)
        del self.requests[at], self.drafted[at]
        return self.counts.pop(at)

    def release(self, request: Request) -> None:
        """A request that was booked is counted only."""
        at = self.requests.index(request)
        del self.requests[at], self.drafted[at], self.counts[at]
        self.sampling = [entry for entry in self.sampling if entry[0] is not request]

    @property
    def pure_decode(self) -> bool:
        """Each request computes one token, and drafts."""
        return self.tokens - self.drafts == self.sequences


class Output(Struct, frozen=True):
    """What one step returned for one request."""

    request: Request
    tokens: Sequence[int]
    finished: FinishReason | None
    first: bool


class Counters(Struct):
    """Totals since the start, counted as vLLM counts them."""

    queries: int = 0
    """Tokens looked up in the prefix cache, once a request, at its first admission."""
    hits: int = 0
    external_queries: int = 0
    """Tokens looked up in the host tier: those that the GPU's own cache lacks."""
    external_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    drafts: int = 0
    """Verifications: once for each request of a step that had draft tokens."""
    draft_tokens: int = 0
    accepted_tokens: int = 0
    """Without the token that each step yields anyway; those behind the end of an output count too."""
    accepted_per_position: list[int] = field(default_factory=list)
    """How often the first, second, ... draft token was accepted; as long as the longest draft allowed."""

    def verified(self, accepted: int, drafts: int, most: int) -> None:
        """So many of the drafts of one request were accepted."""
        self.drafts += 1
        self.draft_tokens += drafts
        self.accepted_tokens += accepted
        if not self.accepted_per_position:
            self.accepted_per_position = [0] * most
        for position in range(accepted):
            self.accepted_per_position[position] += 1

    def all_verified(self, gains: list[int], drafts: int) -> None:
        """Verifications of so many drafts each, by the tokens they brought."""
        self.drafts += len(gains)
        self.draft_tokens += len(gains) * drafts
        self.accepted_tokens += sum(gains) - len(gains)
        if not self.accepted_per_position:
            self.accepted_per_position = [0] * drafts
        more = len(gains)
        for position in range(drafts):
            more -= gains.count(position + 1)
            self.accepted_per_position[position] += more
