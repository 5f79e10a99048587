"""The KV cache as the scheduler asks for it: hits, room, what is kept for later requests.

The scheduler says how many tokens a request computes; which blocks that takes, and which become free or findable, is
decided here, by the rules of vLLM 0.32 (v1/core). Nothing here knows of time.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

from windtunnel.simulator.emulator.lack import Lack
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.rhythm import Beat, Meet, Rhythm
from windtunnel.simulator.emulator.ring import Found
from windtunnel.simulator.emulator.runs import RunPool

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.scheduler import Limits


NEVER = 1 << 62


class Hit(Struct, frozen=True):
    """What the prefix cache holds of a waiting request; nothing is held for it yet."""

    tokens: int
    blocks: list[Found]
    """Of each group."""
    external: int = 0
    """Tokens after these that the host tier has."""
    waits: bool = False
    """A transfer is under way that decides what is hit: the request is looked at again in the next step."""


class KvCache:
    def __init__(self, limits: "Limits") -> None:
        self.pool = RunPool(limits.num_gpu_blocks, caching=limits.enable_prefix_caching)
        self._size = limits.block_size
        self._longest = limits.max_model_len
        self._whole = limits.scheduler_reserve_full_isl
        self._watermark = int(limits.watermark * limits.num_gpu_blocks)
        self._lookahead = limits.lookahead
        self._drops = limits.drops_last_block
        self.matched = 0
        """Tokens that full attention knew of the last prompt that was looked up."""
        self.beat: Beat | None = None
        """Of requests whose blocks are only counted."""
        self.lack: Lack | None = None
        """Of the last waiting request that found no room for all its known tokens."""
        self.meets: Meet = _nobody
        """Told whose blocks, from which on and up to which, are about to become findable."""

    # One request.

    def begin(self, *, asynchronous: bool) -> None:
        """A step begins; `asynchronous`: another one may be in flight."""

    def clip(self, _request: Request, _start: int, new: int) -> int:
        """How many of `new` tokens a chunk may compute after those at its start, where it must end at a block's end."""
        return new

    def find(self, request: Request) -> Hit:
        """The longest cached prefix. The last known token is always computed: its output is the next token."""
        found = self.pool.find(request.hashes, (request.known - 1) // self._size)
        self.matched = found.count * self._size
        if self._drops and found.count:
            found.count -= 1
        return Hit(found.count * self._size, [found])

    def admit(self, request: Request, hit: Hit, new: int, *, beside: bool) -> bool:
        """Give a waiting request what was hit and room for `new` more tokens, or nothing.

        `beside`: other requests run, so that the watermark is kept free.
        """
        size, free, found = self._size, self.pool.free_count, hit.blocks[0]
        kept = self._watermark if beside else 0
        revived = self.pool.held_by_none(found)
        known = min(request.known, self._longest)
        whole = max(0, -(-known // size) - found.count)
        if self._whole and whole + revived + kept > free:
            self.lack = Lack(request, found, -(-known // size), self.pool, self.matched)
            return False
        target = hit.tokens + new
        lacking = max(0, self._needed(target) - found.count)
        if lacking + revived + kept > free:
            return False
        request.blocks = self.pool.begin(found)
        self.pool.extend(request.blocks, lacking)
        self.cache(request, min(target, request.known))
        return True

    def lacking(self, request: Request, *, beside: bool) -> int:
        """With fewer free blocks than this a waiting request that found no room surely finds none; 0: not known."""
        least = 0 if self.lack is None else self.lack.least(request)
        return least + self._watermark if least and beside else least

    def wanted(self, request: Request, new: int) -> int:
        """Blocks that `new` more tokens of a running request take."""
        return self._needed(request.computed + new) - len(request.blocks)

    def grow(self, request: Request, new: int) -> bool:
        """Room for `new` more tokens of a running request, drafts included; False when the pool is short."""
        target = request.computed + new
        lacking = self.wanted(request, new)
        if lacking > 0:
            if lacking > self.pool.free_count:
                return False
            self.pool.extend(request.blocks, lacking)
        self.cache(request, min(target, request.known))
        return True

    def cache(self, request: Request, tokens: int) -> None:
        """The first `tokens` tokens are computed and final: their full blocks become findable."""
        full = tokens // self._size
        known = request.blocks.cached
        if full > known and self.pool.caching:
            self._meet(request, known, full)
            self.pool.cache(request.blocks, request.hashes[known:full])

    def cached(self, request: Request) -> int:
        """How many leading tokens of a running request the prefix cache knows."""
        return request.blocks.cached * self._size

    def created(self, request: Request) -> int:
        """How many tokens of a running request's prompt it has put there itself."""
        return max(0, min(self.cached(request), request.prompt_tokens) - (request.hit or 0))

    def bounds(self, request: Request) -> tuple[int, int, int]:
        """Until when steps change nothing about what a running request holds, tokens.

        The most computed ones for which no block is lacking; the processed ones (computed less in flight) from which on
        blocks are given back; the final ones (computed and known) from which on more is findable.
        """
        size, blocks = self._size, request.blocks
        until = (blocks.cached + 1) * size if self.pool.caching else NEVER
        return len(blocks) * size - self._lookahead, NEVER, until

    # Requests whose blocks are only counted while they decode.

    @property
    def beats(self) -> bool:
        """Whether blocks come and go at equal distances, so that they can be."""
        return self.pool.caching and not self._lookahead

    def rhythm(self, request: Request, number: int, depth: int) -> Rhythm | None:
        """How its blocks come and go after step `number`, with `depth` steps in flight; None where it is too early."""
        del depth
        taken = number + len(request.blocks) * self._size + 1 - request.computed
        return Rhythm(1, taken, 0, -1, 0, self.tip(request), offset=request.computed - number)

    def rhythm_from_prefill(self, request: Request, number: int, chunk: int, depth: int) -> Rhythm | None:
        """The same after step `number` that computes the last `chunk` tokens of its prompt."""
        del chunk
        return self.rhythm(request, number, depth)

    def tip(self, request: Request) -> int:
        """Key of the last findable block, or what stands for it before the first."""
        place = self.place(request)
        return request.hashes[place - 1] if place else request.seed

    def place(self, request: Request) -> int:
        """How many of its leading blocks are findable."""
        return request.blocks.cached

    def follows(self, request: Request) -> bool:
        """Whether its next block may be findable before it is full: another has, or had, the same tokens."""
        return self._known_after(request, self.place(request))

    def _known_after(self, request: Request, cached: int) -> bool:
        key = request.foreseen(cached)
        return key is not None and self.pool.knows(key)

    def shed(self, request: Request, processed: int, *, later: bool) -> int:
        """Give back what no step after `processed` tokens reads; `later`: where the pool is next looked at.

        With `later`, those without a key are the pool's only once they are counted (`RunPool.ahead`): how many.
        """
        del request, processed, later
        return 0

    def cast_off(self, request: Request, processed: int) -> list[list[int]]:
        """The blocks of each group that no step after `processed` tokens reads; they are the caller's to give back."""
        del request, processed
        return []

    def repay(self, request: Request, processed: int) -> None:
        """The same where it was counted before."""

    def catch_up(self, request: Request, main: int, processed: int, final: int) -> None:
        """Book what was counted: room for `main` tokens, of which `processed` have returned and `final` are final."""
        del processed
        request.blocks.bare += self.pool.draw(-(-main // self._size) - len(request.blocks))
        self.cache(request, final)

    def _meet(self, request: Request, known: int, full: int) -> None:
        """The blocks from `known` to `full` are about to become findable."""
        if self.beat is not None and self.beat.tips:
            self.meets(request, known, full)

    def free(self, request: Request) -> None:
        self.pool.free(request.blocks)

    def _needed(self, tokens: int) -> int:
        """Blocks for `tokens` tokens and the lookahead behind them."""
        return -(-min(tokens + self._lookahead, self._longest) // self._size)


def _nobody(_request: Request, _known: int, _full: int) -> None:
    """Nobody's blocks are only counted."""
