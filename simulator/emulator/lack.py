"""Why the first of the waiting requests found no room, and as long as what holds it finds none again.

A crowded engine asks that in every step. The answer changes only when blocks come free, or when more of its prompt is
findable than was; the walk through thousands of its blocks is spared until then.
"""

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.ring import Found, Run
from windtunnel.simulator.emulator.runs import RunPool


class Lack:
    """What one lookup of `request` came to."""

    __slots__ = ("_known", "_next", "_pool", "_runs", "_whole", "matched", "request")

    def __init__(self, request: Request, found: Found, whole: int, pool: RunPool, matched: int) -> None:
        """`found`: by full attention, in whose blocks its known tokens are `whole`; `matched`: the same in tokens."""
        self.request = request
        self.matched = matched
        self._whole = whole
        self._known = request.known
        self._pool = pool
        self._next = found.ahead
        self._runs: list[tuple[Run, int, int, int]] = []
        """Each with its length, its last key, and how much of it was found."""
        left = found.longest
        for run in found.runs:
            self._runs.append((run, len(run.keys), run.keys[-1], min(len(run.keys), left)))
            left -= len(run.keys)

    def least(self, request: Request) -> int:
        """How many blocks have to be free for it to be admitted; 0 where it has to be looked up anew to know.

        Blocks that were found and that others hold cost none; all others come from the free ones, found or not.
        """
        if request is not self.request or request.known != self._known:
            return 0
        if self._next is not None and self._pool.knows(self._next):
            return 0
        least = self._whole
        for run, length, key, found in self._runs:
            # Keys are chained: an equal last one says that all before it are.
            if len(run.keys) != length or run.keys[-1] != key:
                return 0
            if run.held:
                least -= found
        return least
