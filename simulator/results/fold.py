"""The live view of a run: every event changes it in constant time, nothing is read twice.

Counts and totals follow `summary`'s definitions and are equal to it once the run is over; speeds are of the last
seconds. Progress events give what is going on inside calls; when a call ends, its own figures take their place.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from windtunnel.agents.events import (
    AgentState,
    CallEnd,
    CallStart,
    ClientSample,
    EngineSample,
    Event,
    GpuSample,
    Note,
    Phase,
    PhaseName,
    Progress,
    RunEnd,
    RunStart,
    RunStatus,
    SessionEnd,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.counters import growth
from windtunnel.simulator.results.fold_cache import CacheView
from windtunnel.simulator.results.fold_engine import EngineView
from windtunnel.simulator.results.fold_rows import ASLEEP, Agent, Failure, Row
from windtunnel.simulator.results.fold_trust import Trust
from windtunnel.simulator.results.gaps import Gaps
from windtunnel.simulator.results.misses import Live
from windtunnel.simulator.results.series import Series
from windtunnel.simulator.results.validity import is_recording
from windtunnel.simulator.results.working_set import WorkingSet

STATES: tuple[AgentState, ...] = ("decode", "prefill", "queue", "tool", "wait", "done", "failed", "cut")
AMOUNTS = ("output", "prompt", "known_prompt", "cached", "missed", "preempted")
GAUGES = ("in_flight", "in_tool", "waiting", "running", "queued", "kv", "held")
SERIES = (*AMOUNTS, *GAUGES, *STATES)
"""Columns of `Fold.series`: amounts of tokens and preemptions, gauges (`held` is the working set in tokens), agents in
each state as seen four times a second. Cached share is `shares("cached", "known_prompt")`."""
KEPT_FAILURES = 200
KEPT_NOTES = 100
SPEED_NS = 5 * NS
GAUGE_NS = NS // 4
SILENT_NS = 2 * NS
"""Without progress for so long, nothing flows."""


class Fold:
    """`apply` every event in order; read the attributes whenever."""

    gauge_ns = GAUGE_NS

    def __init__(self, run: dict[str, Any] | None = None) -> None:
        self.run = run if run is not None else {}
        """`run.json`, for what only it knows."""
        self.t = 0
        """Time of the latest event, ns since the origin."""
        self.started_t = 0
        self.wall_clock: float | None = None
        """Unix time at `started_t`."""
        self.phase: PhaseName = "starting"
        self.phase_since = 0
        self.phase_note = ""
        self.window: tuple[int, int | None] | None = None
        """Start and end of the measured window; the end is None while it is open."""
        self.status: RunStatus | None = None
        self.status_reason = ""
        self.agents: list[Agent] = []
        self.states: Counter[AgentState] = Counter()
        """Agents in each state."""
        self.in_flight = 0
        """Calls between sending and their end."""
        self.in_tool = 0
        """Agents with a tool running and no call in flight."""
        self.waiting = 0
        """Agents that have a session and do neither."""
        self.live = 0
        """Agents that have a session."""
        self.sessions: Counter[str] = Counter()
        """started, completed, failed, cut."""
        self.calls: Counter[str] = Counter()
        """started, completed, failed, cut."""
        self.failure_reasons: Counter[str] = Counter()
        self.failures: deque[Failure] = deque(maxlen=KEPT_FAILURES)
        self.notes: deque[Note] = deque(maxlen=KEPT_NOTES)
        self.approximate = False
        """Some live counts are estimates: what is made of all of them is shown with ~."""
        self.series = Series(SERIES)
        self.engine = EngineView()
        self.misses = Live(self.run)
        self.cache = CacheView(self.series)
        self.held = WorkingSet()
        self.trust = Trust()
        self._gaps = Gaps() if is_recording(self.run) else None
        self.problems = 0  # lines that whoever reads them could not
        self._ended_output = self._ended_prompt = 0
        self._speed: deque[tuple[int, int, int]] = deque()
        """Recent (t, output tokens, prompt tokens)."""
        self._last_progress: Progress | None = None
        self._counted_t = self._gauged_t = 0
        self._flight_ns = self._tool_ns = self._waiting_ns = self._live_ns = 0
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            Progress: self._progress,
            CallEnd: self._call_end,
            CallStart: self._call_start,
            WaitStart: self._wait_start,
            WaitEnd: self._wait_end,
            ClientSample: self._client_sample,
            EngineSample: self._engine_sample,
            GpuSample: self._gpu_sample,
            SessionStart: self._session_start,
            SessionEnd: self._session_end,
            Phase: self._phase,
            Note: self._note,
            RunStart: self._run_start,
            RunEnd: self._run_end,
        }

    def apply(self, event: Event) -> None:
        self.t = max(self.t, event.t)
        if self._gaps is not None:
            self._gaps.apply(event)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def go_on_from(self, past: Series, t: int, progress: Progress | None) -> None:
        """Takes over a history up to `t`, of which nothing else is known; events after it follow."""
        self.series, self.cache = past, CacheView(past)
        self.t = max(self.t, t)
        self._counted_t = self._gauged_t = t
        self._last_progress = progress

    # What is read

    @property
    def rows(self) -> list[Row]:
        return [agent.row for agent in self.agents]

    @property
    def output_tokens(self) -> int:
        """Of the run so far, running calls included."""
        return self._ended_output + sum(agent.live_tokens for agent in self.agents)

    @property
    def prompt_tokens(self) -> int:
        """Of the run so far, calls that ended."""
        return self._ended_prompt

    @property
    def elapsed_s(self) -> float:
        return (self.t - self.started_t) / NS

    @property
    def phase_s(self) -> float:
        """Time in the present phase as of the latest event."""
        return (self.t - self.phase_since) / NS

    @property
    def ended(self) -> bool:
        return self.status is not None

    def output_per_s(self, seconds: float = 1.0) -> float:
        """Output tokens per second over about the last `seconds` (at most 5)."""
        return self._per_s(seconds, 1)

    def prompt_per_s(self, seconds: float = 5.0) -> float:
        return self._per_s(seconds, 2)

    def _per_s(self, seconds: float, column: int) -> float:
        if len(self._speed) < 2 or self.ended or self.t - self._speed[-1][0] > SILENT_NS:
            return 0.0
        last = self._speed[-1]
        first = next(mark for mark in self._speed if mark[0] >= last[0] - seconds * NS)
        first = first if first[0] < last[0] else self._speed[-2]
        return max(0.0, (last[column] - first[column]) * NS / (last[0] - first[0]))

    @property
    def progress_t(self) -> int:
        """Time of the latest progress."""
        return 0 if self._last_progress is None else self._last_progress.t

    def invalid_reasons(self) -> tuple[str, ...]:
        """As far as can be told now; the summary has the last word."""
        return self.trust.reasons(self)

    # What changes it

    def _agent(self, number: int) -> Agent:
        while len(self.agents) <= number:
            self.agents.append(Agent(len(self.agents), number + 1))
            self.states["idle"] += 1
        return self.agents[number]

    def _count(self, t: int) -> None:
        """Adds the time since the last change to the gauges; called before anything about agents changes."""
        passed = t - self._counted_t
        if passed > 0:
            self._flight_ns += self.in_flight * passed
            self._tool_ns += self.in_tool * passed
            self._waiting_ns += self.waiting * passed
            self._live_ns += self.live * passed
            self._counted_t = t
            if t - self._gauged_t >= self.gauge_ns:
                self._gauge()

    def _gauge(self) -> None:
        """Moves what was counted into the history, and into the window's means while it is open."""
        start, end = self._gauged_t, self._counted_t
        flight, tool, waiting, live = (
            ns / NS for ns in (self._flight_ns, self._tool_ns, self._waiting_ns, self._live_ns)
        )
        self._flight_ns = self._tool_ns = self._waiting_ns = self._live_ns = 0
        self._gauged_t = end
        self.series.add("in_flight", start, end, flight)
        if self._gaps is not None:
            tool, waiting = self._gaps.draw(self.series)
        else:
            self.series.add("in_tool", start, end, tool)
            self.series.add("waiting", start, end, waiting)
        if end > start:
            self._gauge_agents(start, end)
        if self.phase == "steady":
            self.trust.add_live((end - start) / NS, flight, tool, waiting, live)

    def _gauge_agents(self, start: int, end: int) -> None:
        seconds = (end - start) / NS
        self.series.add("held", start, end, self.held.tokens * seconds)
        for state, n in self.states.items():
            if n and state != "idle":
                self.series.add(state, start, end, n * seconds)

    def _change(self, agent: Agent, change: Callable[..., object], *given: Any) -> None:
        """Runs a change of one agent and keeps the counts of all."""
        before, flight, live = agent.row.state, agent.in_flight, agent.live
        change(*given)
        after = agent.row.state
        self.in_flight += agent.in_flight - flight
        self.live += agent.live - live
        if after != before:
            self.states[before] -= 1
            self.states[after] += 1
        if after != before or agent.live != live:
            self.in_tool += (agent.live and after == "tool") - (live and before == "tool")
            self.waiting += (agent.live and after in ASLEEP) - (live and before in ASLEEP)

    def _run_start(self, event: RunStart) -> None:
        self.started_t = self._counted_t = self._gauged_t = event.t
        self.wall_clock = event.wall_clock
        if event.agents:
            self._agent(event.agents - 1)

    def _phase(self, event: Phase) -> None:
        self._count(event.t)
        self._gauge()
        if event.phase == "steady" and self.window is None:
            self.window = (event.t, None)
        elif self.window is not None and self.window[1] is None:
            self.window = (self.window[0], event.t)
        self.phase, self.phase_since, self.phase_note = event.phase, event.t, event.note or ""
        self.trust.phase(event)

    def _session_start(self, event: SessionStart) -> None:
        self._count(event.t)
        self.sessions["started"] += 1
        agent = self._agent(event.agent)
        self._change(agent, agent.begin, event)

    def _session_end(self, event: SessionEnd) -> None:
        self._count(event.t)
        self.sessions[event.status] += 1
        self.misses.session_end(event.session)
        self.held.session_end(event)
        agent = self._agent(event.agent)
        self._change(agent, agent.finish, event)
        if event.status == "failed" and not agent.failed_call():
            self._fail(Failure(event.t, event.agent, event.session, None, None, event.reason or "unknown", ""))

    def _fail(self, failure: Failure) -> None:
        self.failure_reasons[failure.reason] += 1
        self.failures.append(failure)

    def _wait_start(self, event: WaitStart) -> None:
        self._count(event.t)
        agent = self._agent(event.agent)
        self._change(agent, agent.wait_start, event)

    def _wait_end(self, event: WaitEnd) -> None:
        self._count(event.t)
        agent = self._agent(event.agent)
        self._change(agent, agent.wait_end, event.thread, event.t)

    def _call_start(self, event: CallStart) -> None:
        self._count(event.t)
        self.calls["started"] += 1
        self.misses.call_start(event)
        agent = self._agent(event.agent)
        self._change(agent, agent.call_start, event)
        self.held.call_start(event)

    def _call_end(self, event: CallEnd) -> None:
        self._count(event.t)
        agent = self._agent(event.agent)
        self.misses.learn(self.run)
        self._change(agent, agent.call_end, event, self.misses.call_end(event))
        self.held.call_end(event)
        self.cache.call_end(event, self.window)
        if of_call.never_sent(event):
            self.calls["started"] -= 1
            return
        self.calls["cut" if event.cut else "completed" if event.failure is None else "failed"] += 1
        self._ended_output += of_call.output_tokens(event) or 0
        self._ended_prompt += of_call.prompt_tokens(event) or 0
        if event.failure is not None and not event.cut:
            place = event.t, event.agent, event.session, event.thread, event.call
            self._fail(Failure(*place, event.failure, event.detail or ""))
        if self._last_progress is None:
            self._credit_whole(event)
        self.trust.call_end(event, self.window)

    def _credit_whole(self, event: CallEnd) -> None:
        """Without progress events the history is made of ended calls."""
        first = event.t_first if event.t_first is not None else event.t
        last = event.t_last if event.t_last is not None else first
        self.series.add("output", first, last, of_call.output_tokens(event) or 0)
        self.series.add("prompt", first, first, of_call.prompt_tokens(event) or 0)

    def _progress(self, event: Progress) -> None:
        self.approximate = not event.parsed
        agents = self.agents
        for seen in event.agents:
            agent = agents[seen.agent] if 0 <= seen.agent < len(agents) else self._agent(seen.agent)
            if not agent.goes_on(event.t, seen):
                self._count(event.t)
                self._change(agent, agent.progress, event.t, seen)
        self._flows(event)

    def _flows(self, event: Progress) -> None:
        """The tokens since the last progress."""
        last = self._last_progress
        start, output, prompt = (event.t, 0, 0) if last is None else (last.t, last.output_tokens, last.prompt_tokens)
        if last is None or event.t > start:
            self.series.add("output", start, event.t, max(0, event.output_tokens - output))
            self.series.add("prompt", start, event.t, max(0, event.prompt_tokens - prompt))
        self._last_progress = event
        self._speed.append((event.t, event.output_tokens, event.prompt_tokens))
        while self._speed[0][0] < event.t - SPEED_NS - NS // 2:
            self._speed.popleft()
        self._count(event.t)

    def _engine_sample(self, event: EngineSample) -> None:
        last = self.engine.latest
        self.engine.add(event, steady=self.phase == "steady")
        if last is not None and event.t > last.t:
            seconds = (event.t - last.t) / NS
            preempted = growth(last, event, "preemptions")
            if preempted:
                self.series.add("preempted", event.t, event.t, preempted)
            for name, value in (("running", event.running), ("queued", event.waiting), ("kv", event.kv_usage)):
                if value is not None:
                    self.series.add(name, last.t, event.t, value * seconds)
        self.misses.sample(event)
        self.trust.engine_sample(event, self.output_tokens, steady=self.phase == "steady")

    def _gpu_sample(self, event: GpuSample) -> None:
        self.engine.gpus[event.index] = event
        self.trust.gpu_sample(event, steady=self.phase == "steady")

    def _client_sample(self, event: ClientSample) -> None:
        self.trust.client_sample(event, counts=self.window is None or self.window[1] is None)

    def _note(self, event: Note) -> None:
        self.notes.append(event)
        self.trust.note(event, steady=self.phase == "steady")

    def _run_end(self, event: RunEnd) -> None:
        self._count(event.t)
        self._gauge()
        self.status, self.status_reason = event.status, event.reason or ""
        if self.window is not None and self.window[1] is None:
            self.window = (self.window[0], event.t)


__all__ = ["SERIES", "Agent", "Failure", "Fold", "Row"]
