"""Requests that are parked from their prompt's end to their own: when nothing is in the way, all of it is foreseen.

Such a request is part of every step until the one that brings its last token, and no step is walked through for it.
"""

from typing import TYPE_CHECKING

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.rhythm import NEVER
from windtunnel.simulator.emulator.tally import Tally

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.parking import Parking
    from windtunnel.simulator.emulator.scheduler import Scheduler

ENDS = -2
"""Stands for the drafts of one whose last token returns and who is not walked through."""
_LONG = 4
"""Shorter answers are walked through."""


class Through:
    def __init__(self, scheduler: "Scheduler", parking: "Parking", tally: Tally, depth: int) -> None:
        self._scheduler = scheduler
        self._parking = parking
        self._tally = tally
        self._depth = depth
        self._window = scheduler.limits.window
        self._longest = scheduler.limits.max_model_len
        self._over: dict[int, list[Request]] = {}
        """Step number to those whose last token it brings."""

    def decides(self, number: int) -> bool:
        """Decide step `number` where nobody has to be walked through; False where the walk has to be made."""
        parking, tally = self._parking, self._tally
        if parking.awake:
            return False
        given: dict[Request, int] | None = None
        if (events := parking.calendar.get(number)) is not None:
            shedding = self._happens(number, events)
            if shedding is None:
                return False
            del parking.calendar[number]
            if shedding:
                given = tally.shed(shedding, number)
        if not parking.count or not tally.books(number, given):
            return False
        parking.context += parking.count
        parking.windowed += parking.rising
        tally.decided()
        return True

    def books(self, number: int) -> bool:
        """Count what step `number`, in which nothing else happens, takes and gives back, if that can be."""
        return self._tally.books(number, None)

    @property
    def sheds_at(self) -> int:
        """Before this step nothing is given back that stays findable."""
        return self._tally.sheds_at

    def quiet_until(self) -> int:
        """Before this step nothing happens when one is decided, and when the one two before it returns.

        0 where somebody is walked through.
        """
        if self._parking.awake:
            return 0
        return min(min(self._parking.calendar, default=NEVER), min(self._over, default=NEVER) + self._depth)

    def _happens(self, number: int, events: list[Request]) -> list[Request] | None:
        """Who gives back blocks in step `number`; all else that happens is done. None where that takes a walk."""
        parking = self._parking
        valid: list[tuple[Request, bool]] = []
        for request in events:
            if request.parked and request.alarm == number:
                rhythm, leaves = request.rhythm, number >= request.wakes_at
                if rhythm is None or (leaves and request.ends_at < 0):
                    return None
                valid.append((request, not leaves and rhythm.opens == number))
        shedding = [request for request, sheds in valid if sheds]
        if shedding and not self._tally.ample:
            return None
        for request, sheds in valid:
            request.alarm = -1
            if number >= request.wakes_at:
                self.leave(request)
                continue
            rhythm = request.rhythm
            assert rhythm is not None
            if request.rising and rhythm.rises_at == number:
                request.rising = False
                parking.rising -= 1
            if rhythm.gives_at == number:
                self._tally.gives(request, rhythm)
            if not sheds:
                self._tally.remind(request, rhythm)
        return shedding

    # One request.

    def begins(self, request: Request, number: int, chunk: int) -> bool:
        """Park a request of which step `number` computes the prompt's last `chunk` tokens, if its end is foreseen."""
        parking, kv, ends = self._parking, self._scheduler.kv, request.ends
        if ends < _LONG or request.preemptions or request.prompt_tokens + request.max_tokens > self._longest:
            return False
        rhythm = kv.rhythm_from_prefill(request, number, chunk, self._depth)
        if rhythm is None:
            return False
        request.rhythm, request.parked, request.chunk = rhythm, True, chunk
        request.ends_at = number + ends - 1
        # With a step decided ahead a length that is reached is foreseen, a stop token is not.
        stops = self._depth > 1 and ends < request.max_tokens
        rhythm.last = request.ends_at + stops
        request.wakes_at = NEVER if stops or self._depth == 1 else request.ends_at + 1
        request.returned_from = request.noted_from = number
        request.scheduled_from = number + 1
        request.created = kv.created(request)
        self._over.setdefault(request.ends_at, []).append(request)
        parking.awake.remove(request)
        parking.count += 1
        parking.context += request.computed
        if self._window:
            parking.windowed += min(request.computed, self._window)
            request.rising = request.computed < self._window
            parking.rising += request.rising
        self._tally.count(request, rhythm)
        return True

    def leave(self, request: Request) -> None:
        """It is no longer part of the steps."""
        parking, rhythm = self._parking, request.rhythm
        assert rhythm is not None
        context = rhythm.last + rhythm.offset
        parking.count -= 1
        parking.context -= context
        if self._window:
            parking.windowed -= min(context, self._window)
            parking.rising -= request.rising
            request.rising = False
        self._tally.beat.leave(request)
        request.left = True

    def over(self, number: int) -> list[Request]:
        """Those whose last token step `number`, which returns, brings, in running order."""
        ending = [one for one in self._over.pop(number, ()) if one.parked and one.ends_at == number]
        return sorted(ending, key=_order) if len(ending) > 1 else ending

    def returns(self, number: int) -> list[Request]:
        """Step `number`, which nobody was walked through for, returns: those that end with it."""
        over = self.over(number) if number in self._over else []
        for request in over:
            self.end(request)
            self._scheduler.running.remove(request)
        return over

    def end(self, request: Request) -> None:
        """So it did: it is brought up to date, and nothing is held for it any more."""
        self._parking.update(request)
        self._parking.note(request)
        left = request.left
        if not left:
            self.leave(request)
        self._tally.end(request, left=left)
        request.parked = request.left = False
        request.ends_at = -1
        request.finished = request.reason

    def clear(self) -> None:
        """All are walked through again."""
        self._over.clear()


def _order(request: Request) -> int:
    return request.order
