"""The block pool for long prompts: the same rules and the same order as `BlockPool`, at the cost of what is new.

A next turn holds again, and frees again, thousands of blocks that came and went together before. Blocks of full
attention that stand one behind another in a prompt and have the same holders are one run: it is found, held and freed
as a whole, and evicted from its end. A run is cut where a prompt parts from it, and grows as long as one request alone
holds it. What a request holds is a list of runs (`Chain`).

Keys of runs are chained: where two prompts have equal ones, all before is equal, too, and they stand at the same place.
So only the first key of a run is looked up, and its others are compared by their ends. That takes that wherever two
runs have a key in common, both begin with the same one: they are twins, and cut together. Of twins the oldest is found,
as far as it reaches, then the next. Blocks that are found one by one (`Singles`) are in the same queue.
"""

from bisect import bisect_left
from collections.abc import Sequence

from windtunnel.simulator.emulator.ring import Chain, Entry, Found, Run, Single, drop, link, unlink
from windtunnel.simulator.emulator.singles import Singles

_SHORT = 256
"""Blocks. What is freed together with the run before it becomes part of that where it is no longer."""


class RunPool(Singles):
    """`count` blocks, of which block 0 is the null block."""

    def __init__(self, count: int, *, caching: bool = True) -> None:
        super().__init__(count, caching=caching)
        self._runs: dict[int, Run] = {}
        """By their first key, of twins the oldest."""
        self._kept = 0
        """Blocks in runs."""

    @property
    def usage(self) -> float:
        """Share of the usable blocks that requests hold; cached blocks without a holder count as free."""
        return 1.0 - self.free_count / (self.count - 1)

    @property
    def cached_blocks(self) -> int:
        self._pay()
        return len(self._first) + sum(map(len, self._twins.values())) + self._kept

    def _pay(self) -> None:
        self.lagging()
        if not self._owes:
            return
        level, peak = self._level, self._peak
        self._owes, self._level, self._peak = False, 0, 0
        self._free += level
        spare = self._spare
        if peak:
            spare += self.take(peak)
        back = peak - level
        if back > len(spare):
            self.lender()
        if back:
            bare = spare[-back:]
            del spare[-back:]
            self._free += back
            link(self._ring, Entry(bare))

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest cached prefix of a prompt with these keys, at most `most` blocks."""
        found = Found(0)
        if not self.caching:
            return found
        self._pay()
        known, runs, at, most = self._runs, found.runs, 0, min(most, len(keys))
        part = 0
        """So much of the last run is the prompt's, where that is not all of it."""
        while at < most and (run := known.get(keys[at])) is not None:
            if part:
                self._cut(runs[-1], part)
            length = self._alike(run, keys, at, most)
            part = length if length < len(run.blocks) else 0
            if run.longest > length and not part:
                self._cut(run, length)
            runs.append(run)
            at += length
        found.count = found.longest = at
        found.ahead = keys[at] if at < most else None
        return found

    def knows(self, key: int) -> bool:
        """Whether a run that begins with this key may be found, one that is counted as taken too."""
        return key in self._runs

    def held_by_none(self, found: Found) -> int:
        """How many of the blocks found have no holder and so sit in the free queue."""
        free, left = 0, found.count
        for run in found.runs:
            length = min(len(run.blocks), left)
            left -= length
            if not run.held:
                free += length
        return free

    def begin(self, found: Found) -> Chain:
        """What a request holds at first: that which was found."""
        chain, left = Chain(), found.count
        chain.cached = left
        for run in found.runs:
            if not left:
                break
            if left < len(run.blocks):
                self._cut(run, left)
            left -= len(run.blocks)
            if not run.held:
                unlink(run)
                self._free -= len(run.blocks)
            run.held.append(chain)
            chain.runs.append(run)
        return chain

    def extend(self, chain: Chain, wanted: int) -> None:
        """Take more blocks for a request."""
        if wanted > 0:
            chain.bare += self.take(wanted)

    def cache(self, chain: Chain, keys: Sequence[int]) -> None:
        """The first of a request's blocks that were not findable are now, by these keys."""
        if not self.caching or not keys:
            return
        blocks, base, last = chain.bare[: len(keys)], chain.cached, chain.runs[-1] if chain.runs else None
        del chain.bare[: len(keys)]
        chain.cached += len(keys)
        self._kept += len(keys)
        # Of a prompt whose next block nobody has, nobody has a later one: whoever holds that holds this, too, and gives
        # it back after that.
        if keys[0] in self._runs:
            self._cache_twins(chain, blocks, keys, base)
        elif last is not None and len(last.held) == 1 and self._alone(last):
            last.blocks += blocks
            last.keys += keys
        else:
            run = self._runs[keys[0]] = Run(blocks, list(keys), base, [chain])
            chain.runs.append(run)

    def _cache_twins(self, chain: Chain, blocks: list[int], keys: Sequence[int], base: int) -> None:
        """The same where others have some of the tokens, too."""
        known, start = self._runs, 0
        while start < len(keys):
            twin = known.get(keys[start])
            if twin is None:
                stop = next((at for at in range(start + 1, len(keys)) if keys[at] in known), len(keys))
            else:
                stop = start + self._alike(twin, keys, start, len(keys))
                self._cut(twin, stop - start)
            run = Run(blocks[start:stop], list(keys[start:stop]), base + start, [chain])
            if twin is None:
                known[keys[start]] = run
            else:
                twin.longest = max(twin.longest, stop - start)
                while twin.twin is not None:
                    twin = twin.twin
                twin.twin = run
            chain.runs.append(run)
            start = stop

    def free(self, chain: Chain) -> None:
        """A request holds nothing any more; its last blocks are the first to go."""
        self._pay()
        if chain.bare:
            self._free += len(chain.bare)
            link(self._ring, Entry(chain.bare))
        behind: Run | None = None
        """The one behind the one that is looked at, if that was freed too."""
        for run in reversed(chain.runs):
            run.held.remove(chain)
            if run.held:
                behind = None
                continue
            self._free += len(run.blocks)
            if behind is not None and len(behind.blocks) <= _SHORT and self._alone(behind) and self._alone(run):
                self._join(run, behind)
            link(self._ring.before, run)
            behind = run
        chain.runs, chain.bare, chain.cached = [], [], 0

    def take(self, wanted: int) -> list[int]:
        """`wanted` blocks from the front of the free queue; what they cached is evicted."""
        if wanted > self.free_count:
            raise ValueError("the pool has fewer free blocks than were asked for")
        self._pay()
        self._free -= wanted
        taken, ring = list[int](), self._ring
        while (left := wanted - len(taken)) > 0:
            entry = ring.after
            blocks = entry.blocks
            if isinstance(entry, Run):
                self._evict(entry, left)
            elif isinstance(entry, Single):
                assert entry.key is not None
                drop(self._first, self._twins, entry.key, blocks[0])
                del self._singles[blocks[0]]
            taken += blocks[: -left - 1 : -1]
            del blocks[-left:]
            if not blocks:
                unlink(entry)
        return taken

    def reset(self) -> bool:
        """Forget everything cached; refused while any block is held."""
        if self.free_count != self.count - 1:
            return False
        order = self.free_order()[::-1]
        for known in (self._runs, self._first, self._twins, self._singles):
            known.clear()
        self._kept = 0
        self._ring.before = self._ring.after = self._ring
        link(self._ring, Entry(order))
        return True

    def free_order(self) -> list[int]:
        """The free queue, front first."""
        return [block for block, _, _ in self.queue()]

    def queue(self) -> list[tuple[int, int | None, bool]]:
        """The same with each block's key, and whether a lookup finds this block by it."""
        self._pay()
        told, entry = list[tuple[int, int | None, bool]](), self._ring
        while (entry := entry.after) is not self._ring:
            if isinstance(entry, Run):
                first, hidden = self._runs[entry.keys[0]], 0
                while first is not entry:
                    hidden = max(hidden, len(first.blocks))
                    assert first.twin is not None
                    first = first.twin
                pairs = enumerate(zip(entry.blocks, entry.keys, strict=True))
                told += reversed([(block, key, at >= hidden) for at, (block, key) in pairs])
            elif isinstance(entry, Single) and (key := entry.key) is not None:
                told += [(block, key, self._first[key] == block) for block in entry.blocks]
            else:
                told += [(block, None, False) for block in reversed(entry.blocks)]
        return told

    def _alike(self, run: Run, keys: Sequence[int], at: int, most: int) -> int:
        """How many of the keys from `at` on are a run's: at least its first."""
        there, length = run.keys, min(len(run.keys), most - at)
        if there[length - 1] == keys[at + length - 1]:
            return length
        return bisect_left(range(1, length), True, key=lambda n: there[n] != keys[at + n]) + 1

    def _alone(self, run: Run) -> bool:
        """Whether it has no twin."""
        return run.twin is None and self._runs[run.keys[0]] is run

    def _cut(self, run: Run, length: int) -> None:
        """A run and its twins are their first `length` blocks; the rest of each is a run of its own, before it in the
        queue.
        """
        first = self._runs[run.keys[0]]
        most, first.longest = first.longest, min(first.longest, length)
        one: Run | None = first
        older: Run | None = None
        while one is not None:
            if len(one.blocks) > length:
                rest = Run(one.blocks[length:], one.keys[length:], one.base + length, one.held.copy())
                del one.blocks[length:], one.keys[length:]
                for chain in one.held:
                    chain.runs.insert(chain.runs.index(one) + 1, rest)
                if not one.held:
                    link(one.before, rest)
                if older is None:
                    self._runs[rest.keys[0]] = rest
                    rest.longest = max(0, most - length)
                else:
                    older.twin = rest
                older = rest
            one = one.twin

    def _join(self, run: Run, behind: Run) -> None:
        """A run takes over what follows it, which was in the queue."""
        unlink(behind)
        del self._runs[behind.keys[0]]
        run.blocks += behind.blocks
        run.keys += behind.keys

    def _evict(self, run: Run, count: int) -> None:
        """The last blocks of a run are no longer known."""
        first, left = run.keys[0], max(0, len(run.keys) - count)
        self._kept -= len(run.keys) - left
        del run.keys[left:]
        if left:
            return
        one = self._runs[first]
        if one is not run:
            while one.twin is not run:
                assert one.twin is not None
                one = one.twin
            one.twin = run.twin
        elif run.twin is not None:
            self._runs[first] = run.twin
            run.twin.longest = run.longest
        else:
            del self._runs[first]
        run.twin = None
