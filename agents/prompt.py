"""Request bodies of a replay, ready bytes joined per turn.

`prepare` renders a trace once, before the run, for all the agents that will replay it. A `Conversation` is one replay:
it keeps a list of ready parts per thread, cuts it back and extends it for the next call, and never touches the text
again. Nothing is tokenised and no history is serialised during a run.
"""

from collections import Counter
from typing import Any, Literal

import msgspec
from msgspec import Struct

from windtunnel.agents import isolation, schemas
from windtunnel.agents.dialect import PLAIN, VLLM, Dialect
from windtunnel.agents.ids import Ids, IdTree
from windtunnel.agents.nodes import Node, Piece, leaves
from windtunnel.agents.normalise import ChatTree
from windtunnel.agents.plan import completion_tokens
from windtunnel.agents.policy import History
from windtunnel.agents.rendering import PROBE_TEXTS, PROBES, Rendering, learn, text_key, texts_to_measure
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Call, Trace, digest_of
from windtunnel.traces.text import id_array

__all__ = [
    "PACKED",
    "PATHS",
    "PLAIN",
    "PROBES",
    "PROBE_TEXTS",
    "VLLM",
    "Body",
    "Conversation",
    "Dialect",
    "Options",
    "Output",
    "Piece",
    "Prepared",
    "Rendering",
    "Route",
    "learn",
    "prepare",
    "text_key",
    "texts_to_measure",
]

_SHARED_BYTES = 4096
"""A longer text is sent from where it lies; a shorter one is cheaper to copy than to send as a part of its own."""

Route = Literal["chat", "tokens"]
PACKED = b'"packed":['
"""Opens a prompt that is packed and no JSON."""
PATHS: dict[Route, str] = {"chat": "/v1/chat/completions", "tokens": "/v1/completions"}


def history_on(route: Route) -> History:
    """What a route sends of earlier answers unless it is told: prompts of token ids go on from the ids generated."""
    return "live" if route == "tokens" else "recorded"


class Options(Struct, frozen=True):
    """What is the same for all requests of one replayed session."""

    model: str
    dialect: Dialect = VLLM
    salt: str | None = None
    """`cache_salt`; the same for a whole run."""
    text_salt: str | None = None
    """Salt in the text, where the engine has no `cache_salt`: in front of the system prompt and the first tool."""
    tag: str | None = None
    """Tag of this copy of the trace, in the first user message of every thread."""
    history: History | None = None
    token_ids: bool = True
    """Ask for token ids where the dialect has them."""
    natural: bool = False
    """Answers end where the model ends them, at the recorded length at the latest; nothing is pinned."""


class Output(Struct, frozen=True):
    """What a call generated."""

    text: str = ""
    reasoning: str = ""
    tool_calls: bool = False
    """The server parsed tool calls out of it: the text does not hold everything."""
    token_ids: Ids | None = None
    tokens: int | None = None
    """Completion tokens by usage; the length of `token_ids` by default."""

    @property
    def count(self) -> int:
        held = 0 if self.token_ids is None else len(self.token_ids)
        return held if self.tokens is None else self.tokens


class Body(Struct, frozen=True, gc=False):
    """A request body: `b"".join(parts)` is JSON."""

    parts: list[bytes]
    length: int
    """Bytes."""
    expected_prompt_tokens: int
    """As the engine should count them: exact for token ids, within 2-3% for chat."""
    pinned_tokens: int
    """The output length asked for."""
    reprefilled_tokens: int = 0
    """Generated tokens of the thread's previous call that this prompt carries as other tokens."""
    kept_pieces: int = 0
    """Leading pieces that are those of the thread's previous prompt."""
    added_pieces: tuple[Piece, ...] = ()
    """The pieces behind them."""


class Prepared(Struct, frozen=True):
    """A trace rendered for one route and one engine."""

    trace: Trace
    route: Route
    rendering: Rendering
    tree: ChatTree | IdTree
    leaves: tuple[Node, ...]
    """The end of each call's prompt, by call."""
    endings: tuple[tuple[bytes, int], ...]
    """What closes each call's prompt, and its tokens."""
    pinned: tuple[int, ...]
    """Output tokens of each call: as recorded, at least 1."""
    changes: Counter[str]
    """What was changed in the recording, by name (see `normalise`), and `pinned_from_zero`."""

    def fitted_texts(self) -> dict[str, str]:
        """Recorded texts that were cut or continued, by `text_key`.

        Where a session's count is off, have these counted too and prepare again with them in `Rendering.measured`.
        """
        return self.tree.contents.fitted_texts() if isinstance(self.tree, ChatTree) else {}

    def prompt_tokens(self, call: int) -> int:
        """Planned prompt tokens under the served tokenizer."""
        return self.leaves[call].tokens + self.endings[call][1]


def prepare(trace: Trace, route: Route, rendering: Rendering, *, packed: bool = False) -> Prepared:
    """Renders every message of `trace` once. `packed`: token ids as `ids.packed_ids`; bodies are no JSON then."""
    if route == "tokens" and not rendering.calibration.ids:
        raise UsageError("The token route needs token ids from the engine's /tokenize, which gave none: use --api chat")
    changes: Counter[str] = Counter()
    tree = ChatTree(trace, rendering, changes) if route == "chat" else IdTree(trace, rendering, changes, packed=packed)
    ends = leaves(trace, tree)
    closed = {id(node): tree.ending(node) for node in ends}
    if isinstance(tree, ChatTree):
        tree.contents.release()
    recorded = [completion_tokens(trace, call) for call in trace.calls]
    changes["pinned_from_zero"] += sum(tokens < 1 for tokens in recorded)
    return Prepared(
        trace=trace,
        route=route,
        rendering=rendering,
        tree=tree,
        leaves=ends,
        endings=tuple(closed[id(node)] for node in ends),
        pinned=tuple(max(1, tokens) for tokens in recorded),
        changes=+changes,
    )


class _Thread:
    """One thread's last prompt: its path through the tree and the parts it was joined from."""

    __slots__ = ("marks", "parts", "path", "previous")

    def __init__(self) -> None:
        self.path: list[Node] = []
        self.parts: list[bytes] = []
        self.marks: list[tuple[int, int, int, int]] = []
        """After each node: bytes, pieces, tokens, parts."""
        self.previous: int | None = None
        """The call that ended last."""


class _Generated(Struct, frozen=True):
    """What takes an output message's place."""

    data: bytes
    pieces: tuple[Piece, ...]
    tokens: int
    reprefilled: int


class Conversation:
    """One replay of a prepared trace: give it the outputs, take the next bodies."""

    def __init__(self, prepared: Prepared, options: Options) -> None:
        room = prepared.rendering
        if (options.text_salt and not room.salt_tokens) or (options.tag and not room.tag_tokens):
            raise ValueError("a salt in the text or a tag needs tokens reserved in the rendering")
        self.prepared = prepared
        self.options = options
        self.live = (options.history or history_on(prepared.route)) == "live"
        """What was generated goes back into the prompts."""
        self._threads: dict[int, _Thread] = {}
        self._generated: dict[int, _Generated] = {}
        """By output message."""
        self._counts: dict[int, int] = {}
        """Generated tokens, by output message."""
        self._tails: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}
        model = schemas.encode(options.model)
        opening = b'"prompt":[' if prepared.route == "tokens" else b'"messages":['
        packed = isinstance(prepared.tree, IdTree) and prepared.tree.packed
        self._prefix = b'{"model":' + model + b"," + (PACKED if packed else opening)
        self._slot_bytes = {
            "salt": schemas.escape(isolation.as_text(options.text_salt)) if options.text_salt else b"",
            "tag": schemas.escape(isolation.as_text(options.tag)) if options.tag else b"",
        }
        self._own = f"{options.tag or id(self)}"

    def body(self, call_id: int) -> Body:
        """The request of a call; its thread's previous call must have been given to `ended`."""
        prepared = self.prepared
        call = prepared.trace.calls[call_id]
        thread = self._threads.get(call.thread)
        if thread is None:
            thread = self._threads[call.thread] = _Thread()
        leaf: Node | None = prepared.leaves[call_id]
        path, added = thread.path, []
        while leaf is not None and not (leaf.depth < len(path) and path[leaf.depth] is leaf):
            added.append(leaf)
            leaf = leaf.parent
        keep = 0 if leaf is None else leaf.depth + 1
        del path[keep:], thread.marks[keep:]
        size, kept_pieces, tokens, kept_parts = thread.marks[-1] if keep else (0, 0, 0, 0)
        del thread.parts[kept_parts:]
        pieces: list[Piece] = []
        reprefilled = 0
        previous = None if thread.previous is None else prepared.trace.calls[thread.previous].output
        held, mark = thread.parts, thread.marks.append
        for node in reversed(added):
            if node.message == previous and previous is not None:
                reprefilled = self._reprefilled(node)
            if node.slots or (node.live is not None and node.message in self._generated):
                rendered, cost = self._render(node, pieces)
                size += sum(map(len, rendered))
                tokens += cost
                held += rendered
            else:  # as it was prepared, as most are
                pieces += node.pieces
                size += len(node.body)
                tokens += node.tokens - (0 if node.parent is None else node.parent.tokens)
                held.append(node.body)
            mark((size, kept_pieces + len(pieces), tokens, len(held)))
        added.reverse()
        path += added
        ending, extra = prepared.endings[call_id]
        pinned = prepared.pinned[call_id]
        parts = [self._prefix, *held]
        if isinstance(prepared.tree, IdTree):
            if ending:
                parts.append(ending)
                size += len(ending)
            while not parts[-1]:
                parts.pop()
            if not prepared.tree.packed:
                parts[-1] = parts[-1][:-1]
                size -= 1  # the last comma
            ending = b""
        parts.append(tail := self._tail(call, ending, pinned))
        return Body(
            parts=parts,
            length=len(self._prefix) + size + len(tail),
            expected_prompt_tokens=max(0, tokens + extra),
            pinned_tokens=0 if self.options.natural else pinned,
            reprefilled_tokens=reprefilled,
            kept_pieces=kept_pieces,
            added_pieces=tuple(pieces),
        )

    def ended(self, call_id: int, output: Output) -> tuple[Piece, ...]:
        """A call ended well. Returns the pieces that its generated tokens add behind its prompt in the engine's cache.

        Empty where the next prompt cannot carry them: nothing later can then match them.
        """
        trace = self.prepared.trace
        call = trace.calls[call_id]
        thread = self._threads.setdefault(call.thread, _Thread())
        thread.previous = call_id
        if call.output is None:
            return ()
        self._counts[call.output] = output.count
        node = self.prepared.leaves[call_id].children.get(call.output)
        if node is None or node.live is None:
            return ()
        if not self.live:
            return ()
        replaced = (self._ids_instead if self.prepared.route == "tokens" else self._text_instead)(node, output)
        if replaced is None:
            return ()
        self._generated[call.output] = replaced
        # the last token generated is never fed back, so it is not in the cache
        return (*node.live.pieces, Piece(self._key(node), max(0, output.count - 1)))

    def _key(self, node: Node) -> str:
        return f"generated:{self._own}:{node.message}"

    def _ids_instead(self, node: Node, output: Output) -> _Generated | None:
        tree = self.prepared.tree
        assert isinstance(tree, IdTree)
        if output.token_ids is None or not len(output.token_ids):
            return None
        wanted = node.text_tokens
        ids = output.token_ids[:wanted]
        given = len(ids)
        pieces = [Piece(self._key(node), given)] if given else []
        data = tree.encode(ids)
        if given < wanted:
            data += tree.encode(tree.own_ids(node.message)[given:])
            pieces.append(Piece(f"own:{node.message}:{given}", wanted - given))
        return _Generated(data, tuple(pieces), wanted, 0)

    def _text_instead(self, node: Node, output: Output) -> _Generated | None:
        """Reasoning goes in front of the text: in the history it stands as text, so it is prefilled again."""
        assert node.live is not None
        text = output.reasoning + output.text
        if not text:
            return None
        live, count = node.live, output.count
        carried = min(count, live.carried) if count else live.carried
        if count > carried:
            text = text[: max(1, round(len(text) * carried / count))]
        pieces = (*live.pieces, Piece(self._key(node), carried), *live.after)
        cost = node.tokens - (node.parent.tokens if node.parent else 0) - node.text_tokens + carried
        same = not output.reasoning and not output.tool_calls
        return _Generated(live.head + schemas.escape(text) + live.tail, pieces, cost, 0 if same else carried)

    def _reprefilled(self, node: Node) -> int:
        replaced = self._generated.get(node.message)
        if replaced is not None:
            return replaced.reprefilled
        return min(self._counts.get(node.message, 0), node.text_tokens)

    def _render(self, node: Node, pieces: list[Piece]) -> tuple[tuple[bytes, ...], int]:
        """A node that is not sent as it was prepared: its bytes and tokens; its pieces are added."""
        before = node.parent.tokens if node.parent is not None else 0
        replaced = self._generated.get(node.message) if node.live is not None else None
        if replaced is not None:
            pieces += replaced.pieces
            return (replaced.data,), replaced.tokens
        pieces += node.head_pieces
        data = [node.head]
        for slot in node.slots:
            text = self.options.text_salt if slot.name == "salt" else self.options.tag
            data.append(slot.own if text is None else self._slot(slot.name, slot.tokens))
            pieces.append(Piece(f"{slot.name}:{text}", slot.tokens))
        pieces += node.pieces
        if len(node.body) > _SHARED_BYTES:  # the same bytes for all lanes that replay this trace
            return (b"".join(data), node.body), node.tokens - before
        return (b"".join((*data, node.body)),), node.tokens - before

    def _slot(self, name: str, tokens: int) -> bytes:
        tree = self.prepared.tree
        if isinstance(tree, ChatTree):
            return self._slot_bytes[name]
        words = (self.options.text_salt if name == "salt" else self.options.tag) or ""
        return tree.encode(id_array(digest_of(name, words), tokens, self.prepared.rendering.calibration))

    def _tail(self, call: Call, ending: bytes, pinned: int) -> bytes:
        """Everything behind the messages; the same for all calls with the same tools and sampling but for a number."""
        key = (call.tools, call.params)
        held = self._tails.get(key)
        if held is None:
            held = self._tails[key] = self._fields(call)
        tools, fields = held
        if self.options.dialect.min_tokens and not self.options.natural:
            return b'%b]%b,"max_tokens":%d,"min_tokens":%d%b}' % (ending, tools, pinned, pinned, fields)
        return b'%b]%b,"max_tokens":%d%b}' % (ending, tools, pinned, fields)

    def _fields(self, call: Call) -> tuple[bytes, bytes]:
        dialect, params = self.options.dialect, call.params
        tools = b""
        tree = self.prepared.tree
        if isinstance(tree, ChatTree) and call.tools is not None and call.tools in tree.schemas:
            schema = tree.schemas[call.tools]
            tools = schema.head + self._slot_bytes["salt"] + schema.tail
        fields: dict[str, Any] = {"temperature": params.temperature or 0}
        if params.temperature and params.top_p is not None:
            fields["top_p"] = params.top_p
        if params.temperature and params.top_k is not None and dialect.sampling:
            fields["top_k"] = params.top_k
        fields["stream"] = True
        if dialect.usage:
            fields["stream_options"] = {"include_usage": True}
            if dialect.continuous_usage:
                fields["stream_options"]["continuous_usage_stats"] = True
        if dialect.ignore_eos and not self.options.natural:
            fields["ignore_eos"] = True
        if dialect.token_ids and self.options.token_ids:
            fields["return_token_ids"] = True
        if dialect.cache_salt and self.options.salt is not None:
            fields["cache_salt"] = self.options.salt
        fields |= dialect.extra
        return tools, b"," + msgspec.json.encode(fields)[1:-1]
