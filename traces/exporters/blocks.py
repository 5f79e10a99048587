"""Prompts as lists of block ids: two prompts share as many leading ids as they share whole leading blocks of text."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct

from windtunnel.traces.model import Call, Trace

Part = tuple[str, int, int]
"""A stretch of a text: its digest, and the first and last token of it that are meant (the last not included)."""


class BlockIds:
    """Numbers for blocks; an id stands for a block and everything before it in its prompt.

    They count from 0 as the blocks come or, `lasting`, are made from the text's digest (52 bits, exact in any JSON
    reader), so that they mean the same in files written at different times.
    """

    def __init__(self, tokens: int, *, lasting: bool = False) -> None:
        self.tokens = tokens
        self._lasting = lasting
        self._known: dict[tuple[int, tuple[Part, ...]], int] = {}

    def of(self, stream: Iterable[Part], before: int = -1) -> list[int]:
        """Ids of the blocks that a text fills, after the block `before`; the last one need not be full."""
        ids: list[int] = []
        filled: list[Part] = []
        room = self.tokens
        for digest, begin, end in stream:
            at = begin
            while at < end:
                taken = min(end - at, room)
                filled.append((digest, at, at + taken))
                at += taken
                room -= taken
                if not room:
                    before = self._number(before, filled)
                    ids.append(before)
                    filled, room = [], self.tokens
        if filled:
            ids.append(self._number(before, filled))
        return ids

    def _number(self, before: int, filled: list[Part]) -> int:
        key = (before, tuple(filled))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _lasting_id(key) if self._lasting else len(self._known)
        return known


def _lasting_id(key: tuple[int, tuple[Part, ...]]) -> int:
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest()) >> 12


class Prompt(Struct, frozen=True):
    """A call's prompt: its tokens by the blocks' sums and the ids of its blocks, the last one maybe not full."""

    tokens: int
    ids: list[int]


class _Held(Struct):
    tools: int | None
    sums: list[int]
    """Tokens up to each message's end, the tool set included; the first is the tool set alone."""
    ids: list[int]


def prompts(trace: Trace, blocks: BlockIds) -> Iterator[Prompt]:
    """Every call's prompt, in order. A call costs what it does not share with the one it extends."""
    held: list[_Held] = []
    for call, messages in trace.prompts():
        tools = trace.toolset_tokens(call.tools)
        sums, whole, first = [tools], 0, 0
        base = None if call.base is None else held[call.base]
        if base is not None and base.tools == call.tools:
            sums = base.sums[: call.keep + 1]
            whole = sums[-1] // blocks.tokens
            # the message in which the first block that may differ begins
            first = next((i for i in range(call.keep, 0, -1) if sums[i] <= whole * blocks.tokens), 0)
        else:
            sums += _sums(trace, messages[: call.keep], tools)
        sums += _sums(trace, messages[call.keep :], sums[-1])
        kept = base.ids[:whole] if base is not None and whole else []
        stream = parts(trace, None if first else call.tools, messages[first:])
        rest = after(stream, whole * blocks.tokens - (sums[first] if first else 0))
        ids = kept + blocks.of(rest, kept[-1] if kept else -1)
        held.append(_Held(call.tools, sums, ids))
        yield Prompt(sums[-1], ids)


def parts(trace: Trace, tools: int | None, messages: Sequence[int]) -> Iterator[Part]:
    """A prompt's blocks in the order in which most templates show them: tools, then the messages."""
    if tools is not None:
        for number in trace.toolsets[tools].blocks:
            yield trace.blocks[number].digest, 0, trace.blocks[number].tokens
    for message in messages:
        for number in trace.message_blocks(trace.messages[message]):
            yield trace.blocks[number].digest, 0, trace.blocks[number].tokens


def _sums(trace: Trace, messages: Sequence[int], begin: int) -> list[int]:
    out = []
    for message in messages:
        begin += trace.message_tokens(message)
        out.append(begin)
    return out


def after(stream: Iterable[Part], tokens: int) -> Iterator[Part]:
    """What follows the first `tokens` tokens of a text."""
    for digest, begin, end in stream:
        if tokens >= end - begin:
            tokens -= end - begin
        else:
            yield digest, begin + tokens, end
            tokens = 0


def keeps_all(call: Call, before: Call, streams: dict[int, tuple[int, ...]]) -> bool:
    """A call's prompt begins with the whole prompt of another; `streams` are the prompts' messages by call."""
    return call.base == before.id and call.tools == before.tools and call.keep == len(streams[before.id])
