"""The KV cache of models with several groups: full attention beside windows or recurrent states.

A hit is what all groups can serve. Every group has a table of blocks for each request; blocks come from one pool, and
the groups take, offer and give back in their order. Rules are those of vLLM 0.32 (v1/core/kv_cache_coordinator.py).
"""

from collections.abc import Sequence
from math import lcm
from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.kv_groups import FullGroup, Rules, checkpoint_of
from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.kv_mamba import AlignedGroup
from windtunnel.simulator.emulator.kv_sparse import StateGroup, WindowGroup
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.ring import Found
from windtunnel.simulator.emulator.runs import RunPool

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.scheduler import Limits


class Groups:
    """The groups of one engine, and the longest hit they share."""

    def __init__(self, limits: "Limits", pool: RunPool) -> None:
        shapes = [group for group in limits.groups for _ in range(group.count)]
        self.block = lcm(*(shape.block_size for shape in shapes))
        """Hits are multiples of this."""
        drops = limits.drops_last_block
        rules = Rules(
            unit=limits.hash_block_size,
            align=self.block,
            retention=limits.prefix_cache_retention_interval,
            longest=limits.max_model_len,
            drops=drops,
            first_full=next((place for place, shape in enumerate(shapes) if shape.kind == "full"), 0),
        )
        self.rules = rules
        self.all = [_group(pool, place, shape, rules) for place, shape in enumerate(shapes)]
        self.aligned = [group for group in self.all if isinstance(group, AlignedGroup)]
        drafting = drops and not any(shape.drafts for shape in shapes)
        """No group is known to be the draft model's: all count as such."""
        kinds: dict[tuple[object, ...], list[FullGroup]] = {}
        for group, shape in zip(self.all, shapes, strict=True):
            kinds.setdefault((shape.kind, shape.block_size, shape.window, shape.mamba_mode), []).append(group)
        for peers in kinds.values():
            marked = drafting or (drops and any(peer.group.drafts for peer in peers))
            for peer in peers:
                peer.drops = marked
        self._kinds = sorted(kinds.values(), key=lambda peers: peers[0].group.kind != "full")
        self.matched = 0
        """Tokens that full attention knew of the last prompt that was looked up."""
        self._simple = len(self._kinds) == 2 and self._kinds[0][0].group.kind == "full"

    def longest(self, hashes: Sequence[int], most: int) -> tuple[list[Found], int, int]:
        """The longest hit within `most` tokens: blocks of each group, tokens, and where the prompt parts from others.

        The latter is the longest hit of any one group, or 0 where that is no longer.
        """
        if len(self.all) == 1:
            blocks, hit = self.all[0].lookup(hashes, most, self.all, drop=self.all[0].drops)
            return blocks, hit, 0
        found: dict[int, Found] = {}
        hit, best, bound = most, 0, 0
        proven: set[int] = set()
        """Kinds whose dropped block was found beyond the present length."""
        while True:
            current = hit
            for place, peers in enumerate(self._kinds):
                first = peers[0]
                full = first.group.kind == "full"
                if full and first.ident in found:
                    # What full attention has of a prefix it has of every shorter one.
                    current = min(current, bound)
                    continue
                drop = first.drops and place not in proven
                reach = current
                if drop and first.group.kind != "mamba":
                    reach = min(current + first.size, len(hashes) * self.rules.unit)
                blocks, tokens = first.lookup(hashes, reach, peers, drop=drop)
                if drop:
                    proven.add(place)
                elif tokens < current:
                    proven.clear()
                current = tokens
                if full:
                    self.matched = bound = tokens
                for peer, one in zip(peers, blocks, strict=True):
                    found[peer.ident] = one
                best = max(best, current)
            if current >= hit:
                break
            hit = current
            if self._simple:
                break
        for peers in self._kinds:
            if peers[0].group.kind == "full":
                for peer in peers:
                    found[peer.ident].count = min(found[peer.ident].count, hit // peer.size)
        return [found[group.ident] for group in self.all], hit, best if best > hit else 0

    def final(self, group: FullGroup, tokens: int) -> int:
        """How many of `tokens` computed tokens a later hit could take from a group."""
        if len(self.all) == 1:
            return tokens
        whole = tokens // self.block * self.block
        return min(tokens, whole + group.size) if group.drops and whole else whole

    def resumes(self, prompt: int) -> list[int]:
        """Where a prompt that is sent again, or a longer one, can start from, tokens."""
        if not any(group.drops for group in self.all):
            return [prompt - 1]
        block = self.block
        return sorted({max((prompt - 1) // block * block - block, 0), max(prompt // block * block - block, 0)})

    def clip(self, request: Request, start: int, new: int, block: int, budget: int, junction: int) -> int:
        """How many of `new` tokens from `start` on are computed at once, so that states fall on ends of blocks.

        `block`: of attention, tokens; `budget`: the longest chunk there is.
        """
        end = max(request.prompt_tokens, request.known - 1)
        if start >= end:
            return new
        drops = self.rules.drops
        stop = start + new
        last = checkpoint_of(request.known, block, drops=drops)
        inside = all(group.group.checkpoints for group in self.aligned) and stop >= end
        if inside and self._inside(start, stop, checkpoint_of(end, block, drops=drops), block):
            stops = [0]
        else:
            stops = [last, (start // block + 1) * block if start % block else 0]
        if stop < end:
            whole = stop // block * block
            if whole > start or block <= budget:
                stop = whole
        if start < junction < stop:
            stops.append(start + (junction - start) // block * block)
        return max(min((at for at in stops if start < at < stop), default=stop) - start, 0)

    def _inside(self, start: int, stop: int, position: int, block: int) -> bool:
        """Whether the state at `position` can be kept from inside a chunk."""
        unit = self.rules.unit
        later = -(-stop // block) - 2 > (start - 1) // block
        return later and start % unit == 0 and start + unit <= position < stop


def _group(pool: RunPool, ident: int, shape: Group, rules: Rules) -> FullGroup:
    if shape.kind == "full":
        return FullGroup(pool, ident, shape, rules)
    if shape.kind == "window":
        return WindowGroup(pool, ident, shape, rules)
    return (AlignedGroup if shape.mamba_mode == "align" else StateGroup)(pool, ident, shape, rules)
