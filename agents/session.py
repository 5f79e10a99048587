"""One session as a pure state machine: `advance(state, input) -> (state, actions)`.

It knows no clock and no network. The driver performs the actions and tells what happened; a run on the virtual clock
and a run against a real server go through the same states. Closed loop: a call is sent when the one before it in its
thread ended, its waits are over and the sub-agents it joins have ended.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.agents.plan import Plan, PlannedWait, make_plan
from windtunnel.traces.model import Cause

__all__ = [
    "AbortCalls",
    "Action",
    "Begin",
    "CallEnded",
    "EndWait",
    "Finish",
    "Input",
    "Plan",
    "PlannedWait",
    "SendCall",
    "StartWait",
    "State",
    "Stop",
    "WaitOver",
    "advance",
    "make_plan",
    "start",
]

Phase = Literal["unborn", "sending", "waiting", "joining", "ended"]
Outcome = Literal["completed", "failed", "cut"]


class Begin(Struct, frozen=True):
    """The session starts now."""


class CallEnded(Struct, frozen=True):
    thread: int
    call: int
    ok: bool
    reason: str | None = None
    """Name of the failure."""


class WaitOver(Struct, frozen=True):
    """The seconds of the running `StartWait` have passed. Not sent for joins."""

    thread: int
    call: int


class Stop(Struct, frozen=True):
    """The run ends: whatever is in flight is given up."""

    status: Outcome = "cut"
    reason: str | None = None


Input = Begin | CallEnded | WaitOver | Stop


class SendCall(Struct, frozen=True):
    thread: int
    call: int


class StartWait(Struct, frozen=True):
    thread: int
    call: int
    """Call that comes after the wait."""
    cause: Cause
    seconds: float | None
    """None for a join: it ends with an `EndWait`, not with a `WaitOver`."""
    recorded_s: float | None = None
    label: str = ""
    filled: bool = False
    """The recording did not say how long: a usual time was taken."""


class EndWait(Struct, frozen=True):
    """A join is over."""

    thread: int
    call: int
    cause: Cause


class AbortCalls(Struct, frozen=True):
    """Give up these requests: their ends will not be listened to."""

    calls: tuple[tuple[int, int], ...]
    """(thread, call)."""


class Finish(Struct, frozen=True):
    """The session is over; every later input is ignored."""

    status: Outcome
    reason: str | None = None


Action = SendCall | StartWait | EndWait | AbortCalls | Finish


class ThreadState(Struct, frozen=True, gc=False):
    phase: Phase
    position: int = 0
    """Next call, as an index into the plan's order of this thread."""
    waited: int = 0
    """Waits of that call that are over."""


class State(Struct, frozen=True):
    plan: Plan
    threads: tuple[ThreadState, ...]
    outcome: Outcome | None = None

    @property
    def calls_in_flight(self) -> tuple[tuple[int, int], ...]:
        return tuple(
            (thread, self.plan.order[thread][state.position])
            for thread, state in enumerate(self.threads)
            if state.phase == "sending"
        )


_UNBORN = ThreadState("unborn")
_ENDED = ThreadState("ended")


def start(plan: Plan) -> State:
    return State(plan, tuple(_UNBORN if calls else _ENDED for calls in plan.order))


def advance(state: State, given: Input) -> tuple[State, tuple[Action, ...]]:
    """The next state and what to do now, in order. A `ValueError` means that the driver broke the protocol."""
    if state.outcome is not None:
        return state, ()
    step = _Step(state)
    if isinstance(given, Begin):
        if any(thread.phase not in ("unborn", "ended") for thread in state.threads):
            raise ValueError("the session has begun already")
        for thread in state.plan.roots:
            step.enter(thread)
    elif isinstance(given, CallEnded):
        step.expect(given.thread, given.call, "sending")
        if not given.ok:
            return step.stop("failed", given.reason or "failed")
        step.call_ended(given.thread, given.call)
    elif isinstance(given, WaitOver):
        step.expect(given.thread, given.call, "waiting")
        step.waited(given.thread)
    else:
        return step.stop(given.status, given.reason)
    return step.done()


class _Step:
    """One transition being worked out: the threads' new states and the actions so far."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.plan = state.plan
        self.threads = list(state.threads)
        self.actions: list[Action] = []

    def expect(self, thread: int, call: int, phase: Phase) -> None:
        if not 0 <= thread < len(self.threads):
            raise ValueError(f"there is no thread {thread}")
        now = self.threads[thread]
        if now.phase != phase or self.plan.order[thread][now.position] != call:
            raise ValueError(f"call {call} of thread {thread} is not {phase}")

    def enter(self, thread: int) -> None:
        """The thread turns to its next call: the first wait starts, or the call is sent."""
        self._go_on(thread, self.threads[thread].position, 0)

    def waited(self, thread: int) -> None:
        now = self.threads[thread]
        self._go_on(thread, now.position, now.waited + 1)

    def _go_on(self, thread: int, position: int, waited: int) -> None:
        call = self.plan.order[thread][position]
        for wait in self.plan.waits.get(call, ())[waited:]:
            if wait.seconds is not None:
                self.actions.append(
                    StartWait(thread, call, wait.cause, wait.seconds, wait.recorded_s, wait.label, wait.filled)
                )
                self.threads[thread] = ThreadState("waiting", position, waited)
                return
            if self._join(thread, position, waited, wait):
                return
            waited += 1
        if self._join(thread, position, waited, None):
            return
        self.threads[thread] = ThreadState("sending", position, waited)
        self.actions.append(SendCall(thread, call))

    def _join(self, thread: int, position: int, waited: int, wait: PlannedWait | None) -> bool:
        """True when the thread has to wait for its sub-agents."""
        call = self.plan.order[thread][position]
        if call not in self.plan.joins or not self._open(call):
            return False
        recorded_s, label = (wait.recorded_s, wait.label) if wait is not None else (None, "")
        if not label:
            threads = self.plan.trace.threads
            label = ", ".join(threads[t].name or f"agent {t}" for t in sorted(self.plan.joins[call]))
        self.threads[thread] = ThreadState("joining", position, waited)
        self.actions.append(StartWait(thread, call, "subagent", None, recorded_s, label))
        return True

    def _open(self, call: int) -> bool:
        return any(self.threads[t].phase != "ended" for t in self.plan.joins.get(call, ()))

    def call_ended(self, thread: int, call: int) -> None:
        position = self.threads[thread].position + 1
        last = position == len(self.plan.order[thread])
        self.threads[thread] = _ENDED if last else ThreadState("waiting", position)
        for spawned in self.plan.spawns.get(call, ()):
            self.enter(spawned)
        if not last:
            self.enter(thread)
        else:
            self._release()

    def _release(self) -> None:
        """A thread ended: those that joined it may go on."""
        for thread, now in enumerate(self.threads):
            if now.phase != "joining":
                continue
            call = self.plan.order[thread][now.position]
            if not self._open(call):
                self.actions.append(EndWait(thread, call, "subagent"))
                self._go_on(thread, now.position, now.waited)

    def stop(self, status: Outcome, reason: str | None) -> tuple[State, tuple[Action, ...]]:
        others = tuple(
            (thread, self.plan.order[thread][now.position])
            for thread, now in enumerate(self.threads)
            if now.phase == "sending"
        )
        return replace(self.state, outcome=status), (
            *((AbortCalls(others),) if others else ()),
            Finish(status, reason),
        )

    def done(self) -> tuple[State, tuple[Action, ...]]:
        threads = tuple(self.threads)
        if not self.actions and all(thread.phase == "ended" for thread in threads):  # the last one began nothing
            return State(self.plan, threads, "completed"), (Finish("completed"),)
        return State(self.plan, threads), tuple(self.actions)
