"""How given sessions go, as numbers: what a synthesiser learns from them, and nothing that could be read.

A thread is an opening prompt and a row of turns. A turn is one call with what it led to: tokens, tool runs, waits,
sub-agents, and how the next prompt came to be. Names are kept where they are public; the others are numbered.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct

from windtunnel.traces.behaviour import CLIENTS
from windtunnel.traces.known_names import AGENTS, STOPS, TOOLS, VERSION, is_public_model
from windtunnel.traces.model import Block, Call, Cause, Message, Thread, Trace, Wait
from windtunnel.traces.profile import SHRUNK, first_s, prompt_sizes

_SYNTHETIC_TOOLS = frozenset(t.name for c in CLIENTS.values() for t in (*c.tools, *((c.task,) if c.task else ())))


LONGEST_S = 1e7
"""Nothing in a session takes longer; a time that says so is none."""


class ToolHabit(Struct, frozen=True):
    """One tool call. Tokens; seconds where known."""

    name: str
    arguments: int
    result: int
    seconds: float | None
    error: bool
    spawns: int | None = None
    """Number of the thread that it started, in its session."""


class TurnHabit(Struct, frozen=True):
    """One call and what it led to."""

    output: int
    """Tokens it generated."""
    reasoning: int
    """Of them reasoning; 0 where none or unknown."""
    kept: tuple[int, int]
    """Tokens of reasoning and of text that its message has in the next prompt, tool calls apart."""
    tools: tuple[ToolHabit, ...]
    added: int
    """Further tokens of the next prompt: what the user typed and the client put in."""
    waits: tuple[tuple[Cause, float | None], ...]
    """Before the next call, in order; joins of sub-agents apart."""
    first_s: float | None
    took_s: float | None
    cached: float | None
    """Cached tokens as a share of the thread's last prompt, of its own for the first call."""
    stop: str | None
    compaction: bool = False
    """The call itself sums the context up."""
    resumes_at: int | None = None
    """Tokens of the next prompt where the context was rewritten before it."""
    starts: tuple[int, ...] = ()
    """Threads that it started."""

    @property
    def special(self) -> bool:
        """Not one of many alike: each of them keeps its place in the session."""
        human = any(cause == "human" for cause, _ in self.waits)
        return bool(self.starts or human or self.compaction or self.resumes_at is not None)


class ThreadHabit(Struct, frozen=True):
    """A main agent or a sub-agent."""

    schemas: int
    """Tokens of its tool schemas; 0 where it has none."""
    names: tuple[str, ...]
    system: tuple[int, int]
    """Tokens of the system prompt: what sessions share, and the session's own."""
    opening: int
    """Tokens of the first prompt behind the schemas and the system prompt."""
    turns: tuple[TurnHabit, ...]
    peak: int
    delay_s: float = 0.0
    joined_after: int | None = None
    """How many calls after the one that started it its parent waited for it; None where it never did."""


class SessionHabit(Struct, frozen=True):
    agent: str
    version: str | None
    model: str
    threads: dict[int, ThreadHabit]
    """By number; 0 is the main agent."""


class Namer:
    """Public names as they are; the others numbered in the order they are met."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def tool(self, name: str) -> str:
        return name if name in TOOLS or name in _SYNTHETIC_TOOLS else self._number("tool", name)

    def agent(self, name: str) -> str:
        return name if name in AGENTS else self._number("agent", name)

    def model(self, name: str) -> str:
        return name if is_public_model(name) or name.startswith("synthetic-") else self._number("model", name)

    def _number(self, what: str, name: str) -> str:
        if (what, name) not in self._given:
            self._counts[what] = self._counts.get(what, 0) + 1
            self._given[what, name] = f"{what}-{self._counts[what]}"
        return self._given[what, name]


def learn(traces: Sequence[Trace]) -> list[SessionHabit]:
    """The habits of each session that has an ordinary call of its main agent; auxiliary calls are left out."""
    names = Namer()
    met = Counter(digest for trace in traces for digest in {b.digest for b in _system_blocks(trace, trace.calls)})
    shared = {digest for digest, sessions in met.items() if sessions > 1 or len(traces) == 1}
    found = (_session(trace, names, shared) for trace in traces)
    return [habit for habit in found if habit is not None]


def _system_blocks(trace: Trace, calls: Sequence[Call]) -> list[Block]:
    """Blocks of the system messages that contexts start with."""
    fresh = (m for c in calls if c.base is None for m in c.append if trace.messages[m].role == "system")
    return [trace.blocks[b] for m in fresh for b in trace.messages[m].blocks]


def _session(trace: Trace, names: Namer, shared: Collection[str]) -> SessionHabit | None:
    threads = {t.id: h for t in trace.threads if (h := _thread(trace, t, names, shared)) is not None}
    if 0 not in threads:
        return None
    model = next((c.model for c in trace.calls if c.model), next(iter(trace.header.models), "unknown"))
    version = VERSION.fullmatch(trace.header.agent_version or "")
    known = None if version is None else version[1]
    return SessionHabit(names.agent(trace.header.agent), known, names.model(model), threads)


def _thread(trace: Trace, thread: Thread, names: Namer, shared: Collection[str]) -> ThreadHabit | None:
    calls = [c for c in trace.calls_of(thread.id) if c.kind != "auxiliary"]
    if not calls:
        return None
    prompts = prompt_sizes(trace)
    first = calls[0]
    schemas = trace.toolset_tokens(first.tools)
    offered = trace.toolsets[first.tools].names if first.tools is not None else ()
    system = sum(trace.message_tokens(m) for m in first.append if trace.messages[m].role == "system")
    common = sum(b.tokens for b in _system_blocks(trace, [first]) if b.filler or b.digest in shared)
    waits: dict[int, list[Wait]] = {}
    for wait in trace.waits:
        waits.setdefault(wait.before, []).append(wait)
    reader = _Reader(trace, prompts, waits, names)
    turns = [
        reader.turn(call, calls[i - 1] if i else None, calls[i + 1] if i + 1 < len(calls) else None)
        for i, call in enumerate(calls)
    ]
    return ThreadHabit(
        schemas=schemas,
        names=tuple(names.tool(n) for n in offered),
        system=(common, system - common),
        opening=max(1, prompts[first.id] - schemas - system),
        turns=tuple(turns),
        peak=max(prompts[c.id] for c in calls),
        delay_s=_possible(thread.spawn_delay_s) or 0.0,
        joined_after=_joined_after(trace, thread),
    )


def _joined_after(trace: Trace, thread: Thread) -> int | None:
    if thread.parent is None or thread.spawn_call is None:
        return None
    calls = [c for c in trace.calls_of(thread.parent) if c.kind != "auxiliary" and c.id > thread.spawn_call]
    return next((i for i, call in enumerate(calls, 1) if thread.id in call.joins), None)


class _Reader:
    """Turns of one session."""

    def __init__(self, trace: Trace, prompts: dict[int, int], waits: dict[int, list[Wait]], names: Namer) -> None:
        self.trace = trace
        self.prompts = prompts
        self.waits = waits
        self.names = names
        self.runs = {(r.call, r.tool_call_id): r for r in trace.tool_runs}
        self.starts: dict[int, tuple[int, ...]] = {}
        for thread in trace.threads:
            if thread.spawn_call is not None:
                self.starts[thread.spawn_call] = (*self.starts.get(thread.spawn_call, ()), thread.id)

    def turn(self, call: Call, before: Call | None, after: Call | None) -> TurnHabit:
        trace = self.trace
        output = trace.messages[call.output] if call.output is not None else None
        new = self._new_messages(call, after)
        kept = output if output is not None and after is not None and call.output in after.append[:2] else None
        reasoning = sum(trace.blocks[b].tokens for b in kept.reasoning) if kept else 0
        text = sum(trace.blocks[b].tokens for b in kept.blocks) if kept else 0
        tools = self._tools(call, output, new)
        written = sum(t.arguments for t in tools) if kept else 0
        grown = 0 if after is None else self.prompts[after.id] - self.prompts[call.id]
        rewritten = after is not None and self.prompts[after.id] < SHRUNK * self.prompts[call.id]
        answered = sum(t.result for t in tools)
        base = self.prompts[before.id] if before is not None else self.prompts[call.id]
        cached = call.usage.cached
        return TurnHabit(
            output=max(1, call.usage.completion or 1),
            reasoning=max(0, call.usage.reasoning or 0),
            kept=(reasoning, text),
            tools=tools,
            added=max(0, grown - reasoning - text - written - answered),
            waits=() if after is None else self._pauses(after),
            first_s=_between(call.start_s, first_s(call)),
            took_s=_between(call.start_s, call.end_s),
            cached=None if cached is None or base <= 0 or cached < 0 else cached / base,
            stop=call.stop if call.stop in STOPS else None,
            compaction=call.kind == "compaction",
            resumes_at=self.prompts[after.id] if after is not None and rewritten else None,
            starts=self.starts.get(call.id, ()),
        )

    def _new_messages(self, call: Call, after: Call | None) -> list[Message]:
        if after is None:
            return []
        return [self.trace.messages[m] for m in after.append if m != call.output]

    def _tools(self, call: Call, output: Message | None, new: Sequence[Message]) -> tuple[ToolHabit, ...]:
        results = {m.tool_call_id: m.id for m in new if m.role == "tool"}
        out = []
        for asked in output.tool_calls if output is not None else ():
            run = self.runs.get((call.id, asked.id))
            answer = results.get(asked.id)
            out.append(
                ToolHabit(
                    name=self.names.tool(asked.name),
                    arguments=self.trace.blocks[asked.arguments].tokens,
                    result=0 if answer is None else self.trace.message_tokens(answer),
                    seconds=None if run is None or run.thread is not None else _between(run.start_s, run.end_s),
                    error=run is not None and run.error,
                    spawns=None if run is None else run.thread,
                )
            )
        return tuple(out)

    def _pauses(self, after: Call) -> tuple[tuple[Cause, float | None], ...]:
        return tuple((w.cause, _possible(w.seconds)) for w in self.waits.get(after.id, ()) if w.cause != "subagent")


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else _possible(end - start)


def _possible(seconds: float | None) -> float | None:
    """A length that something can have had; None for the others."""
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_S else None
