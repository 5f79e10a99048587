"""Which KV groups a model gets, with which block size, and how many blocks fit.

Layers that see the whole context, a window of it, or a recurrent state share one pool of equal pages. vLLM makes the
pages equal and sorts the layers into groups with a table of blocks each; a block serves one group.
"""

from typing import Literal

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
