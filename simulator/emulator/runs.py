"""The block pool for long prompts: the same rules and the same order as `BlockPool`, at the cost of what is new.

A next turn holds again, and frees again, thousands of blocks that came and went together before. Blocks that stand one
behind another in a prompt and have the same holders are one run: it is held, freed and found as a whole, and evicted
from its end. A run is cut where a prompt parts from it and put together again when all of it is freed at once.

`find` is for keys that are chained, where equal ones mean that everything before is equal too.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from windtunnel.simulator.emulator.owing import Owing
from windtunnel.simulator.emulator.ring import Run, link, unlink

_SHORT = 64
"""Windows hold fewer blocks. Longer stretches are of full attention, whose keys are chained: equal ends will do."""


class RunPool(Owing):
    """`count` blocks, of which block 0 is the null block. Methods as in `BlockPool`."""

    def __init__(self, count: int, *, caching: bool = True) -> None:
        if count < 2:
            raise ValueError("a pool needs the null block and at least one more")
        self.count = count
        self.caching = caching
        self._first: dict[int, int] = {}
        self._twins: dict[int, list[int]] = {}
        self._run: list[Run | None] = [None] * count
        """The run of each block that has a key."""
        self._place = [0] * count
        """Where it stands; in a run one behind the other."""
        self._ring = Run([], [], 0, found=False)
        self._ring.before = self._ring.after = self._ring
        """The free queue is a ring of runs through this empty one; the next to be taken is behind it."""
        link(self._ring, Run(list(range(count - 1, 0, -1)), [], 0, found=False))
        super().__init__()
        self._free = count - 1

    @property
    def usage(self) -> float:
        """Share of the usable blocks that requests hold; cached blocks without a holder count as free."""
        return 1.0 - self.free_count / (self.count - 1)

    @property
    def cached_blocks(self) -> int:
        self._pay()
        return len(self._first) + sum(len(twins) for twins in self._twins.values())

    def find(self, hashes: Sequence[int], most: int) -> list[int]:
        """Blocks of the longest cached prefix of `hashes`, at most `most` of them."""
        found: list[int] = []
        if not self.caching:
            return found
        self._pay()
        most = min(most, len(hashes))
        while (at := len(found)) < most:
            block = self._first.get(hashes[at])
            if block is None:
                break
            run = self._run[block]
            assert run is not None
            if not run.found:
                found.append(block)
                continue
            place = self._place[block] - run.base
            keys, length = run.keys, min(len(run.blocks) - place, most - at)
            if keys[place + length - 1] != hashes[at + length - 1]:
                length = bisect_left(range(1, length), True, key=lambda n: keys[place + n] != hashes[at + n]) + 1
            if place or length < len(run.blocks):
                found += run.blocks[place : place + length]
            elif found:
                found += run.blocks
            else:
                found = run.blocks.copy()
        return found

    def get(self, key: int) -> int | None:
        """The block that a lookup of this hash finds."""
        return self.known().get(key)

    def known(self) -> Mapping[int, int]:
        """The block that a lookup of each hash finds."""
        self._pay()
        return self._first

    def knows(self, key: int) -> bool:
        """Whether a block may be found by this hash, one that is counted as taken too."""
        return key in self._first

    def key_of(self, block: int) -> int | None:
        """The hash that finds a block."""
        run = self._run[block]
        return run.keys[self._place[block] - run.base] if run is not None and run.keys else None

    def put(self, block: int, key: int) -> None:
        """Make a block findable by this hash alone."""
        if self.key_of(block) != key:
            self.forget(block)
            run = self._run[block]
            self.cache([block], [key], holders=1 if run is None else run.holders)

    def forget(self, block: int) -> None:
        """A block is no longer findable."""
        self._pay()
        run = self._run[block]
        if run is None or not run.keys:
            return
        if place := self._place[block] - run.base:
            _, run = self._cut(run, place)
        if len(run.blocks) > 1:
            run, _ = self._cut(run, 1)
        (key,) = run.keys
        self._forget(block, key)
        run.keys = []
        if run.holders > 1:
            self._run[block] = run

    def count_free(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` have no holder and so sit in the free queue."""
        whole, free, at = blocks if isinstance(blocks, list) else list(blocks), 0, 0
        while at < len(whole):
            run, length = self._stretch(whole, at)
            if not run.holders:
                free += length
            at += length
        return free

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each of `blocks`; those that were free leave the queue."""
        self._pay()
        whole, at = blocks if isinstance(blocks, list) else list(blocks), 0
        while at < len(whole):
            run, length = self._stretch(whole, at)
            if place := self._place[whole[at]] - run.base:
                _, run = self._cut(run, place)
            if length < len(run.blocks):
                run, _ = self._cut(run, length)
            if not run.holders:
                unlink(run)
                self._free -= length
            run.holders += 1
            at += length

    def take(self, wanted: int) -> list[int]:
        """`wanted` blocks from the front of the free queue; what they cached is evicted."""
        if wanted > self.free_count:
            raise ValueError("the pool has fewer free blocks than were asked for")
        self._pay()
        self._free -= wanted
        taken, first, twins, runs = list[int](), self._first, self._twins, self._run
        while (left := wanted - len(taken)) > 0:
            part = (run := self._ring.after).blocks[: -left - 1 : -1]
            del run.blocks[-left:]
            if run.keys:
                for block, key in zip(part, run.keys[: -left - 1 : -1], strict=True):
                    if key in twins:
                        self._forget(block, key)
                    else:
                        runs[block] = None
                        del first[key]
                del run.keys[-left:]
            if not run.blocks:
                unlink(run)
            taken += part
        return taken

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less for each, in the given order; callers pass a request's blocks last first."""
        self.release_from_end(list(blocks)[::-1])

    def release_from_end(self, order: list[int]) -> None:
        """The same for a request's blocks as they stand, first first."""
        self._pay()
        runs, end = self._run, len(order)
        bare: list[int] = []
        freed: list[list[Run]] = []
        """Neighbours that become one run, the last first."""
        kept: Run | None = None
        """The run behind the one that is looked at, if that was freed too."""
        while end:
            run = runs[order[end - 1]]
            if run is None:
                bare.append(order[end - 1])
                end -= 1
                continue
            run = self._ending(run, order, end)
            end -= len(run.blocks)
            run.holders -= 1
            if run.holders:
                kept = None
                continue
            if not run.keys:
                bare += run.blocks
                runs[run.blocks[0]] = kept = None
                continue
            if kept is not None and run.found and kept.found:
                freed[-1].append(run)
            else:
                freed.append([run])
            kept = run
        if bare:
            self._free += len(bare)
            link(self._ring, Run(bare[::-1], [], 0, found=False))
        for neighbours in freed:
            run = neighbours.pop()
            while neighbours:
                run = self._join(run, neighbours.pop())
            self._free += len(run.blocks)
            link(self._ring.before, run)

    def cache(self, blocks: list[int], hashes: Sequence[int], at: int = 0, holders: int = 1) -> None:
        """Make full blocks, which have no keys, findable by the hashes of their tokens.

        `at`: place of the first one in its prompt.
        """
        if not self.caching:
            return
        twins, stop = self._twins, len(blocks)
        there = list(map(self._first.setdefault, hashes, blocks))
        if there == blocks:
            self._enter(list(blocks), list(hashes), at, holders, found=True)
            return
        start = 0
        while start < stop:
            found, end = there[start] == blocks[start], start + 1
            while end < stop and (there[end] == blocks[end]) == found:
                end += 1
            if not found:
                for place in range(start, end):
                    twins.setdefault(hashes[place], []).append(blocks[place])
            self._enter(blocks[start:end], list(hashes[start:end]), at + start, holders, found=found)
            start = end

    def _enter(self, blocks: list[int], keys: list[int], base: int, holders: int, *, found: bool) -> None:
        runs, places = self._run, self._place
        run = Run(blocks, keys, holders, found=found, base=base)
        for place, block in enumerate(blocks, base):
            runs[block] = run
            places[block] = place

    # Blocks that come and go unnamed.

    def release_later(self, blocks: list[int]) -> int:
        """`release_from_end` where nobody looks at the queue yet; how many without a key are yet to be counted."""
        runs = self._run
        keyed = [block for block in blocks if (run := runs[block]) is not None and run.keys]
        bare = len(blocks) - len(keyed)
        if bare:
            self._spare += [block for block in blocks if (run := runs[block]) is None or not run.keys]
        if not keyed:
            return bare
        if any((run := runs[block]) is not None and run.holders != 1 for block in keyed):
            self.release_from_end(keyed)
        else:
            self._free += len(keyed)
            self._late.append(keyed)
            self._owes = True
        return bare

    def _pay(self) -> None:
        self.lagging()
        if not self._owes:
            return
        level, peak, late = self._level, self._peak, self._late
        self._owes, self._level, self._peak, self._late = False, 0, 0, []
        self._free += level
        for blocks in late:
            # The queue is not so short that what is taken could be among these.
            self._free -= len(blocks)
            self.release_from_end(blocks)
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
            link(self._ring, Run(bare, [], 0, found=False))

    def reset(self) -> bool:
        """Forget everything cached; refused while any block is held."""
        if self.free_count != self.count - 1:
            return False
        order = self.free_order()[::-1]
        self._first.clear()
        self._twins.clear()
        self._run = [None] * self.count
        self._ring.before = self._ring.after = self._ring
        link(self._ring, Run(order, [], 0, found=False))
        return True

    def free_order(self) -> list[int]:
        """The free queue, front first."""
        self._pay()
        order, run = list[int](), self._ring
        while (run := run.after) is not self._ring:
            order += reversed(run.blocks)
        return order

    def _stretch(self, blocks: list[int], at: int) -> tuple[Run, int]:
        """The run of the block at `at`, and how many blocks from there on are neighbours in it."""
        run = self._run[blocks[at]]
        assert run is not None
        held, place = run.blocks, self._place[blocks[at]] - run.base
        length = min(len(held) - place, len(blocks) - at)
        if run.found and length > _SHORT and held[place + length - 1] == blocks[at + length - 1]:
            return run, length
        if held[place : place + length] != blocks[at : at + length]:
            length = next(n for n in range(1, length + 1) if held[place + n] != blocks[at + n])
        return run, length

    def _ending(self, run: Run, blocks: list[int], end: int) -> Run:
        """The part of a held run that ends with the last of `blocks[:end]` and whose blocks are all among them."""
        stop = self._place[blocks[end - 1]] - run.base + 1
        if stop < len(run.blocks):
            run, _ = self._cut(run, stop)
        length = min(stop, end)
        if run.found and length > _SHORT and run.blocks[stop - length] == blocks[end - length]:
            return self._cut(run, stop - length)[1] if length < stop else run
        if run.blocks[stop - length :] != blocks[end - length : end]:
            length = next(n for n in range(1, length + 1) if run.blocks[-n - 1] != blocks[end - n - 1])
        return self._cut(run, stop - length)[1] if length < stop else run

    def _cut(self, run: Run, length: int) -> tuple[Run, Run]:
        """A run becomes two, its first `length` blocks and the rest, which is in front in the queue.

        The longer one stays the same object.
        """
        blocks, keys, runs = run.blocks, run.keys, self._run
        if 2 * length < len(blocks):
            head = Run(blocks[:length], keys[:length], run.holders, found=run.found, base=run.base)
            del blocks[:length], keys[:length]
            run.base += length
            for block in head.blocks:
                runs[block] = head
            if not run.holders:
                link(run, head)
            return head, run
        rest = Run(blocks[length:], keys[length:], run.holders, found=run.found, base=run.base + length)
        del blocks[length:], keys[length:]
        for block in rest.blocks:
            runs[block] = rest
        if not run.holders:
            link(run.before, rest)
        return run, rest

    def _join(self, run: Run, rest: Run) -> Run:
        """A run and what follows it become one, and the longer one is it; neither is in the queue."""
        runs, place = self._run, run.base + len(run.blocks)
        if rest.base != place:
            for at, block in enumerate(rest.blocks, place):
                self._place[block] = at
        elif len(rest.blocks) > len(run.blocks):
            for block in run.blocks:
                runs[block] = rest
            rest.blocks[:0], rest.keys[:0], rest.base = run.blocks, run.keys, run.base
            return rest
        for block in rest.blocks:
            runs[block] = run
        run.blocks += rest.blocks
        run.keys += rest.keys
        return run

    def _forget(self, block: int, key: int) -> None:
        self._run[block] = None
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
