"""Parked requests whose blocks are counted only: when they are told to the pool, and when they are booked.

See `rhythm`. What is booked, and in which order, is what walking through every step would have booked by then.
"""

from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.kv import Hit
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.rhythm import NEVER, Beat, Rhythm

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.parking import Parking
    from windtunnel.simulator.emulator.scheduler import Scheduler

_BETWEEN, _BEHIND = -1, 1 << 62
"""Places of the walk through the running requests: before all, behind all."""


class Tally:
    def __init__(self, scheduler: "Scheduler", parking: "Parking", depth: int) -> None:
        self.beat = Beat(scheduler.limits.block_size)
        self._scheduler = scheduler
        self._parking = parking
        self._kv, self._pool = scheduler.kv, scheduler.pool
        self._window = scheduler.limits.window
        self._depth = depth
        self._most = 2 * max(1, sum(group.count for group in scheduler.limits.groups))
        """More blocks than a parked request takes in a step."""
        self._position = _BETWEEN
        """Who runs before this place has been part of the step being decided."""
        self._giving: list[tuple[Request, int, int]] = []
        """Who gives back blocks at equal distances from now on: from which step on and how many."""
        self._shedding: dict[Request, Rhythm] = {}
        """Who gives back blocks that stay findable; the pool asks for that when it is looked at."""
        self._next = NEVER
        """The first step not asked for that does."""
        self._pool.lagging = self.catch_up
        self._kv.beat = self.beat
        self._kv.meets = self._meet
        self._pool.lender = self._repay

    # Within a step's decision.

    def walk(self, number: int, looks: list[Request]) -> list[Request] | None:
        """Whom step `number` has to come to, beside those awake; None where blocks are lacking."""
        moved = self.beat.members(number)
        if not moved:
            return list(dict.fromkeys(looks))
        if looks or self._parking.awake:
            return list(dict.fromkeys([*looks, *moved]))
        net, peak = self.beat.sums(number)
        if peak > self._pool.free_count:
            return None
        self._pool.ahead(net, peak)
        return looks

    def books(self, number: int, given: dict[Request, int] | None) -> bool:
        """Whether there are blocks for step `number`, in which nobody is walked through; if so, they are counted."""
        net, peak = self.beat.sums_with(number, given) if given else self.beat.sums(number)
        if peak > self._pool.surely_free and peak > self._pool.free_count:
            return False
        if net or peak:
            self._pool.ahead(net, peak)
        for request, step, blocks in self._giving:
            self.beat.gives(request, step, blocks)
        self._giving.clear()
        return True

    def passes(self, request: Request, number: int) -> bool:
        """The walk of step `number` has come to a parked request whose blocks are counted; False if some are lacking.

        The walk has to tell this of every request it comes to.
        """
        rhythm, beat, pool = request.rhythm, self.beat, self._pool
        self._position = request.order
        if rhythm is None:
            return False
        moved = beat.members(number).get(request)
        net = moved[1] - moved[0] if moved else 0
        if rhythm.opens == number or (rhythm.sheds and rhythm.shed_at == number):
            self._shed(request, rhythm, number, later=False)
        if net > pool.free_count:
            return False
        if net:
            pool.ahead(net, max(0, net))
        if request.alarm < 0:
            self.remind(request, rhythm)
        return True

    @property
    def ample(self) -> bool:
        """No step can lack blocks, whatever the order of its events."""
        return self._pool.surely_free > self._most * len(self._scheduler.running)

    def shed(self, requests: list[Request], number: int) -> dict[Request, int]:
        """In step `number`, in which nobody is walked through, these give back blocks that are not counted yet.

        How many of those have no key.
        """
        given: dict[Request, int] = {}
        self.catch_up()
        for request in sorted([*requests, *self.sheds(number)], key=_order):
            rhythm = request.rhythm
            assert rhythm is not None
            bare = self._shed(request, rhythm, number, later=True)
            if bare:
                given[request] = bare
            if request.alarm < 0:
                self.remind(request, rhythm)
        return given

    def _shed(self, request: Request, rhythm: Rhythm, number: int, *, later: bool) -> int:
        if rhythm.early >= 0:
            bare, rhythm.early = self._kv.shed(request, rhythm.early, later=later), -1
            rhythm.opens += 1
            return bare
        bare = self._kv.shed(request, number + rhythm.offset - self._depth, later=later)
        if rhythm.opens == number:
            rhythm.opens = -1
            self._goes_on(request, rhythm, number, later=later)
        else:
            rhythm.sheds -= 1
            rhythm.shed_at += self.beat.size
            if not rhythm.sheds:
                del self._shedding[request]
        return bare

    def _goes_on(self, request: Request, rhythm: Rhythm, number: int, *, later: bool) -> None:
        """From step `number` on it gives back blocks of its windows one by one; `later`: the step is not booked yet."""
        size = self.beat.size
        if rhythm.sheds:
            self._shedding[request] = rhythm
            self._next = min(self._next, rhythm.shed_at)
        gives_at = rhythm.shed_at + rhythm.sheds * size
        if gives_at > number + size:
            rhythm.gives_at = gives_at
        elif later:
            self._giving.append((request, gives_at, rhythm.gives))
        else:
            self.beat.gives(request, gives_at, rhythm.gives)

    def gives(self, request: Request, rhythm: Rhythm) -> None:
        """From now on what it gives back is counted."""
        self.beat.gives(request, rhythm.gives_at, rhythm.gives)
        rhythm.gives_at = -1

    def sheds(self, number: int) -> list[Request]:
        """Who gives back blocks that stay findable in step `number`."""
        return [one for one, rhythm in self._shedding.items() if rhythm.shed_at == number and number <= rhythm.last]

    def catch_up(self) -> None:
        """What stays findable is given back, as of the last step that was walked through, in the order of steps."""
        steps = self._scheduler.counters.steps + (self._position == _BEHIND)
        if self._next >= steps:
            return
        size, ahead, self._next = self.beat.size, self._depth, NEVER
        due: list[tuple[int, int, list[list[int]]]] = []
        for request, rhythm in list(self._shedding.items()):
            stop = min(steps, rhythm.last + 1)
            while rhythm.sheds and rhythm.shed_at < stop:
                gone = self._kv.cast_off(request, rhythm.shed_at + rhythm.offset - ahead)
                due.append((rhythm.shed_at, request.order, gone))
                rhythm.shed_at += size
                rhythm.sheds -= 1
            if not rhythm.sheds:
                del self._shedding[request]
            elif rhythm.shed_at <= rhythm.last:
                self._next = min(self._next, rhythm.shed_at)
        due.sort()
        for _, _, gone in due:
            for blocks in gone:
                self._pool.release_later(blocks)

    def passed(self) -> None:
        """The walk is over."""
        self._position = _BEHIND

    def decided(self) -> None:
        """The step is."""
        self._position = _BETWEEN

    def find(self, request: Request) -> Hit:
        """What is cached of a prompt; where it goes on as parked requests do, their blocks are made findable first."""
        beat, kv = self.beat, self._kv
        while True:
            hit = kv.find(request)
            if not beat.tips or not any(
                self.write(one) for one in beat.met(request, kv.matched // beat.size, kv.matched // beat.size + 1)
            ):
                return hit

    def meets(self, request: Request, tokens: int) -> bool:
        """Whether a prompt of which so many tokens are findable goes on as parked requests do."""
        at = tokens // self.beat.size
        return bool(self.beat.tips) and bool(self.beat.met(request, at, at + 1))

    @property
    def sheds_at(self) -> int:
        """Before this step nothing is given back that stays findable."""
        return self._next

    # One request.

    def count(self, request: Request, rhythm: Rhythm) -> None:
        """From now on its blocks are only counted."""
        beat = self.beat
        beat.takes(request, rhythm.taken, rhythm.takes)
        if rhythm.gives and rhythm.opens < 0:
            self._goes_on(request, rhythm, self._scheduler.counters.steps - 1, later=False)
        if request.rising:
            rhythm.rises_at = self._window + 1 - rhythm.offset
        beat.stand(request, rhythm.tip, self._kv.place(request), follows=self._kv.follows(request))
        self.remind(request, rhythm)

    def remind(self, request: Request, rhythm: Rhythm) -> None:
        """Wait for the next step in which something happens that is not counted."""
        number = request.wakes_at
        for at in (rhythm.opens, rhythm.gives_at):
            if 0 <= at < number:
                number = at
        if request.rising and rhythm.rises_at < number:
            number = rhythm.rises_at
        if number < NEVER:
            self._parking.wait(request, number)

    def _room(self, request: Request, rhythm: Rhythm) -> int:
        """Tokens that it has room for after the last step that it was part of."""
        return min(self._reach(request), rhythm.last) + rhythm.offset

    def _reach(self, request: Request) -> int:
        """The last step that has come to its place."""
        return self._scheduler.counters.steps - 1 + (request.order < self._position)

    def write(self, request: Request, *, leaves: bool = False) -> bool:
        """Book the blocks of a request that were only counted; whether more of it is findable now."""
        rhythm, beat, kv = request.rhythm, self.beat, self._kv
        assert rhythm is not None
        self.catch_up()
        self._parking.update(request)
        beat.move(request, rhythm.tip)
        main = self._room(request, rhythm)
        kv.catch_up(request, main, self._seen(rhythm, main), main + 1 - self._depth)
        before, rhythm.tip = rhythm.tip, kv.tip(request)
        if leaves:
            self._shedding.pop(request, None)
            beat.leave(request)
            request.rhythm = None
        else:
            beat.stand(request, rhythm.tip, kv.place(request), follows=kv.follows(request))
        return rhythm.tip != before

    def end(self, request: Request, *, left: bool) -> None:
        """Its last token has returned: what it was counted to have is booked, and freed.

        `left`: the step behind that one is decided without it.
        """
        rhythm, beat, kv = request.rhythm, self.beat, self._kv
        assert rhythm is not None
        self.catch_up()
        self._shedding.pop(request, None)
        beat.move(request, rhythm.tip)
        beat.leave(request)
        main, final = rhythm.last + rhythm.offset, request.known - 1
        # The last block of one who left before the others had theirs made findable comes after them.
        late = left and not final % beat.size
        kv.catch_up(request, main, main - self._depth, final - late)
        request.rhythm = None
        if late:
            kv.cache(request, final)
        kv.free(request)

    def clear(self) -> None:
        """Nobody's blocks are counted any more."""
        self.beat.clear()
        self._shedding.clear()
        self._next = NEVER

    def _meet(self, request: Request, known: int, full: int) -> None:
        """Blocks of a request are about to become findable: what those who were there before it have comes first."""
        beat, rhythm = self.beat, request.rhythm
        there = [(self._reach(one) + one.rhythm.offset, one) for one in beat.met(request, known, full) if one.rhythm]
        main = self._reach(request) + rhythm.offset if rhythm is not None else 0
        for room, one in sorted(there, key=lambda entry: (-entry[0], entry[1].order)):
            if room > main or (room == main and one.order < request.order):
                self.write(one)
            beat.followers.add(one)

    def _repay(self) -> None:
        """Those whose blocks are only counted give back what they do not need any more."""
        for request in self._scheduler.running:
            if request.rhythm is not None:
                main = self._room(request, request.rhythm)
                self._kv.repay(request, self._seen(request.rhythm, main))

    def _seen(self, rhythm: Rhythm, main: int) -> int:
        """Tokens of which what only they needed was given back; none before that begins."""
        return 0 if rhythm.opens >= 0 else main - self._depth


def _order(request: Request) -> int:
    return request.order
