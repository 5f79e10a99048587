"""The rules of one KV group: what a hit needs, which blocks a request holds, which become free or findable.

Full attention keeps every block. A window keeps the blocks it still sees; those before it are given back, and the null
block stands in their place. A Mamba layer needs its last state only: its table is as long as the text in blocks, and
all but the states that are in use or kept for later requests are null. Rules are those of vLLM 0.32
(v1/core/single_type_kv_cache_manager.py).
"""

from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct

from windtunnel.simulator.emulator.blocks import NULL_BLOCK
from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.runs import RunPool

_NEVER = 1 << 62


class Rules(Struct, frozen=True):
    """What all groups of an engine share; tokens."""

    unit: int
    """Of a request's hashes."""
    align: int
    """Hits are multiples of this."""
    retention: int | None
    longest: int
    drops: bool
    """The last matched block is computed again."""
    first_full: int
    """Place of the first group of full attention; 0 without."""


class Table:
    """The blocks of one request in one group."""

    __slots__ = ("allocated", "blocks", "cached", "checkpoint", "kept", "last", "retired")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.cached = 0
        """Leading blocks that were offered to the prefix cache."""
        self.retired = 0
        """Leading blocks that were given back."""
        self.allocated = False
        """Mamba: blocks were taken, not only hit."""
        self.last: int | None = None
        """Mamba: place of the state that the last step started from."""
        self.checkpoint: tuple[int, int] | None = None
        """Mamba: the state to be kept from inside this step's chunk: after how many tokens, and its place."""
        self.kept: tuple[int, int] | None = None
        """Mamba: the last checkpoint that stayed findable."""


def checkpoint_of(tokens: int, unit: int, *, drops: bool) -> int:
    """The last position in `tokens` tokens whose Mamba state a later request can start from.

    One token at least is computed again. Where the last matched block is dropped, that one is.
    """
    return max(0, tokens // unit * unit - unit if drops else (tokens - 1) // unit * unit)


class FullGroup:
    """Every block is kept; the base of the other kinds."""

    sparse = False
    """Null blocks stand where blocks are not there any more."""

    def __init__(self, pool: RunPool, ident: int, group: Group, rules: Rules) -> None:
        self.pool = pool
        self.ident = ident
        self.group = group
        self.rules = rules
        self.size = group.block_size
        self.drops = False
        """The last matched block is dropped in this group."""
        self.cap = _NEVER
        """Most blocks one request holds."""
        self._scale = self.size // rules.unit
        self._mask = (ident - rules.first_full) * 0x1E37_79B9_7F4A_7C15
        """Keeps the groups' entries in the prefix cache apart."""

    def bound(self, in_flight: int) -> None:
        """At most `in_flight` tokens are scheduled and have not returned."""

    # The prefix cache.

    def key(self, hashes: Sequence[int], block: int) -> int:
        return hashes[(block + 1) * self._scale - 1] ^ self._mask

    def cached(self, hashes: Sequence[int], block: int, peers: Sequence["FullGroup"]) -> list[int] | None:
        """The cached block of that place for each of `peers`, or None where one lacks it."""
        found: list[int] = []
        for peer in peers:
            held = self.pool.get(peer.key(hashes, block))
            if held is None:
                return None
            found.append(held)
        return found

    def lookup(
        self, hashes: Sequence[int], most: int, peers: Sequence["FullGroup"], *, drop: bool
    ) -> tuple[list[list[int]], int]:
        """The longest hit within `most` tokens that all `peers` (groups of this very shape) share: blocks, tokens."""
        runs: list[list[int]] = [[] for _ in peers]
        if len(peers) == 1 and self._scale == 1 and not self._mask:
            runs = [self.pool.find(hashes, most // self.size)]
        else:
            for block in range(min(most // self.size, len(hashes) // self._scale)):
                found = self.cached(hashes, block, peers)
                if found is None:
                    break
                for run, held in zip(runs, found, strict=True):
                    run.append(held)
        hit = len(runs[0]) * self.size
        if drop and hit:
            hit -= self.size
        hit -= hit % self.rules.align
        for run in runs:
            del run[hit // self.size :]
        return runs, hit

    def mask(self, start: int, stop: int, boundaries: Sequence[int]) -> list[bool] | None:  # noqa: ARG002
        """Which of the blocks `start` to `stop - 1` can ever serve a hit; None: all."""
        return None

    def offer(self, table: Table, hashes: Sequence[int], tokens: int, boundaries: Sequence[int]) -> list[int]:
        """The first `tokens` tokens are final: their full blocks become findable. Keys of those that now are."""
        start, stop = table.cached, tokens // self.size
        if start >= stop:
            return []
        if not self.sparse and self._scale == 1 and not self._mask:
            fresh = list(hashes[start:stop])
            self.pool.cache(table.blocks[start:stop], fresh, start)
            table.cached = stop
            return fresh
        mask = self.mask(start, stop, boundaries)
        blocks: list[int] = []
        keys: list[int] = []
        for place in range(start, stop):
            block = table.blocks[place]
            if block == NULL_BLOCK or (mask is not None and not mask[place - start]):
                continue
            blocks.append(block)
            keys.append(self.key(hashes, place))
        self.pool.cache(blocks, keys)  # blocks that were taken, and not hit, have no keys yet
        table.cached = stop
        return keys

    def findable(self, table: Table) -> int:
        """How many leading tokens of a request are known to the prefix cache, tokens."""
        for place in range(len(table.blocks) - 1, -1, -1):
            block = table.blocks[place]
            key = None if block == NULL_BLOCK else self.pool.key_of(block)
            if key is None:
                continue
            kept = table.kept
            return kept[0] if kept is not None and kept[1] == place else (place + 1) * self.size
        return 0

    # Blocks.

    def unseen(self, computed: int) -> int:
        """Leading tokens that the token after `computed` ones does not see."""
        return 0 * computed

    def needs(
        self, table: Table, hits: Sequence[int], room: int, main: int, computed: int, *, whole: bool, end: int
    ) -> int:
        """Blocks that leave the free queue for `room` tokens with `hits` found.

        `main`: the same without lookahead; `whole`: asked for the whole prompt, before the request is admitted;
        `end`: where its prefill ends, 0 where that does not matter.
        """
        del main, end
        wanted = -(-room // self.size)
        if whole:
            wanted = min(wanted, self.cap)
        if table.blocks:
            return max(wanted - len(table.blocks), 0)
        before = self.unseen(computed) // self.size
        return max(wanted - max(before, len(hits)), 0) + self._revived(hits[before:] if before > 0 else hits)

    def adopt(self, table: Table, hits: list[int], computed: int) -> None:
        """Hold what was hit, `computed` tokens of it; the list becomes the table's."""
        before = max(0, self.unseen(computed) // self.size)
        if before:
            hits[:before] = [NULL_BLOCK] * min(before, len(hits))
        self.pool.hold([block for block in hits[before:] if block != NULL_BLOCK] if self.sparse else hits)
        table.blocks = hits
        table.cached = len(table.blocks)

    def extend(self, table: Table, room: int, main: int) -> None:
        """Take the blocks that `needs` counted."""
        del main
        lacking = -(-room // self.size) - len(table.blocks)
        if lacking > 0:
            table.blocks += self.pool.take(lacking)

    def gives(self, table: Table, processed: int) -> bool:
        """Whether `retire` gives back any block."""
        del table, processed
        return False

    def retire(self, table: Table, processed: int, *, later: bool = False) -> int:
        """Give back what no step after `processed` tokens reads; `later`: where the pool is next looked at.

        With `later`, blocks without a key are the pool's only once they are counted: how many.
        """
        del table, processed, later
        return 0

    def cast_off(self, table: Table, processed: int) -> list[int]:
        """The blocks that no step after `processed` tokens reads; they are the caller's to give back."""
        del table, processed
        return []

    def free(self, table: Table) -> None:
        blocks = table.blocks
        self.pool.release_from_end([block for block in blocks if block != NULL_BLOCK] if self.sparse else blocks)

    # Until when nothing happens.

    def full_at(self, table: Table, lookahead: int) -> int:
        """Most computed tokens for which no block is lacking."""
        return len(table.blocks) * self.size - lookahead

    def retires_at(self, table: Table) -> int:
        """Processed tokens from which on `retire` does something."""
        del table
        return _NEVER

    def offers_at(self, table: Table) -> int:
        """Final tokens from which on `offer` does something."""
        return (table.cached + 1) * self.size

    def _revived(self, hits: Sequence[int]) -> int:
        return self.pool.count_free([block for block in hits if block != NULL_BLOCK] if self.sparse else hits)


class WindowGroup(FullGroup):
    """Blocks before the window are given back; a hit needs those of the last window only."""

    sparse = True

    def bound(self, in_flight: int) -> None:
        self.cap = -(-min(self.group.window - 1 + in_flight, self.rules.longest) // self.size) + 1

    def lookup(
        self, hashes: Sequence[int], most: int, peers: Sequence[FullGroup], *, drop: bool
    ) -> tuple[list[list[int]], int]:
        size, align = self.size, self.rules.align
        need = -(-(self.group.window - 1) // size) + drop
        if len(peers) == 1 and self._scale == 1 and align == size and not drop:
            blocks = self._latest(hashes, most // size, need)
            return [blocks], len(blocks) * size
        run: list[list[int]] = []
        """Cached blocks in a row, the last first."""
        for block in range(most // size - 1, -1, -1):
            found = self.cached(hashes, block, peers)
            if found is None:
                run = []
                continue
            if not run and (block + 1 - drop) * size % align:
                continue
            run.append(found)
            if len(run) >= need:
                stop = length = block + len(run)
                break
        else:
            # What reaches back to the first token is a hit without being as long as a window.
            stop = length = len(run)
            while length * size % align:
                length -= 1
        if drop and length:
            length -= 1
            while length * size % align:
                length -= 1
        nulls = [NULL_BLOCK] * (stop - len(run))
        return [(nulls + [found[i] for found in reversed(run)])[:length] for i in range(len(peers))], length * size

    def _latest(self, hashes: Sequence[int], most: int, need: int) -> list[int]:
        """Of one group alone: blocks up to the last `need` in a row that are cached, or that reach to the start."""
        known, mask = self.pool.known(), self._mask
        run: list[int] = []
        for place in range(most - 1, -1, -1):
            held = known.get(hashes[place] ^ mask)
            if held is None:
                run = []
                continue
            run.append(held)
            if len(run) == need:
                return [NULL_BLOCK] * place + run[::-1]
        return run[::-1]

    def offer(self, table: Table, hashes: Sequence[int], tokens: int, boundaries: Sequence[int]) -> list[int]:
        start, stop = table.cached, tokens // self.size
        if (
            self.rules.retention != 0
            or self.drops
            or self._scale != 1
            or self.rules.align != self.size
            or start >= stop
        ):
            return super().offer(table, hashes, tokens, boundaries)
        # Only what is seen from the boundaries, by the rules of `mask`.
        need, places = -(-(self.group.window - 1) // self.size), set[int]()
        for boundary in boundaries:
            right = boundary // self.size
            places.update(range(max(start, right - need), min(stop, right)))
        table.cached = stop
        kept = [place for place in sorted(places) if table.blocks[place] != NULL_BLOCK]
        keys = [hashes[place] ^ self._mask for place in kept]
        if kept:
            self.pool.cache([table.blocks[place] for place in kept], keys)
        return keys

    def mask(self, start: int, stop: int, boundaries: Sequence[int]) -> list[bool] | None:
        size, align, retention = self.size, self.rules.align, self.rules.retention
        if align % size:
            return None
        # Where the last block is dropped, one block past a boundary is matched too.
        past = int(self.drops)
        need = -(-(self.group.window - 1) // size) + past
        segment = (align if retention is None else retention) // size
        if segment and need >= segment:
            return None
        mask = [
            bool(segment) and place >= past and (place - past) % segment >= segment - need
            for place in range(start, stop)
        ]
        if retention is not None:
            for boundary in boundaries:
                right = boundary // align * align // size + past
                for place in range(max(start, right - need), min(stop, right)):
                    mask[place - start] = True
        return mask

    def unseen(self, computed: int) -> int:
        return max(0, computed - self.group.window + 1)

    def gives(self, table: Table, processed: int) -> bool:
        stop = min(self.unseen(processed) // self.size, len(table.blocks))
        return stop > table.retired and table.blocks[stop - 1] != NULL_BLOCK

    def retire(self, table: Table, processed: int, *, later: bool = False) -> int:
        gone = self.cast_off(table, processed)
        if not later:
            self.pool.release_from_end(gone)
            return 0
        return self.pool.release_later(gone)

    def cast_off(self, table: Table, processed: int) -> list[int]:
        blocks, stop = table.blocks, min(self.unseen(processed) // self.size, len(table.blocks))
        if stop <= table.retired:
            return []
        start = stop
        while start and blocks[start - 1] != NULL_BLOCK:
            start -= 1
        gone = blocks[start:stop]
        blocks[start:stop] = [NULL_BLOCK] * (stop - start)
        table.retired = stop
        return gone

    def free(self, table: Table) -> None:
        self.pool.release(list(takewhile(bool, reversed(table.blocks))))  # null blocks stand in front only

    def retires_at(self, table: Table) -> int:
        return (table.retired + 1) * self.size + self.group.window - 1


class StateGroup(FullGroup):
    """Mamba without prefix caching: one state, and one for each draft token."""

    sparse = True

    def __init__(self, pool: RunPool, ident: int, group: Group, rules: Rules) -> None:
        super().__init__(pool, ident, group, rules)
        self._more = group.speculative_blocks * self.size

    def needs(
        self, table: Table, hits: Sequence[int], room: int, main: int, computed: int, *, whole: bool, end: int
    ) -> int:
        return super().needs(table, hits, room + self._more, main, computed, whole=whole, end=end)

    def extend(self, table: Table, room: int, main: int) -> None:
        super().extend(table, room + self._more, main)

    def full_at(self, table: Table, lookahead: int) -> int:
        return super().full_at(table, lookahead) - self._more
