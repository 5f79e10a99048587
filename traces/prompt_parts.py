"""Prompts of a trace as comparable parts: tool schemas first, then each message's reasoning, texts and tool calls.

Two messages are the same when a template would write the same: marks for a provider's cache, a content given as a
string or as a list, and blanks in a tool call's arguments make no difference.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

from windtunnel.traces.differing import common_length
from windtunnel.traces.json_values import dumps, parse_json
from windtunnel.traces.model import Block, Call, Message, Trace, digest_of

PartKind = Literal["tools", "reasoning", "text", "call"]
TOOLS = -1
"""Place of the tool schemas in a prompt; messages count from 0."""


class Part(NamedTuple):
    """One block in its place."""

    kind: PartKind
    block: Block
    name: str = ""
    """Of the tool, for a call and for a schema."""


class Parting(NamedTuple):
    """Where two messages, or two tool sets, part."""

    old: Part | None
    new: Part | None
    common: float
    """Tokens of the new one up to there; inside a text by its share of the characters."""
    at: int
    """Characters into both texts; 0 where there is no text."""


class Prompt(NamedTuple):
    call: Call
    messages: tuple[int, ...]
    prints: tuple[int, ...]
    """Tool set, then messages: equal numbers, equal contents."""
    tokens: tuple[int, ...]
    """Up to each of them, from 0."""


class Reader:
    """Gives a trace's prompts in order; compares their parts."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._numbers: dict[object, int] = {}
        self._messages: dict[int, int] = {}
        self._tools: dict[int | None, int] = {}
        self._tokens: dict[int, int] = {}
        self._filler: dict[int, int] = {}
        self._fills = any(block.filler for block in trace.blocks)

    def prompts(self) -> Iterator[Prompt]:
        held: dict[int, Prompt] = {}
        for call in self.trace.calls:
            base = held.get(call.base) if call.base is not None else None
            kept = base.messages[: call.keep] if base is not None else ()
            messages = kept + call.append
            tools = self.tools_tokens(call.tools)
            tokens = [0, tools]
            for message in messages:
                tokens.append(tokens[-1] + self.tokens(message))
            prints = (self.tools_print(call.tools), *(self.print(m) for m in messages))
            held[call.id] = prompt = Prompt(call, messages, prints, tuple(tokens))
            yield prompt

    def tokens(self, message: int) -> int:
        if message not in self._tokens:
            self._tokens[message] = self.trace.message_tokens(message)
        return self._tokens[message]

    def filler(self, prompt: Prompt, begin: int = TOOLS) -> int:
        """Tokens of a prompt, from a place on, that stand for what the log does not hold."""
        if not self._fills:
            return 0
        tools = (
            self.trace.toolsets[prompt.call.tools].blocks if begin == TOOLS and prompt.call.tools is not None else ()
        )
        return _filling(self.trace, tools) + sum(self._filling(m) for m in prompt.messages[max(0, begin) :])

    def _filling(self, message: int) -> int:
        if message not in self._filler:
            m = self.trace.messages[message]
            blocks = (*m.blocks, *m.reasoning, *(c.arguments for c in m.tool_calls))
            self._filler[message] = _filling(self.trace, blocks)
        return self._filler[message]

    def tools_tokens(self, tools: int | None) -> int:
        return self.trace.toolset_tokens(tools)

    def print(self, message: int) -> int:
        """A number for a message's contents."""
        if message not in self._messages:
            m = self.trace.messages[message]
            texts = [self.trace.blocks[b] for b in m.blocks]
            content: object = tuple(_identity(b) for b in texts)
            if all(b.text is not None and b.media is None for b in texts):
                content = digest_of("".join(_plain(b) for b in texts))
            key = (
                m.role,
                content,
                tuple(_identity(self.trace.blocks[b]) for b in m.reasoning),
                tuple((c.name, _arguments(self.trace.blocks[c.arguments])) for c in m.tool_calls),
            )
            self._messages[message] = self._numbers.setdefault(key, len(self._numbers))
        return self._messages[message]

    def tools_print(self, tools: int | None) -> int:
        if tools not in self._tools:
            key: object = None
            if tools is not None:
                blocks = [p.block for p in self.tools_parts(tools)]
                texts = tuple(_identity(b) if b.text is None else digest_of(_plain(b)) for b in blocks)
                key = (self.trace.toolsets[tools].names, texts)
            self._tools[tools] = self._numbers.setdefault(("tools", key), len(self._numbers))
        return self._tools[tools]

    def parts(self, message: int) -> list[Part]:
        m: Message = self.trace.messages[message]
        known = self.trace.blocks
        return [
            *(Part("reasoning", known[b]) for b in m.reasoning),
            *(Part("text", known[b]) for b in m.blocks),
            *(Part("call", known[c.arguments], c.name) for c in m.tool_calls),
        ]

    def tools_parts(self, tools: int | None) -> list[Part]:
        """A part for each tool, by name; one for all of them where that is how they were recorded."""
        if tools is None:
            return []
        toolset = self.trace.toolsets[tools]
        blocks = [self.trace.blocks[b] for b in toolset.blocks]
        known = toolset.names if toolset.more and len(toolset.names) == len(blocks) else [""] * len(blocks)
        return [Part("tools", block, name) for block, name in zip(blocks, known, strict=True)]


def _filling(trace: Trace, blocks: Sequence[int]) -> int:
    return sum(trace.blocks[b].tokens for b in blocks if trace.blocks[b].filler)


def part_at(old: Sequence[Part], new: Sequence[Part]) -> Parting:
    """The first parts of two messages that differ; both None where only the cut into blocks does."""
    common = 0.0
    for a, b in zip_longest(old, new):
        if a is not None and b is not None and a.kind == b.kind and a.name == b.name:
            if _same(a, b):
                common += b.block.tokens
                continue
            if a.block.text is not None and b.block.text is not None:
                at = common_length(a.block.text, b.block.text)
                return Parting(a, b, common + b.block.tokens * at / max(1, len(b.block.text)), at)
            if a.block.digest == b.block.digest:
                return Parting(a, b, common + min(a.block.tokens, b.block.tokens), 0)
        return Parting(a, b, common, 0)
    return Parting(None, None, common, 0)


def only_reasoning(old: Sequence[Part], new: Sequence[Part]) -> bool:
    """Two differing messages of which nothing but the reasoning differs."""
    bare = [[p for p in parts if p.kind != "reasoning"] for parts in (old, new)]
    reasoned = any(p.kind == "reasoning" for p in (*old, *new))
    parting = part_at(*bare)
    return reasoned and parting.old is None and parting.new is None


def _same(a: Part, b: Part) -> bool:
    if a.kind == "call":
        return _arguments(a.block) == _arguments(b.block)
    if a.block.text is not None and b.block.text is not None and a.block.media is None:
        return _plain(a.block) == _plain(b.block)
    return _identity(a.block) == _identity(b.block)


def _identity(block: Block) -> object:
    """Equal digests are equal texts up to the shorter one's length, so without a text the length counts too."""
    return block.digest if block.text is not None else (block.digest, block.tokens)


def _arguments(block: Block) -> object:
    if block.text is None:
        return _identity(block)
    try:
        return digest_of(dumps(parse_json(block.text.encode("utf-8", "surrogatepass"))))
    except ValueError:
        return block.digest


def _plain(block: Block) -> str:
    """The text without marks for a provider's cache."""
    text = block.text or ""
    if block.kind != "json" or '"cache_control"' not in text:
        return text
    try:
        value = parse_json(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return text
    items = value if isinstance(value, list) else [value]
    bare = [{k: v for k, v in i.items() if k != "cache_control"} if isinstance(i, dict) else i for i in items]
    return dumps(bare if isinstance(value, list) else bare[0])
