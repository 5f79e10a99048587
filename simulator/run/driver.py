"""Runs the lanes: who starts when, what is in flight, when it ends, and what a failure or an interrupt means."""

import asyncio
from bisect import insort
from collections.abc import Callable, Coroutine, Sequence
from operator import attrgetter
from typing import Any, Literal

from windtunnel.agents import events as ev
from windtunnel.agents.client import RawStream, Streams
from windtunnel.agents.clock import Clock, VirtualClock
from windtunnel.agents.expected import PrefixIndex
from windtunnel.agents.plan import Planners
from windtunnel.agents.prompt import Conversation, Options, Prepared
from windtunnel.agents.reading import Live, Reader, Readings
from windtunnel.agents.sse import Parsed
from windtunnel.simulator.results.store import RunWriter, TextLine
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.counts import Counts
from windtunnel.simulator.run.deck import CallBudget, Deck, Draw, seeded
from windtunnel.simulator.run.lane import NS, ActiveCall, SessionRun
from windtunnel.simulator.run.looks import Looks
from windtunnel.simulator.run.pacing import RateCap
from windtunnel.simulator.run.prepare import tagged
from windtunnel.simulator.run.window import Window

StopKind = Literal["duration", "interrupted", "engine_gone", "worker_gone", "failures"]
PROGRESS_S = 0.25
VIRTUAL_PROGRESS_S = 1.0
"""On a virtual clock nobody watches a call grow: an hour's progress was seven eighths of its events."""
FAILED_SESSION_PAUSE_S = 1.0
"""A lane whose session failed waits this long, so that a refusing server is not hammered."""
_LANE = attrgetter("lane")


class Driver:
    """Everything between the first lane's start and the last call's end."""

    def __init__(
        self,
        *,
        config: RunConfig,
        prepared: Sequence[Prepared],
        options: Options,
        clock: Clock,
        client: Streams,
        writer: RunWriter,
        run_id: str,
        origin_ns: int,
        match_unit: int | None,
        reader: Readings | None = None,
        planners: Planners | None = None,
        virtual: bool = False,
        pulse: Callable[[], int] | None = None,
    ) -> None:
        """`planners`: of the prepared traces, where there are some already.

        `virtual`: the clock stands still while code runs, and what happened is kept in this process to the end.

        `pulse`: a number that stays the same while no call in flight gets anything; it is asked on such a clock only.
        """
        self.config = config
        self.virtual = virtual
        self.clock = clock
        self.client = client
        self.reader: Readings = reader or Reader(keep_text=config.keeps_text, now_ns=clock.now_ns)
        self.run_id = run_id
        self._prepared = prepared
        self._options = options
        self._writer = writer
        self.origin = origin_ns
        self.index = PrefixIndex(match_unit or 1)
        self._planners = Planners([one.trace for one in prepared], config.policy()) if planners is None else planners
        self._deck = Deck(len(prepared), config.seed, config.sessions)
        self._budget = CallBudget(config.calls)
        self._counts = Counts(options)
        self._looks = Looks(self.reader, self._counts, clock, text=config.text)
        self._cap = None if config.rate is None else RateCap(config.rate, clock)
        self.window = Window(config.agents, config.warmup, config.duration_s, self._enter)
        self.active: list[ActiveCall] = []
        """Calls in flight, in the order of their lanes."""
        self.live: dict[int, SessionRun] = {}
        self.output_tokens = 0
        self.prompt_tokens = 0
        self.dispatch_us: list[int] = []
        self.sessions_started = 0
        self.sessions_failed = 0
        self.calls_ok = 0
        self._open_calls = 0
        self._broken: BaseException | None = None
        self._stop: StopKind | None = None
        self._over = False
        self._progress_ns = round((VIRTUAL_PROGRESS_S if virtual else PROGRESS_S) * NS)
        self._progress_due: int | None = None
        self._pulse = pulse
        self._changes = 0
        """What was said of sessions and calls, and who came or went: without any, a look shows what the last showed."""
        self._looked: tuple[int, int] | None = None
        """Changes and pulse at the last look on a virtual clock."""
        self._shown: ev.Progress | None = None
        self._lanes: list[asyncio.Task[None]] = []

    # -- time and events

    def at(self, ns: int) -> int:
        return ns - self.origin

    def at_or_none(self, ns: int | None) -> int | None:
        return None if ns is None else ns - self.origin

    def now(self) -> int:
        return self.clock.now_ns() - self.origin

    def emit(self, event: ev.Event) -> None:
        self._changes += 1
        self._writer.emit(event)

    def _enter(self, phase: ev.PhaseName, at: int, note: str | None) -> None:
        self.emit(ev.Phase(t=self.at(at), phase=phase, note=note))

    # -- the run

    @property
    def stopped(self) -> StopKind | None:
        return self._stop

    async def run(self) -> None:
        """Run all lanes to the end of the run, whichever comes first of: drained, `--duration`, `stop()`."""
        began = self.clock.now_ns()
        self.window.begin(began)
        if self._stop is None:  # a stop may come before the first lane
            self._lanes.append(self._start(self._start_lanes(began), "start"))
        progress = self._repeat(self._progress_now) if self.virtual else self._progress()
        beside = [self._start(self._repeat(self._watch_window), "window"), self._start(progress, "progress")]
        try:
            await asyncio.gather(*self._lanes, return_exceptions=True)  # the ramp
            await asyncio.gather(*self._lanes, return_exceptions=True)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        self._over = True
        self.window.end(self.clock.now_ns())
        self._emit_progress()
        if self._broken is not None:
            raise self._broken

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """An error in one part ends the run at once and is raised at its end."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._broken is None:
            self._broken = error
            self.stop("failures")

    def stop(self, kind: StopKind) -> None:
        """End the run now; calls in flight end as cut, or as failures where the engine is the reason.

        A run whose last call has ended is what it is: nothing is left that could be stopped.
        """
        if self._stop is None and not self._over:
            self._stop = kind
            self.window.dry(self.clock.now_ns())
            for lane in self._lanes:
                lane.cancel()

    def call_fate(self) -> str:
        """What becomes of a call that is cancelled: `cut`, or the name of a failure."""
        return "engine_gone" if self._stop == "engine_gone" else "cut"

    def session_fate(self) -> tuple[ev.SessionStatus, str]:
        if self._stop == "engine_gone":
            return "failed", "engine_gone"
        return "cut", self._stop or "run_end"

    async def _repeat(self, look: Callable[[], int | None]) -> None:
        """Calls `look` at once and then at the times that it says (ns); on a virtual clock no task is woken for it."""
        if self.virtual and isinstance(self.clock, VirtualClock):
            await self.clock.repeat(look)
            return
        while (at := look()) is not None:
            await self.clock.sleep_until(at)

    def _watch_window(self) -> int | None:
        """Looks every quarter of a second until the window opens, which moves its deadline, and then at that."""
        now, wake = self.clock.now_ns(), self.window.wake
        if self.window.phase not in ("starting", "warmup") and (wake is None or now < wake):
            return wake
        if wake is None or now < wake or not self.window.tick(now):
            # A window that was woken waits for a lane to start, and that will tell it.
            look = now + NS // 4
            return look if wake is None or now >= wake else min(wake, look)
        if self.window.phase == "warmup":
            note = "the warm-up did not end in time: give a shorter --warmup or fewer --agents"
            self.emit(ev.Note(t=self.now(), level="warning", text=note, reason="no_steady_state"))
        self.stop("duration")
        return None

    async def _start_lanes(self, began: int) -> None:
        """One after another, also where they are due together: a lane's first call is then not late by all others'."""
        step = self.config.ramp_s / self.config.agents
        agents = iter(range(-1, self.config.agents))

        def start() -> int | None:
            agent = next(agents)
            if agent >= 0:
                self._lanes.append(self._start(self._lane(agent), f"lane {agent}"))
            return began + round((agent + 1) * step * NS) if agent + 1 < self.config.agents else None

        await self._repeat(start)

    async def _lane(self, agent: int) -> None:
        first = True
        while True:
            draw = None if self._budget.exhausted else self._deck.next()
            if first:
                self.window.lane_started(self.clock.now_ns())
                first = False
            if draw is None:
                self.window.dry(self.clock.now_ns())
                return
            session = self._session(agent, draw)
            self.sessions_started += 1
            self.live[agent] = session
            self._changes += 1
            try:
                await session.run()
            finally:
                self.live.pop(agent, None)
                self._changes += 1
            if session.status == "failed":
                self.sessions_failed += 1
                self._check_hopeless()
                await self.clock.sleep_until(self.clock.now_ns() + round(FAILED_SESSION_PAUSE_S * NS))

    def _session(self, agent: int, draw: Draw) -> SessionRun:
        prepared = self._prepared[draw.index]
        plan = self._planners[draw.index].plan(seeded(self.config.seed, "start", draw.number))
        options = tagged(self._options, self.run_id, prepared.trace.header.id, draw.copy)
        conversation = Conversation(prepared, options)
        return SessionRun(self, agent, draw, plan, conversation)

    def _check_hopeless(self) -> None:
        """Nothing has ever worked and every lane has tried twice: more of the same tells nothing."""
        if not self.calls_ok and self.sessions_failed >= 2 * self.config.agents:
            self.stop("failures")

    # -- calls

    def take_call(self) -> bool:
        """Whether one more call may start; `call_over` must follow when it is."""
        if self._budget.take():
            self._open_calls += 1
            return True
        self._drain()
        return False

    def call_over(self) -> None:
        self._open_calls -= 1
        if self._budget.exhausted and not self._open_calls:
            self._drain()

    def _drain(self) -> None:
        """No call may start any more: what is in flight goes on to its end, and nobody waits for a turn to come."""
        self.window.dry(self.clock.now_ns())
        for session in list(self.live.values()):
            session.drain()

    def begun(self, active: ActiveCall) -> None:
        """A call is in flight, though its request is not yet on its way."""
        insort(self.active, active, key=_LANE)
        self._changes += 1

    async def throttle(self) -> int:
        """Wait for the request-rate cap; returns the ns waited, to be recorded apart from the client's own delay."""
        if self._cap is None:
            return 0
        began = self.clock.now_ns()
        await self._cap.acquire()
        return self.clock.now_ns() - began

    def opened(self, active: ActiveCall, raw: RawStream) -> None:
        """A request is on its way."""
        active.reading = self.reader.open(raw)
        self._changes += 1

    def rest_of(self, reading: Live) -> Parsed:
        """Everything a given-up request had received."""
        self.reader.forget(reading.raw)
        return reading.rest()

    def closed(self, active: ActiveCall, event: ev.CallEnd, parsed: Parsed) -> None:
        """A request is over, one way or another."""
        self.active.remove(active)
        active.over = True
        self._counts.ended(parsed)
        self.emit(event)
        self.output_tokens += (event.completion_tokens or sum(event.chunks.n)) - active.counted
        if event.t_first is not None and event.prompt_tokens is not None:
            self.prompt_tokens += event.prompt_tokens
        sent = None if active.reading is None else active.reading.raw.t_write
        if sent is not None:
            self.dispatch_us.append((self.at(sent) - event.t_intended - event.throttled_ns) // 1000)
        if event.failure is None and not event.cut:
            self.calls_ok += 1
        self.window.call_ended(active.agent, self.clock.now_ns())
        if event.failure in ("connect_refused", "engine_gone"):
            self.stop("engine_gone")
        if self.config.text and (parsed.text or parsed.reasoning or parsed.tool_calls):
            calls = tuple({"id": i, "name": name, "arguments": args} for i, name, args in parsed.tool_calls)
            self._writer.text(
                TextLine(
                    request_id=event.request_id,
                    agent=event.agent,
                    session=event.session,
                    thread=event.thread,
                    call=event.call,
                    text=parsed.text,
                    reasoning=parsed.reasoning,
                    tool_calls=calls,
                ),
                parsed.more_text,
                parsed.more_reasoning,
            )

    # -- progress

    async def _progress(self) -> None:
        due = self.clock.now_ns()
        while True:
            due = max(due + self._progress_ns, self.clock.now_ns())
            await self.clock.sleep_until(due)
            began = self.clock.now_ns()
            await self.reader.catch_up()
            seen = await self._looks.at(self.active.copy(), began)
            shown = [progress for active, progress in seen if not active.over]
            self._emit_progress(shown, parsed=all(progress.exact for progress in shown))
            self._writer.flush()

    def _progress_now(self) -> int:
        """The same on a virtual clock, one time after the other; when it is due again."""
        now = self.clock.now_ns()
        if self._progress_due is not None:
            looked = None if self._pulse is None else (self._changes, self._pulse())
            if looked is not None and looked == self._looked and self._shown is not None:
                self._shown = self._writer.again(self._shown, self.at(now))
            else:
                shown, exact = self._looks.now(self.active)
                self._shown = self._emit_progress(shown, parsed=exact)
                self._looked = looked
            self._writer.flush()
        due = now if self._progress_due is None else self._progress_due
        self._progress_due = max(due + self._progress_ns, now)
        return self._progress_due

    def _emit_progress(self, agents: Sequence[ev.AgentProgress] = (), *, parsed: bool = True) -> ev.Progress:
        flying = {active.agent for active in self.active}
        in_tool = sum([bool(self.live[agent].tools) for agent in self.live.keys() - flying])
        self.output_tokens += self._looks.tokens
        self._looks.tokens = 0
        progress = ev.Progress(
            t=self.now(),
            output_tokens=self.output_tokens,
            prompt_tokens=self.prompt_tokens,
            in_flight=len(flying),
            in_tool=in_tool,
            waiting=len(self.live) - len(flying) - in_tool,
            agents=tuple(agents),
            parsed=parsed,
        )
        self._writer.emit(progress)
        return progress
