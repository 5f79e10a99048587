"""Messages for the chat route, in the one shape that strict templates accept.

What the strictest want: at most one system message, at the front; then user and assistant in turn; results of tools
right after the message that called them, one for each call; content that is a non-empty string. A trace holds what a
client sent to some other API, so messages are changed where needed, and every change is counted by name:

- `system_in_the_middle`: sent as user text.
- `merged`: text of the role that spoke last is appended to that message, after an empty line. Nothing before it
  changes but the bytes that close the message, so prefixes stay what they were.
- `user_text_into_tool_result`: user text right after a tool's result is appended to the result, for the same reason.
- `tool_result_without_call`: sent as user text. `unanswered_tool_call`: a result of one token is put in.
- `inserted_user`: a user message of one token, where an assistant speaks first or last, or nobody speaks.
- `reasoning_as_content`: reasoning that the client sent back stands in the content. Templates drop reasoning fields of
  earlier turns, and the prompt would be shorter than recorded.
- `empty_content`: one token is put in. `tool_name`: letters that servers refuse are replaced.
- `tools_as_system_text`: schemas whose text was not recorded stand as text at the front of the system message.
- `billing_line_left_out`: Claude Code's attribution line, which vLLM takes out on its Messages route. It would differ
  from thread to thread at the front of the prompt, and nothing behind it could be found in the cache.

`contents` counts what happened to the texts themselves: `text_cut` and `text_padded` to their recorded token count,
`arguments_cut`, `arguments_padded` and `arguments_wrapped` (no JSON object was recorded), `text_not_measured` and
`arguments_not_measured` (kept, because nothing told their count under the served tokenizer).

The tokens that the template and these changes cost are taken off the texts that follow (`Tip.debt`), so that a whole
prompt has as many tokens as the recorded one.
"""

from collections import Counter

from windtunnel.agents import schemas
from windtunnel.agents.contents import Contents
from windtunnel.agents.nodes import Node, Piece, Tip
from windtunnel.agents.rendering import Rendering, offered_tools, text_key
from windtunnel.agents.writer import MessageWriter, plain_node
from windtunnel.traces.client_lines import is_billing_line
from windtunnel.traces.model import Message, Role, ToolSet, Trace

TOOLS_EXCESS = (0.25, 64)
"""Recorded schemas that cost more than recorded by this share and these tokens are sent as text, cut to size."""


class Schemas:
    """The `tools` field of a body, split where the salt goes."""

    __slots__ = ("head", "tail")

    def __init__(self, tools: list[dict[str, object]]) -> None:
        encoded = [schemas.encode(tool) for tool in tools]
        at = encoded[0].index(b'"description":"') + len(b'"description":"')
        self.head = b',"tools":[' + encoded[0][:at]
        self.tail = b",".join([encoded[0][at:], *encoded[1:]]) + b'],"tool_choice":"none"'


class ChatTree:
    """Renders roots and messages for `/v1/chat/completions`."""

    def __init__(self, trace: Trace, rendering: Rendering, changes: Counter[str]) -> None:
        self.trace = trace
        self.rendering = rendering
        self.changes = changes
        self.contents = Contents(trace, rendering, changes)
        self.schemas: dict[int, Schemas] = {}
        """By tool set id, those that are sent as `tools`."""
        self.outputs = {call.output for call in trace.calls if call.output is not None}

    def root(self, tools: int | None) -> Node:
        fixed = self.rendering.fixed_overhead
        if tools is None:
            node = Node(None, -1, Tip(debt=fixed))
            node.tokens = fixed
            return node
        toolset = self.trace.toolsets[tools]
        pieces = self._as_schemas(toolset)
        if pieces is None:
            return self._as_text(toolset)
        cost = sum(piece.tokens for piece in pieces)
        node = Node(None, -1, Tip(debt=fixed + cost - self.trace.toolset_tokens(tools)))
        if self.rendering.system_first:
            node.tip = node.tip._replace(tools=pieces)
        else:
            node.pieces = pieces
        node.tokens = fixed + cost
        return node

    def _as_schemas(self, toolset: ToolSet) -> tuple[Piece, ...] | None:
        """The set as `tools`; None when it has to go as text."""
        tools = offered_tools(self.trace, toolset)
        if tools is None:
            return None
        lines = [schemas.rendered_tool(tool) for tool in tools]
        cost = self._json_tokens(schemas.rendered_tools(tools))
        cost += self.rendering.tools_overhead + self.rendering.salt_tokens
        share, tokens = TOOLS_EXCESS
        if cost > self.trace.toolset_tokens(toolset.id) * (1 + share) + tokens:
            return None
        self.schemas[toolset.id] = Schemas(tools)
        front = Piece("tools", max(0, self.rendering.tools_overhead) + self.rendering.salt_tokens)
        return _summing_to(cost, [front, *(Piece(f"tool:{text_key(line)}", self._json_tokens(line)) for line in lines)])

    def _json_tokens(self, text: str) -> int:
        measured = self.rendering.measured_tokens(text)
        return round(len(text) / self.rendering.calibration.ratio["json"]) if measured is None else measured

    def _as_text(self, toolset: ToolSet) -> Node:
        self.changes["tools_as_system_text"] += 1
        fixed = self.rendering.fixed_overhead
        w = MessageWriter(self.rendering, self.contents, Tip(debt=fixed))
        w.open("system")
        w.texts(toolset.blocks, least=1, whole=True)
        return w.node(None, -1, self.trace.toolset_tokens(toolset.id), before=fixed)

    def extend(self, parent: Node, message: int) -> Node:
        m = self.trace.messages[message]
        plain = plain_node(self.contents, parent, m, output=message in self.outputs)
        if plain is not None:
            return plain
        w = MessageWriter(self.rendering, self.contents, parent.tip)
        role = self._role(m, parent.tip)
        if role != "tool":
            w.answer_pending()
        w.open(role, m.tool_call_id, counted=parent.parent is not None)
        if m.reasoning:
            self.changes["reasoning_as_content"] += 1
        calls = m.tool_calls if role == "assistant" else ()
        live = w.live(calls) if message in self.outputs and role == "assistant" else None
        said = self._sent_on(m) if m.role == "system" else m.blocks
        blocks = (*m.reasoning, *said, *(() if calls else (c.arguments for c in m.tool_calls)))
        w.texts(blocks, least=0 if calls else 1, calls=len(calls))
        if calls:
            w.tool_calls(calls)
        node = w.node(parent, message, self.trace.message_tokens(message), before=parent.tokens)
        if node.tip.kind != "system":
            node.put_in_front(parent.tip.tools)
        if live is not None and not node.slots:
            node.live = live._replace(carried=node.text_tokens)
        return node

    def _sent_on(self, m: Message) -> tuple[int, ...]:
        """The blocks of a system message that reach the model."""
        kept = tuple(b for b in m.blocks if not is_billing_line(self.trace.blocks[b].text))
        self.changes["billing_line_left_out"] += len(m.blocks) - len(kept)
        return kept

    def _role(self, m: Message, tip: Tip) -> Role:
        if m.role == "system" and tip.kind not in ("start", "system"):
            self.changes["system_in_the_middle"] += 1
            return "user"
        if m.role == "tool" and (m.tool_call_id is None or schemas.call_id(m.tool_call_id) not in tip.pending):
            self.changes["tool_result_without_call"] += 1
            return "user"
        return m.role

    def ending(self, node: Node) -> tuple[bytes, int]:
        """What ends the list of messages after `node`, and the tokens that costs."""
        tip = node.tip
        if tip.kind in ("user", "tool") and not tip.pending:
            return tip.close, 0
        w = MessageWriter(self.rendering, self.contents, tip)
        w.answer_pending()
        if w.kind != "tool":
            w.insert_user()
        return w.written() + w.close, w.spent


def _summing_to(total: int, pieces: list[Piece]) -> tuple[Piece, ...]:
    """The pieces, the last ones less or one more where they do not sum up: each of the others depends on itself alone.

    So two sets that begin with the same tools begin with the same pieces.
    """
    pieces = [piece for piece in pieces if piece.tokens]
    rest = total - sum(piece.tokens for piece in pieces)
    if rest > 0:
        pieces.append(Piece("tools end", rest))
    while rest < 0 and pieces:
        last = pieces.pop()
        rest += last.tokens
        if rest > 0:
            pieces.append(Piece(last.key, rest))
    return tuple(pieces)
