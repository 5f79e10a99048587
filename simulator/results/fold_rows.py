"""One agent as the screen shows it, and the rules by which events change it."""

from collections import deque

from msgspec import Struct, field
from msgspec.structs import replace

from windtunnel.agents.events import AgentProgress, AgentState, CallEnd, CallStart, SessionEnd, SessionStart, WaitStart
from windtunnel.simulator.results.call_lines import CallLine, Waited, line_of
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.ceiling import ceiling
from windtunnel.simulator.results.lanes import FINISHED, RANK, Lane
from windtunnel.simulator.results.misses import CallCache

KEPT_CALLS = 128
"""Of each agent at least; of few agents more, up to as many of all together as `KEPT_IN_ALL`."""
KEPT_MOST, KEPT_IN_ALL = 2048, 1 << 15
KEPT_TREND = 12
KEPT_SESSIONS = 64

BUSY: frozenset[AgentState] = frozenset({"decode", "prefill", "tool", "queue", "wait"})
IN_FLIGHT: frozenset[AgentState] = frozenset({"queue", "prefill", "decode"})
SENT: frozenset[AgentState] = frozenset({"prefill", "decode"})
ASLEEP: frozenset[AgentState] = frozenset({"wait", "queue"})


class PastSession(Struct, frozen=True, gc=False):
    """A session of an agent that is over, or its present one. ns since the origin."""

    session: str
    title: str
    trace: str
    copy: int
    turns: int
    since: int
    state: AgentState
    until: int | None = None


class Activity(Struct):
    """What one thread of an agent is doing."""

    thread: int
    state: AgentState
    since: int
    call: int = 0
    turn: int = 0
    turns: int = 0
    prompt: int = 0
    tokens: int = 0
    exact: bool = True
    tail: str = ""
    label: str = ""
    cause: str = ""
    planned_s: float | None = None
    recorded_s: float | None = None
    request_id: str = ""
    first_t: int | None = None
    """When its first token came, worked out from the first two looks at it."""
    marks: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=6))
    """Recent (t, tokens), for the speed."""

    def mark(self, t: int, tokens: int) -> None:
        """Generating, and so far as of this look; the first token came between the first look and the one before."""
        if self.first_t is None:
            self.first_t = t
        elif len(self.marks) == 1:
            t0, n0 = self.marks[0]
            if tokens > n0 > 0:
                self.first_t = t0 - min(t - t0, (n0 - 1) * (t - t0) // (tokens - n0))
        self.marks.append((t, tokens))

    def tok_s(self) -> float | None:
        if len(self.marks) < 2:
            return None
        (t0, n0), (t1, n1) = self.marks[0], self.marks[-1]
        return (n1 - n0) * NS / (t1 - t0) if t1 > t0 else None


class Row(Struct):
    """An agent. `version` grows with every change, so that a screen redraws only what changed."""

    agent: int
    version: int = 0
    state: AgentState = "idle"
    since_t: int = 0
    """When the state began, ns since the origin."""
    session: str = ""
    session_since_t: int = 0
    title: str = ""
    trace: str = ""
    copy: int = 0
    thread: int = 0
    thread_label: str = ""
    """Empty for the main agent, `↳2` for the second sub-agent."""
    live_threads: int = 0
    turn: int = 0
    turns: int = 0
    calls_done: int = 0
    calls_total: int = 0
    subagent_calls: int = 0
    """Of this session's sub-agents, ended: the figures of its calls are of theirs, too."""
    context_tokens: int = 0
    """Prompt of the shown thread's latest call and what it has generated."""
    cached_share: float | None = None
    """Of the latest ended call that reported it."""
    expected_share: float | None = None
    missed_cache: bool = False
    miss_cause: str = ""
    ttft_s: float | None = None
    """Of the latest ended call."""
    first_t: int | None = None
    """About when the running call's first token came, ns since the origin; None before that."""
    tok_s: float | None = None
    """Now; None while nothing is generated."""
    call_tokens: int = 0
    """Output tokens of the running call."""
    exact: bool = True
    """False: `call_tokens` is an estimate."""
    tool: str = ""
    """Label of the tool that runs."""
    wait_cause: str = ""
    wait_planned_s: float | None = None
    tail: str = ""
    failure: str = ""
    """Why the latest session failed."""
    timed_calls: int = 0
    spent_s: float = 0.0
    """Length of this session's completed calls in all; the two below are of those whose recorded length is known."""
    paired_s: float = 0.0
    recorded_s: float = 0.0
    sessions_done: int = 0
    sessions_failed: int = 0
    trend: tuple[float, ...] = ()
    """Tokens per second of the latest calls, oldest first."""

    def waited_s(self, now: int) -> float:
        return max(0.0, (now - self.since_t) / NS)


class Failure(Struct, frozen=True, gc=False):
    t: int
    agent: int
    session: str
    thread: int | None
    call: int | None
    reason: str
    detail: str


class Agent:
    """A row with what is kept behind it."""

    def __init__(self, number: int, agents: int = 0) -> None:
        """`agents`: how many there are; 0 where nobody knows."""
        self._row = Row(number)
        self._stale = False
        """Progress came that the row does not show yet: it is worked out when somebody looks."""
        self.live = False
        """Has a session."""
        self.in_flight = 0
        """Calls sent and not ended. A queued one is still held by the client."""
        self.activities: dict[int, Activity] = {}
        kept = KEPT_IN_ALL // agents if agents else 0
        self.calls: deque[CallLine] = deque(maxlen=max(KEPT_CALLS, min(KEPT_MOST, kept)))
        self.lane = Lane()
        self.sessions: deque[PastSession] = deque(maxlen=KEPT_SESSIONS)
        """That are over, oldest first."""
        self._waited: dict[int, list[Waited]] = {}
        """By thread, since its latest call."""
        self._counts: dict[int, tuple[int, int]] = {}
        """Thread to (turn, turns) of its latest call."""

    @property
    def row(self) -> Row:
        if self._stale:
            self.settle(self._row.since_t)
        return self._row

    @property
    def present(self) -> PastSession:
        """The session that it has now, or had last."""
        row = self._row
        return PastSession(row.session, row.title, row.trace, row.copy, row.turns, row.session_since_t, row.state)

    @property
    def live_tokens(self) -> int:
        """Output tokens of the calls in flight."""
        return sum(activity.tokens for activity in self.activities.values())

    def sent(self) -> list[tuple[int, int]]:
        """(when, thread) of the calls sent that have no token yet."""
        return [(a.since, a.thread) for a in self.activities.values() if a.state == "prefill"]

    def failed_call(self) -> bool:
        """Whether a call of this session failed."""
        since = self.row.session_since_t
        return any(line.failure is not None and not line.cut and line.t_end >= since for line in self.calls)

    def begin(self, event: SessionStart) -> None:
        """A new session: nothing of the one before runs on."""
        self.lane.apply(event)
        for held in (self.activities, self._waited, self._counts):
            held.clear()
        old = self.row
        if old.session:
            self.sessions.append(replace(self.present, until=event.t))
        self.in_flight = 0
        self._stale = False
        self.live = True
        self._row = Row(
            agent=old.agent,
            version=old.version + 1,
            state="wait",
            since_t=event.t,
            session=event.session,
            session_since_t=event.t,
            title=event.title,
            trace=event.trace,
            copy=event.copy,
            turn=event.first_turn,
            turns=event.turns_total,
            calls_total=event.calls_total,
            sessions_done=old.sessions_done,
            sessions_failed=old.sessions_failed,
            trend=old.trend,
        )

    def finish(self, event: SessionEnd) -> None:
        self.lane.apply(event)
        self.activities.clear()
        self.live = False
        self.settle(event.t)
        row = self.row
        row.state, row.since_t = FINISHED[event.status], event.t
        row.sessions_done += event.status == "completed"
        row.sessions_failed += event.status == "failed"
        row.failure = event.reason or "" if event.status == "failed" else ""

    def call_start(self, event: CallStart) -> None:
        self.lane.apply(event)
        self._counts[event.thread] = event.turn, event.turns
        self.activities[event.thread] = Activity(
            thread=event.thread,
            state="prefill",
            since=event.t,
            call=event.call,
            turn=event.turn,
            turns=event.turns,
            prompt=event.expected_prompt_tokens,
            request_id=event.request_id,
        )
        self.settle(event.t)

    def goes_on(self, t: int, seen: AgentProgress) -> bool:
        """Takes the progress of a call whose state stays as it is; False, and nothing is done, where it changes."""
        activity = self.activities.get(seen.thread)
        if activity is None or activity.call != seen.call:
            return True
        state = activity.state
        if state != seen.state:
            return False
        if state in IN_FLIGHT:
            activity.tokens, activity.exact, activity.tail = seen.tokens, seen.exact, seen.tail
            if state == "decode":
                activity.mark(t, seen.tokens)
            self._stale = True
        return True

    def progress(self, t: int, seen: AgentProgress) -> None:
        activity = self.activities.get(seen.thread)
        if activity is None or activity.call != seen.call or activity.state not in IN_FLIGHT:
            return
        activity.tokens, activity.exact, activity.tail = seen.tokens, seen.exact, seen.tail
        if seen.state != activity.state and seen.state in IN_FLIGHT:
            activity.state, activity.since = seen.state, t
        if activity.state == "decode":
            activity.mark(t, seen.tokens)
        self.settle(t)

    def would_change(self, thread: int, call: int, state: AgentState) -> bool:
        """Whether a call in flight is in another state than is known."""
        activity = self.activities.get(thread)
        if activity is None or activity.call != call:
            return False
        return activity.state != state and activity.state in IN_FLIGHT and state in IN_FLIGHT

    def becomes(self, t: int, thread: int, state: AgentState) -> None:
        activity = self.activities[thread]
        activity.state, activity.since = state, t
        self.settle(t)

    def wait_start(self, event: WaitStart) -> None:
        self.lane.apply(event)
        self.activities[event.thread] = Activity(
            thread=event.thread,
            state="tool" if event.cause == "tool" else "wait",
            since=event.t,
            call=event.call,
            label=event.label,
            cause=event.cause,
            planned_s=event.seconds,
            recorded_s=event.recorded_s,
        )
        self.settle(event.t)

    def wait_end(self, thread: int, t: int) -> None:
        activity = self.activities.get(thread)
        if activity is None or activity.state in IN_FLIGHT:
            return
        del self.activities[thread]
        self.lane.wait_over(thread, t)
        seconds = (t - activity.since) / NS
        wait = Waited(activity.cause, activity.label, seconds, activity.recorded_s)
        self._waited.setdefault(thread, []).append(wait)
        self.settle(t)

    def waited(self, thread: int) -> tuple[Waited, ...]:
        """A thread's waits since its latest call ended."""
        return tuple(self._waited.get(thread, ()))

    def call_end(self, event: CallEnd, cache: CallCache | None) -> CallLine:
        """Closes the call; the figures of its end replace what progress had guessed."""
        self.lane.apply(event)
        activity = self.activities.get(event.thread)
        if activity is not None and activity.request_id == event.request_id:
            del self.activities[event.thread]
        waits = self._waited.pop(event.thread, [])
        line = line_of(event, self._counts.get(event.thread, (0, 0)), waits, cache)
        self.calls.append(line)
        self._show(event, line)
        self.settle(event.t)
        return line

    def _show(self, event: CallEnd, line: CallLine) -> None:
        row = self._row
        row.subagent_calls += event.thread > 0
        if event.failure is None and not event.cut:
            row.calls_done += 1
            if line.e2e_s is not None:
                row.timed_calls += 1
                row.spent_s += line.e2e_s
                if line.recorded_latency_s:
                    row.paired_s += line.e2e_s
                    row.recorded_s += line.recorded_latency_s
        if line.ttft_s is not None:
            row.ttft_s = line.ttft_s
        if event.cached_tokens is not None and event.prompt_tokens:
            row.cached_share = event.cached_tokens / event.prompt_tokens
            row.missed_cache, row.miss_cause = bool(line.miss_cause), line.miss_cause
            if (most := ceiling(event)) is not None:
                row.expected_share = most / event.prompt_tokens
        if line.tpot_s:
            row.trend = (*row.trend[-KEPT_TREND + 1 :], 1 / line.tpot_s)
        if event.prompt_tokens is not None and event.thread == row.thread:
            row.context_tokens = event.prompt_tokens + (event.completion_tokens or 0)

    def settle(self, t: int) -> None:
        """Shows the thread that matters most: generating before prefilling before tools before waiting."""
        row = self._row
        row.version += 1
        self._stale = False
        held = self.activities
        row.live_threads = len(held)
        if len(held) == 1:
            (shown,) = held.values()
            self.in_flight = shown.state in SENT
        elif held:
            shown = max(held.values(), key=lambda a: (RANK[a.state], -a.thread))
            self.in_flight = sum(a.state in SENT for a in held.values())
        else:
            self.in_flight = 0
            if row.state in BUSY:
                row.state, row.since_t = "wait", t
            row.tok_s, row.call_tokens, row.exact, row.tail, row.first_t = None, 0, True, "", None
            row.tool, row.wait_cause, row.wait_planned_s = "", "", None
            return
        row.state, row.since_t, row.thread = shown.state, shown.since, shown.thread
        row.thread_label = f"↳{shown.thread}" if shown.thread else ""
        counts = self._counts.get(shown.thread)
        if counts is not None:
            row.turn, row.turns = counts
        row.call_tokens, row.exact, row.tail, row.first_t = shown.tokens, shown.exact, shown.tail, shown.first_t
        if shown.state in IN_FLIGHT:
            row.context_tokens = shown.prompt + shown.tokens
            row.tok_s = shown.tok_s() if shown.state == "decode" else None
            row.tool, row.wait_cause, row.wait_planned_s = "", "", None
        else:
            row.tok_s = None
            row.tool = shown.label if shown.state == "tool" else ""
            row.wait_cause, row.wait_planned_s = shown.cause, shown.planned_s
