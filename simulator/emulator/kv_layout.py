"""Which KV groups a model gets, with which block size, and how many blocks fit.

Layers that see the whole context, a window of it, or a recurrent state share one pool of equal pages. vLLM makes the
pages equal and sorts the layers into groups with a table of blocks each; a block serves one group.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct


class Group(Struct, frozen=True):
    """Layers that share one table of blocks."""

    kind: Literal["full", "window", "mamba"]
    block_size: int
    """Tokens."""
    window: int = 0
    """Tokens that a windowed layer sees."""
    mamba_mode: Literal["none", "align"] = "align"
    """none: one state, nothing to be found again (without prefix caching); align: states at ends of blocks are kept."""
    count: int = 1
    """Groups of this shape in a row."""
    checkpoints: bool = False
    """Mamba: a state inside a chunk of prefill can be kept (Mamba-2), so that the chunk need not end there."""
    speculative_blocks: int = 0
    """Mamba: one more state for each draft token."""
    drafts: bool = False
    """Holds the layers of the draft model: where `drops_last_block` applies; with none marked, to all groups."""


class Layers(Struct, frozen=True):
    """Layers of one kind as the engine registers them; bytes are those on one GPU."""

    kind: Literal["full", "window", "mamba"]
    count: int
    token_bytes: int = 0
    """KV of one layer for one token, in the format the cache uses."""
    window: int = 0
    state_bytes: int = 0
    """One layer's recurrent state, the convolution's part with its room for drafts included."""
    checkpoints: bool = False
    drafts: bool = False
    """Layers of multi-token prediction, which come last."""


class Layout(Struct, frozen=True):
    """How a model's layers share the pool."""

    groups: tuple[Group, ...]
    block_size: int
    """Of attention, tokens: what vLLM prints as its block size."""
    block_bytes: int
    """Of one block on one GPU: as many pages as the largest group has layers."""

    def blocks(self, memory: float) -> int:
        """Blocks that fit in so many bytes."""
        return int(memory // self.block_bytes)

    def request_blocks(self, tokens: int, in_flight: int) -> int:
        """Blocks that one request of `tokens` tokens needs at most, with `in_flight` tokens scheduled at once."""
        return sum(group.count * _most(group, tokens, in_flight) for group in self.groups)

    def capacity(self, blocks: int, tokens: int, in_flight: int) -> tuple[int, float]:
        """What vLLM prints at its start: the pool's size in tokens, and how many requests of `tokens` tokens fit."""
        requests = blocks / self.request_blocks(tokens, in_flight)
        return int(requests * tokens), requests


def layout(
    layers: Sequence[Layers],
    *,
    max_model_len: int,
    block_size: int = 16,
    caching: bool = True,
    speculative_tokens: int = 0,
    kernel_block: int = 16,
) -> Layout:
    """The groups that vLLM 0.32 makes of these layers, given in the order of their first one.

    Pages are made equal: a Mamba state is a page, and the block of attention grows until its page is as large; where
    pages of attention differ, the smaller ones get longer blocks. Then groups of equally many layers are formed, as
    many layers as the rarest kind has (or the most frequent, if that has less than half more). `kernel_block`: the
    smallest block of the attention kernel, tokens; 128 for latent attention beside Mamba.
    """
    states = max((kind.state_bytes for kind in layers if kind.kind == "mamba"), default=0)
    attention = [kind for kind in layers if kind.kind != "mamba"]
    if states and attention:
        unit = max(kernel_block, block_size)
        grown = -(-states // (unit * attention[0].token_bytes)) * unit
        block_size = max(block_size, -(-grown // kernel_block) * kernel_block)
    page = max([states, *(block_size * kind.token_bytes for kind in attention)])
    kinds: dict[Group, int] = {}
    for kind in layers:
        group = _group(kind, block_size, page, max_model_len, caching=caching, drafts=speculative_tokens)
        plain = msgspec.structs.replace(group, drafts=False)
        marked = msgspec.structs.replace(group, drafts=True)
        if marked in kinds:
            kinds[marked] += kind.count
        elif group.drafts and plain in kinds:
            kinds = {marked if at == plain else at: count for at, count in kinds.items()}
            kinds[marked] += kind.count
        else:
            kinds[group] = kinds.get(group, 0) + kind.count
    if len({(group.kind, group.window) for group in kinds}) == 1:
        # One table for all; vLLM marks no group then.
        only = msgspec.structs.replace(next(iter(kinds)), drafts=False)
        if not states:
            only = msgspec.structs.replace(only, block_size=block_size)
        whole = sum(kind.count * (kind.state_bytes or kind.token_bytes * block_size) for kind in layers)
        return Layout((only,), block_size, whole)
    least, most = min(kinds.values()), max(kinds.values())
    size = most if most < least * 1.5 else least
    groups = tuple(msgspec.structs.replace(group, count=-(-count // size)) for group, count in kinds.items())
    return Layout(groups, block_size, size * page)


def _group(kind: Layers, block_size: int, page: int, longest: int, *, caching: bool, drafts: int) -> Group:
    if kind.kind == "mamba":
        return Group(
            "mamba",
            block_size if caching else longest,
            mamba_mode="align" if caching else "none",
            checkpoints=kind.checkpoints,
            speculative_blocks=drafts,
        )
    own = block_size * kind.token_bytes
    # A page that does not divide the largest one is padded to it.
    size = block_size * (page // own) if page % own == 0 else block_size
    return Group(kind.kind, size, window=kind.window, drafts=kind.drafts)


def _most(group: Group, tokens: int, in_flight: int) -> int:
    if group.kind == "full":
        return -(-tokens // group.block_size)
    if group.kind == "window":
        return -(-min(group.window - 1 + in_flight, tokens) // group.block_size) + 1
    return (2 + group.checkpoints if group.mamba_mode == "align" else 1) + group.speculative_blocks
