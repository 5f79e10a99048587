"""The rules of one KV group: what a hit needs, which blocks a request holds, which become free or findable.

Full attention keeps every block. Rules are those of vLLM 0.32 (v1/core/single_type_kv_cache_manager.py).
"""

from collections.abc import Sequence
from typing import overload

from msgspec import Struct

from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.ring import Chain, Found
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
    """What one request holds in one group."""

    __slots__ = ("allocated", "blocks", "cached", "chain", "checkpoint", "kept", "last", "retired")

    def __init__(self) -> None:
        self.chain = Chain()
        """Full attention: all of it."""
        self.blocks: list[int] = []
        """Others: the blocks. Those of a window come after the retired ones; null blocks are among those of states."""
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


class Keys(Sequence[int]):
    """The keys of a group's blocks, worked out of a request's hashes when one is asked for."""

    def __init__(self, hashes: Sequence[int], scale: int, mask: int) -> None:
        """`scale`: hashes for each block."""
        self._hashes = hashes
        self._scale = scale
        self._mask = mask

    def __len__(self) -> int:
        return len(self._hashes) // self._scale

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        return self._hashes[(place + 1) * self._scale - 1] ^ self._mask


class FullGroup:
    """Every block is kept; the base of the other kinds."""

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

    def keys(self, hashes: Sequence[int]) -> Sequence[int]:
        """Of each full block."""
        return Keys(hashes, self._scale, self._mask) if self._mask or self._scale > 1 else hashes

    def lookup(
        self, hashes: Sequence[int], most: int, peers: Sequence["FullGroup"], *, drop: bool
    ) -> tuple[list[Found], int]:
        """The longest hit within `most` tokens that all `peers` (groups of this very shape) share: blocks, tokens."""
        found, longest = list[Found](), most // self.size
        for peer in peers:
            found.append(self.pool.find(peer.keys(hashes), longest))
            longest = found[-1].count
        hit = longest * self.size
        if drop and hit:
            hit -= self.size
        hit -= hit % self.rules.align
        for one in found:
            one.count = hit // self.size
        return found, hit

    def offer(self, table: Table, hashes: Sequence[int], tokens: int, boundaries: Sequence[int]) -> None:
        """The first `tokens` tokens are final: their full blocks become findable.

        `boundaries`: after how many tokens a later prompt can start, for groups that keep only what that takes.
        """
        del boundaries
        start, stop = table.cached, tokens // self.size
        if start < stop:
            self.pool.cache(table.chain, self.keys(hashes)[start:stop])
            table.cached = stop

    def findable(self, table: Table) -> int:
        """How many leading tokens of a request are known to the prefix cache, tokens."""
        return table.chain.cached * self.size

    # Blocks.

    def count(self, table: Table) -> int:
        """Places of a request's table; those that were given back are among them."""
        return len(table.chain)

    def blocks(self, table: Table) -> list[int]:
        """The block of each place; the null block where there is none any more."""
        return table.chain.numbers

    def unseen(self, computed: int) -> int:
        """Leading tokens that the token after `computed` ones does not see."""
        return 0 * computed

    def needs(
        self, table: Table, found: Found | None, room: int, main: int, computed: int, *, whole: bool, end: int
    ) -> int:
        """Blocks that leave the free queue for `room` tokens with what was `found`.

        `main`: the same without lookahead; `whole`: asked for the whole prompt, before the request is admitted;
        `end`: where its prefill ends, 0 where that does not matter.
        """
        del main, end
        wanted = -(-room // self.size)
        if whole:
            wanted = min(wanted, self.cap)
        if count := self.count(table):
            return max(wanted - count, 0)
        before, hits = self.unseen(computed) // self.size, found.count if found is not None else 0
        return max(wanted - max(before, hits), 0) + (self._revived(found, before) if found is not None else 0)

    def adopt(self, table: Table, found: Found, computed: int) -> None:
        """Hold what was hit, `computed` tokens of it."""
        del computed
        table.chain = self.pool.begin(found)
        table.cached = found.count

    def extend(self, table: Table, room: int, main: int) -> None:
        """Take the blocks that `needs` counted."""
        del main
        self.pool.extend(table.chain, -(-room // self.size) - len(table.chain))

    def append(self, table: Table, blocks: list[int]) -> None:
        """Blocks that were taken already."""
        table.chain.bare += blocks

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
        self.pool.free(table.chain)

    # Until when nothing happens.

    def full_at(self, table: Table, lookahead: int) -> int:
        """Most computed tokens for which no block is lacking."""
        return self.count(table) * self.size - lookahead

    def retires_at(self, table: Table) -> int:
        """Processed tokens from which on `retire` does something."""
        del table
        return _NEVER

    def offers_at(self, table: Table) -> int:
        """Final tokens from which on `offer` does something."""
        return (table.cached + 1) * self.size

    def _revived(self, found: Found, before: int) -> int:
        """How many of the blocks found, from place `before` on, would leave the free queue."""
        del before
        return self.pool.held_by_none(found)
