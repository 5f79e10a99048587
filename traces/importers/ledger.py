"""The store of one trace being imported: blocks, messages and tool sets, each once, cut where a prompt was cut."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.importers.pieces import Draft, Piece
from windtunnel.traces.model import Block, Message, Role, ToolCall, ToolSet, digest_of

MARKER_TOKENS = 8
"""Tokens at the place where a prompt diverged that are replaced by text that differs."""


class Cut(Struct, frozen=True):
    """A message in two: what stands before a token position and what comes after; None for an empty half."""

    head: int | None
    rest: int | None


class Ledger:
    """Appends only. Equal blocks, told by digest and token count, are stored once."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.blocks: list[Block] = []
        self.messages: list[Message] = []
        self.toolsets: list[ToolSet] = []
        self.tool_tokens: dict[str, int] = {}
        """Tokens of each tool's schema, by its digest, as settled by the first set that has it."""
        self._known: dict[tuple[str, int], int] = {}
        self._tokens: list[int] = []
        self._changes = 0

    def block(self, piece: Piece) -> int:
        key = (piece.digest, piece.tokens)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.blocks)
            self.blocks.append(
                Block(
                    id=known,
                    digest=piece.digest,
                    kind=piece.kind,
                    tokens=piece.tokens,
                    chars=len(piece.text or ""),
                    text=piece.text,
                    filler=piece.filler,
                    media=piece.media,
                    mark=piece.mark,
                )
            )
        return known

    def message(self, draft: Draft) -> int:
        return self._store(
            Message(
                id=0,
                role=draft.role,
                blocks=tuple(self.block(p) for p in draft.pieces),
                reasoning=tuple(self.block(p) for p in draft.reasoning),
                tool_calls=tuple(ToolCall(c.id, c.name, self.block(c.arguments)) for c in draft.calls),
                tool_call_id=draft.tool_call_id,
                name=draft.name,
            )
        )

    def toolset(self, names: tuple[str, ...], pieces: Sequence[Piece]) -> int:
        """The set of these tools: a piece for each, or one for all."""
        for piece in pieces:
            self.tool_tokens.setdefault(piece.digest, piece.tokens)
        blocks = tuple(self.block(piece) for piece in pieces)
        for known in self.toolsets:
            if known.blocks == blocks and known.names == names:
                return known.id
        self.toolsets.append(ToolSet(len(self.toolsets), names, blocks[0], blocks[1:]))
        return len(self.toolsets) - 1

    def tokens(self, message: int) -> int:
        return self._tokens[message]

    def role(self, message: int) -> Role:
        return self.messages[message].role

    def toolset_tokens(self, toolset: int | None) -> int:
        return 0 if toolset is None else sum(self.blocks[b].tokens for b in self.toolsets[toolset].blocks)

    def reasoning_tokens(self, message: int) -> int:
        return sum(self.blocks[b].tokens for b in self.messages[message].reasoning)

    def without_reasoning(self, message: int) -> int:
        """The same message as a client sends it once it has dropped the reasoning; itself when there is none."""
        old = self.messages[message]
        return self._store(replace(old, reasoning=())) if old.reasoning else message

    def cut(self, message: int, tokens: int) -> Cut:
        """The first `tokens` tokens of a message, and what is left. Reasoning, content, tool calls come in this order.

        The head of a block that is cut keeps its digest (a shorter text with the same start); the rest gets its own.
        """
        old = self.messages[message]
        if tokens <= 0:
            return Cut(None, message)
        if tokens >= self._tokens[message]:
            return Cut(message, None)
        left = tokens
        heads: list[int] = []
        rests: list[int] = []
        order = [*old.reasoning, *old.blocks, *(c.arguments for c in old.tool_calls)]
        for block in order:
            size = self.blocks[block].tokens
            taken = min(size, left)
            left -= taken
            heads.append(block if taken == size else self._head(block, taken) if taken else -1)
            rests.append(-1 if taken == size else block if not taken else self._rest(block, taken))
        return Cut(self._pick(old, heads), self._pick(old, rests))

    def changed(self, message: int) -> int:
        """A copy whose first few tokens are other text: what a prompt holds where it diverged from the one before."""
        old = self.messages[message]
        self._changes += 1
        digest = digest_of("changed", self.session, str(self._changes))
        for field in ("reasoning", "blocks"):
            ids: tuple[int, ...] = getattr(old, field)
            if ids and self.blocks[ids[0]].tokens:
                first = self.blocks[ids[0]]
                size = min(MARKER_TOKENS, first.tokens)
                marker = self.block(Piece(digest, first.kind, size, filler=True, mark="derived"))
                rest = (self._rest(first.id, size),) if size < first.tokens else ()
                return self._store(replace(old, **{field: (marker, *rest, *ids[1:])}))
        if not old.tool_calls:
            return message
        call = old.tool_calls[0]
        block = self.blocks[call.arguments]
        other = self.block(Piece(digest, block.kind, block.tokens, filler=True, mark="derived"))
        return self._store(replace(old, tool_calls=(ToolCall(call.id, call.name, other), *old.tool_calls[1:])))

    def _store(self, message: Message) -> int:
        message = replace(message, id=len(self.messages))
        self.messages.append(message)
        self._tokens.append(sum(self.blocks[b].tokens for b in _parts(message)))
        return message.id

    def _pick(self, old: Message, ids: list[int]) -> int | None:
        """A copy of `old` with the blocks `ids` in place of its own; -1 leaves a block out."""
        if all(i < 0 for i in ids):
            return None
        thought, said = len(old.reasoning), len(old.blocks)
        calls = zip(old.tool_calls, ids[thought + said :], strict=True)
        return self._store(
            replace(
                old,
                reasoning=tuple(i for i in ids[:thought] if i >= 0),
                blocks=tuple(i for i in ids[thought : thought + said] if i >= 0),
                tool_calls=tuple(ToolCall(c.id, c.name, i) for c, i in calls if i >= 0),
            )
        )

    def _head(self, block: int, tokens: int) -> int:
        old = self.blocks[block]
        at = _text_position(old, tokens)
        text = None if old.text is None else old.text[:at]
        return self.block(Piece(old.digest, old.kind, tokens, text, old.media, old.filler, old.mark))

    def _rest(self, block: int, tokens: int) -> int:
        old = self.blocks[block]
        at = _text_position(old, tokens)
        text = None if old.text is None else old.text[at:]
        digest = digest_of(old.digest, "from", str(tokens))
        return self.block(Piece(digest, old.kind, old.tokens - tokens, text, old.media, old.filler, old.mark))


def _parts(message: Message) -> Iterator[int]:
    yield from message.reasoning
    yield from message.blocks
    for call in message.tool_calls:
        yield call.arguments


def _text_position(block: Block, tokens: int) -> int:
    return len(block.text or "") * tokens // block.tokens if block.tokens else 0
