"""The KV cache of a model with several groups, as the scheduler asks for it."""

from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.kv import Hit, KvCache
from windtunnel.simulator.emulator.kv_groups import Table
from windtunnel.simulator.emulator.kv_hybrid import Groups
from windtunnel.simulator.emulator.kv_mamba import AlignedGroup
from windtunnel.simulator.emulator.offload import OffloadKv
from windtunnel.simulator.emulator.request import Request

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.step import Limits


class Held:
    """What one running request holds, and until when its steps change nothing about it."""

    __slots__ = ("keep", "room", "tables", "until")

    def __init__(self, tables: list[Table]) -> None:
        self.tables = tables
        self.room = -1
        """Most computed tokens for which no block is lacking."""
        self.keep = 0
        """Processed tokens from which on blocks are given back."""
        self.until = 0
        """Final tokens from which on blocks become findable."""


class GroupedKv(KvCache):
    def __init__(self, limits: "Limits") -> None:
        super().__init__(limits)
        self._groups = Groups(limits, self.pool)
        self._all = self._groups.all
        self._held: dict[Request, Held] = {}
        self._junctions: dict[Request, int] = {}
        """Where prompts part from others, as of their last lookup, tokens."""
        self._batched = limits.max_num_batched_tokens
        self._chunk = min(self._batched, limits.long_prefill_token_threshold or self._batched)
        self._in_flight = 0

    # One request.

    def begin(self, *, asynchronous: bool) -> None:
        in_flight = self._batched * (1 + asynchronous)
        if in_flight != self._in_flight:
            self._in_flight = in_flight
            for group in self._all:
                group.bound(in_flight)
        for aligned in self._groups.aligned:
            aligned.fresh.clear()

    def clip(self, request: Request, start: int, new: int) -> int:
        if not self._groups.aligned:
            return new
        return self._groups.clip(request, start, new, self._size, self._chunk, self._junctions.get(request, 0))

    def find(self, request: Request) -> Hit:
        if not self.pool.caching:
            return Hit(0, [[] for _ in self._all])
        blocks, hit, self._junctions[request] = self._groups.longest(request.hashes, request.known - 1)
        return Hit(hit, blocks)

    def admit(self, request: Request, hit: Hit, new: int, *, beside: bool) -> bool:
        kept = self._watermark if beside else 0
        held = Held([Table() for _ in self._all])
        if self._whole:
            known = min(request.known, self._longest)
            if self._needs(request, held, hit, known, known, hit.tokens, whole=True) + kept > self.pool.free_count:
                return False
        main = hit.tokens + new
        room = min(main + self._lookahead, self._longest)
        if self._needs(request, held, hit, room, main, hit.tokens, whole=False) + kept > self.pool.free_count:
            return False
        for group, table, blocks in zip(self._all, held.tables, hit.blocks, strict=True):
            group.adopt(table, blocks, hit.tokens)
        self._held[request] = held
        self._extend(request, held, room, main, min(main, request.known))
        return True

    def grow(self, request: Request, new: int) -> bool:
        held, computed = self._held[request], request.computed
        processed, final = max(0, computed - request.in_flight), min(computed + new, request.known)
        if computed + new <= held.room and processed < held.keep and final < held.until:
            return True
        return self._advance(request, held, computed, new, processed, final)

    def cache(self, request: Request, tokens: int) -> None:
        held = self._held[request]
        if tokens >= held.until:
            self._offer(request, held, tokens)
            self._settle(held)

    def cached(self, request: Request) -> int:
        held = self._held.get(request)
        if held is None or not self.pool.caching:
            return 0
        return min(group.findable(table) for group, table in zip(self._all, held.tables, strict=True))

    def free(self, request: Request) -> None:
        self._junctions.pop(request, None)
        held = self._held.pop(request, None)
        if held is not None:
            for group, table in zip(self._all, held.tables, strict=True):
                group.free(table)

    def bounds(self, request: Request) -> tuple[int, int, int]:
        held = self._held[request]
        return held.room, held.keep, held.until

    def tables(self, request: Request) -> list[Table]:
        """A running request's blocks in each group."""
        return self._held[request].tables

    def _advance(self, request: Request, held: Held, computed: int, new: int, processed: int, final: int) -> bool:
        """Room for `new` tokens after `computed` ones, of which `processed` have returned; False when there is none."""
        for group, table in zip(self._all, held.tables, strict=True):
            group.retire(table, processed)
        main = computed + new
        room = min(main + self._lookahead, self._longest)
        if self._needs(request, held, None, room, main, computed, whole=False) > self.pool.free_count:
            return False
        self._extend(request, held, room, main, final)
        return True

    def _needs(
        self, request: Request, held: Held, hit: Hit | None, room: int, main: int, computed: int, *, whole: bool
    ) -> int:
        end = max(request.prompt_tokens, request.known - 1) if self._groups.rules.retention == 0 else 0
        needed = 0
        for place, (group, table) in enumerate(zip(self._all, held.tables, strict=True)):
            hits = hit.blocks[place] if hit is not None else ()
            needed += group.needs(table, hits, room, main, computed, whole=whole, end=end)
        return needed

    def _extend(self, request: Request, held: Held, room: int, main: int, final: int) -> None:
        for group, table in zip(self._all, held.tables, strict=True):
            group.extend(table, room, main)
        self._offer(request, held, final)
        self._settle(held)

    def _offer(self, request: Request, held: Held, tokens: int) -> None:
        if not self.pool.caching:
            return
        prompt, junction, hashes = request.prompt_tokens, self._junctions.get(request, 0), request.hashes
        boundaries = self._groups.resumes(prompt)
        if junction:
            boundaries.append(junction)
        for group, table in zip(self._all, held.tables, strict=True):
            final = self._groups.final(group, tokens)
            if isinstance(group, AlignedGroup):
                group.offer_states(table, hashes, final, prompt, boundaries, junction)
            else:
                group.offer(table, hashes, final, boundaries)

    def _settle(self, held: Held) -> None:
        tables = list(zip(self._all, held.tables, strict=True))
        held.room = min(group.full_at(table, self._lookahead) for group, table in tables)
        held.keep = min(group.retires_at(table) for group, table in tables)
        held.until = min(group.offers_at(table) for group, table in tables)


def cache_of(limits: "Limits") -> KvCache:
    """The KV cache of a model with these groups."""
    if limits.offload_blocks and not limits.groups:
        return OffloadKv(limits)
    only = limits.groups[0] if len(limits.groups) == 1 else None
    if not limits.groups or (only and only.kind == "full" and only.count == 1):
        return KvCache(limits)
    return GroupedKv(limits)
