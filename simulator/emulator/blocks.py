"""The pool of KV blocks and its prefix cache, by the rules of vLLM's V1 block pool.

Free blocks form one queue. Its front is taken first; a block that holds cached tokens goes to the tail when it is
freed, so that the cache is evicted least recently used first, and one that holds none goes to the front. A cached block
stays findable until it is taken for other tokens. Blocks are numbers, and the queue lives in two lists of links, so
that the pool costs the same memory on the first step and after a million of them.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import overload

import numpy as np
from numpy.typing import NDArray

from windtunnel.simulator.emulator.loops import LOOPS

Tokens = NDArray[np.uint32]
"""Token ids of a prompt."""

NULL_BLOCK = 0
"""Stands for a position without a block; never free, never cached."""

_MIX = np.random.Generator(np.random.Philox(key=0x5EED)).integers(1, 2**63, size=65_536, dtype=np.uint64) | np.uint64(1)


_UNSALTED = 0xB5AD4ECEDA1CE2B
"""No salt gives it (those are of 56 bits). With 0 for a parent all blocks of token 0 would have one hash."""


def salt_seed(salt: str | None) -> int:
    """The parent of a first block's hash: requests with different salts share no block."""
    if salt is None:
        return _UNSALTED
    return int.from_bytes(blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big") + 1


class _Powers:
    """Of an odd number and of its inverse modulo 2^64, as many as were asked for."""

    def __init__(self) -> None:
        self.up: NDArray[np.uint64] = np.ones(1, dtype=np.uint64)
        self.down: NDArray[np.uint64] = self.up

    def reach(self, count: int) -> None:
        while len(self.up) <= count:
            up, down = (np.uint64(pow(base, len(self.up), 1 << 64)) for base in (_ODD, _INVERSE))
            self.down = np.concatenate((self.down, self.down * down))
            self.up = np.concatenate((self.up, self.up * up))  # the longer last: threads look at it


_ODD = 0x9E3779B97F4A7C15
_INVERSE = pow(_ODD, -1, 1 << 64)
_SIXTY_BITS = (1 << 60) - 1
_KEPT = np.uint64(_SIXTY_BITS)
_FEW = 40
"""So many hashes are sooner worked out one after the other."""
_POWERS = _Powers()


def chain_hashes(tokens: Tokens, block_size: int, parent: int) -> list[int]:
    """One hash for each full block of `tokens`, each depending on everything before it through `parent`.

    Contents are mixed with odd multipliers, so that a changed token changes the sum. Each hash is the one before it
    times an odd number, and the content: as a sum of contents over powers of that number all are worked out at once.
    60 bits are kept, which is arithmetic of the same kind.
    """
    if LOOPS is not None:
        hashes: list[int] = LOOPS.chain_hashes(np.ascontiguousarray(tokens, np.uint32), block_size, parent, _MIX)
        return hashes
    return numpy_hashes(tokens, block_size, parent)


def numpy_hashes(tokens: Tokens, block_size: int, parent: int) -> list[int]:
    """The same without a compiler."""
    full = len(tokens) // block_size
    if full == 0:
        return []
    rows = tokens[: full * block_size].reshape(full, block_size).astype(np.uint64)
    contents = rows.dot(_MIX[:block_size])
    if full <= _FEW:
        return [parent := (parent * _ODD + content) & _SIXTY_BITS for content in contents.tolist()]
    if len(_POWERS.up) <= full:
        _POWERS.reach(full)
    sums = (contents * _POWERS.down[1 : full + 1]).cumsum()
    hashes: list[int] = (((sums + np.uint64(parent)) * _POWERS.up[1 : full + 1]) & _KEPT).tolist()
    return hashes


class Hashes(Sequence[int]):
    """One for each full block of a request: its prompt's, which others may share, and its output's behind them."""

    __slots__ = ("_count", "_prompt", "own")

    def __init__(self, prompt: list[int], count: int | None = None) -> None:
        """The first `count` of `prompt`, to which more may be added meanwhile."""
        self._prompt = prompt
        self._count = len(prompt) if count is None else count
        self.own: list[int] = []
        """Behind the prompt's."""

    def shared(self) -> "Hashes":
        """The prompt's, for another request with the same one."""
        return Hashes(self._prompt, self._count)

    def __len__(self) -> int:
        return self._count + len(self.own)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        count, own = self._count, self.own
        if isinstance(place, slice):
            start, stop, _ = place.indices(count + len(own))
            if stop <= count:
                return self._prompt[start:stop]
            if start >= count:
                return own[start - count : stop - count]
            return self._prompt[start:count] + own[: stop - count]
        if place < 0:
            place += count + len(own)
        return self._prompt[place] if place < count else own[place - count]


class BlockPool:
    """`count` blocks, of which block 0 is the null block."""

    def __init__(self, count: int, *, caching: bool = True) -> None:
        if count < 2:
            raise ValueError("a pool needs the null block and at least one more")
        self.count = count
        self.caching = caching
        self.free_count = count - 1
        self.references = [0] * count
        self._hash: list[int | None] = [None] * count
        self._first: dict[int, int] = {}
        """Hash to the block found by a lookup."""
        self._twins: dict[int, list[int]] = {}
        """Hash to further blocks with the same tokens, oldest first: duplicates are not merged."""
        # A ring of free blocks through index `count`, which belongs to no block.
        self._next = [*range(1, count + 1), 1]
        self._previous = [0, count, *range(1, count)]

    @property
    def usage(self) -> float:
        """Share of the usable blocks that requests hold; cached blocks without a holder count as free."""
        return 1.0 - self.free_count / (self.count - 1)

    @property
    def cached_blocks(self) -> int:
        return len(self._first) + sum(len(twins) for twins in self._twins.values())

    def find(self, hashes: Sequence[int], most: int) -> list[int]:
        """Blocks of the longest cached prefix of `hashes`, at most `most` of them."""
        if not self.caching:
            return []
        found: list[int] = []
        first = self._first
        for key in hashes[:most]:
            block = first.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def get(self, key: int) -> int | None:
        """The block that a lookup of this hash finds."""
        return self._first.get(key) if self.caching else None

    def key_of(self, block: int) -> int | None:
        """The hash that finds a block."""
        return self._hash[block]

    def put(self, block: int, key: int) -> None:
        """Make a block findable by this hash alone."""
        if self._hash[block] != key:
            self.forget(block)
            self.cache([block], [key])

    def forget(self, block: int) -> None:
        """A block is no longer findable."""
        if self._hash[block] is not None:
            self._forget(block)

    def count_free(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` have no holder and so sit in the free queue."""
        references = self.references
        return sum(1 for block in blocks if references[block] == 0)

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each of `blocks`; those that were free leave the queue."""
        references, after, before = self.references, self._next, self._previous
        for block in blocks:
            if references[block] == 0:
                left, right = before[block], after[block]
                after[left], before[right] = right, left
                self.free_count -= 1
            references[block] += 1

    def take(self, wanted: int) -> list[int]:
        """`wanted` blocks from the front of the free queue; what they cached is evicted."""
        if wanted > self.free_count:
            raise ValueError("the pool has fewer free blocks than were asked for")
        taken: list[int] = []
        after, references, hashes = self._next, self.references, self._hash
        end = self.count
        block = after[end]
        for _ in range(wanted):
            taken.append(block)
            references[block] = 1
            if hashes[block] is not None:
                self._forget(block)
            block = after[block]
        after[end] = block
        self._previous[block] = end
        self.free_count -= wanted
        return taken

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less for each, in the given order; callers pass a request's blocks last first."""
        references, hashes = self.references, self._hash
        soon: list[int] = []
        late: list[int] = []
        for block in blocks:
            references[block] -= 1
            if references[block] == 0:
                (soon if hashes[block] is None else late).append(block)
        self._link(self.count, soon, self._next[self.count])
        self._link(self._previous[self.count], late, self.count)
        self.free_count += len(soon) + len(late)

    def cache(self, blocks: Sequence[int], hashes: Sequence[int]) -> None:
        """Make full blocks findable by the hashes of their tokens."""
        if not self.caching:
            return
        first, held = self._first, self._hash
        for block, key in zip(blocks, hashes, strict=True):
            held[block] = key
            if first.setdefault(key, block) != block:
                self._twins.setdefault(key, []).append(block)

    def reset(self) -> bool:
        """Forget everything cached; refused while any block is held."""
        if self.free_count != self.count - 1:
            return False
        self._first.clear()
        self._twins.clear()
        self._hash = [None] * self.count
        return True

    def free_order(self) -> list[int]:
        """The free queue, front first."""
        order: list[int] = []
        block = self._next[self.count]
        while block != self.count:
            order.append(block)
            block = self._next[block]
        return order

    def _link(self, left: int, blocks: list[int], right: int) -> None:
        after, before = self._next, self._previous
        for block in blocks:
            after[left], before[block] = block, left
            left = block
        after[left], before[right] = right, left

    def _forget(self, block: int) -> None:
        key = self._hash[block]
        assert key is not None
        self._hash[block] = None
        twins = self._twins.get(key)
        if self._first[key] != block:
            assert twins is not None
            twins.remove(block)
        elif twins:
            self._first[key] = twins.pop(0)
        else:
            del self._first[key]
        if twins is not None and not twins:
            del self._twins[key]
