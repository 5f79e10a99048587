"""What one replay of a trace will do: which calls, in which order, after which waits.

Built from the trace and the dials once, and for each session with a seeded generator; the state machine only reads it.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from windtunnel.agents.policy import Policy, Replayed, Uniform, UsualTimes, replayed_gap, usual_times
from windtunnel.traces.model import Call, Cause, ToolRun, Trace, Wait

SPREAD = (0.25, 0.75)
"""Range of the start point with `--start spread`, as a share of the main thread's calls."""
KEPT = 8
"""Plans of a trace that are kept: short sessions often start at the same call."""


class PlannedWait(Struct, frozen=True):
    cause: Cause
    seconds: float | None
    """Replayed length; None for a join, which lasts as long as the sub-agents do."""
    recorded_s: float | None = None
    label: str = ""
    """Tool or sub-agent names."""
    filled: bool = False
    """The recording did not say how long: a usual time was taken."""


class Plan(Struct, frozen=True):
    """One replay of a trace."""

    trace: Trace
    order: tuple[tuple[int, ...], ...]
    """Call ids of each thread, in order; empty for a thread that counts as ended."""
    waits: dict[int, tuple[PlannedWait, ...]]
    """By call, in order; calls without waits are absent."""
    joins: dict[int, frozenset[int]]
    """Threads that must have ended before a call, those that ended before the start point left out."""
    spawns: dict[int, tuple[int, ...]]
    """Threads that start when a call has ended; their delay is a wait before their first call."""
    roots: tuple[int, ...]
    """Threads that start with the session."""
    shares: dict[int, float]
    """Share of the whole session's recorded tokens (prompt + completion), by call of this replay."""
    turns_total: int
    """Calls of the main thread in the whole recording."""
    first_turn: int = 0
    """Main-thread call the replay starts at, counted from 0."""
    filled_waits: int = 0

    @property
    def calls_total(self) -> int:
        return sum(len(calls) for calls in self.order)

    @property
    def work(self) -> float:
        """Share of the whole session's recorded tokens that this replay covers."""
        return 1.0 if self.calls_total == len(self.trace.calls) else sum(self.shares.values())

    def work_of(self, call: int) -> float:
        return self.shares.get(call, 0.0)

    def turn_of(self, call: int) -> tuple[int, int]:
        """Number of the call in its thread, from 1, and the calls of that thread, in the whole recording."""
        thread = self.trace.calls[call].thread
        order = self.order[thread]
        skipped = self.first_turn if thread == 0 else 0
        return skipped + order.index(call) + 1, skipped + len(order)

    @property
    def wait_seconds(self) -> float:
        """All waits of all threads together; threads run side by side, so a session is shorter than this."""
        return sum(w.seconds or 0.0 for waits in self.waits.values() for w in waits)


def call_tokens(trace: Trace) -> list[int]:
    """Prompt and completion tokens of every call: as recorded, else by the block sums."""
    sums = trace.prompt_tokens()
    out = []
    for call in trace.calls:
        prompt = sums[call.id] if call.usage.prompt is None else call.usage.prompt
        out.append(prompt + completion_tokens(trace, call))
    return out


def completion_tokens(trace: Trace, call: Call) -> int:
    """Generated tokens of a call as recorded, else those of its output message."""
    if call.usage.completion is not None:
        return call.usage.completion
    return 0 if call.output is None else trace.message_tokens(call.output)


def make_plan(
    trace: Trace,
    policy: Policy,
    rng: Uniform,
    spread: bool | None = None,
    *,
    usual: UsualTimes | None = None,
    tokens: Sequence[int] | None = None,
) -> Plan:
    """One replay of `trace`, as a `Planner` plans it."""
    return Planner(trace, policy, usual=usual, tokens=tokens).plan(rng, spread)


class Planner:
    """Plans the replays of one trace; what they have in common is worked out once."""

    def __init__(
        self,
        trace: Trace,
        policy: Policy,
        *,
        usual: UsualTimes | None = None,
        tokens: Sequence[int] | None = None,
    ) -> None:
        """`usual` (of all traces) and `tokens` (`call_tokens`) are worked out from the trace where they are missing."""
        self._trace = trace
        self._policy = policy
        self._by_thread: dict[int, list[int]] = defaultdict(list)
        for call in trace.calls:
            self._by_thread[call.thread].append(call.id)
        self._gaps = _planned_gaps(trace, policy, usual_times([trace]) if usual is None else usual, self._by_thread)
        self._tokens = call_tokens(trace) if tokens is None else tokens
        self._total = sum(self._tokens) or 1
        self._from = lru_cache(KEPT)(self._plan_from)

    def plan(self, rng: Uniform, spread: bool | None = None) -> Plan:
        """`spread` (default: the policy's start) picks the start point from `rng`."""
        first = 0
        if self._policy.start == "spread" if spread is None else spread:
            low, high = SPREAD
            first = int(len(self._by_thread[0]) * (low + (high - low) * float(rng.random())))
        return self._from(first)

    def _plan_from(self, first: int) -> Plan:
        """From that call of the main thread on."""
        trace, main = self._trace, self._by_thread[0]
        order, spawned = _threads_to_run(trace, self._by_thread, first)
        calls = [call for thread in order for call in thread]
        waited = [call for call in calls if call in self._gaps]
        if first and waited and waited[0] == main[first]:
            del waited[0]  # the session enters at this call
        joins = {
            call: frozenset(t for t in trace.calls[call].joins if 0 <= t < len(order) and order[t])
            for call in calls
            if trace.calls[call].joins
        }
        joins = {call: threads for call, threads in joins.items() if threads}
        roots, spawns, joins = _untangle(order, spawned, joins)
        return Plan(
            trace=trace,
            order=order,
            waits={call: gap.waits for call in waited if (gap := self._gaps[call]).waits},
            joins=joins,
            spawns=spawns,
            roots=roots,
            shares={call: self._tokens[call] / self._total for call in calls},
            turns_total=len(main),
            first_turn=first,
            filled_waits=sum([self._gaps[call].filled for call in waited]),
        )


class Planners:
    """Of all traces of a run, by their places; each is made when it is first asked for."""

    def __init__(self, traces: Sequence[Trace], policy: Policy) -> None:
        self._traces = traces
        self._policy = policy
        self._usual = usual_times(traces)
        self._made: dict[int, Planner] = {}

    def __getitem__(self, place: int) -> Planner:
        planner = self._made.get(place)
        if planner is None:
            planner = self._made[place] = Planner(self._traces[place], self._policy, usual=self._usual)
        return planner


def _threads_to_run(
    trace: Trace, by_thread: dict[int, list[int]], first: int
) -> tuple[tuple[tuple[int, ...], ...], dict[int, int | None]]:
    """Calls of each thread after the start point, and for each sub-agent that runs the call that starts it.

    What was spawned before the start point counts as ended, and what those threads spawned as well.
    """
    skipped = set(by_thread[0][:first])
    order: list[tuple[int, ...]] = [()] * len(trace.threads)
    spawned: dict[int, int | None] = {}
    if order:
        order[0] = tuple(by_thread[0][first:])
    for thread in trace.threads[1:]:
        if thread.spawn_call is None or not 0 <= thread.spawn_call < len(trace.calls):
            ended, spawned[thread.id] = first > 0, None
        else:
            ended, spawned[thread.id] = thread.spawn_call in skipped, thread.spawn_call
        if ended:
            skipped.update(by_thread[thread.id])
        else:
            order[thread.id] = tuple(by_thread[thread.id])
    changed = True
    while changed:  # a thread may stand before its parent in the file
        changed = False
        for spawn, origin in spawned.items():
            if order[spawn] and origin is not None and origin in skipped:
                skipped.update(order[spawn])
                order[spawn] = ()
                changed = True
    return tuple(order), {t: c for t, c in spawned.items() if order[t]}


class _Gap(Struct, frozen=True):
    """What comes before a call."""

    waits: tuple[PlannedWait, ...]
    filled: int
    """How many of the recorded waits had no length."""


def _planned_gaps(trace: Trace, policy: Policy, usual: UsualTimes, by_thread: dict[int, list[int]]) -> dict[int, _Gap]:
    """By call; those without waits are absent."""
    recorded: dict[int, list[Wait]] = defaultdict(list)
    for wait in trace.waits:
        recorded[wait.before].append(wait)
    runs: dict[int, list[ToolRun]] = defaultdict(list)
    if policy.per_tool:
        for run in trace.tool_runs:
            runs[run.call].append(run)
    out: dict[int, _Gap] = {}
    for thread, calls in by_thread.items():
        previous: int | None = None
        for call in calls:
            gap = recorded.get(call, [])
            if previous is None and thread and not gap and trace.threads[thread].spawn_delay_s > 0:
                gap = [Wait(call, "client", trace.threads[thread].spawn_delay_s)]
            before = runs.get(previous, ()) if previous is not None else ()
            replayed = replayed_gap(policy, gap, usual, before)
            planned = tuple(_planned(trace, w, r) for w, r in zip(gap, replayed, strict=True))
            if planned:
                kept = tuple(w for w in planned if w.seconds is None or w.seconds > 0)
                out[call] = _Gap(kept, sum(w.filled for w in planned))
            previous = call
    return out


def _planned(trace: Trace, wait: Wait, replayed: Replayed) -> PlannedWait:
    if wait.cause == "subagent":
        joined = trace.calls[wait.before].joins
        label = ", ".join(trace.threads[t].name or f"agent {t}" for t in joined if 0 <= t < len(trace.threads))
        return PlannedWait("subagent", None, wait.seconds, label)
    return PlannedWait(wait.cause, replayed.seconds, wait.seconds, ", ".join(wait.tools), replayed.filled)


def _untangle(
    order: tuple[tuple[int, ...], ...], spawned: dict[int, int | None], joins: dict[int, frozenset[int]]
) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]], dict[int, frozenset[int]]]:
    """Roots, spawns and joins without circles: a damaged recording must not make a session wait for itself forever.

    A dry run without time: threads move on until nothing does; what then blocks (a join of a thread that cannot have
    started, a thread started by its own call) is dropped.
    """
    spawns: dict[int, list[int]] = defaultdict(list)
    roots = [0] if order and order[0] else []
    for thread, call in spawned.items():
        if call is None:
            roots.append(thread)
        else:
            spawns[call].append(thread)
    joins = dict(joins)
    position = [0] * len(order)
    alive = list(roots)
    while True:
        moved = False
        for thread in list(alive):
            calls = order[thread]
            while position[thread] < len(calls):
                call = calls[position[thread]]
                if any(position[t] < len(order[t]) for t in joins.get(call, ())):
                    break
                position[thread] += 1
                alive.extend(spawns.get(call, ()))
                moved = True
            else:
                alive.remove(thread)
        if moved:
            continue
        if alive:
            del joins[order[alive[0]][position[alive[0]]]]
            continue
        stuck = [t for t in spawned if position[t] == 0 and order[t]]
        if not stuck:
            return tuple(roots), {call: tuple(threads) for call, threads in spawns.items()}, joins
        origin = spawned[stuck[0]]
        assert origin is not None
        spawns[origin].remove(stuck[0])
        spawned[stuck[0]] = None
        roots.append(stuck[0])
        alive.append(stuck[0])
