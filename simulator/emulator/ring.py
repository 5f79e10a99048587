"""The free queue of `RunPool` is a ring of entries; what these are, and what a request holds of them."""

from typing import TypeVar

_T = TypeVar("_T")


class Entry:
    """Blocks that leave the queue one after the other, the last first. Those of a plain entry cache nothing."""

    __slots__ = ("after", "before", "blocks")

    def __init__(self, blocks: list[int]) -> None:
        self.blocks = blocks
        self.before: Entry = NOWHERE
        self.after: Entry = NOWHERE


class Single(Entry):
    """A block that is found by itself: of a window, or a recurrent state."""

    __slots__ = ("holders", "key")

    def __init__(self, block: int, key: int) -> None:
        super().__init__([block])
        self.key: int | None = key
        """None: it is no longer findable."""
        self.holders = 1


class Run(Entry):
    """Blocks that stand one behind another in a prompt and have the same holders."""

    __slots__ = ("base", "held", "keys", "longest", "twin")

    def __init__(self, blocks: list[int], keys: list[int], base: int, held: "list[Chain]") -> None:
        super().__init__(blocks)
        self.keys = keys
        """Of each block."""
        self.base = base
        """Place of its first block in the prompt."""
        self.held = held
        self.twin: Run | None = None
        """The next younger one that begins with the same key."""
        self.longest = 0
        """Of the oldest: no younger one has more blocks."""


class Chain:
    """What one request holds of full attention: blocks that are findable, in runs, and behind them those that are not.

    The pool changes it.
    """

    __slots__ = ("bare", "cached", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.cached = 0
        """Blocks in these."""
        self.bare: list[int] = []

    def __len__(self) -> int:
        return self.cached + len(self.bare)

    @property
    def numbers(self) -> list[int]:
        """Which blocks they are, in order."""
        return [*(block for run in self.runs for block in run.blocks), *self.bare]


class Found:
    """What a lookup knows of a prompt, in one group; nothing is held for it yet."""

    __slots__ = ("ahead", "blocks", "count", "longest", "runs")

    def __init__(self, count: int, runs: list[Run] | None = None, blocks: list[int] | None = None) -> None:
        self.count = count
        """Blocks; the null block may stand in place of the first ones."""
        self.longest = count
        """Of runs: the same before any were left out."""
        self.ahead: int | None = None
        """Key of the next block, which was not found; None where no more was asked for."""
        self.runs: list[Run] = runs or []
        """Where they are runs: these, as far as `count` reaches."""
        self.blocks: list[int] = blocks or []
        """Where they are found one by one: the last of them, those that are not null."""


NOWHERE: Entry = Entry.__new__(Entry)
"""Beside an entry that is not in the queue. Itself would be a circle, which only the collector takes apart."""


def drop(known: dict[int, _T], others: dict[int, list[_T]], key: int, one: _T) -> None:
    """`one` is no longer known by a key: where it was the one found by it, the oldest of the others is from now on."""
    twins = others.get(key)
    if known[key] != one:
        assert twins is not None
        twins.remove(one)
    elif twins:
        known[key] = twins.pop(0)
    else:
        del known[key]
    if twins is not None and not twins:
        del others[key]


def link(left: Entry, entry: Entry) -> None:
    """Put an entry behind `left` in the queue."""
    right = left.after
    left.after = right.before = entry
    entry.before, entry.after = left, right


def unlink(entry: Entry) -> None:
    """Take it out."""
    entry.before.after, entry.after.before = entry.after, entry.before
    entry.before = entry.after = NOWHERE
