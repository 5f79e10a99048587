"""The block pool for long prompts: the same rules and the same order as `BlockPool`, at the cost of what is new.

A next turn holds again, and frees again, thousands of blocks that came and went together before. Blocks of full
attention that stand one behind another in a prompt and have the same holders are one run: it is found, held and freed
as a whole, and evicted from its end. A run is cut where a prompt parts from it, and grows as long as one request alone
holds it. What a request holds is a list of runs (`Chain`).

Keys of runs are chained: where two prompts have equal ones, all before is equal, too, and they stand at the same place.
Blocks that are found one by one (`Singles`) are in the same queue.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat

from windtunnel.simulator.emulator.ring import Chain, Entry, Found, Run, Single, drop, link, unlink
from windtunnel.simulator.emulator.singles import Singles

_SHORT = 256
"""Blocks. Neighbours that are freed at once become one run where one of them is no longer."""


class RunPool(Singles):
    """`count` blocks, of which block 0 is the null block."""

    def __init__(self, count: int, *, caching: bool = True) -> None:
        super().__init__(count, caching=caching)
        self._runs: dict[int, Run] = {}
        """Key to the run that a lookup finds it in."""
        self._others: dict[int, list[Run]] = {}
        """Key to further runs that have a block of the same tokens, oldest first."""

    @property
    def usage(self) -> float:
        """Share of the usable blocks that requests hold; cached blocks without a holder count as free."""
        return 1.0 - self.free_count / (self.count - 1)

    @property
    def cached_blocks(self) -> int:
        self._pay()
        further = sum(map(len, self._twins.values())) + sum(map(len, self._others.values()))
        return len(self._first) + len(self._runs) + further

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
                runs[-1], _ = self._cut(runs[-1], part)
            if at > run.base:
                _, run = self._cut(run, at - run.base)
            length = self._alike(run, keys, at, most)
            part = length if length < len(run.blocks) else 0
            runs.append(run)
            at += length
        found.count = at
        return found

    def knows(self, key: int) -> bool:
        """Whether a run may be found by this key, one that is counted as taken too."""
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
        for whole in found.runs:
            if not left:
                break
            run = whole if left >= len(whole.blocks) else self._cut(whole, left)[0]
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
        alone = last is not None and last.found and len(last.held) == 1
        run = last if alone and last is not None else Run([], [], base, [chain], found=True)
        there = list(map(self._runs.setdefault, keys, repeat(run)))
        if there.count(run) < len(keys):
            self._cache_twins(chain, blocks, keys, [one is run for one in there])
            return
        run.blocks += blocks
        run.keys += keys
        if run is not last:
            chain.runs.append(run)

    def _cache_twins(self, chain: Chain, blocks: list[int], keys: Sequence[int], found: list[bool]) -> None:
        """The same where others have some of the tokens, too."""
        place, start = chain.cached - len(keys), 0
        while start < len(keys):
            stop = next((at for at in range(start + 1, len(keys)) if found[at] != found[start]), len(keys))
            run = Run(blocks[start:stop], list(keys[start:stop]), place + start, [chain], found=found[start])
            if run.found:
                self._runs.update(dict.fromkeys(run.keys, run))
            else:
                for key in run.keys:
                    self._others.setdefault(key, []).append(run)
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
            if behind is not None and run.found and behind.found:
                behind = self._freed(run, behind)
            else:
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
                self._evict(entry, entry.keys[: -left - 1 : -1])
                del entry.keys[-left:]
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
        for known in (self._runs, self._others, self._first, self._twins, self._singles):
            known.clear()
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
                pairs = zip(entry.blocks, entry.keys, strict=True)
                told += reversed([(block, key, self._runs[key] is entry) for block, key in pairs])
            elif isinstance(entry, Single) and (key := entry.key) is not None:
                told += [(block, key, self._first[key] == block) for block in entry.blocks]
            else:
                told += [(block, None, False) for block in reversed(entry.blocks)]
        return told

    def _alike(self, run: Run, keys: Sequence[int], at: int, most: int) -> int:
        """How much of a run a lookup of the keys from `at` on finds: at least its first block."""
        there, length = run.keys, min(len(run.keys), most - at)
        if not run.found:
            known = self._runs
            return next((n for n in range(1, length) if known.get(keys[at + n]) is not run), length)
        if there[length - 1] == keys[at + length - 1]:
            return length
        return bisect_left(range(1, length), True, key=lambda n: there[n] != keys[at + n]) + 1

    def _cut(self, run: Run, length: int) -> tuple[Run, Run]:
        """A run becomes two, its first `length` blocks and the rest, which is in front in the queue.

        The longer one stays the same object.
        """
        blocks, keys = run.blocks, run.keys
        if 2 * length < len(blocks):
            part = Run(blocks[:length], keys[:length], run.base, run.held.copy(), found=run.found)
            del blocks[:length], keys[:length]
            run.base += length
            pair = part, run
        else:
            part = Run(blocks[length:], keys[length:], run.base + length, run.held.copy(), found=run.found)
            del blocks[length:], keys[length:]
            pair = run, part
        self._point(part.keys, run, part)
        for chain in run.held:
            at = chain.runs.index(run)
            chain.runs[at : at + 1] = pair
        if not run.held:
            link(run if pair[0] is part else run.before, part)
        return pair

    def _freed(self, run: Run, behind: Run) -> Run:
        """A run joins the queue and the last one in it, which is what follows it; the end of the queue then."""
        if min(len(run.blocks), len(behind.blocks)) > _SHORT:
            link(self._ring.before, run)
            return run
        if len(behind.blocks) > len(run.blocks):
            self._point(run.keys, run, behind)
            behind.blocks[:0], behind.keys[:0], behind.base = run.blocks, run.keys, run.base
            return behind
        self._point(behind.keys, behind, run)
        run.blocks += behind.blocks
        run.keys += behind.keys
        unlink(behind)
        link(self._ring.before, run)
        return run

    def _point(self, keys: list[int], old: Run, new: Run) -> None:
        """These keys were those of one run and are another one's now."""
        known, others = self._runs, self._others
        if old.found:
            known.update(dict.fromkeys(keys, new))
            return
        for key in keys:
            if known[key] is old:
                known[key] = new
            else:
                twins = others[key]
                twins[twins.index(old)] = new

    def _evict(self, run: Run, keys: list[int]) -> None:
        """These of a run's keys are no longer known."""
        known, others = self._runs, self._others
        if run.found and (not others or others.keys().isdisjoint(keys)):
            for key in keys:
                del known[key]
            return
        for key in keys:
            drop(known, others, key, run)
