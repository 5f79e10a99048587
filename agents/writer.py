"""Writes one message of a chat body: its bytes, its pieces, and what it costs more than its texts.

Where messages go and what is changed for strict templates is decided in `normalise`; here it is carried out.
"""

from collections.abc import Sequence

from windtunnel.agents import schemas
from windtunnel.agents.contents import Contents
from windtunnel.agents.nodes import Kind, Live, Node, Piece, Slot, SlotName, Tip
from windtunnel.agents.rendering import Rendering
from windtunnel.traces.model import Message, Role, ToolCall

STAND_IN = b"."
"""Content of one token."""
SEPARATOR = b"\\n\\n"
"""Between merged texts; counted as one token."""


OPENED: dict[Role, bytes] = {role: b'{"role":"%s",' % role.encode() for role in ("system", "user", "assistant", "tool")}
_CONTENT = b'"content":"'
_CLOSE = b'"}'


def plain_node(contents: Contents, parent: Node, m: Message, *, output: bool) -> Node | None:
    """The node of a message of one text that needs nothing else, or None where it needs more. `output`: of a call.

    It is what `MessageWriter` makes of it, in a fifth of the time.
    """
    rendering, tip, role = contents.rendering, parent.tip, m.role
    if len(m.blocks) != 1 or m.tool_calls or m.reasoning or tip.tools or role == "system":
        return None
    if (rendering.salt_tokens and not tip.salted) or (role == "user" and rendering.tag_tokens and not tip.tagged):
        return None
    pending = tip.pending
    opened = OPENED[role]
    if role == "tool":
        call = schemas.call_id(m.tool_call_id or "")
        if m.tool_call_id is None or call not in pending:
            return None
        opened = b'%b"tool_call_id":"%b",' % (opened, call.encode())
        at = pending.index(call)
        pending = pending[:at] + pending[at + 1 :]
    elif pending or tip.kind in (role, "tool" if role == "user" else "system", "start"):
        return None
    block = contents.trace.blocks[m.blocks[0]]
    if block.tokens <= 0:
        return None
    frame = rendering.message_overhead[role]
    head = b"".join((tip.close, b"" if tip.empty else b",", opened, _CONTENT))
    body, cost = contents.after(head, block, max(1, block.tokens - tip.debt - frame))
    if len(body) == len(head):
        return None
    debt = tip.debt + frame + cost - block.tokens
    node = Node(parent, m.id, Tip(role, _CLOSE, debt, pending, tip.salted, tip.tagged, False))
    framing = Piece(role, frame)
    node.body = body
    node.pieces = (framing, Piece(block.digest, cost))
    node.tokens = parent.tokens + frame + cost
    node.text_tokens = cost
    if output and role == "assistant":
        node.live = Live(head, b"", (framing,), cost)
    return node


class MessageWriter:
    """One node in the making, from the tip of the prompt so far."""

    def __init__(self, rendering: Rendering, contents: Contents, tip: Tip) -> None:
        self.rendering = rendering
        self.contents = contents
        self.changes = contents.changes
        self.tip = tip
        self.kind: Kind = tip.kind
        self.close = tip.close
        self.spent = 0
        """Tokens of everything written."""
        self._own = 0
        """Tokens of the message's own texts and arguments."""
        self._recorded = 0
        """Recorded tokens of the same, as far as written."""
        self._pending = list(tip.pending)
        self._salted, self._tagged, self._empty = tip.salted, tip.tagged, tip.empty
        self._buffer: list[bytes] = []
        self._pieces: list[Piece] = []
        self._frame: list[str] = []
        self._frame_tokens = 0
        self._head = b""
        self._head_pieces: tuple[Piece, ...] = ()
        self._slots: list[Slot] = []

    def written(self) -> bytes:
        return b"".join(self._buffer)

    def answer_pending(self) -> None:
        """Puts a result in for each tool call that has none."""
        for call in self._pending:
            self.changes["unanswered_tool_call"] += 1
            self._start("tool", call)
            self._put(STAND_IN, 0)
            self._framed("unanswered", 1)
        self._pending.clear()

    def insert_user(self) -> None:
        self.changes["inserted_user"] += 1
        self._start("user")
        self._fill_slots("user")
        self._put(STAND_IN, 0)
        self._framed("inserted", 1)

    def open(self, role: Role, tool_call_id: str | None = None, *, counted: bool = True) -> None:
        """Turns to a message's content: of a new message, or of the last one where the same role goes on."""
        if role == "tool":
            call = schemas.call_id(tool_call_id or "")
            self._pending.remove(call)
            self._start("tool", call)
        elif role == self.kind or (role == "user" and self.kind == "tool"):
            if counted:
                self.changes["merged" if role == self.kind else "user_text_into_tool_result"] += 1
            self._put(SEPARATOR, 0)
            self._framed("merged", 1)
        else:
            if role == "assistant" and self.kind in ("start", "system"):
                self.insert_user()
            self._start(role)
        self._fill_slots(role)
        self._end_frame()

    def texts(self, blocks: Sequence[int], *, least: int, calls: int = 0, whole: bool = False) -> None:
        """The content: so many tokens that the whole prompt has as many as recorded, at least `least`.

        What has been spent on other things is taken off the longest text first; what is missing is added to it. With
        `whole` that is left to the messages that follow, and these texts stay what they are in any other prompt.
        """
        known = self.contents.trace.blocks
        sizes = {b: known[b].tokens for b in blocks if known[b].tokens > 0}
        recorded = sum(sizes.values())
        target = max(least, recorded if whole else recorded - self._debt() - self._call_overhead(calls))
        change = target - recorded
        for block in sorted(sizes, key=lambda b: -sizes[b]):
            step = max(change, -sizes[block])
            sizes[block] += step
            change -= step
        start = self.spent
        for block, tokens in sizes.items():
            data, cost = self.contents.text(block, tokens)
            if data:
                self._put(data, cost)
                self._pieces.append(Piece(known[block].digest, cost))
        if self.spent == start and least:
            if not recorded:
                self.changes["empty_content"] += 1
            self._put(STAND_IN, 1)
            self._pieces.append(Piece("empty", 1))
        self._own += self.spent - start
        self._recorded += recorded

    def tool_calls(self, calls: Sequence[ToolCall]) -> None:
        """The calls after the content; their arguments give what the texts could not."""
        self.spent += self._call_overhead(len(calls))
        known = self.contents.trace.blocks
        written = []
        for call in calls:
            block = known[call.arguments]
            data, cost = self.contents.arguments(block.id, max(0, block.tokens - max(0, self._debt())))
            written.append(self._call(call, data))
            self.spent += cost
            self._own += cost
            self._recorded += block.tokens
            self._pieces += (self._call_piece(call), Piece(f"arguments:{block.digest}", cost))
        self._put(b'","tool_calls":[' + b",".join(written) + b"]", 0)
        self._after_calls(calls)

    def live(self, calls: Sequence[ToolCall]) -> Live:
        """The same message with a place for generated text.

        Calls keep their names and ids, because their results need them; their arguments are part of what was generated.
        """
        tail = b""
        if calls:
            tail = b'","tool_calls":[' + b",".join(self._call(call, b"{}") for call in calls) + b"]"
        return Live(self.written(), tail, tuple(self._pieces), 0, tuple(self._call_piece(call) for call in calls))

    def node(self, parent: Node | None, message: int, recorded: int, *, before: int) -> Node:
        """The finished node; `before`: planned tokens of the prompt in front of it."""
        tip = Tip(
            kind=self.kind,
            close=self.close,
            debt=self.tip.debt + self.spent - recorded,
            pending=tuple(self._pending),
            salted=self._salted,
            tagged=self._tagged,
            empty=self._empty,
            tools=self.tip.tools if self.kind == "system" else (),
        )
        node = Node(parent, message, tip)
        node.head, node.slots, node.body = self._head, tuple(self._slots), self.written()
        node.head_pieces, node.pieces = self._head_pieces, tuple(self._pieces)
        node.tokens = before + self.spent
        node.text_tokens = self._own
        return node

    def _debt(self) -> int:
        return self.tip.debt + self.spent - self._recorded

    def _put(self, data: bytes, tokens: int) -> None:
        self._buffer.append(data)
        self.spent += tokens

    def _framed(self, name: str, tokens: int) -> None:
        """Template and stand-in tokens: one piece in front of the next text."""
        self._frame.append(name)
        self._frame_tokens += tokens
        self.spent += tokens

    def _end_frame(self) -> None:
        if self._frame:
            self._pieces.append(Piece("+".join(self._frame), self._frame_tokens))
        self._frame, self._frame_tokens = [], 0

    def _start(self, role: Role, call: str | None = None) -> None:
        opened = OPENED[role]
        if call is not None:
            opened += b'"tool_call_id":"%s",' % call.encode()
        if self._empty and role != "system" and self.rendering.default_system:
            self._framed("default system", self.rendering.default_system)
        self._put(self.close + (b"" if self._empty else b",") + opened + _CONTENT, 0)
        self._framed(role, self.rendering.message_overhead[role])
        self.kind, self.close, self._empty = role, _CLOSE, False

    def _fill_slots(self, role: Role) -> None:
        wanted: list[tuple[SlotName, int]] = []
        if self.rendering.salt_tokens and not self._salted:
            wanted.append(("salt", self.rendering.salt_tokens))
            self._salted = True
        if role == "user" and self.rendering.tag_tokens and not self._tagged:
            wanted.append(("tag", self.rendering.tag_tokens))
            self._tagged = True
        if not wanted:
            return
        self._end_frame()
        self._head, self._buffer = self.written(), []
        self._head_pieces, self._pieces = tuple(self._pieces), []
        self._slots = [Slot(name, tokens) for name, tokens in wanted]
        self.spent += sum(tokens for _, tokens in wanted)

    def _call_overhead(self, calls: int) -> int:
        return self.rendering.tool_turn_overhead + calls * self.rendering.tool_call_overhead if calls else 0

    def _call(self, call: ToolCall, arguments: bytes) -> bytes:
        name = schemas.tool_name(call.name)
        if name != call.name:
            self.changes["tool_name"] += 1
        return b'{"id":"%s","type":"function","function":{"name":"%s","arguments":"%s"}}' % (
            schemas.call_id(call.id).encode(),
            name.encode(),
            arguments,
        )

    def _call_piece(self, call: ToolCall) -> Piece:
        return Piece(f"call:{schemas.tool_name(call.name)}", self.rendering.tool_call_overhead)

    def _after_calls(self, calls: Sequence[ToolCall]) -> None:
        self.kind, self.close = "calls", b"}"
        self._pending = [schemas.call_id(call.id) for call in calls]
