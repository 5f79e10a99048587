"""Blocks that come and go unnamed: what a pool was told to have lent, before it is looked up which blocks they were."""

from collections.abc import Callable


class Owing:
    def __init__(self) -> None:
        self._free = 0
        self.lagging: Callable[[], None] = lambda: None
        """Makes those who gave back blocks that stay findable say so with `release_later`."""
        # What was counted with `ahead` and is not booked.
        self._owes = False
        self._level = self._peak = 0
        self._spare: list[int] = []
        """Blocks taken for those that count ahead and have not drawn them."""
        self.lender: Callable[[], None] = lambda: None
        """Makes those that count ahead give back what they owe to `repay`."""

    @property
    def free_count(self) -> int:
        self.lagging()
        return self._free

    @property
    def surely_free(self) -> int:
        """As long as nobody asks who gave back what: not more than `free_count`."""
        return self._free

    def ahead(self, net: int, peak: int) -> None:
        """`net` more blocks are in use, and `peak` more were on the way there: so far the free queue was taken from.

        Those given back meanwhile have no key, so that they are the next to be taken.
        """
        self._peak = max(self._peak, self._level + peak)
        self._level += net
        self._free -= net
        self._owes = True

    def draw(self, wanted: int) -> list[int]:
        """`wanted` of the blocks counted with `ahead`, for one who did."""
        self._pay()
        if wanted > len(self._spare):
            self.lender()
        drawn = self._spare[-wanted:] if wanted else []
        del self._spare[len(self._spare) - len(drawn) :]
        assert len(drawn) == wanted
        return drawn

    def repay(self, blocks: list[int]) -> None:
        """Blocks without a key that are in use no more, as was counted with `ahead`."""
        self._spare += blocks

    def _pay(self) -> None:
        """Book what was counted."""
        raise NotImplementedError
