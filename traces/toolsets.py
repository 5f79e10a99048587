"""Tool sets of older recordings, one text for all of their tools, cut into a block for each.

Without its text such a set has nothing in common with another one; cut, they share the tools they begin with.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from windtunnel.traces.importers.fitting import share
from windtunnel.traces.importers.pieces import Piece, ToolSchemas
from windtunnel.traces.model import Block, ToolSet, Trace
from windtunnel.traces.repair import Item, assemble


def cut(trace: Trace) -> Trace:
    """The same session, of the same tokens; itself where no set is one text of several tools."""
    made = _Cut(trace)
    sets = tuple(made.toolset(t) for t in trace.toolsets)
    if sets == trace.toolsets:
        return trace
    used = {b for m in trace.messages for b in trace.message_blocks(m)} | {b for t in sets for b in t.blocks}
    gone = {t.block for t in trace.toolsets} - used
    lines: list[Item] = [b for b in made.blocks if b.id not in gone]
    lines += [*sets, *trace.threads, *trace.messages, *trace.calls, *trace.tool_runs, *trace.waits]
    return assemble(trace.header, [(0, line) for line in lines], trace.header.id, [])


class _Cut:
    def __init__(self, trace: Trace) -> None:
        self.blocks = list(trace.blocks)
        self._known: dict[tuple[str, int], int] = {}
        self._sets: list[list[Piece]] = []
        """Those cut so far."""

    def toolset(self, old: ToolSet) -> ToolSet:
        whole = self.blocks[old.block]
        piece = Piece(whole.digest, whole.kind, whole.tokens, whole.text, mark=whole.mark)
        tools = () if old.more else ToolSchemas(old.names, piece).each()
        if len(tools) < 2:
            return old
        sized = self._sized(tools, whole.tokens)
        self._sets.append(sized)
        first, *more = (self._block(p, whole) for p in sized)
        return replace(old, block=first, more=tuple(more))

    def _sized(self, tools: Sequence[Piece], total: int) -> list[Piece]:
        """Tools that another set begins with as well keep its tokens; those behind them have what is left."""
        lead = max((_common(tools, other) for other in self._sets), key=len, default=[])[: len(tools) - 1]
        while lead and total - sum(p.tokens for p in lead) < len(tools) - len(lead):
            lead.pop()
        rest = tools[len(lead) :]
        sizes = share(total - sum(p.tokens for p in lead), [p.tokens for p in rest])
        return lead + [replace(p, tokens=n) for p, n in zip(rest, sizes, strict=True)]

    def _block(self, piece: Piece, whole: Block) -> int:
        key = (piece.digest, piece.tokens)
        if key not in self._known:
            self._known[key] = len(self.blocks)
            text = piece.text or ""
            block = replace(whole, id=len(self.blocks), digest=piece.digest, tokens=piece.tokens, text=text)
            self.blocks.append(replace(block, chars=len(text)))
        return self._known[key]


def _common(tools: Sequence[Piece], other: Sequence[Piece]) -> list[Piece]:
    """What two sets begin with, as the other has it."""
    out: list[Piece] = []
    for a, b in zip(tools, other, strict=False):
        if a.digest != b.digest:
            break
        out.append(b)
    return out
