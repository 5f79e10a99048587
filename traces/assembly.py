"""Putting a synthetic session together: blocks, messages, calls with honest sums, and the prompt cache's answer.

Calls are collected per thread as they are made up and numbered by their start time at the end, as a recording would be.
"""

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.model import (
    Block,
    Call,
    CallKind,
    Header,
    Message,
    Params,
    Role,
    TextKind,
    Thread,
    ToolCall,
    ToolRun,
    ToolSet,
    Trace,
    Usage,
    Wait,
    digest_of,
)


class Draft(Struct):
    """A call in the making; `key` stands for its id until all calls are known."""

    key: int
    thread: int
    messages: tuple[int, ...]
    """The whole prompt."""
    base: int | None
    """Key of the call whose prompt it extends."""
    keep: int
    tools: int | None
    start: float
    first: float | None
    end: float
    output: int
    usage: Usage
    stop: str | None
    kind: CallKind
    aborted: bool
    joins: tuple[int, ...]


class Assembly:
    """A trace under construction."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self.blocks: list[Block] = []
        self.messages: list[Message] = []
        self.toolsets: list[ToolSet] = []
        self.threads: list[Thread] = []
        self.drafts: list[Draft] = []
        self.runs: list[ToolRun] = []
        self.waits: list[Wait] = []
        self._tokens: list[int] = []
        self._by_digest: dict[str, int] = {}

    def block(self, kind: TextKind, tokens: int, shared: str | None = None) -> int:
        """A new block, or with `shared` the block of that name, which is the same in every session."""
        parts = (self._seed, str(len(self.blocks))) if shared is None else ("shared", shared)
        digest = digest_of("synthetic", *parts)
        if shared is not None and digest in self._by_digest:
            return self._by_digest[digest]
        i = len(self.blocks)
        self.blocks.append(Block(i, digest, kind, tokens, filler=shared is not None, mark="derived"))
        self._by_digest[digest] = i
        return i

    def message(
        self,
        role: Role,
        blocks: tuple[int, ...] = (),
        *,
        reasoning: tuple[int, ...] = (),
        tool_calls: tuple[ToolCall, ...] = (),
        tool_call_id: str | None = None,
        name: str | None = None,
    ) -> int:
        m = Message(len(self.messages), role, blocks, reasoning, tool_calls, tool_call_id, name)
        self.messages.append(m)
        used = (*reasoning, *blocks, *(c.arguments for c in tool_calls))
        self._tokens.append(sum(self.blocks[b].tokens for b in used))
        return m.id

    def toolset(self, names: tuple[str, ...], block: int) -> int:
        for tools in self.toolsets:
            if tools.block == block:
                return tools.id
        self.toolsets.append(ToolSet(len(self.toolsets), names, block))
        return len(self.toolsets) - 1

    def prompt_tokens(self, messages: tuple[int, ...], tools: int | None) -> int:
        schemas = () if tools is None else self.toolsets[tools].blocks
        return sum(self._tokens[m] for m in messages) + sum(self.blocks[b].tokens for b in schemas)

    def finish(self, header: Header, model: str, params: Params) -> Trace:
        """Number the calls by their start and build the trace."""
        order = sorted(self.drafts, key=lambda c: (c.start, c.thread, c.key))
        ids = {draft.key: i for i, draft in enumerate(order)}
        calls = tuple(
            Call(
                id=ids[c.key],
                thread=c.thread,
                append=c.messages[c.keep :] if c.base is not None else c.messages,
                base=None if c.base is None else ids[c.base],
                keep=c.keep if c.base is not None else 0,
                tools=c.tools,
                output=c.output,
                usage=c.usage,
                start_s=c.start,
                first_s=c.first,
                end_s=c.end,
                stop=c.stop,
                model=model,
                params=params,
                kind=c.kind,
                aborted=c.aborted,
                joins=c.joins,
            )
            for c in order
        )
        return Trace(
            header=header,
            blocks=tuple(self.blocks),
            messages=tuple(self.messages),
            toolsets=tuple(self.toolsets),
            threads=tuple(
                t if t.spawn_call is None else replace(t, spawn_call=ids[t.spawn_call]) for t in self.threads
            ),
            calls=calls,
            tool_runs=tuple(sorted((replace(r, call=ids[r.call]) for r in self.runs), key=lambda r: r.call)),
            waits=tuple(sorted((replace(w, before=ids[w.before]) for w in self.waits), key=lambda w: w.before)),
        )
