"""Made-up sessions like given ones: each goes as one of them went, with turns drawn from all of its agent's sessions.

A session takes its length, its peak and its special turns (the user's words, sub-agents, compactions) from one given
session, and its many ordinary turns half from that session and half from all sessions of the same agent. Every size
and time is varied. Given sessions are used equally often, so that what a set of made-up ones is like is what the given
ones are like. The same seed gives the same sessions on every machine.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.assembly import Assembly, Draft
from windtunnel.traces.behaviour import DECODE_PER_S, FIRST_TOKEN_S, PREFILL_PER_S
from windtunnel.traces.errors import TraceError
from windtunnel.traces.habits import SessionHabit, ThreadHabit, ToolHabit, TurnHabit, learn
from windtunnel.traces.model import Cause, Header, Params, Thread, ToolCall, ToolRun, Trace, Usage, Wait
from windtunnel.traces.seeded import Stream

LENGTH_SPREAD = 0.1
"""A session has up to this share fewer or more turns than the one it follows, its largest prompt likewise."""
SIZE_SIGMA = 0.12
"""Of the logarithm of the factor on a turn's tokens."""
TIME_SIGMA = 0.2
"""Of the logarithm of the factor on a turn's times."""
OWN_SHARE = 0.5
"""Of ordinary turns that come from the session that is followed."""
WINDOW = 0.12
"""Ordinary turns come from turns that stood at most this far, as a share of their session, before or behind."""
FACTORS = (0.1, 8.0)
"""Bounds of the factor on what is added to the context, with which a thread meets its peak."""


def resample(traces: Sequence[Trace], count: int, seed: int) -> list[Trace]:
    """`count` shape-only sessions fitted to `traces`; raises TraceError where there is nothing to learn from."""
    habits = learn(traces)
    if not habits:
        raise TraceError("none of the sessions has a call of its main agent: give sessions that have some")
    pools = _pools(habits)
    order = Stream("donors", seed)
    chosen: list[int] = []
    while len(chosen) < count:
        chosen += order.shuffled(range(len(habits)))
    return [_Session(habits[i], pools, seed, number, len(habits)).trace() for number, i in enumerate(chosen[:count])]


_Pool = list[tuple[float, TurnHabit]]
"""Ordinary turns by where in its thread each of them stood, 0 the first and 1 the last, in this order."""
_Pools = dict[tuple[str, bool], _Pool]
"""By agent, of main agents and of sub-agents."""


def _ordinary(thread: ThreadHabit) -> _Pool:
    last = len(thread.turns) - 1
    return [(i / last, t) for i, t in enumerate(thread.turns[:-1]) if not t.special]


def _pools(habits: Sequence[SessionHabit]) -> _Pools:
    pools: _Pools = {}
    for habit in habits:
        for number, thread in habit.threads.items():
            pools.setdefault((habit.agent, number == 0), []).extend(_ordinary(thread))
    return {key: sorted(pool, key=lambda turn: turn[0]) for key, pool in pools.items()}


def _around(pool: _Pool, at: float) -> _Pool:
    """The turns that stood about there: a context grows faster at first."""
    low = bisect_left(pool, at - WINDOW, key=lambda turn: turn[0])
    high = bisect_right(pool, at + WINDOW, key=lambda turn: turn[0])
    return pool[low:high] or pool


class _Place(Struct):
    """Where a thread stands."""

    thread: int
    messages: tuple[int, ...]
    tools: int | None
    system: int | None
    now: float
    base: int | None = None
    keep: int = 0
    last_prompt: int | None = None
    waits: tuple[tuple[Cause, float | None], ...] = ()
    """Before the next call."""
    ran: tuple[str, ...] = ()
    """Tools that the next call waits for."""
    joins: tuple[int, ...] = ()
    beside: tuple[tuple[int, int], ...] = ()
    """Sub-agents that run in the background, and the number of the turn that joins them."""


class _Session:
    """One session being made up."""

    def __init__(self, habit: SessionHabit, pools: _Pools, seed: int, number: int, given: int) -> None:
        self.habit = habit
        self.pools = pools
        self.seed = seed
        self.number = number
        self.given = given
        self.draw = Stream("resample", seed, number)
        self.made = Assembly(f"resample/{seed}/{number}")
        self.ends: dict[int, float] = {}
        """When each thread made up so far ended."""

    def trace(self) -> Trace:
        self.made.threads.append(Thread(0, name="main"))
        self._thread(self.habit.threads[0], 0, 0.0)
        habit = self.habit
        name = f"{habit.agent}-{self.seed}-{self.number:04d}"
        header = Header(
            id=f"synth-{name}",
            agent=habit.agent,
            agent_version=habit.version,
            models=(habit.model,),
            source=f"synthesised from {self.given} sessions, seed {self.seed}",
            started_at=1_741_600_000.0 + self.draw.below(9_000_000),
            shape_only=True,
            synthetic=True,
            title=name,
            notes=("made up by a seeded synthesiser fitted to given sessions; nobody's session",),
        )
        return self.made.finish(header, habit.model, Params())

    def _thread(self, habit: ThreadHabit, thread: int, start: float) -> None:
        """A thread from its first call to its last."""
        turns = self._turns(habit, main=thread == 0)
        opening = max(1, round(habit.opening * self._near()))
        peak = round(habit.peak * self._near())
        turns = met(turns, habit.schemas + sum(habit.system) + opening, peak)
        place = self._open(habit, thread, start, opening)
        for number, turn in enumerate(turns):
            last = number == len(turns) - 1
            self._join(place, number, last=last)
            key, calls = self._call(place, turn)
            if not last:
                begin = place.now
                self._answers(place, turn, calls, key)
                self._spawn(place, turn, calls, key, number, begin)
                if turn.resumes_at is not None:
                    self._restart(place, turn.resumes_at)
        self.ends[thread] = place.now

    def _turns(self, habit: ThreadHabit, *, main: bool) -> list[TurnHabit]:
        """The thread's turns: special ones of the session it follows at their places, ordinary ones drawn."""
        given = habit.turns
        count = max(round(len(given) * self._near()), 1 + sum(t.special for t in given[:-1]))
        fixed: dict[int, TurnHabit] = {count - 1: given[-1]}
        for i, turn in enumerate(given[:-1]):
            if turn.special:
                fixed[_free(fixed, round(i * (count - 1) / (len(given) - 1)), count)] = turn
        own = _ordinary(habit)
        pool = self.pools[self.habit.agent, main] or [(1.0, given[-1])]
        out = []
        for number in range(count):
            if number in fixed:
                turn = fixed[number]
            else:
                stock = own if own and self.draw.uniform() < OWN_SHARE else pool
                turn = self.draw.pick(_around(stock, number / max(1, count - 1)))[1]
            out.append(self._varied(turn))
        return out

    def _near(self) -> float:
        return 1.0 + LENGTH_SPREAD * (2.0 * self.draw.uniform() - 1.0)

    def _varied(self, turn: TurnHabit) -> TurnHabit:
        """The turn with one factor on its output, one on what it adds, one on its times."""
        written, read, time = (math.exp(sigma * self.draw.normal()) for sigma in (SIZE_SIGMA, SIZE_SIGMA, TIME_SIGMA))
        tools = tuple(
            replace(
                t,
                arguments=_part(t.arguments, written),
                result=_part(t.result, read),
                seconds=_scaled(t.seconds, time),
            )
            for t in turn.tools
        )
        return replace(
            turn,
            output=_part(turn.output, written),
            reasoning=_part(turn.reasoning, written),
            kept=(_part(turn.kept[0], written), _part(turn.kept[1], written)),
            tools=tools,
            added=_part(turn.added, read),
            waits=tuple((cause, _scaled(s, time)) for cause, s in turn.waits),
            first_s=_scaled(turn.first_s, time),
            took_s=_scaled(turn.took_s, time),
        )

    def _open(self, habit: ThreadHabit, thread: int, start: float, opening: int) -> _Place:
        """A thread before its first call, with the front that sessions of its agent share."""
        made, role = self.made, "main" if thread == 0 else "sub"
        front = f"{self.habit.agent}/{role}"
        tools = system = None
        messages: tuple[int, ...] = ()
        if habit.schemas:
            shared = made.block("json", habit.schemas, shared=f"{front}/tools/{habit.schemas}")
            tools = made.toolset(habit.names, shared)
        common, own = habit.system
        if common or own:
            blocks = [made.block("prose", common, shared=f"{front}/system/{common}")] if common else []
            blocks += [made.block("prose", own)] if own else []
            system = made.message("system", tuple(blocks))
            messages = (system,)
        first = made.message("user", (made.block("prose", opening),))
        return _Place(thread, (*messages, first), tools, system, round(start, 3))

    def _restart(self, place: _Place, tokens: int) -> None:
        """Go on from a context that was summed up: its front and as many tokens as are left."""
        front = () if place.system is None else (place.system,)
        left = max(1, tokens - self.made.prompt_tokens(front, place.tools))
        place.messages = (*front, self.made.message("user", (self.made.block("prose", left),)))
        place.keep = len(front)

    def _call(self, place: _Place, turn: TurnHabit) -> tuple[int, list[tuple[ToolCall, ToolHabit]]]:
        """One call, after the waits before it: its key, and the tool calls it makes."""
        made = self.made
        key = len(made.drafts)
        made.waits += [Wait(key, cause, s, place.ran if cause == "tool" else ()) for cause, s in place.waits]
        prompt = made.prompt_tokens(place.messages, place.tools)
        base = prompt if place.last_prompt is None else place.last_prompt
        cached = None if turn.cached is None else min(prompt, round(turn.cached * base))
        first, end = self._times(turn, place.now, prompt - (cached or 0))
        calls = [(self._asked(t), t) for t in turn.tools]
        reasoning, text = turn.kept
        output = made.message(
            "assistant",
            blocks=(made.block("prose", text),) if text else (),
            reasoning=(made.block("prose", reasoning),) if reasoning else (),
            tool_calls=tuple(call for call, _ in calls),
        )
        made.drafts.append(
            Draft(
                key=key,
                thread=place.thread,
                messages=place.messages,
                base=place.base,
                keep=place.keep,
                tools=place.tools,
                start=place.now,
                first=first,
                end=end,
                output=output,
                usage=Usage(prompt, cached, turn.output, min(turn.reasoning, turn.output) or None),
                stop=turn.stop,
                kind="compaction" if turn.compaction else "turn",
                aborted=False,
                joins=place.joins,
            )
        )
        place.base, place.keep, place.last_prompt = key, len(place.messages), prompt
        place.messages = (*place.messages, output)
        place.joins, place.waits, place.ran, place.now = (), (), (), end
        return key, calls

    def _asked(self, tool: ToolHabit) -> ToolCall:
        identity = f"call_{self.draw.u64() & 0xFFFFFFFFFFFF:012x}"
        return ToolCall(identity, tool.name, self.made.block("json", max(1, tool.arguments)))

    def _times(self, turn: TurnHabit, start: float, uncached: int) -> tuple[float | None, float]:
        """First token and end of a call: as long as the one it follows, or as an imagined server takes."""
        if turn.took_s is not None:
            first = None if turn.first_s is None else round(start + min(turn.first_s, turn.took_s), 3)
            return first, round(start + turn.took_s, 3)
        begin = round(start + FIRST_TOKEN_S.draw(self.draw) + uncached / PREFILL_PER_S, 3)
        return begin, round(begin + turn.output / DECODE_PER_S.draw(self.draw), 3)

    def _answers(self, place: _Place, turn: TurnHabit, calls: Sequence[tuple[ToolCall, ToolHabit]], key: int) -> None:
        """The tools of a call side by side, their results, what the user adds, and the waits for all of it."""
        made, begin = self.made, place.now
        for call, tool in calls:
            if tool.spawns is None or tool.spawns not in self.habit.threads:
                start, end = (None, None) if tool.seconds is None else (begin, round(begin + tool.seconds, 3))
                made.runs.append(ToolRun(key, call.id, tool.name, start, end, error=tool.error))
            if tool.result:
                block = made.block("log", tool.result)
                place.messages += (made.message("tool", (block,), tool_call_id=call.id, name=tool.name),)
        if turn.added:
            place.messages += (made.message("user", (made.block("prose", turn.added),)),)
        place.ran = tuple(tool.name for _, tool in calls)
        place.waits = tuple((cause, None if s is None else round(s, 3)) for cause, s in turn.waits)
        place.now = round(begin + sum(s or 0.0 for _, s in place.waits), 3)

    def _spawn(
        self,
        place: _Place,
        turn: TurnHabit,
        calls: Sequence[tuple[ToolCall, ToolHabit]],
        key: int,
        number: int,
        begin: float,
    ) -> None:
        """Sub-agents from their first call to their last; the next call waits for those that were waited for."""
        made = self.made
        for given in turn.starts:
            habit = self.habit.threads.get(given)
            if habit is None:
                continue
            link = next(((call, tool) for call, tool in calls if tool.spawns == given), None)
            thread = len(made.threads)
            background = habit.joined_after != 1
            name = f"{link[1].name if link else 'sub-agent'}-{thread}"
            identity = link[0].id if link else None
            delay = round(habit.delay_s, 3)
            made.threads.append(Thread(thread, place.thread, key, delay, identity, name, background))
            self._thread(habit, thread, begin + delay)
            if link is not None:
                made.runs.append(ToolRun(key, link[0].id, link[1].name, begin, self.ends[thread], thread=thread))
            if not background:
                self._wait_for(place, thread)
            elif habit.joined_after is not None:
                place.beside += ((thread, number + habit.joined_after),)

    def _join(self, place: _Place, number: int, *, last: bool) -> None:
        """Background sub-agents that this turn waits for, as the session it follows did."""
        for thread, due in place.beside:
            if number >= due or last:
                self._wait_for(place, thread)
        place.beside = tuple((thread, due) for thread, due in place.beside if number < due and not last)

    def _wait_for(self, place: _Place, thread: int) -> None:
        rest = round(self.ends[thread] - place.now, 3)
        place.joins += (thread,)
        if rest > 0:
            place.waits += (("subagent", rest),)
            place.now = round(self.ends[thread], 3)


def met(turns: Sequence[TurnHabit], opening: int, peak: int) -> list[TurnHabit]:
    """The turns with one factor on everything that tools and the user add, so that the largest prompt is `peak`."""

    def largest(factor: float) -> int:
        prompt = most = opening
        for turn in turns[:-1]:
            read = sum(_part(t.result, factor) for t in turn.tools) + _part(turn.added, factor)
            prompt += sum(turn.kept) + sum(max(1, t.arguments) for t in turn.tools) + read
            prompt = prompt if turn.resumes_at is None else turn.resumes_at
            most = max(most, prompt)
        return most

    low, high = FACTORS
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if largest(middle) < peak else (low, middle)
    return [
        replace(
            turn,
            added=_part(turn.added, low),
            tools=tuple(replace(t, result=_part(t.result, low)) for t in turn.tools),
        )
        for turn in turns
    ]


def _free(taken: dict[int, TurnHabit], at: int, count: int) -> int:
    """The number nearest to `at` that is not taken; there is one."""
    return min((n for n in range(count) if n not in taken), key=lambda n: (abs(n - at), n))


def _part(tokens: int, factor: float) -> int:
    return max(1, round(tokens * factor)) if tokens else 0


def _scaled(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor
