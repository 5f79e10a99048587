"""One session in one lane: performs what the pure state machine asks for, and writes down what happened.

Deadlines are absolute: a wait starts where the call before it ended and a call is intended where its last wait ends, so
that lateness of the client shows as a difference and never adds up.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from windtunnel.agents import events as ev
from windtunnel.agents.client import RawStream
from windtunnel.agents.clock import Cancellable, VirtualClock
from windtunnel.agents.expected import Match, Trail
from windtunnel.agents.prompt import PATHS, Body, Conversation, Output
from windtunnel.agents.reading import Live
from windtunnel.agents.session import (
    AbortCalls,
    Action,
    Begin,
    CallEnded,
    EndWait,
    Finish,
    Input,
    Plan,
    SendCall,
    StartWait,
    Stop,
    WaitOver,
    advance,
    start,
)
from windtunnel.agents.sse import Parsed, check_length
from windtunnel.simulator.run.chunks import chunks_of
from windtunnel.simulator.run.deck import Draw
from windtunnel.simulator.run.mailbox import Mailbox

if TYPE_CHECKING:
    from windtunnel.simulator.run.driver import Driver

NS = 1_000_000_000
GIVING_UP = 3
"""Rounds of the loop in which a call is given up: a session that only sleeps ends no sooner than the others' calls."""


class ActiveCall:
    """A request in flight, as the screen shows it."""

    def __init__(self, agent: int, thread: int, call: int) -> None:
        self.agent = agent
        self.thread = thread
        self.call = call
        self.lane = (agent, thread)
        self.reading: Live | None = None
        """None until the request is on its way."""
        self.over = False
        self.counted = 0
        """Output tokens already added to the run's live total."""
        self.shown = ev.AgentProgress(agent, thread, call, "queue", 0)
        """What was last said of it."""
        self.told = False
        """That it is on its way was said."""


class SessionRun:
    """Drives one session to its end; `status` and `reason` say how it ended."""

    def __init__(self, driver: "Driver", agent: int, draw: Draw, plan: Plan, conversation: Conversation) -> None:
        self.driver = driver
        self.agent = agent
        self.plan = plan
        self.conversation = conversation
        self.id = f"s{draw.number}"
        self.status: ev.SessionStatus = "cut"
        self.reason: str | None = None
        self._draw = draw
        self._state = start(plan)
        self._inputs: Mailbox[tuple[Input, int] | BaseException] = Mailbox()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order in which they were begun, which is the one they are given up in: equal runs end alike."""
        self._timers: dict[tuple[int, int], Cancellable] = {}
        """On a virtual clock: what a task sleeps for otherwise."""
        self._waits: dict[tuple[int, int], ev.WaitStart] = {}
        self.tools = 0
        """Tools' waits among them: with any, some thread of the session is in a tool's time."""
        self._trails: dict[int, Trail] = {}
        self._calls_done = 0
        self._work_done = 0.0
        self._flying = 0
        """Calls that may start, or were started, and whose end was not told yet."""
        self._draining = False
        self._over = False

    async def run(self) -> None:
        driver = self.driver
        trace = self.plan.trace
        driver.emit(
            ev.SessionStart(
                t=driver.now(),
                agent=self.agent,
                session=self.id,
                trace=trace.header.id,
                title=trace.header.title or trace.header.id,
                copy=self._draw.copy,
                calls_total=self.plan.calls_total,
                turns_total=self.plan.turns_total,
                first_turn=self.plan.first_turn,
                work=self.plan.work,
            )
        )
        try:
            self._apply(Begin(), driver.clock.now_ns())
            while not self._over:
                told = await self._inputs.get()
                if isinstance(told, BaseException):
                    raise told
                self._apply(*told)
                if self._draining and not self._flying and self._inputs.empty():
                    self._finish("cut", "call_budget")
        except asyncio.CancelledError:
            self.status, self.reason = driver.session_fate()
            raise
        finally:
            cancelled = await self._quiesce()
            driver.emit(
                ev.SessionEnd(
                    t=driver.now(),
                    agent=self.agent,
                    session=self.id,
                    status=self.status,
                    reason=self.reason,
                    calls_done=self._calls_done,
                    work_done=self._work_done,
                )
            )
        if cancelled is not None:
            raise cancelled

    def drain(self) -> None:
        """No call may start any more: the session ends as cut once its calls in flight have ended."""
        self._draining = True
        if not self._flying:
            self._inputs.put((Stop("cut", "call_budget"), self.driver.clock.now_ns()))

    async def _quiesce(self) -> asyncio.CancelledError | None:
        """Calls and waits are given up. A cancellation meanwhile is returned, so that the session's end is told."""
        cancelled = None
        rounds = GIVING_UP if self._timers and not self._tasks else 0
        self._give_up()
        while self._tasks or rounds:
            try:
                if self._tasks:
                    await asyncio.wait(self._tasks)
                else:
                    rounds -= 1
                    await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                cancelled = error
        for thread, call in list(self._waits):
            self._end_wait(thread, call)
        for trail in self._trails.values():
            self.driver.index.drop(trail)
        return cancelled

    def _give_up(self) -> None:
        """Calls and sleeps."""
        for task in self._tasks:
            task.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _apply(self, item: Input, at: int) -> None:
        self._state, actions = advance(self._state, item)
        for action in actions:
            self._perform(action, at)

    def _perform(self, action: Action, at: int) -> None:
        match action:
            case SendCall(thread=thread, call=call):
                if self.driver.take_call():
                    self._flying += 1
                    self._spawn(self._call(thread, call, at), self._call_ended)
            case StartWait():
                self._start_wait(action, at)
            case EndWait(thread=thread, call=call):
                self._end_wait(thread, call)
            case AbortCalls():
                self._give_up()
            case Finish(status=status, reason=reason):
                self._finish(status, reason)

    def _finish(self, status: ev.SessionStatus, reason: str | None) -> None:
        if not self._over:
            self.status, self.reason = status, reason
            self._over = True

    def _spawn(self, work: Coroutine[Any, Any, None], ended: Callable[[asyncio.Task[None]], None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(ended)

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        self._ended(task)
        self.driver.call_over()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """An error in a task is a bug of ours: it is raised where the session runs, which would wait for ever else."""
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._inputs.put(error)

    def _start_wait(self, wait: StartWait, at: int) -> None:
        event = ev.WaitStart(
            t=self.driver.at(at),
            agent=self.agent,
            session=self.id,
            thread=wait.thread,
            call=wait.call,
            cause=wait.cause,
            seconds=wait.seconds,
            recorded_s=wait.recorded_s,
            label=wait.label,
            filled=wait.filled,
        )
        self.driver.emit(event)
        self._waits[wait.thread, wait.call] = event
        self.tools += wait.cause == "tool"
        if wait.seconds is None:
            return
        due, clock = at + round(wait.seconds * NS), self.driver.clock
        if self.driver.virtual and isinstance(clock, VirtualClock):
            timer = clock.call_at(due, self._slept, wait.thread, wait.call, due)
            self._timers[wait.thread, wait.call] = timer
        else:
            self._spawn(self._sleep(wait.thread, wait.call, due), self._ended)

    async def _sleep(self, thread: int, call: int, due: int) -> None:
        await self.driver.clock.sleep_until(due)
        self._slept(thread, call, due)

    def _slept(self, thread: int, call: int, due: int) -> None:
        self._timers.pop((thread, call), None)
        self._end_wait(thread, call)
        self._inputs.put((WaitOver(thread, call), due))

    def _end_wait(self, thread: int, call: int) -> None:
        wait = self._waits.pop((thread, call), None)
        if wait is not None:
            self.tools -= wait.cause == "tool"
            self.driver.emit(
                ev.WaitEnd(
                    t=self.driver.now(),
                    agent=self.agent,
                    session=self.id,
                    thread=thread,
                    call=call,
                    cause=wait.cause,
                )
            )

    async def _call(self, thread: int, call_id: int, intended: int) -> None:
        driver = self.driver
        body = self.conversation.body(call_id)
        trail = self._trails.setdefault(thread, Trail())
        match = driver.index.sent(trail, body.kept_pieces, body.added_pieces, body.expected_prompt_tokens)
        turn, turns = self.plan.turn_of(call_id)
        started = ev.CallStart(
            t=driver.now(),
            agent=self.agent,
            session=self.id,
            thread=thread,
            call=call_id,
            turn=turn,
            turns=turns,
            request_id=f"{driver.run_id}-{self.id}-{thread}-{call_id}",
            t_intended=driver.at(intended),
            expected_prompt_tokens=body.expected_prompt_tokens,
            expected_cached_tokens=match.rounded,
            pinned_tokens=body.pinned_tokens,
        )
        driver.emit(started)
        active = ActiveCall(self.agent, thread, call_id)
        driver.begun(active)
        throttled = 0
        cancelled: asyncio.CancelledError | None = None
        parsed: Parsed | None = None
        try:
            throttled = await driver.throttle()
            path = PATHS[self.conversation.prepared.route]
            raw = await driver.client.stream(
                path, body.parts, request_id=started.request_id, on_start=lambda raw: driver.opened(active, raw)
            )
            parsed = await driver.reader.finish(raw)
        except asyncio.CancelledError as error:
            cancelled = error
        event, parsed = self._call_end(started, body, match, active, parsed, throttled, cancelled is not None)
        if not event.cut:
            self._calls_done += 1
            self._work_done += self.plan.work_of(call_id) if event.failure is None else 0.0
        driver.closed(active, event, parsed)
        if cancelled is not None:
            raise cancelled
        if event.failure is None:
            live = self.conversation.live and self.conversation.prepared.route == "chat"
            output = Output(
                text=parsed.whole_text if live else "",
                reasoning=parsed.whole_reasoning if live else "",
                tool_calls=bool(parsed.tool_calls),
                token_ids=parsed.token_ids,
                tokens=parsed.completion_tokens,
            )
            driver.index.generated(trail, self.conversation.ended(call_id, output))
        end = driver.clock.now_ns() if event.t_end is None else event.t_end + driver.origin
        self._flying -= 1
        self._inputs.put((CallEnded(thread, call_id, ok=event.failure is None, reason=event.failure), end))

    def _call_end(
        self,
        started: ev.CallStart,
        body: Body,
        match: Match,
        active: ActiveCall,
        parsed: Parsed | None,
        throttled: int,
        cancelled: bool,
    ) -> tuple[ev.CallEnd, Parsed]:
        """What became of a request. `parsed` is None for one that was given up: then what had arrived counts."""
        driver = self.driver
        reading = active.reading
        raw = RawStream(request_id=started.request_id) if reading is None else reading.raw
        if parsed is None:
            parsed = Parsed() if reading is None else driver.rest_of(reading)
        ended_well = raw.t_end is not None and raw.failure is None
        fate = driver.call_fate() if cancelled and not ended_well else None
        failure = raw.failure or parsed.failure or check_length(parsed, body.pinned_tokens)
        if fate is not None:
            failure = None if fate == "cut" else fate
        call = self.plan.trace.calls[started.call]
        recorded = None if call.end_s is None or call.start_s is None else round(call.end_s - call.start_s, 6)
        event = ev.CallEnd(
            t=driver.now(),
            agent=self.agent,
            session=self.id,
            thread=started.thread,
            call=started.call,
            request_id=started.request_id,
            t_intended=started.t_intended,
            t_sent=driver.at_or_none(raw.t_sent),
            t_first=driver.at_or_none(parsed.t_first),
            t_first_visible=driver.at_or_none(parsed.t_first_visible),
            t_first_tool=driver.at_or_none(parsed.t_first_tool),
            t_last=driver.at_or_none(parsed.t_last),
            t_end=driver.at_or_none(raw.t_end),
            throttled_ns=throttled,
            prompt_tokens=parsed.prompt_tokens,
            cached_tokens=parsed.cached_tokens,
            expected_prompt_tokens=body.expected_prompt_tokens,
            expected_cached_tokens=match.rounded,
            expected_cached_exact=match.exact,
            reprefilled_tokens=body.reprefilled_tokens,
            queued_s=parsed.queued_s,
            prefilled_s=parsed.prefilled_s,
            completion_tokens=parsed.completion_tokens,
            reasoning_tokens=parsed.reasoning_tokens,
            pinned_tokens=body.pinned_tokens,
            finish=parsed.finish,
            failure=failure,
            detail=raw.detail or parsed.detail,
            cut=fate == "cut",
            warmup=driver.window.phase == "warmup",
            kind=call.kind,
            recorded_cached_tokens=call.usage.cached,
            recorded_latency_s=recorded,
            chunks=chunks_of(raw, parsed, packed=driver.virtual),
        )
        return event, parsed
