"""Prompts as token ids: exact counts, no template, no parser.

Each message is the ids of its blocks, encoded once. An output message gives way to the ids that were generated, as many
of them as the recorded message had tokens, so that prompts keep their recorded length and generated KV is used again.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from windtunnel.agents.nodes import Live, Node, Piece, Slot, SlotName, Tip
from windtunnel.agents.rendering import Rendering
from windtunnel.traces.model import Trace
from windtunnel.traces.text import id_array

Ids = Sequence[int] | NDArray[np.int64]


def encode_ids(ids: Ids) -> bytes:
    """`12,345,`: joined as they are, the last comma taken off at the end of the prompt."""
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    return msgspec.json.encode(listed)[1:-1] + b"," if listed else b""


def packed_ids(ids: Ids) -> bytes:
    """Four bytes each: for an engine in the same process, which then parses nothing."""
    return np.asarray(ids, dtype=np.uint32).tobytes()


class IdTree:
    """Renders roots and messages for `/v1/completions`."""

    def __init__(self, trace: Trace, rendering: Rendering, changes: Counter[str], *, packed: bool = False) -> None:
        """`packed`: as `packed_ids`, not as JSON."""
        self.packed = packed
        self.encode: Callable[[Ids], bytes] = packed_ids if packed else encode_ids
        self.trace = trace
        self.rendering = rendering
        self.changes = changes
        self.outputs = {call.output for call in trace.calls if call.output is not None}

    def root(self, tools: int | None) -> Node:
        blocks = () if tools is None else self.trace.toolsets[tools].blocks
        return self._node(None, -1, Tip(), blocks, user=False)

    def extend(self, parent: Node, message: int) -> Node:
        m = self.trace.messages[message]
        node = self._node(parent, message, parent.tip, tuple(self.trace.message_blocks(m)), user=m.role == "user")
        if message in self.outputs and not node.slots:
            node.live = Live(b"", b"", (), node.text_tokens)
        return node

    def own_ids(self, message: int) -> NDArray[np.int64]:
        """The ids that stand for a recorded message."""
        return self._ids([*self.trace.message_blocks(self.trace.messages[message])])

    def ending(self, node: Node) -> tuple[bytes, int]:
        """A prompt has at least one token."""
        if node.tokens:
            return b"", 0
        self.changes["empty_prompt"] += 1
        return self.encode(id_array("empty", 1, self.rendering.calibration)), 1

    def _ids(self, blocks: Sequence[int]) -> NDArray[np.int64]:
        held = [self.trace.blocks[block] for block in blocks]
        return _joined([id_array(block.digest, block.tokens, self.rendering.calibration) for block in held])

    def _node(self, parent: Node | None, message: int, tip: Tip, blocks: tuple[int, ...], *, user: bool) -> Node:
        held = [self.trace.blocks[block] for block in blocks]
        pieces = [Piece(block.digest, block.tokens) for block in held if block.tokens > 0]
        length = sum(piece.tokens for piece in pieces)
        taken: list[tuple[SlotName, int, int]] = []
        skipped = 0
        for name, tokens, wanted in (
            ("salt", self.rendering.salt_tokens, not tip.salted),
            ("tag", self.rendering.tag_tokens, user and not tip.tagged),
        ):
            room = min(tokens, length - skipped) if wanted else 0
            if room > 0:
                slot: SlotName = "salt" if name == "salt" else "tag"
                taken.append((slot, skipped, room))
                skipped += room
                tip = tip._replace(salted=True) if slot == "salt" else tip._replace(tagged=True)
        node = _IdNode(parent, message, tip)
        if skipped or not self.packed:
            flat = self._ids(blocks)
            node.slots = tuple(Slot(slot, room, self.encode(flat[start : start + room])) for slot, start, room in taken)
            node.body = self.encode(flat[skipped:])
        else:
            node.late = lambda: self.encode(self._ids(blocks))
        node.pieces = tuple(_without(pieces, skipped))
        node.tokens = (parent.tokens if parent else 0) + length
        node.text_tokens = length
        return node


class _IdNode(Node):
    """Its body may be made when it is first asked for: a virtual run makes only what it sends."""

    __slots__ = ("_body", "late")

    def __init__(self, parent: Node | None, message: int, tip: Tip) -> None:
        self.late: Callable[[], bytes] | None = None
        super().__init__(parent, message, tip)

    @property
    def body(self) -> bytes:
        if self.late is not None:
            self._body, self.late = self.late(), None
        return self._body

    @body.setter
    def body(self, body: bytes) -> None:
        self._body = body


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


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
