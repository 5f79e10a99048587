"""Blocks that parked requests take and give back while they decode: counted at each step, booked when somebody looks.

A request that decodes takes a block in every group each time it has filled one, and gives back one of each windowed
group as often. So its events recur with the length of a block, and those of all parked requests together are one sum
for each step number modulo that length. What the pool loses and gains is told to it as a count (`RunPool.ahead`); which
blocks they were, and what became findable, is written down when a request ends, or when a prompt could be found to go
on where it stands (`meet`).
"""

from collections.abc import Callable

from windtunnel.simulator.emulator.request import Request

NEVER = 1 << 62
"""A step that does not come."""


class Rhythm:
    """When one parked request takes and gives back blocks, as numbers of steps."""

    __slots__ = (
        "early",
        "gives",
        "gives_at",
        "last",
        "offset",
        "opens",
        "rises_at",
        "shed_at",
        "sheds",
        "taken",
        "takes",
        "tip",
    )

    def __init__(
        self, takes: int, taken: int, gives: int, shed_at: int, sheds: int, tip: int, *, offset: int = 0
    ) -> None:
        self.takes = takes
        """Blocks taken at once."""
        self.taken = taken
        """The first step that takes some."""
        self.gives = gives
        """Blocks given back at once, 0 without windows."""
        self.shed_at = shed_at
        """The first step that gives some back."""
        self.sheds = sheds
        """So many times these stay findable."""
        self.gives_at = -1
        """The first step in which they do not, while that is not counted yet."""
        self.tip = tip
        """Key of the last findable block."""
        self.offset = offset
        """Tokens that there is room for in a step, less the step's number."""
        self.opens = -1
        """The step in which all goes that only the prompt's tokens needed."""
        self.early = -1
        """So many tokens have returned in the first of two such steps."""
        self.last = NEVER
        """The last step that it is part of."""
        self.rises_at = -1
        """The step in which its context has become as long as the window."""


class Beat:
    """What happens to the blocks of all parked requests in a step, by its number modulo the block's size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.tips: dict[int, list[Request]] = {}
        """Whose findable blocks end with a key."""
        self._places: dict[int, int] = {}
        """How many blocks these are: two prompts with a key in common have it at the same place."""
        self.followers: set[Request] = set()
        """Those whose next tokens are findable already, because others have had the same."""
        self._members: list[dict[Request, list[int]]] = [{} for _ in range(size)]
        self._sums: list[tuple[int, int] | None] = [(0, 0)] * size

    def takes(self, request: Request, step: int, blocks: int) -> None:
        """From `step` on it takes so many blocks each time."""
        self._add(request, step, 1, blocks)

    def gives(self, request: Request, step: int, blocks: int) -> None:
        """From `step` on it gives so many back each time."""
        self._add(request, step, 0, blocks)

    def leave(self, request: Request) -> None:
        for place in request.beats:
            self._members[place].pop(request, None)
            self._sums[place] = None
        request.beats = ()

    def members(self, number: int) -> dict[Request, list[int]]:
        """Whose blocks change in a step: given back, then taken."""
        return self._members[number % self.size]

    def sums_with(self, number: int, given: dict[Request, int]) -> tuple[int, int]:
        """`sums` where these give back so many blocks more, once."""
        level = peak = 0
        members = self._members[number % self.size]
        for request in sorted({**members, **given}, key=_order):
            less, taken = members.get(request, (0, 0))
            level += taken - less - given.get(request, 0)
            peak = max(peak, level)
        return level, peak

    def sums(self, number: int) -> tuple[int, int]:
        """By how much a step's events lessen the free blocks, and by how much at most on the way there."""
        place = number % self.size
        sums = self._sums[place]
        if sums is None:
            level = peak = 0
            members = self._members[place]
            for request in sorted(members, key=_order):
                given, taken = members[request]
                level += taken - given
                peak = max(peak, level)
            sums = self._sums[place] = level, peak
        return sums

    # Who stands where.

    def stand(self, request: Request, tip: int, place: int, *, follows: bool) -> None:
        """Its first `place` blocks are findable, `tip` is the key of the last."""
        self.tips.setdefault(tip, []).append(request)
        self._places[tip] = place
        if follows:
            self.followers.add(request)

    def move(self, request: Request, tip: int) -> None:
        """It no longer stands there."""
        there = self.tips[tip]
        there.remove(request)
        if not there:
            del self.tips[tip], self._places[tip]
        self.followers.discard(request)

    def met(self, request: Request, known: int, full: int) -> list[Request]:
        """Who stands somewhere behind one of the first blocks of a prompt, from `known` to `full`.

        Who follows others may have come further than he stands, so that it is looked for from the beginning.
        """
        tips, hashes = self.tips, request.hashes
        start = 0 if self.followers else known
        if full - start > len(tips):
            near = sorted((place, tip) for tip, place in self._places.items() if start <= place < full)
            keys = [tip for place, tip in near if tip == (hashes[place - 1] if place else request.seed)]
        else:
            keys = hashes[start - 1 : full - 1] if start else [request.seed, *hashes[: full - 1]]
            if tips.keys().isdisjoint(keys):
                return []
        return [one for key in keys if key in tips for one in tips[key] if one is not request]

    def clear(self) -> None:
        self.tips.clear()
        self._places.clear()
        self.followers.clear()
        for members in self._members:
            members.clear()
        self._sums = [(0, 0)] * self.size

    def _add(self, request: Request, step: int, kind: int, blocks: int) -> None:
        place = step % self.size
        self._members[place].setdefault(request, [0, 0])[kind] += blocks
        self._sums[place] = None
        if place not in request.beats:
            request.beats = (*request.beats, place)


Meet = Callable[[Request, int, int], None]


def _order(request: Request) -> int:
    return request.order
