"""Blocks that are found, held and given back one by one: of windows and of recurrent states, which need only the last.

Their keys and their order are those of `BlockPool`.
"""

from collections.abc import Iterable, Mapping, Sequence

from windtunnel.simulator.emulator.owing import Owing
from windtunnel.simulator.emulator.ring import Entry, Single, drop, link, unlink


class Singles(Owing):
    def __init__(self, count: int, *, caching: bool) -> None:
        super().__init__()
        if count < 2:
            raise ValueError("a pool needs the null block and at least one more")
        self.count = count
        self.caching = caching
        self._ring = Entry([])
        self._ring.before = self._ring.after = self._ring
        """The free queue goes round through this empty entry; the next to be taken is behind it."""
        link(self._ring, Entry(list(range(count - 1, 0, -1))))
        self._free = count - 1
        self._singles: dict[int, Single] = {}
        """By block: those that have a key, or had one and are held by several."""
        self._first: dict[int, int] = {}
        """Key to the block that a lookup finds."""
        self._twins: dict[int, list[int]] = {}
        """Key to further blocks of the same tokens, oldest first."""

    def get(self, key: int) -> int | None:
        """The block that a lookup of this hash finds."""
        return self.known().get(key)

    def known(self) -> Mapping[int, int]:
        """The block that a lookup of each hash finds."""
        self._pay()
        return self._first

    def key_of(self, block: int) -> int | None:
        """The hash that finds a block."""
        single = self._singles.get(block)
        return None if single is None else single.key

    def put(self, block: int, key: int) -> None:
        """Make a held block findable by this hash alone."""
        if self.key_of(block) == key:
            return
        self.forget(block)
        single = self._singles.get(block)
        if single is None:
            self.name([block], [key])
        elif self.caching:
            single.key = key
            self._find_by(key, block)

    def forget(self, block: int) -> None:
        """A held block is no longer findable."""
        self._pay()
        single = self._singles.get(block)
        if single is None or single.key is None:
            return
        drop(self._first, self._twins, single.key, block)
        single.key = None
        if single.holders == 1:
            del self._singles[block]

    def name(self, blocks: Sequence[int], keys: Sequence[int]) -> None:
        """Make blocks that one request holds, and that have no keys, findable by these."""
        if not self.caching:
            return
        for block, key in zip(blocks, keys, strict=True):
            self._singles[block] = Single(block, key)
            self._find_by(key, block)

    def count_free(self, blocks: Iterable[int]) -> int:
        """How many of the findable `blocks` have no holder and so sit in the free queue."""
        singles = self._singles
        return sum(1 for block in blocks if not singles[block].holders)

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each of the findable `blocks`; those that were free leave the queue."""
        singles = self._singles
        for block in blocks:
            single = singles[block]
            if not single.holders:
                unlink(single)
                self._free -= 1
            single.holders += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less for each, in the given order; callers pass a request's blocks last first."""
        self._pay()
        bare = self._released(blocks)
        if bare:
            self._free += len(bare)
            link(self._ring, Entry(bare[::-1]))

    def release_later(self, blocks: list[int]) -> int:
        """The same for blocks as they stand, where nobody looks at the queue yet.

        How many have no key: they are the pool's once they are counted (`ahead`).
        """
        bare = self._released(reversed(blocks))
        self._spare += bare
        return len(bare)

    def _released(self, blocks: Iterable[int]) -> list[int]:
        """One holder less for each: findable ones go to the end of the queue; those that nobody can find."""
        singles, last, bare = self._singles, self._ring, list[int]()
        for block in blocks:
            single = singles.get(block)
            if single is None:
                bare.append(block)
                continue
            single.holders -= 1
            if single.holders:
                continue
            if single.key is None:
                del singles[block]
                bare.append(block)
            else:
                link(last.before, single)
                self._free += 1
        return bare

    def _find_by(self, key: int, block: int) -> None:
        if self._first.setdefault(key, block) != block:
            self._twins.setdefault(key, []).append(block)
