"""Made-up sessions with the shape of real coding-agent traffic, the same for the same seed on every machine.

`python -m windtunnel.traces.synthesise --out DIR --seed N` writes the bundled library.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.assembly import Assembly
from windtunnel.traces.behaviour import (
    ANSWER,
    APPROVAL_S,
    APPROVAL_SHARE,
    CLIENTS,
    HUMAN_S,
    REASONING,
    REQUEST,
    TEXT,
    Client,
    Tool,
    draw_tool,
    parallel_calls,
)
from windtunnel.traces.format import write_trace
from windtunnel.traces.model import Header, Params, Thread, ToolCall, ToolRun, Trace, Wait
from windtunnel.traces.seeded import Stream
from windtunnel.traces.synthetic_call import Turn, send

SEED = 20250317
"""Of the bundled library."""


class Plan(Struct, frozen=True):
    """What one session is to be like."""

    name: str
    client: str
    calls: int
    """Of the main agent."""
    peak: int
    """Largest prompt, tokens; met to about 1%."""
    people: int = 1
    """Times the user typed something."""
    agents: int = 0
    """Sub-agents started, some of them side by side."""
    background: bool = False
    """The last sub-agent runs while the main agent goes on, and is joined later."""
    compact_at: int | None = None
    """Number of the main agent's call that is a compaction."""
    terse: float = 1.0
    """Factor on what the model says and thinks."""
    first: int = 6_000
    """Tokens of project instructions and context in front of the first request."""


LIBRARY: tuple[Plan, ...] = (
    Plan("explain-regex", "synthetic-atlas", 1, 16_400, first=1_300),
    Plan("rename-flag", "synthetic-weaver", 9, 16_800, first=900),
    Plan("pin-dependency", "synthetic-quill", 14, 21_500, first=1_500),
    Plan("typo-in-docs", "synthetic-weaver", 22, 24_800, people=2, first=1_200),
    Plan("fix-importer", "synthetic-quill", 31, 29_700, people=2, first=2_200),
    Plan("add-unit-test", "synthetic-atlas", 18, 30_200, first=2_100),
    Plan("parse-dates", "synthetic-weaver", 36, 39_000, people=2, first=2_400),
    Plan("retry-uploads", "synthetic-quill", 43, 46_000, people=2, first=3_000),
    Plan("speed-up-query", "synthetic-atlas", 29, 48_000, people=3, agents=1),
    Plan("flaky-test", "synthetic-atlas", 41, 55_000, people=2, first=4_500),
    Plan("split-module", "synthetic-weaver", 52, 58_000, people=3, agents=2, first=3_500),
    Plan("review-patch", "synthetic-atlas", 24, 62_000, people=2, agents=3),
    Plan("port-to-typescript", "synthetic-quill", 64, 71_000, people=3, first=3_500),
    Plan("cache-headers", "synthetic-atlas", 47, 76_000, people=4, agents=1),
    Plan("memory-leak", "synthetic-weaver", 58, 84_000, people=3, agents=2, background=True),
    Plan("dark-theme", "synthetic-atlas", 50, 92_000, people=6, first=8_500),
    Plan("rate-limiter", "synthetic-quill", 83, 98_000, people=4),
    Plan("schema-migration", "synthetic-atlas", 72, 109_000, people=4, agents=4),
    Plan("plugin-loader", "synthetic-weaver", 96, 117_000, people=5),
    Plan("websocket-server", "synthetic-atlas", 110, 126_000, people=7, agents=3, background=True),
    Plan("search-index", "synthetic-quill", 148, 137_000, people=6),
    Plan("billing-rewrite", "synthetic-atlas", 187, 146_000, people=11, agents=5, compact_at=121, first=9_000),
    Plan("release-train", "synthetic-weaver", 236, 143_000, people=9, compact_at=150),
    Plan("monorepo-upgrade", "synthetic-atlas", 342, 150_000, people=12, agents=4, first=8_000, terse=0.48),
)
"""The bundled sessions: one call to several hundred, peaks of 16k to 150k tokens."""


class _Session:
    """One session being made up."""

    def __init__(self, plan: Plan, seed: int, scale: float) -> None:
        self.plan = plan
        self.client: Client = CLIENTS[plan.client]
        self.scale = scale
        self.draw = Stream("session", seed, plan.name)
        self.pace = Stream("pace", seed, plan.name)
        """Times come from a stream of their own, so that tuning them leaves the sizes alone."""
        self.made = Assembly(f"{seed}/{plan.name}")
        self.agents_left = plan.agents
        self.background: tuple[int, float] | None = None
        """Thread running beside the main agent and when it ends."""

    def trace(self, seed: int) -> Trace:
        self.made.threads.append(Thread(0, name="main"))
        started = 1_741_600_000.0 + self.draw.below(9_000_000)
        self._main()
        header = Header(
            id=f"synthetic-{self.plan.name}",
            agent=self.client.name,
            agent_version=self.client.version,
            models=(self.client.model,),
            source=f"synthesised, seed {seed}",
            started_at=started,
            shape_only=True,
            synthetic=True,
            title=self.plan.name,
            notes=("made up by a seeded synthesiser fitted to published statistics; nobody's session",),
        )
        params = Params(temperature=self.client.temperature, max_tokens=self.client.max_tokens)
        return self.made.finish(header, self.client.model, params)

    # -- the main agent

    def _main(self) -> None:
        plan, d, made = self.plan, self.draw, self.made
        ends = _turn_ends(d, plan)
        spawns = _spawn_turns(d, plan, ends)
        system = self._system("main", self.client.system)
        turn = Turn(self.client, 0, self._tools("main", self.client.schemas), messages=(system, self._first_request()))
        turn.warm = made.prompt_tokens((), turn.tools) + self.client.system
        turn.warm = turn.warm if d.uniform() < 0.8 else 0
        for number in range(plan.calls):
            last = number in ends
            if number == plan.compact_at:
                self._compaction(turn, system)
                continue
            spawned = spawns.get(number, 0)
            asked = () if last else self._task_calls(spawned) if spawned else self._tool_calls()
            self._turn(turn, asked, stop="end_turn" if last else "tool_use")
            if number == plan.calls - 1:
                break
            if last:
                self._human(turn)
            elif spawned:
                self._delegate(turn, [c for c, _ in asked], background=self._runs_beside(number, spawns))
            else:
                self._run_tools(turn, asked)
            self._join_background(turn, number, spawns)

    def _system(self, role: str, tokens: int) -> int:
        name = f"{self.client.name}/{self.client.version}/{role}/system"
        shared = self.made.block("prose", tokens, shared=name)
        return self.made.message("system", (shared, self.made.block("prose", self.draw.between(90, 210))))

    def _tools(self, role: str, tokens: int) -> int:
        names = tuple(t.name for t in self.client.tools)
        if role == "main" and self.client.task is not None:
            names += (self.client.task.name,)
        name = f"{self.client.name}/{self.client.version}/{role}/tools"
        return self.made.toolset(names, self.made.block("json", tokens, shared=name))

    def _first_request(self) -> int:
        context = self.made.block("prose", max(20, self.plan.first))
        return self.made.message("user", (context, self.made.block("prose", REQUEST.tokens(self.draw))))

    def _tool_calls(self) -> tuple[tuple[ToolCall, Tool], ...]:
        tool = draw_tool(self.draw, self.client)
        calls = []
        for _ in range(parallel_calls(self.draw, tool)):
            tokens = tool.arguments.tokens(self.draw)
            calls.append((ToolCall(self._call_id(), tool.name, self.made.block("json", tokens)), tool))
        return tuple(calls)

    def _task_calls(self, count: int) -> tuple[tuple[ToolCall, Tool], ...]:
        tool = self.client.task
        assert tool is not None
        return tuple(
            (ToolCall(self._call_id(), tool.name, self.made.block("json", tool.arguments.tokens(self.draw))), tool)
            for _ in range(count)
        )

    def _call_id(self) -> str:
        return f"call_{self.draw.u64() & 0xFFFFFFFFFFFF:012x}"

    def _turn(self, turn: Turn, asked: tuple[tuple[ToolCall, Tool], ...], stop: str) -> None:
        """One call: reasoning, some words, tool calls."""
        d, made = self.draw, self.made
        terse = self.plan.terse
        reasoning = round(REASONING.draw(d) * terse) if d.uniform() < self.client.reasoning else 0
        text = round(terse * (TEXT.draw(d) if asked else ANSWER.draw(d))) if not asked or d.uniform() < 0.55 else 0
        keep_reasoning = self.client.resends_reasoning and reasoning > 0
        output = made.message(
            "assistant",
            blocks=(made.block("prose", text),) if text else (),
            reasoning=(made.block("prose", reasoning),) if keep_reasoning else (),
            tool_calls=tuple(c for c, _ in asked),
        )
        send(made, self.pace, turn, output, reasoning=reasoning, stop=stop)

    def _run_tools(self, turn: Turn, asked: tuple[tuple[ToolCall, Tool], ...]) -> None:
        """The tools of a turn, side by side, and their answers."""
        d, pace, made = self.draw, self.pace, self.made
        key = turn.key
        waited = 0.0
        if pace.uniform() < APPROVAL_SHARE:
            waited = round(APPROVAL_S.draw(pace), 3)
            made.waits.append(Wait(_next_key(made), "client", waited))
        longest = 0.0
        for call, tool in asked:
            seconds = round(tool.seconds.draw(pace), 3)
            longest = max(longest, seconds)
            begin = round(turn.end + waited, 3)
            failed = d.uniform() < tool.error
            made.runs.append(ToolRun(key, call.id, tool.name, begin, round(begin + seconds, 3), error=failed))
            tokens = max(8, round(tool.result.draw(d) * self.scale * (0.4 if failed else 1.0)))
            answer = made.block("log" if failed else tool.kind, tokens)
            turn.add(made.message("tool", (answer,), tool_call_id=call.id, name=tool.name))
        made.waits.append(Wait(_next_key(made), "tool", longest, tools=tuple(t.name for _, t in asked)))
        turn.now = round(turn.end + waited + longest, 3)

    def _human(self, turn: Turn) -> None:
        seconds = round(HUMAN_S.draw(self.pace), 3)
        self.made.waits.append(Wait(_next_key(self.made), "human", seconds))
        turn.add(self.made.message("user", (self.made.block("prose", REQUEST.tokens(self.draw)),)))
        turn.now = round(turn.end + seconds, 3)

    def _compaction(self, turn: Turn, system: int) -> None:
        """The context is summed up and the session goes on from the summary."""
        made, d = self.made, self.draw
        ask = made.message("user", (made.block("prose", 420),))
        summary = made.block("prose", d.between(2_200, 4_200))
        turn.add(ask)
        send(
            made,
            self.pace,
            turn,
            made.message("assistant", (summary,)),
            reasoning=0,
            stop="end_turn",
            kind="compaction",
        )
        resumed = made.message("user", (summary, made.block("code", d.between(2_500, 6_000))))
        turn.restart((system, resumed), keep=1)
        made.waits.append(Wait(_next_key(made), "client", 0.4))
        turn.now = round(turn.end + 0.4, 3)

    # -- sub-agents

    def _runs_beside(self, number: int, spawns: dict[int, int]) -> bool:
        return self.plan.background and number == max(spawns)

    def _delegate(self, turn: Turn, calls: list[ToolCall], *, background: bool) -> None:
        """Sub-agents run side by side; the parent waits for them, or goes on when they run in the background."""
        made, key, began = self.made, turn.key, turn.end
        joined: list[int] = []
        end = began
        for call in calls:
            thread, ended, answer = self._sub_agent(turn, call)
            made.runs.append(ToolRun(key, call.id, call.name, began, ended, thread=thread))
            if background:
                self.background = (thread, ended)
                answer = made.block("prose", 40)
            else:
                joined.append(thread)
                end = max(end, ended)
            turn.add(made.message("tool", (answer,), tool_call_id=call.id, name=call.name))
        if background:
            made.waits.append(Wait(_next_key(made), "tool", 0.2, tools=(calls[0].name,)))
            turn.now = round(began + 0.2, 3)
        else:
            turn.joins = tuple(joined)
            made.waits.append(Wait(_next_key(made), "subagent", round(end - began, 3)))
            turn.now = round(end, 3)

    def _sub_agent(self, parent: Turn, call: ToolCall) -> tuple[int, float, int]:
        """A sub-agent from its first call to its answer: its thread, when it ended, and the answer's block."""
        client, d, made = self.client, self.draw, self.made
        thread = len(made.threads)
        delay = round(0.05 + 0.4 * self.pace.uniform(), 3)
        beside = self.plan.background and self.agents_left == 1
        self.agents_left -= 1
        made.threads.append(Thread(thread, 0, parent.key, delay, call.id, f"{call.name}-{thread}", beside))
        order = made.block("prose", made.blocks[call.arguments].tokens)
        system = self._system("sub", client.sub_system)
        turn = Turn(client, thread, self._tools("sub", client.sub_schemas), (system, made.message("user", (order,))))
        turn.warm = client.sub_system + client.sub_schemas if thread > 1 or d.uniform() < 0.5 else 0
        turn.now = round(parent.end + delay, 3)
        for _ in range(min(45, max(2, round(d.lognormal(9, 24))))):
            asked = self._tool_calls()
            self._turn(turn, asked, "tool_use")
            self._run_tools(turn, asked)
        self._turn(turn, (), "end_turn")
        answer = made.messages[made.drafts[-1].output].blocks[0]
        return thread, turn.end, answer

    def _join_background(self, turn: Turn, number: int, spawns: dict[int, int]) -> None:
        """A background agent is joined at the first call after its end, or before the main agent's last one."""
        if self.background is None or number <= max(spawns):
            return
        thread, ended = self.background
        if turn.now < ended and number < self.plan.calls - 2:
            return
        if turn.now < ended:
            self.made.waits.append(Wait(_next_key(self.made), "subagent", round(ended - turn.now, 3)))
            turn.now = round(ended, 3)
        turn.joins = (*turn.joins, thread)
        self.background = None


def _next_key(made: Assembly) -> int:
    """Key of the next call of the thread that is being made up."""
    return len(made.drafts)


def _turn_ends(d: Stream, plan: Plan) -> set[int]:
    """Calls that end the user's turns: the last one and `people - 1` spread over the session."""
    ends = {plan.calls - 1}
    for i in range(1, plan.people):
        at = round(plan.calls * (i + 0.5 * (d.uniform() - 0.5)) / plan.people)
        ends.add(max(1, min(plan.calls - 2, at)))
    if plan.compact_at is not None:
        ends -= {plan.compact_at, plan.compact_at - 1}
    return ends


def _spawn_turns(d: Stream, plan: Plan, ends: set[int]) -> dict[int, int]:
    """Calls that start sub-agents, and how many: some alone, some side by side; a background one comes alone, last."""
    groups: list[int] = []
    left = plan.agents - plan.background
    while left > 0:
        size = min(left, d.weighted([(1, 4.0), (2, 3.0), (3, 2.0)]))
        groups.append(size)
        left -= size
    groups += [1] * plan.background
    taken = ends | ({plan.compact_at, plan.compact_at - 1} if plan.compact_at is not None else set())
    spots = [n for n in range(1, max(2, plan.calls * 3 // 4)) if n not in taken]
    spacing = len(spots) / (len(groups) or 1)
    return {spots[int(spacing * (i + 0.6 * d.uniform()))]: size for i, size in enumerate(groups)}


def synthesise(plan: Plan, seed: int = SEED) -> Trace:
    """The session of a plan. The size of tool results is scaled until the largest prompt meets the plan's peak."""

    def at(scale: float) -> Trace:
        return _Session(plan, seed, scale).trace(seed)

    return at(_solve(lambda scale: max(at(scale).prompt_tokens().values()), plan.peak))


def _solve(peak: Callable[[float], int], wanted: int) -> float:
    """Scale at which the peak is met, by bisection on its logarithm; the nearest bound where it cannot be."""
    low, high = 0.02, 20.0
    for _ in range(14):
        middle: float = (low * high) ** 0.5
        if peak(middle) < wanted:
            low = middle
        else:
            high = middle
    return low


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the library of synthetic sessions.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the .jsonl.zst files")
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args(argv)
    for plan in LIBRARY:
        write_trace(synthesise(plan, args.seed), args.out / f"{plan.name}.jsonl.zst")
        print(plan.name, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
