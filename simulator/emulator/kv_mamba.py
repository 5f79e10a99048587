"""Recurrent states in the prefix cache: vLLM's mode `align` for Mamba and other linear attention.

A state is the sum of all before it, so one block is a hit of everything up to its end. Steps write their state into the
table's last block (and, with drafts, one after it for each of them); the state of the step before is kept until the
step has returned. Which states stay to be found later: see `mask` and `_keep_end`.
"""

from collections.abc import Sequence

from windtunnel.simulator.emulator.blocks import NULL_BLOCK
from windtunnel.simulator.emulator.kv_groups import FullGroup, Rules, Table, checkpoint_of
from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.kv_sparse import SparseGroup
from windtunnel.simulator.emulator.ring import Found
from windtunnel.simulator.emulator.runs import RunPool


class AlignedGroup(SparseGroup):
    def __init__(self, pool: RunPool, ident: int, group: Group, rules: Rules) -> None:
        super().__init__(pool, ident, group, rules)
        self._spare = group.speculative_blocks
        self.fresh: set[int] = set()
        """Keys of states that this very step writes: others cannot start from them yet."""

    # The prefix cache.

    def lookup(
        self, hashes: Sequence[int], most: int, peers: Sequence[FullGroup], *, drop: bool
    ) -> tuple[list[Found], int]:
        # Draft models have no such layers: the state before the dropped block is looked for in the first place.
        del drop
        for block in range(most // self.size - 1, -1, -1):
            if (block + 1) * self.size % self.rules.align:
                continue
            found = self.cached(hashes, block, peers)
            if found is not None:
                return [Found(block + 1, blocks=[held]) for held in found], (block + 1) * self.size
        return [Found(0) for _ in peers], 0

    def mask(self, start: int, stop: int, boundaries: Sequence[int]) -> list[bool] | None:
        retention = self.rules.retention
        if retention is None or 0 < retention <= self.size:
            return None
        every = retention // self.size
        mask = [bool(every) and (place + 1) % every == 0 for place in range(start, stop)]
        for boundary in boundaries:
            place = boundary // self.rules.align * self.rules.align // self.size - 1
            if start <= place < stop:
                mask[place - start] = True
        return mask

    def offer_states(
        self,
        table: Table,
        hashes: Sequence[int],
        tokens: int,
        prompt: int,
        boundaries: Sequence[int],
        junction: int,
    ) -> None:
        """As `offer`, and the state that the step ends on or keeps from inside its chunk.

        `prompt`: its tokens; `junction`: where this prompt parts from others, 0 for nowhere.
        """
        if table.checkpoint is not None:
            before = table.cached
            self.name(table, hashes, tokens, boundaries)
            self._keep_inside(table, hashes, prompt, junction)
            for place in range(before, table.cached):
                self._mark(table.blocks[place])
            return
        self.fresh.update(self.name(table, hashes, tokens, boundaries))
        self._keep_end(table, hashes, tokens, prompt)

    def _keep_end(self, table: Table, hashes: Sequence[int], tokens: int, prompt: int) -> None:
        """A step that ends where a resent or longer prompt resumes leaves its state to be found."""
        if not tokens or tokens != checkpoint_of(prompt, self.rules.unit, drops=self.rules.drops):
            return
        place = -(-tokens // self.size) - 1
        if place < len(table.blocks) and table.blocks[place] != NULL_BLOCK and tokens % self.size == 0:
            self.pool.put(table.blocks[place], self.key(hashes, place))
            self._mark(table.blocks[place])

    def _keep_inside(self, table: Table, hashes: Sequence[int], prompt: int, junction: int) -> None:
        assert table.checkpoint is not None
        position, place = table.checkpoint
        block = table.blocks[place]
        origin = position // self.size - 1
        mask = self.mask(origin, origin + 1, ())
        resumed = position == checkpoint_of(prompt, self.rules.align, drops=self.rules.drops)
        if not resumed and mask is not None and not mask[0] and position != junction:
            # The slot holds a state that nobody can start from.
            self.pool.forget(block)
            return
        key = self.key(hashes, origin)
        if self.pool.key_of(block) != key:
            self.pool.put(block, key)
            table.kept = table.checkpoint
            self._mark(block)

    def _mark(self, block: int) -> None:
        key = None if block == NULL_BLOCK else self.pool.key_of(block)
        if key is not None:
            self.fresh.add(key)

    # Blocks.

    def unseen(self, computed: int) -> int:
        return computed - 1

    def needs(
        self, table: Table, found: Found | None, room: int, main: int, computed: int, *, whole: bool, end: int
    ) -> int:
        del room
        hits = [] if found is None else found.blocks
        if hits and self.pool.key_of(hits[-1]) in self.fresh:
            # Written in this very step: the request waits for the next one.
            return self.pool.count + 1
        kept = self._checkpoint(table, computed, main, end)
        if not whole:
            table.checkpoint = kept
        lacking = -(-main // self.size) + self._spare - (found.count if found else 0) - len(table.blocks)
        if lacking > 0:
            lacking = min(lacking, 1 + (kept is not None) + (0 if table.allocated else self._spare))
        # Fewer than none where drafts were rejected: vLLM lets that stand against what other groups need.
        return lacking + self.pool.count_free(hits)

    def extend(self, table: Table, room: int, main: int) -> None:
        del room
        blocks, spare = table.blocks, self._spare
        wanted, kept = -(-main // self.size) + spare, int(table.checkpoint is not None)
        held = len(blocks)
        if wanted > held or kept:
            if table.allocated:
                table.last = held - 1 - spare
            elif held:
                table.last = held - 1
            passed = wanted - spare - 1
            if held < passed:
                blocks += [NULL_BLOCK] * (passed - kept - held)
            if table.allocated:
                # States of drafts that this step leaves behind are used again at the end.
                for place in range(held - spare, min(held, passed - kept)):
                    blocks.append(blocks[place])
                    blocks[place] = NULL_BLOCK
            blocks += self.pool.take(max(wanted - len(blocks), 0))
        table.allocated = True

    def retire(self, table: Table, processed: int, *, later: bool = False) -> int:  # noqa: ARG002
        blocks = table.blocks
        stop = min((processed - 1) // self.size, len(blocks)) if processed > 1 else 0
        if stop > table.retired:
            gone = [place for place in range(stop - 1, table.retired - 1, -1) if blocks[place] != NULL_BLOCK]
            self.pool.release([blocks[place] for place in gone])
            for place in gone:
                blocks[place] = NULL_BLOCK
            table.retired = stop
        last = table.last
        if last is not None and last < -(-processed // self.size) - 1 and blocks[last] != NULL_BLOCK:
            self.pool.release([blocks[last]])
            blocks[last] = NULL_BLOCK
        return 0

    def _checkpoint(self, table: Table, start: int, stop: int, end: int) -> tuple[int, int] | None:
        """The state that a chunk from `start` to `stop` keeps from its inside: after how many tokens, and its place."""
        position = checkpoint_of(stop, self.rules.align, drops=self.rules.drops)
        place = -(-stop // self.size) - 2
        if not self.group.checkpoints or stop < end or place < 0 or start % self.rules.unit:
            return None
        if place <= (start - 1) // self.size or not start + self.rules.unit <= position < stop:
            return None
        blocks = table.blocks
        free = place >= len(blocks) or blocks[place] == NULL_BLOCK
        return (position, place) if free or (table.allocated and place >= len(blocks) - self._spare) else None

    # Until when nothing happens.

    def full_at(self, table: Table, lookahead: int) -> int:
        del lookahead
        return -1 if table.checkpoint else (len(table.blocks) - self._spare) * self.size

    def retires_at(self, table: Table) -> int:
        # As long as an earlier state is held, steps mark it as fresh.
        held = table.blocks[table.retired : len(table.blocks) - 1 - self._spare]
        return 0 if any(held) else (table.retired + 1) * self.size + 1
