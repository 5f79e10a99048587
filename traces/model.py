"""The trace model: one recorded session tree, linear in the session's length.

Text is cut into blocks, blocks make messages, and a call's prompt is a list of messages given as a difference to an
earlier call of the same thread (`base`, `keep`, `append`), so that a session of N calls costs O(its text), not O(N^2).

Token figures add up: the prompt of a call is its tool set's tokens plus the tokens of every block of its messages, and
importers cut blocks so that this sum equals the recorded prompt tokens (filler blocks stand for what the log lacks).
Ids are positions: `trace.blocks[i].id == i`, and so for messages, tool sets, threads and calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Literal

from msgspec import Struct

SCHEMA = "windtunnel.trace/1"

Mark = Literal["recorded", "derived", "estimated"]
"""Where a figure comes from: stated by the source; computed from it by a rule; guessed."""
Role = Literal["system", "user", "assistant", "tool"]
TextKind = Literal["code", "prose", "json", "log"]
"""What regenerated text looks like. Each kind has its own characters-per-token ratio."""
KINDS: tuple[TextKind, ...] = ("code", "prose", "json", "log")
Cause = Literal["tool", "human", "client", "subagent"]
CallKind = Literal["turn", "auxiliary", "compaction"]


TIMES = ("start", "first", "end")
"""Figures of a call that are moments."""


def without_times(marks: Mapping[str, Mark]) -> dict[str, Mark]:
    """The marks of a call whose times are not known after all."""
    return {figure: mark for figure, mark in marks.items() if figure not in TIMES}


def digest_of(*parts: str) -> str:
    """32 hex digits (BLAKE2b-128) of the parts; the identity of a block's text."""
    h = blake2b(digest_size=16)
    for part in parts:
        h.update(part.encode("utf-8", "surrogatepass"))
        h.update(b"\0")
    return h.hexdigest()


EMULATED = "EMULATED, nothing of this is measured"


class Header(Struct, frozen=True, omit_defaults=True, tag="trace"):
    """The first line of a trace file."""

    id: str
    agent: str = "unknown"
    """Client that recorded it: claude-code, codex, weka, ..."""
    agent_version: str | None = None
    models: tuple[str, ...] = ()
    """Models the lengths were recorded from."""
    source: str | None = None
    """Importer and path, or how it was synthesised."""
    started_at: float | None = None
    """Unix time of the first event, s."""
    shape_only: bool = False
    synthetic: bool = False
    title: str | None = None
    """Short human name shown in lists."""
    notes: tuple[str, ...] = ()
    """One that begins with `EMULATED` says that the engine behind the recording was an emulator."""
    schema: str = SCHEMA

    @property
    def emulated(self) -> bool:
        """Its times were computed and not measured."""
        return any(note.startswith(EMULATED) for note in self.notes)


class Block(Struct, frozen=True, omit_defaults=True, tag="block"):
    """A piece of prompt or output text, stored once. Equal digests mean equal text up to the shorter one's length."""

    id: int
    digest: str
    kind: TextKind
    tokens: int
    """Tokens it counts for in the recording's own tokenizer."""
    chars: int = 0
    """Characters of the recorded text; 0 when never recorded."""
    text: str | None = None
    """None in shape-only traces and filler: regenerated from `digest` at replay."""
    filler: bool = False
    """Stands for prompt parts that the recording's log does not hold."""
    media: str | None = None
    """Set on a stand-in for something that is not text, e.g. `image/png`."""
    mark: Mark = "estimated"
    """Where `tokens` comes from."""


class ToolCall(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    arguments: int
    """Block id; its text, where present, is what the model wrote (usually JSON)."""


class Message(Struct, frozen=True, omit_defaults=True, tag="message"):
    id: int
    role: Role
    blocks: tuple[int, ...] = ()
    """Visible content, in order."""
    reasoning: tuple[int, ...] = ()
    """Reasoning content that the client sent back in the history."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On `tool` messages: which call this answers."""
    name: str | None = None


class ToolSet(Struct, frozen=True, omit_defaults=True, tag="tools"):
    """Tool schemas that a request carried."""

    id: int
    names: tuple[str, ...]
    block: int
    """Block of the first tool's schema where there are `more`; else of all schemas' JSON text (a list).

    The tokens of all blocks count into every prompt that uses the set.
    """
    more: tuple[int, ...] = ()
    """Blocks of the other tools' schemas. With them each block is one JSON object, in the order of the request: sets
    that begin with the same tools begin with the same blocks, as in an engine's prefix cache. There are as many names
    as blocks, or more: an object may be a namespace of several tools."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """All of its blocks, in order."""
        return (self.block, *self.more)


class Thread(Struct, frozen=True, omit_defaults=True, tag="thread"):
    """The main agent (id 0) or a sub-agent."""

    id: int
    parent: int | None = None
    spawn_call: int | None = None
    """Call of the parent whose output started this thread."""
    spawn_delay_s: float = 0.0
    """Recorded time from the end of `spawn_call` to this thread's first call."""
    tool_call_id: str | None = None
    name: str | None = None
    background: bool = False
    """The parent went on without waiting for the result."""


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens as the recording's server counted them; None where not reported."""

    prompt: int | None = None
    """The full prompt, cached part included."""
    cached: int | None = None
    completion: int | None = None
    """All generated tokens, reasoning included."""
    reasoning: int | None = None


class Params(Struct, frozen=True, omit_defaults=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None


class Call(Struct, frozen=True, omit_defaults=True, tag="call"):
    """One LLM request. Prompt = first `keep` messages of call `base`'s prompt + `append`.

    `append` of an ordinary next turn starts with the previous call's `output` message. Times are seconds since the
    trace's start; None where unknown.
    """

    id: int
    thread: int
    append: tuple[int, ...] = ()
    base: int | None = None
    keep: int = 0
    tools: int | None = None
    output: int | None = None
    """Message id of what the model wrote."""
    usage: Usage = Usage()
    start_s: float | None = None
    first_s: float | None = None
    end_s: float | None = None
    stop: str | None = None
    """tool_use, end_turn, max_tokens, ... as the source says."""
    model: str | None = None
    params: Params = Params()
    kind: CallKind = "turn"
    aborted: bool = False
    joins: tuple[int, ...] = ()
    """Threads that must have ended before this call starts."""
    marks: dict[str, Mark] = {}
    """Figures (`prompt`, `cached`, `completion`, `reasoning`, `start`, `first`, `end`) that are not `recorded`."""


class ToolRun(Struct, frozen=True, omit_defaults=True, tag="tool_run"):
    call: int
    """Call whose output asked for it."""
    tool_call_id: str
    name: str
    start_s: float | None = None
    end_s: float | None = None
    thread: int | None = None
    """Sub-agent thread that this tool started."""
    error: bool = False
    mark: Mark = "recorded"


class Wait(Struct, frozen=True, omit_defaults=True, tag="wait"):
    """A pause before a call. Several waits before one call happen one after the other, in file order.

    A `subagent` wait is a join (see `Call.joins`): its `seconds` are recorded and not replayed.
    """

    before: int
    """Call id."""
    cause: Cause
    seconds: float | None
    """Recorded length; None when the recording does not say."""
    tools: tuple[str, ...] = ()
    """Names of the tools that ran, for `cause == "tool"`."""
    mark: Mark = "recorded"


class Trace(Struct, frozen=True, dict=True):
    """A whole session. Tuples are indexed by id."""

    header: Header
    blocks: tuple[Block, ...] = ()
    messages: tuple[Message, ...] = ()
    toolsets: tuple[ToolSet, ...] = ()
    threads: tuple[Thread, ...] = ()
    calls: tuple[Call, ...] = ()
    """In order of `start_s` where known; a call comes after its `base`."""
    tool_runs: tuple[ToolRun, ...] = ()
    waits: tuple[Wait, ...] = ()

    def calls_of(self, thread: int) -> list[Call]:
        """The calls of one thread, in order."""
        return [c for c in self.calls if c.thread == thread]

    def message_blocks(self, message: Message) -> Iterator[int]:
        """Block ids of a message: reasoning, content, tool-call arguments."""
        yield from message.reasoning
        yield from message.blocks
        for call in message.tool_calls:
            yield call.arguments

    def message_tokens(self, message_id: int) -> int:
        return self._message_tokens[message_id]

    @cached_property
    def _message_tokens(self) -> list[int]:
        return [sum([self.blocks[b].tokens for b in self.message_blocks(message)]) for message in self.messages]

    def toolset_tokens(self, toolset: int | None) -> int:
        """Tokens of a tool set's schemas; 0 for a prompt without tools."""
        return 0 if toolset is None else sum(self.blocks[b].tokens for b in self.toolsets[toolset].blocks)

    def prompts(self) -> Iterator[tuple[Call, Sequence[int]]]:
        """Each call with its prompt's message ids. Costs the sum of the prompts' message counts: not for run time."""
        held: dict[int, tuple[int, ...]] = {}
        for call in self.calls:
            base = held[call.base][: call.keep] if call.base is not None else ()
            held[call.id] = base + call.append
            yield call, held[call.id]

    def prompt_tokens(self) -> Mapping[int, int]:
        """Tokens of every call's prompt by the block sums, tool set included; equals `usage.prompt` where recorded."""
        return self._prompt_tokens

    @cached_property
    def _prompt_tokens(self) -> dict[int, int]:
        tokens = self._message_tokens
        sums: dict[int, list[int]] = {}
        out: dict[int, int] = {}
        for call in self.calls:
            cumulative = sums[call.base][: call.keep + 1] if call.base is not None else [0]
            total = cumulative[-1]
            for message_id in call.append:
                total += tokens[message_id]
                cumulative.append(total)
            sums[call.id] = cumulative
            out[call.id] = total + self.toolset_tokens(call.tools)
        return out


class Problem(Struct, frozen=True):
    """A part of an input that could not be used."""

    file: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.reason}"
