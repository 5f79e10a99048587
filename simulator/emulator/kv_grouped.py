"""The KV cache of a model with several groups, as the scheduler asks for it."""

from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.kv import Hit, KvCache
from windtunnel.simulator.emulator.kv_groups import FullGroup, Table
from windtunnel.simulator.emulator.kv_hybrid import Groups
from windtunnel.simulator.emulator.kv_mamba import AlignedGroup
from windtunnel.simulator.emulator.kv_sparse import WindowGroup
from windtunnel.simulator.emulator.lack import Lack
from windtunnel.simulator.emulator.offload import OffloadKv
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.rhythm import Rhythm
from windtunnel.simulator.emulator.ring import Found

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
        self._windows = [place for place, group in enumerate(self._all) if isinstance(group, WindowGroup)]
        self._full = next((place for place, group in enumerate(self._all) if type(group) is FullGroup), 0)
        self._even = self._is_even()

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
            return Hit(0, [Found(0) for _ in self._all])
        blocks, hit, self._junctions[request] = self._groups.longest(request.hashes, request.known - 1)
        self.matched = self._groups.matched
        return Hit(hit, blocks)

    def admit(self, request: Request, hit: Hit, new: int, *, beside: bool) -> bool:
        kept = self._watermark if beside else 0
        held = Held([Table() for _ in self._all])
        if self._whole and not (self._even and hit.tokens + new >= request.known):
            known = min(request.known, self._longest)
            if self._needs(request, held, hit, known, known, hit.tokens, whole=True) + kept > self.pool.free_count:
                self._note_lack(request, hit, known)
                return False
        main = hit.tokens + new
        room = min(main + self._lookahead, self._longest)
        if self._needs(request, held, hit, room, main, hit.tokens, whole=False) + kept > self.pool.free_count:
            if self._whole and main >= request.known:
                self._note_lack(request, hit, min(request.known, self._longest))
            return False
        for group, table, found in zip(self._all, held.tables, hit.blocks, strict=True):
            group.adopt(table, found, hit.tokens)
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

    # Requests whose blocks are only counted while they decode.

    @property
    def beats(self) -> bool:
        return self._even and super().beats

    def _is_even(self) -> bool:
        """Full attention and windows of one length, all with the same blocks, and what is generated kept in one."""
        full = [group for group in self._all if type(group) is FullGroup]
        windows = [self._all[place] for place in self._windows]
        shapes = {(group.size, group.rules.unit) for group in self._all}
        return (
            bool(full)
            and len(full) + len(windows) == len(self._all)
            and shapes == {(self._size, self._size)}
            and len({group.group.window for group in windows}) <= 1
            and not any(group.drops for group in self._all)
            and self._groups.rules.retention == 0
        )

    def rhythm(self, request: Request, number: int, depth: int) -> Rhythm | None:
        tables, size = self._held[request].tables, self._size
        gives = len(self._windows)
        offset = request.computed - number
        taken = self._all[0].count(tables[0]) * size + 1 - offset
        rhythm = Rhythm(len(tables), taken, gives, -1, 0, self.tip(request), offset=offset)
        if gives:
            first = tables[self._windows[0]].retired
            for place in self._windows:
                table = tables[place]
                # Past the prompt's end nothing of a window is kept.
                if table.cached < (request.prompt_tokens - 1) // size or table.retired != first:
                    return None
            kept = self._kept(tables, first)
            if kept is None:
                return None
            rhythm.sheds, rhythm.shed_at = kept, self._shed_at(first, depth - offset)
        return rhythm

    def rhythm_from_prefill(self, request: Request, number: int, chunk: int, depth: int) -> Rhythm | None:
        tables, computed = self._held[request].tables, request.computed
        opens = early = False
        for place in self._windows:
            group, table = self._all[place], tables[place]
            early |= depth > 1 and group.gives(table, computed - chunk)
            opens |= group.gives(table, computed)
        if not opens and not early:
            for place in self._windows:
                self._all[place].retire(tables[place], computed)
            return self.rhythm(request, number, depth)
        first = self._all[self._windows[0]].unseen(computed) // self._size
        kept = self._kept(tables, first)
        if kept is None:
            return None
        offset = computed - number
        taken = self._all[0].count(tables[0]) * self._size + 1 - offset
        shed_at = self._shed_at(first, depth - offset)
        rhythm = Rhythm(len(tables), taken, len(self._windows), shed_at, kept, self.tip(request), offset=offset)
        rhythm.opens = number + depth
        if early:
            rhythm.opens, rhythm.early = number + 1, computed - chunk
        return rhythm

    def _shed_at(self, first: int, ahead: int) -> int:
        """The step in which windows no longer see the block at place `first`; `ahead`: of the tokens that returned."""
        return (first + 1) * self._size + self._all[self._windows[0]].group.window - 1 + ahead

    def _kept(self, tables: list[Table], first: int) -> int | None:
        """How many of the windows' blocks from place `first` on stay findable; None where some between do not."""
        key_of, found = self.pool.key_of, list[list[bool]]()
        for place in self._windows:
            table = tables[place]
            found.append([key_of(block) is not None for block in table.blocks[first - table.retired :]])
        kept = max((len(keyed) - keyed[::-1].index(True) for keyed in found if True in keyed), default=0)
        return None if any(False in keyed[:kept] for keyed in found) else kept

    def place(self, request: Request) -> int:
        return self._held[request].tables[self._full].cached

    def shed(self, request: Request, processed: int, *, later: bool) -> int:
        tables = self._held[request].tables
        return sum(self._all[place].retire(tables[place], processed, later=later) for place in self._windows)

    def cast_off(self, request: Request, processed: int) -> list[list[int]]:
        tables = self._held[request].tables
        return [self._all[place].cast_off(tables[place], processed) for place in self._windows]

    def repay(self, request: Request, processed: int) -> None:
        tables = self._held[request].tables
        for place in self._windows:
            table = tables[place]
            passed = self._all[place].unseen(processed) // self._size - table.retired
            if passed > 0:
                gone = table.blocks[:passed]
                del table.blocks[:passed]
                self.pool.repay(gone)
                table.retired += len(gone)

    def catch_up(self, request: Request, main: int, processed: int, final: int) -> None:
        held, wanted = self._held[request], -(-main // self._size)
        self.repay(request, processed)
        for place in self._windows:
            # Past the table's end: taken and given back since.
            table = held.tables[place]
            table.retired = max(table.retired, self._all[place].unseen(processed) // self._size)
        for group, table in zip(self._all, held.tables, strict=True):
            group.append(table, self.pool.draw(wanted - group.count(table)))
        self._offer(request, held, final)
        self._settle(held)

    def tables(self, request: Request) -> list[list[int]]:
        """A running request's blocks in each group."""
        return [group.blocks(table) for group, table in zip(self._all, self._held[request].tables, strict=True)]

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

    def _note_lack(self, request: Request, hit: Hit, known: int) -> None:
        group, found = self._all[self._full], hit.blocks[self._full]
        if type(group) is FullGroup:
            matched = found.longest * group.size
            self.lack = Lack(request, found, -(-known // group.size), self.pool, matched)

    def _needs(
        self, request: Request, held: Held, hit: Hit | None, room: int, main: int, computed: int, *, whole: bool
    ) -> int:
        end = max(request.prompt_tokens, request.known - 1) if self._groups.rules.retention == 0 else 0
        needed = 0
        for place, (group, table) in enumerate(zip(self._all, held.tables, strict=True)):
            found = hit.blocks[place] if hit is not None else None
            needed += group.needs(table, found, room, main, computed, whole=whole, end=end)
        return needed

    def _extend(self, request: Request, held: Held, room: int, main: int, final: int) -> None:
        for group, table in zip(self._all, held.tables, strict=True):
            group.extend(table, room, main)
        self._offer(request, held, final)
        self._settle(held)

    def _offer(self, request: Request, held: Held, tokens: int) -> None:
        if not self.pool.caching:
            return
        known, full = held.tables[self._full].cached, tokens // self._size
        if self._even and full > known:
            self._meet(request, known, full)
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
