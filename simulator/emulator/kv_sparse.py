"""Groups that do not keep every block: sliding windows, and recurrent states without prefix caching.

A window keeps the blocks it still sees; those before it are given back, and the null block stands in their place. A
Mamba layer needs its last state only: its table is as long as the text in blocks, and all but the states that are in
use or kept for later requests are null.
"""

from collections.abc import Sequence

from windtunnel.simulator.emulator.blocks import NULL_BLOCK
from windtunnel.simulator.emulator.kv_groups import FullGroup, Rules, Table
from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.ring import Found
from windtunnel.simulator.emulator.runs import RunPool

_LOOKS = 32
"""So many keys are looked at in one go."""


class SparseGroup(FullGroup):
    """Blocks are found one by one."""

    def key(self, hashes: Sequence[int], block: int) -> int:
        return hashes[(block + 1) * self._scale - 1] ^ self._mask

    def cached(self, hashes: Sequence[int], block: int, peers: Sequence[FullGroup]) -> list[int] | None:
        """The cached block of that place for each of `peers`, or None where one lacks it."""
        found: list[int] = []
        for peer in peers:
            assert isinstance(peer, SparseGroup)
            held = self.pool.get(peer.key(hashes, block))
            if held is None:
                return None
            found.append(held)
        return found

    def mask(self, start: int, stop: int, boundaries: Sequence[int]) -> list[bool] | None:  # noqa: ARG002
        """Which of the blocks `start` to `stop - 1` can ever serve a hit; None: all."""
        return None

    def offer(self, table: Table, hashes: Sequence[int], tokens: int, boundaries: Sequence[int]) -> None:
        self.name(table, hashes, tokens, boundaries)

    def name(self, table: Table, hashes: Sequence[int], tokens: int, boundaries: Sequence[int]) -> list[int]:
        """`offer`; keys of those that are findable now."""
        start, stop = table.cached, tokens // self.size
        if start >= stop:
            return []
        mask, skipped = self.mask(start, stop, boundaries), self.count(table) - len(table.blocks)
        blocks: list[int] = []
        keys: list[int] = []
        for place in range(max(start, skipped), stop):
            block = table.blocks[place - skipped]
            if block == NULL_BLOCK or (mask is not None and not mask[place - start]):
                continue
            blocks.append(block)
            keys.append(self.key(hashes, place))
        self.pool.name(blocks, keys)  # blocks that were taken, and not hit, have no keys yet
        table.cached = stop
        return keys

    def findable(self, table: Table) -> int:
        blocks, key_of, count = table.blocks, self.pool.key_of, self.count(table)
        for behind in range(len(blocks)):
            if (block := blocks[-1 - behind]) == NULL_BLOCK or key_of(block) is None:
                continue
            place, kept = count - 1 - behind, table.kept
            return kept[0] if kept is not None and kept[1] == place else (place + 1) * self.size
        return 0

    def count(self, table: Table) -> int:
        return len(table.blocks)

    def blocks(self, table: Table) -> list[int]:
        return [NULL_BLOCK] * (self.count(table) - len(table.blocks)) + table.blocks

    def adopt(self, table: Table, found: Found, computed: int) -> None:
        before = max(0, self.unseen(computed) // self.size)
        blocks = found.blocks[max(0, before + len(found.blocks) - found.count) :]
        self.pool.hold(blocks)
        self._fill(table, blocks, found.count)
        table.cached = found.count

    def _fill(self, table: Table, blocks: list[int], count: int) -> None:
        """A table of so many places ends with these."""
        table.blocks = [NULL_BLOCK] * (count - len(blocks)) + blocks

    def extend(self, table: Table, room: int, main: int) -> None:
        del main
        lacking = -(-room // self.size) - self.count(table)
        if lacking > 0:
            table.blocks += self.pool.take(lacking)

    def append(self, table: Table, blocks: list[int]) -> None:
        table.blocks += blocks

    def free(self, table: Table) -> None:
        self.pool.release([block for block in reversed(table.blocks) if block != NULL_BLOCK])

    def _revived(self, found: Found, before: int) -> int:
        return self.pool.count_free(found.blocks[max(0, before + len(found.blocks) - found.count) :])


class WindowGroup(SparseGroup):
    """Blocks before the window are given back; a hit needs those of the last window only."""

    def bound(self, in_flight: int) -> None:
        self.cap = -(-min(self.group.window - 1 + in_flight, self.rules.longest) // self.size) + 1

    def lookup(
        self, hashes: Sequence[int], most: int, peers: Sequence[FullGroup], *, drop: bool
    ) -> tuple[list[Found], int]:
        size, align = self.size, self.rules.align
        need = -(-(self.group.window - 1) // size) + drop
        if len(peers) == 1 and self._scale == 1 and align == size and not drop:
            found = self._latest(hashes, most // size, need)
            return [found], found.count * size
        run: list[list[int]] = []
        """Cached blocks in a row, the last first."""
        for block in range(most // size - 1, -1, -1):
            row = self.cached(hashes, block, peers)
            if row is None:
                run = []
                continue
            if not run and (block + 1 - drop) * size % align:
                continue
            run.append(row)
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
        kept = run[stop - length :][::-1]
        return [Found(length, blocks=[row[i] for row in kept]) for i in range(len(peers))], length * size

    def _latest(self, hashes: Sequence[int], most: int, need: int) -> Found:
        """Of one group alone: blocks up to the last `need` in a row that are cached, or that reach to the start."""
        known, mask = self.pool.known(), self._mask
        run: list[int] = []
        place = most
        while place:
            start = max(0, place - _LOOKS)
            for key in reversed(hashes[start:place]):
                place -= 1
                held = known.get(key ^ mask)
                if held is None:
                    run = []
                    continue
                run.append(held)
                if len(run) == need:
                    return Found(place + need, blocks=run[::-1])
        return Found(len(run), blocks=run[::-1])

    def offer(self, table: Table, hashes: Sequence[int], tokens: int, boundaries: Sequence[int]) -> None:
        start, stop, retired = table.cached, tokens // self.size, table.retired
        if start >= stop:
            return
        if self.rules.retention != 0 or self.drops or self._scale != 1 or self.rules.align != self.size:
            super().offer(table, hashes, tokens, boundaries)
            return
        # Only what is seen from the boundaries, by the rules of `mask`.
        need, places = -(-(self.group.window - 1) // self.size), set[int]()
        for boundary in boundaries:
            right = boundary // self.size
            places.update(range(max(start, right - need, retired), min(stop, right)))
        table.cached = stop
        if places:
            kept = sorted(places)
            keys = [hashes[place] ^ self._mask for place in kept]
            self.pool.name([table.blocks[place - retired] for place in kept], keys)

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

    def count(self, table: Table) -> int:
        return table.retired + len(table.blocks)

    def _fill(self, table: Table, blocks: list[int], count: int) -> None:
        table.blocks, table.retired = blocks, count - len(blocks)

    def unseen(self, computed: int) -> int:
        return max(0, computed - self.group.window + 1)

    def gives(self, table: Table, processed: int) -> bool:
        return min(self.unseen(processed) // self.size, self.count(table)) > table.retired

    def retire(self, table: Table, processed: int, *, later: bool = False) -> int:
        gone = self.cast_off(table, processed)
        if not later:
            if gone:
                self.pool.release(gone[::-1])
            return 0
        return self.pool.release_later(gone)

    def cast_off(self, table: Table, processed: int) -> list[int]:
        passed = self.unseen(processed) // self.size - table.retired
        if passed <= 0:
            return []
        gone = table.blocks[:passed]
        del table.blocks[:passed]
        table.retired += len(gone)
        return gone

    def retires_at(self, table: Table) -> int:
        return (table.retired + 1) * self.size + self.group.window - 1


class StateGroup(SparseGroup):
    """Mamba without prefix caching: one state, and one for each draft token."""

    def __init__(self, pool: RunPool, ident: int, group: Group, rules: Rules) -> None:
        super().__init__(pool, ident, group, rules)
        self._more = group.speculative_blocks * self.size

    def needs(
        self, table: Table, found: Found | None, room: int, main: int, computed: int, *, whole: bool, end: int
    ) -> int:
        return super().needs(table, found, room + self._more, main, computed, whole=whole, end=end)

    def extend(self, table: Table, room: int, main: int) -> None:
        super().extend(table, room + self._more, main)

    def full_at(self, table: Table, lookahead: int) -> int:
        return super().full_at(table, lookahead) - self._more
