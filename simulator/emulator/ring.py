"""Runs of blocks, and the ring of free ones: the free queue of `RunPool`."""


class Run:
    """Neighbouring blocks with the same holders; while free, one entry of the free queue, its last block in front."""

    __slots__ = ("after", "base", "before", "blocks", "found", "holders", "keys")

    def __init__(self, blocks: list[int], keys: list[int], holders: int, *, found: bool, base: int = 0) -> None:
        self.blocks = blocks
        self.keys = keys
        """Of each block; empty for blocks without one."""
        self.holders = holders
        self.found = found
        """A lookup of any of the keys finds this run's block and not one with the same tokens elsewhere."""
        self.base = base
        """Place of its first block."""
        self.before: Run = NOWHERE
        self.after: Run = NOWHERE


NOWHERE: Run = Run.__new__(Run)
"""Beside a run that is not in the queue. Itself would be a circle, which only the collector takes apart."""


def link(left: Run, run: Run) -> None:
    """Put a run behind `left` in the queue."""
    right = left.after
    left.after = right.before = run
    run.before, run.after = left, right


def unlink(run: Run) -> None:
    """Take it out."""
    run.before.after, run.after.before = run.after, run.before
    run.before = run.after = NOWHERE
