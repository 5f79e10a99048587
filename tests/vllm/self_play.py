"""The emulator by itself: a crowd on virtual time, told what the real model said and how long things took, not when.

Which step a request joins is decided here by the emulated clock. Where the order of arrival leaves nothing open the
counts equal the real engine's; elsewhere the two differ by what happened to fall into another step.
"""

import asyncio
from heapq import heappop, heappush
from typing import Any

import numpy as np
from msgspec import Struct

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler, Step

from .crowds import Answer, Asks, Crowd
from .step_play import Asked, Rows

QUIET = 20
"""Turns of the event loop after which every agent waits for an answer."""


class Pace:
    """Time of a step: what the real engine took for the same one; where it made no such step, a line through all."""

    def __init__(self, times: dict[Rows, int]) -> None:
        self._times = times
        sizes = [sum(count for _, count, _ in rows) for rows in times]
        self._per_token, self._fixed = np.polyfit(sizes, list(times.values()), 1)

    def of(self, step: Step) -> float:
        rows = tuple((r.key, n, r.computed - n) for r, n in zip(step.requests, step.counts, strict=True))
        return self._times.get(rows, max(1e5, self._fixed + self._per_token * step.tokens)) / 1e9


class Happened(Struct):
    """When the calls of a crowd came to the real engine and left it, ns, by the clients' names."""

    waits: dict[str, list[str]]
    """Those that had to end first."""
    arrival: dict[str, int]
    """From the step that gave the last of what was waited for, or from the first call of all."""
    departure: dict[str, int]
    """From what made the client leave to the engine's hearing of it."""

    @classmethod
    def of(cls, waits: dict[str, list[str]], asked: dict[str, Asked], leave_after: dict[str, int | None]) -> "Happened":
        freed = {key: asked[key].ended for key in waits}
        for key, chunks in leave_after.items():
            if chunks is not None:
                freed[key] = asked[key].results[chunks - 1] if chunks else asked[key].at
        start = min(asked[key].at for key in waits)
        return cls(
            waits,
            {
                key: asked[key].at - max((freed[other] for other in before), default=start)
                for key, before in waits.items()
            },
            {key: max(0, asked[key].ended - at) for key, at in freed.items()},
        )


def of_crowd(answers: list[Answer], asked: dict[str, Asked]) -> Happened:
    """A call of a crowd waits for all that the clients had done with when it was sent."""
    waits = {one.key: [other.key for other in answers if 0 < other.done <= one.sent] for one in answers}
    return Happened.of(waits, asked, {one.key: one.leave_after for one in answers})


def of_run(ends: list[dict[str, Any]], asked: dict[str, Asked]) -> Happened:
    """A call of a run waits for those of its session that had ended when it was sent; what was asked before, for none."""
    waits: dict[str, list[str]] = {key: [] for key in asked}
    waits |= {
        end["request_id"]: [
            other["request_id"]
            for other in ends
            if other["session"] == end["session"] and other["t_end"] <= end["t_sent"]
        ]
        for end in ends
    }
    return Happened.of(waits, asked, {})


def again(waits: dict[str, list[str]], asked: dict[str, Asked]) -> Crowd:
    """The calls of a run, as a crowd."""

    async def crowd(client: Asks) -> None:
        done = {key: asyncio.Event() for key in waits}

        async def one(key: str) -> None:
            for other in waits[key]:
                await done[other].wait()
            await client.ask(asked[key].prompt, asked[key].max_tokens, key=key)
            done[key].set()

        await asyncio.gather(*(one(key) for key in waits))

    return crowd


class Emulated(Asks):
    """Answers a crowd as `Client` does, out of a Core; `asked` and `happened` tell of the real engine."""

    def __init__(self, name: str, limits: Limits, pace: Pace, happened: Happened, asked: dict[str, Asked]) -> None:
        super().__init__(name)
        self._happened = happened
        self.scheduler = Scheduler(limits)
        self.core = Core(self.scheduler, pace, asynchronous=False)  # type: ignore[arg-type]
        self.now = 0
        self.peak = 0
        self.requests: dict[str, Request] = {}
        self._asked = asked
        self._place = {key: place for place, key in enumerate(asked)}
        """The order in which the real engine took them: several may come at one look."""
        self._names = {one.key: one.call for one in asked.values()}
        self._arriving: list[tuple[int, int, str]] = []
        self._leaving: list[tuple[int, int, str]] = []
        self._open: dict[str, tuple[Answer, asyncio.Future[None], int | None]] = {}

    async def ask(
        self, prompt: list[int] | list[dict[str, str]], tokens: int, *, leave_after: int | None = None, **more: Any
    ) -> Answer:
        answer = self.note(self.now, leave_after, more.get("key"))
        asked = self._asked[answer.key]
        assert isinstance(prompt[0], dict) or prompt == asked.prompt, f"{answer.key}: another prompt than the real one"
        done = asyncio.get_running_loop().create_future()
        self._open[answer.key] = (answer, done, leave_after)
        heappush(self._arriving, (self.now + self._happened.arrival[answer.key], self._place[answer.key], answer.key))
        await done
        return answer

    async def run(self, crowd: Crowd) -> None:
        task = asyncio.ensure_future(crowd(self))
        while True:
            for _ in range(QUIET):
                await asyncio.sleep(0)
            if not self._happen():
                break
        await task

    def _happen(self) -> bool:
        """The next thing in time; False when nothing is left."""
        due = self.core.due
        first = min((queue[0][0] for queue in (self._arriving, self._leaving) if queue), default=None)
        if first is None or (due is not None and due < first):
            if due is None:
                return False
            self.now = due
            self._turn()
        elif self._arriving and self._arriving[0][0] == first:
            self.now = first
            self._arrive()
        else:
            self.now, _, key = heappop(self._leaving)
            self.core.abort(self.requests[key])
        self.peak = max(self.peak, self.scheduler.limits.num_gpu_blocks - 1 - self.scheduler.pool.free_count)
        return True

    def _arrive(self) -> None:
        """Requests that the engine sees at one look share its next step."""
        seen: list[Request] = []
        while self._arriving and self._arriving[0][0] == self.now:
            _, _, key = heappop(self._arriving)
            request = self.requests[key] = self._asked[key].request(self.scheduler.limits.block_size)
            request.arrival = self.now
            seen.append(request)
            if self._open[key][2] == 0:
                self._leave(key)
        for request in seen[:-1]:
            self.scheduler.add(request)
        self.core.submit(seen[-1], self.now)

    def _turn(self) -> None:
        for output in self.core.turn().outputs:
            key = self._names[output.request.key]
            if key not in self._open:
                continue
            answer, done, leave_after = self._open[key]
            answer.ids += output.tokens
            answer.chunks.append(len(output.tokens))
            if output.finished:
                answer.finish = output.finished
                del self._open[key]
                done.set_result(None)
            elif leave_after is not None and len(answer.chunks) >= leave_after:
                self._leave(key)

    def _leave(self, key: str) -> None:
        """The client goes; the engine hears of it a moment later."""
        _, done, _ = self._open.pop(key)
        done.set_result(None)
        heappush(self._leaving, (self.now + self._happened.departure[key], len(self._leaving), key))


def first_difference(asked: dict[str, Asked], own: dict[str, Request]) -> str:
    """The first step that let in other requests than the real engine's did, or went on with one that had left."""
    real = _groups({key: one.admitted for key, one in asked.items() if one.hit is not None})
    ours = _groups({key: one.scheduled_at for key, one in own.items() if one.scheduled_at is not None})
    for place, (theirs, mine) in enumerate(zip(real, ours, strict=False)):
        if theirs != mine:
            return f"admission {place} let in {' '.join(theirs)}, here {' '.join(mine)}"
    for key, one in asked.items():
        if one.finish == "abort" and len(one.output) != len(own[key].output):
            return f"{key} was heard to leave after {len(one.output)} tokens, here {len(own[key].output)}"
    return "the same requests were let in together; other steps lay between"


def _groups(when: dict[str, int]) -> list[list[str]]:
    """Names by the time of the step that let them in, in order."""
    found: dict[int, list[str]] = {}
    for key, at in when.items():
        found.setdefault(at, []).append(key)
    return [sorted(found[at]) for at in sorted(found)]
