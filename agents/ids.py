"""Prompts as token ids: exact counts, no template, no parser.

Each message is the ids of its blocks, encoded once. An output message gives way to the ids that were generated, as many
of them as the recorded message had tokens, so that prompts keep their recorded length and generated KV is used again.
"""

from collections import Counter

import msgspec

from windtunnel.agents.nodes import Live, Node, Piece, Slot, SlotName, Tip
from windtunnel.agents.rendering import Rendering
from windtunnel.traces.model import Trace
from windtunnel.traces.text import token_ids


def encode_ids(ids: list[int]) -> bytes:
    """`12,345,`: joined as they are, the last comma taken off at the end of the prompt."""
    return msgspec.json.encode(ids)[1:-1] + b"," if ids else b""


class IdTree:
    """Renders roots and messages for `/v1/completions`."""

    def __init__(self, trace: Trace, rendering: Rendering, changes: Counter[str]) -> None:
        self.trace = trace
        self.rendering = rendering
        self.changes = changes
        self.outputs = {call.output for call in trace.calls if call.output is not None}
        self._held: dict[int, list[int]] = {}

    def root(self, tools: int | None) -> Node:
        blocks = () if tools is None else self.trace.toolsets[tools].blocks
        return self._node(None, -1, Tip(), blocks, user=False)

    def extend(self, parent: Node, message: int) -> Node:
        m = self.trace.messages[message]
        node = self._node(parent, message, parent.tip, tuple(self.trace.message_blocks(m)), user=m.role == "user")
        if message in self.outputs and not node.slots:
            node.live = Live(b"", b"", (), node.text_tokens)
        return node

    def own_ids(self, message: int) -> list[int]:
        """The ids that stand for a recorded message."""
        m = self.trace.messages[message]
        return [i for block in self.trace.message_blocks(m) for i in self._ids(block)]

    def ending(self, node: Node) -> tuple[bytes, int]:
        """A prompt has at least one token."""
        if node.tokens:
            return b"", 0
        self.changes["empty_prompt"] += 1
        return encode_ids(token_ids("empty", 1, self.rendering.calibration)), 1

    def _ids(self, block: int) -> list[int]:
        held = self.trace.blocks[block]
        return token_ids(held.digest, held.tokens, self.rendering.calibration)

    def _node(self, parent: Node | None, message: int, tip: Tip, blocks: tuple[int, ...], *, user: bool) -> Node:
        ids = [self._ids(block) for block in blocks]
        pieces = [Piece(self.trace.blocks[b].digest, len(i)) for b, i in zip(blocks, ids, strict=True) if i]
        flat = [i for part in ids for i in part]
        slots: list[Slot] = []
        for name, tokens, wanted in (
            ("salt", self.rendering.salt_tokens, not tip.salted),
            ("tag", self.rendering.tag_tokens, user and not tip.tagged),
        ):
            taken = min(tokens, len(flat) - sum(s.tokens for s in slots)) if wanted else 0
            if taken > 0:
                start = sum(s.tokens for s in slots)
                slot: SlotName = "salt" if name == "salt" else "tag"
                slots.append(Slot(slot, taken, encode_ids(flat[start : start + taken])))
                tip = tip._replace(salted=True) if slot == "salt" else tip._replace(tagged=True)
        node = Node(parent, message, tip)
        skipped = sum(s.tokens for s in slots)
        node.slots, node.body = tuple(slots), encode_ids(flat[skipped:])
        node.pieces = tuple(_without(pieces, skipped))
        node.tokens = (parent.tokens if parent else 0) + len(flat)
        node.text_tokens = len(flat)
        return node


def _without(pieces: list[Piece], tokens: int) -> list[Piece]:
    """The pieces less their first tokens; a piece cut in front has a key of its own."""
    out = []
    for piece in pieces:
        taken = min(tokens, piece.tokens)
        tokens -= taken
        if taken == 0:
            out.append(piece)
        elif taken < piece.tokens:
            out.append(Piece(f"{piece.key}+{taken}", piece.tokens - taken))
    return out
