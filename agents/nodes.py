"""The tree of a trace's rendered messages.

A prompt is a path from a root: the root stands for the tool set, each node below for one message in its place. A next
turn extends its predecessor's path and a rewritten context branches off, so the tree is linear in the session's text.
A node's bytes begin with what closes the message before it: a message that is merged into the one before needs no
earlier byte changed.
"""

from typing import Literal, NamedTuple, Protocol

from windtunnel.traces.model import Trace

Kind = Literal["start", "system", "user", "assistant", "calls", "tool"]
"""What stands at the end of the prompt so far: nothing, an open message of a role, or finished tool calls."""
SlotName = Literal["salt", "tag"]


class Piece(NamedTuple):
    """A run of prompt tokens; equal keys mean equal tokens up to the shorter one's length."""

    key: str
    tokens: int


class Slot(NamedTuple):
    """A place where the run's salt or the copy's tag is put in, and the tokens reserved for it."""

    name: SlotName
    tokens: int
    own: bytes = b""
    """What stands there when nothing is put in."""


class Tip(NamedTuple):
    """What the next message has to know of the prompt so far."""

    kind: Kind = "start"
    close: bytes = b""
    """Bytes that end the open message."""
    debt: int = 0
    """Tokens that the template, tags and inserted messages cost and that no text has been shortened for yet; negative
    when text is to be padded instead."""
    pending: tuple[str, ...] = ()
    """Tool calls without a result so far."""
    salted: bool = False
    tagged: bool = False
    empty: bool = True
    """No message was opened yet: the next one needs no comma."""
    tools: tuple[Piece, ...] = ()
    """Tools that the template writes behind the system message, as long as that may go on."""


class Live(NamedTuple):
    """How an output message is rendered around what the engine generated."""

    head: bytes
    tail: bytes
    pieces: tuple[Piece, ...]
    """In front of the generated text."""
    carried: int
    """Tokens of the generated text that fit in this message's place."""
    after: tuple[Piece, ...] = ()
    """Behind the generated text."""


def root_of(node: "Node") -> "Node":
    while node.parent is not None:
        node = node.parent
    return node


class Node:
    """One message in its place. Bytes = `head` + slots + `body`; pieces likewise."""

    __slots__ = (
        "body",
        "children",
        "depth",
        "head",
        "head_pieces",
        "live",
        "message",
        "parent",
        "pieces",
        "slots",
        "text_tokens",
        "tip",
        "tokens",
    )

    def __init__(self, parent: "Node | None", message: int, tip: Tip) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.message = message
        """Message id; -1 for a root."""
        self.tip = tip
        self.head = b""
        self.slots: tuple[Slot, ...] = ()
        self.body = b""
        self.head_pieces: tuple[Piece, ...] = ()
        self.pieces: tuple[Piece, ...] = ()
        self.tokens = 0
        """Planned tokens of the prompt up to here."""
        self.text_tokens = 0
        """Planned tokens of this message's own text and arguments."""
        self.live: Live | None = None
        self.children: dict[int, Node] = {}

    def put_in_front(self, pieces: tuple[Piece, ...]) -> None:
        """Of this message's own."""
        if self.slots:
            self.head_pieces = pieces + self.head_pieces
        else:
            self.pieces = pieces + self.pieces


class Tree(Protocol):
    """One route's way of rendering: `root` for a tool set (None: no tools), `extend` for a message in its place."""

    def root(self, tools: int | None) -> Node: ...

    def extend(self, parent: Node, message: int) -> Node: ...


def leaves(trace: Trace, tree: Tree) -> tuple[Node, ...]:
    """The end of every call's path, by call."""
    roots: dict[int | None, Node] = {}
    out: list[Node] = []
    for call in trace.calls:
        root = roots.get(call.tools)
        if root is None:
            root = roots[call.tools] = tree.root(call.tools)
        node = root
        if call.base is not None:
            node = out[call.base]
            kept: list[int] = []
            while node.depth > call.keep and node.parent is not None:
                node = node.parent
            if root_of(node) is not root:
                while node.parent is not None:
                    kept.append(node.message)
                    node = node.parent
                node = root
            for message in reversed(kept):
                node = _child(tree, node, message)
        for message in call.append:
            node = _child(tree, node, message)
        out.append(node)
    return tuple(out)


def _child(tree: Tree, parent: Node, message: int) -> Node:
    child = parent.children.get(message)
    if child is None:
        child = parent.children[message] = tree.extend(parent, message)
    return child
