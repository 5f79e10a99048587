"""Cached tokens to expect: the longest prefix of a prompt that an earlier prompt of the run had too.

This is the ceiling, with a cache that never evicts. Prompts are sequences of pieces; a next turn keeps the pieces of
its predecessor and adds a few, so only those are looked at. On the token route the figures are exact; on the chat route
as exact as the planned token counts.

A piece may have less than no tokens: a text that the engine counts as more alone than inside of a message is made up
for by its framing.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from windtunnel.agents.nodes import Piece


class Match(Struct, frozen=True, gc=False):
    exact: int
    """Tokens equal to an earlier prompt's beginning."""
    rounded: int
    """The same in the engine's match unit; the last token of a prompt is always computed."""


class _Node:
    """A place in the tree of everything sent so far. Most places go on in one way only: that one is held inline."""

    __slots__ = ("child", "more", "piece")

    def __init__(self, piece: Piece | None = None, child: "_Node | None" = None) -> None:
        self.piece = piece
        self.child = child
        self.more: dict[Piece, _Node] | None = None

    def get(self, piece: Piece) -> "_Node | None":
        if self.piece is piece or self.piece == piece:
            return self.child
        return None if self.more is None else self.more.get(piece)

    def add(self, piece: Piece, node: "_Node") -> "_Node":
        """`node` follows by this piece, by which nothing followed so far."""
        if self.piece is None:
            self.piece, self.child = piece, node
        elif self.more is None:
            self.more = {piece: node}
        else:
            self.more[piece] = node
        return node

    def remove(self, piece: Piece) -> None:
        if self.piece == piece:
            self.piece = self.child = None
        elif self.more is not None:
            self.more.pop(piece, None)

    def pieces(self) -> Iterator[Piece]:
        if self.piece is not None:
            yield self.piece
        if self.more is not None:
            yield from self.more


class Trail:
    """Where one thread's last prompt runs through the tree. One for each thread of each session."""

    __slots__ = ("nodes", "pieces", "tokens")

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        """After each piece."""
        self.pieces: list[Piece] = []
        self.tokens: list[int] = []
        """Up to each piece's end."""


class PrefixIndex:
    """Everything sent in a run under one salt."""

    def __init__(self, unit: int = 1) -> None:
        if unit < 1:
            raise ValueError("the match unit is at least one token")
        self.unit = unit
        self._root = _Node()

    def sent(self, trail: Trail, kept: int, added: Sequence[Piece], prompt_tokens: int | None = None) -> Match:
        """A prompt goes out: the first `kept` pieces of the trail's last prompt, then `added`.

        `prompt_tokens`, where the prompt has more tokens than its pieces, limits what may be expected.
        """
        del trail.nodes[kept:], trail.pieces[kept:], trail.tokens[kept:]
        tokens = trail.tokens[-1] if trail.tokens else 0
        if len(trail.nodes) != kept:
            raise ValueError("the trail is shorter than what is kept of it")
        exact = self._extend(trail, added, tokens)
        total = prompt_tokens
        if total is None:
            total = trail.tokens[-1] if trail.tokens else 0
        exact = max(0, min(exact, total))
        return Match(exact, max(0, min(exact, total - 1)) // self.unit * self.unit)

    def generated(self, trail: Trail, pieces: Sequence[Piece]) -> None:
        """Tokens generated behind the trail's prompt are in the cache too; the trail itself stays where it is."""
        node = trail.nodes[-1] if trail.nodes else self._root
        for piece in pieces:
            node = node.get(piece) or node.add(piece, _Node())

    def drop(self, trail: Trail) -> None:
        """The session is over: what only its own tag leads to can never be matched again."""
        for at, piece in enumerate(trail.pieces):
            if piece.key.startswith("tag:"):
                (trail.nodes[at - 1] if at else self._root).remove(piece)
                break
        trail.nodes.clear()
        trail.pieces.clear()
        trail.tokens.clear()

    def _extend(self, trail: Trail, added: Sequence[Piece], tokens: int) -> int:
        """Tokens of the prompt, of which there are `tokens` so far, that were sent before."""
        nodes = trail.nodes
        node = nodes[-1] if nodes else self._root
        exact = tokens
        known = 0
        for piece in added:
            found = node.get(piece)
            if found is None:
                owed = -added[known - 1].tokens if known else 0  # what framing made up for beforehand
                exact += max(owed, _shared(node, piece))
                break
            exact += piece.tokens
            nodes.append(found)
            node = found
            known += 1
        if known < len(added):
            nodes += _grown(node, added[known:])
        trail.pieces += added
        trail.tokens += [tokens + more for more in accumulate([piece.tokens for piece in added])]
        return exact


def _grown(node: _Node, pieces: Sequence[Piece]) -> list[_Node]:
    """New places behind `node`, which does not know the first of these pieces; after each of them."""
    last = _Node()
    grown = [last]
    for piece in reversed(pieces[1:]):
        last = _Node(piece, last)
        grown.append(last)
    grown.reverse()
    node.add(pieces[0], last)
    return grown


def _shared(node: _Node, piece: Piece) -> int:
    """Tokens of a new piece that an earlier, shorter or longer, piece of the same key has too."""
    if node.piece is None and node.more is None:
        return 0
    return max((max(0, min(o.tokens, piece.tokens)) for o in node.pieces() if o.key == piece.key), default=0)
