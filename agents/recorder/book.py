"""The texts of one session as they are written: each message once, with token counts that add up to what was counted.

A server counts whole prompts, not texts. The first prompt's count is shared out over its tools and messages in
proportion to estimates; of every later one only the growth, over what is new in it. So a text keeps its count from
call to call, and the blocks of a prompt always sum to the prompt.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.agents.recorder.asked import Answer, Said, said
from windtunnel.traces.importers.fitting import calibrate_output, share
from windtunnel.traces.importers.ledger import Ledger
from windtunnel.traces.importers.pieces import Asked, Draft, Piece, ToolSchemas, filler_piece
from windtunnel.traces.model import Block, Message, ToolSet, Trace

KEPT_PROMPTS = 3
Line = Block | Message | ToolSet


class Entry(Struct, frozen=True):
    """A prompt as it stands in the book."""

    messages: tuple[int, ...]
    tools: int | None
    tokens: int
    """Of all of it."""


class _Ledger(Ledger):
    """A ledger that can go on from a trace."""

    def load(self, trace: Trace) -> None:
        self.blocks = [replace(b, text=None) for b in trace.blocks]
        self.messages = list(trace.messages)
        self.toolsets = list(trace.toolsets)
        self._known = {(b.digest, b.tokens): b.id for b in reversed(trace.blocks)}
        self._tokens = [trace.message_tokens(m.id) for m in trace.messages]
        for block in (trace.blocks[b] for tools in trace.toolsets for b in tools.blocks):
            self.tool_tokens.setdefault(block.digest, block.tokens)

    def schemas(self, toolset: int) -> tuple[str, ...]:
        """Digests of a tool set's schemas."""
        return tuple(self.blocks[b].digest for b in self.toolsets[toolset].blocks)


class Book:
    def __init__(self, session: str) -> None:
        self.ledger = _Ledger(session)
        self._ids: dict[tuple[str, str], int] = {}
        """(print, thought) to message."""
        self._prints: dict[str, int] = {}
        """Print to the message that was written with it first, reasoning or not."""
        self._tools: dict[tuple[str, ...], int] = {}
        """Tool sets by their schemas' digests."""
        self._schemas: dict[str, tuple[str, ...]] = {}
        """Digest of all schemas' text to the digests of each."""
        self._own: dict[tuple[int, str, str], int] = {}
        """(thread, print, thought) to a message that counts otherwise there than elsewhere in the session."""
        self._prompts: dict[int, deque[tuple[tuple[tuple[str, str], ...], tuple[int, ...]]]] = {}
        """The latest prompts of each thread: their messages' prints and thoughts, and ids."""
        self._own_tools: dict[tuple[int, tuple[str, ...]], int] = {}
        self._ratio = 1.0
        """Counted tokens per estimated one, of what was settled last."""
        self._fillers = 0
        self._told = (0, 0, 0)

    def load(self, trace: Trace, prints: Sequence[Said]) -> None:
        """Go on from a trace that was written before; `prints` are its messages'."""
        self.ledger.load(trace)
        self._told = (len(trace.blocks), len(trace.messages), len(trace.toolsets))
        for message, s in zip(trace.messages, prints, strict=True):
            self._ids.setdefault((s.print, s.thought), message.id)
            self._prints.setdefault(s.print, message.id)
        for tools in trace.toolsets:
            self._tools.setdefault(self.ledger.schemas(tools.id), tools.id)

    def seen(self, thread: int, messages: tuple[int, ...], prints: Sequence[Said], tools: int | None) -> None:
        """A prompt of the thread that has been entered."""
        if tools is not None:
            key = self.ledger.schemas(tools)
            if self._tools.setdefault(key, tools) != tools:
                self._own_tools[thread, key] = tools
        self._prompts.setdefault(thread, deque(maxlen=KEPT_PROMPTS)).append((tuple(_keys(prints)), messages))

    def fresh_lines(self) -> Iterator[Line]:
        """What was added since the last time, in an order in which everything is defined before it is used.

        A text is let go once it was handed out: its digest tells it from others.
        """
        ledger = self.ledger
        blocks, messages, toolsets = self._told
        self._told = (len(ledger.blocks), len(ledger.messages), len(ledger.toolsets))
        yield from ledger.blocks[blocks:]
        for i in range(blocks, len(ledger.blocks)):
            ledger.blocks[i] = replace(ledger.blocks[i], text=None)
        yield from ledger.toolsets[toolsets:]
        yield from ledger.messages[messages:]

    def prompt(self, thread: int, asked: Sequence[Said], schemas: ToolSchemas | None, counted: int | None) -> Entry:
        """Enter a thread's prompt; `counted` are its tokens, None where nobody counted them."""
        ids = self._standing(thread, asked)
        tools = None if schemas is None else self._known_tools(thread, schemas)
        each = () if schemas is None or tools is not None else schemas.each()
        same = self.ledger.tool_tokens if each else {}
        """Tools that another set has too keep their tokens, so that sets that begin alike share that."""
        open_ = [i for i, known in enumerate(ids) if known is None]
        room = None
        if counted is not None:
            held = sum(self.ledger.tokens(m) for m in ids if m is not None) + self.ledger.toolset_tokens(tools)
            room = counted - held - sum(same.get(p.digest, 0) for p in each)
            at = len(ids)
            while at > 0 and _short(room, self._least(asked, open_, _fresh(each, same))):
                at -= 1  # what is known is too long, or nothing is new to take the difference: settle older text anew
                known = ids[at]
                if known is not None:
                    room += self.ledger.tokens(known)
                    ids[at] = None
                    open_.insert(0, at)
            if schemas is not None and room < self._least(asked, open_, _fresh(each, same)):
                room += self.ledger.toolset_tokens(tools) + sum(same.get(p.digest, 0) for p in each)
                tools, each, same = None, schemas.each(), {}
        drafts = [asked[i].draft for i in open_]
        sizes, counts = self._settled(drafts, _fresh(each, same), room)
        if schemas is not None and each:
            left = iter(sizes)
            sized = [replace(p, tokens=same[p.digest] if p.digest in same else next(left)) for p in each]
            tools = self.ledger.toolset(schemas.names, sized)
        for i, draft in zip(open_, _counted(drafts, counts), strict=True):
            ids[i] = self._enter(thread, asked[i], draft)
        messages = tuple(m for m in ids if m is not None)
        self.seen(thread, messages, asked, tools)
        total = self.tokens_of(messages, tools)
        if counted is not None and total < counted:  # a prompt of no text at all
            self._fillers += 1
            filler = filler_piece(counted - total, self.ledger.session, "prompt", str(self._fillers))
            messages, total = (*messages, self.ledger.message(Draft("user", (filler,)))), counted
        return Entry(messages, tools, total)

    def output(self, answer: Answer, key: str) -> int | None:
        """Enter what the model wrote."""
        if answer.output is None:
            return None
        hidden = filler_piece(0, self.ledger.session, key, "reasoning")
        draft = calibrate_output(answer.output, answer.completion, answer.reasoning, hidden)
        known = said(answer.output)
        message = self.ledger.message(draft)
        thought = said(draft).thought if draft.reasoning else ""
        self._ids[known.print, thought] = message
        self._prints[known.print] = message
        return message

    def tokens_of(self, messages: Sequence[int], tools: int | None) -> int:
        return sum(self.ledger.tokens(m) for m in messages) + self.ledger.toolset_tokens(tools)

    def _standing(self, thread: int, asked: Sequence[Said]) -> list[int | None]:
        """The messages that stand in the book: where an earlier prompt has the same, that one's; else any equal one."""
        keys = list(_keys(asked))
        best: Sequence[int] = ()
        for before, messages in self._prompts.get(thread, ()):
            same = next(
                (i for i, (a, b) in enumerate(zip(before, keys, strict=False)) if a != b), min(len(before), len(keys))
            )
            best = messages[:same] if same > len(best) else best
        return [*best, *(self._known(thread, s) for s in asked[len(best) :])]

    def _known_tools(self, thread: int, schemas: ToolSchemas) -> int | None:
        whole = schemas.piece.digest
        if whole not in self._schemas:
            self._schemas[whole] = tuple(p.digest for p in schemas.each())
        for key in (self._schemas[whole], (whole,)):  # in an older recording all schemas are one text
            known = self._own_tools.get((thread, key), self._tools.get(key))
            if known is not None:
                return known
        return None

    def _known(self, thread: int, s: Said) -> int | None:
        exact = self._own.get((thread, s.print, s.thought), self._ids.get((s.print, s.thought)))
        if exact is None and not s.thought and s.print in self._prints:
            exact = self._ids[s.print, ""] = self.ledger.without_reasoning(self._prints[s.print])
        return exact

    def _enter(self, thread: int, s: Said, draft: Draft) -> int:
        message = self.ledger.message(draft)
        if self._ids.setdefault((s.print, s.thought), message) != message:
            self._own[thread, s.print, s.thought] = message
        self._prints.setdefault(s.print, message)
        return message

    def _least(self, asked: Sequence[Said], open_: Sequence[int], tools: Sequence[Piece]) -> int:
        return sum(len(_pieces(asked[i].draft)) for i in open_) + len(tools)

    def _settled(
        self, drafts: Sequence[Draft], schemas: Sequence[Piece], room: int | None
    ) -> tuple[list[int], list[int]]:
        """Tokens of each tool that is new, and of each piece, at least one for each."""
        weights = [max(1, p.tokens) for d in drafts for p in _pieces(d)]
        tools = [max(1, p.tokens) for p in schemas]
        if room is None:
            counts = [max(1, round(w * self._ratio)) for w in tools + weights]
        else:
            least = min(len(tools) + len(weights), max(0, room))
            spare = share(max(0, room - least), tools + weights)
            counts = [n + (1 if i < least else 0) for i, n in enumerate(spare)]
            if counts:
                self._ratio = max(0.2, min(5.0, sum(counts) / sum(tools + weights)))
        return counts[: len(tools)], counts[len(tools) :]


def _keys(asked: Sequence[Said]) -> Iterator[tuple[str, str]]:
    return ((s.print, s.thought) for s in asked)


def _fresh(tools: Sequence[Piece], settled: Mapping[str, int]) -> list[Piece]:
    """The tools that no set has had before."""
    return [p for p in tools if p.digest not in settled]


def _short(room: int, least: int) -> bool:
    """Whether what is new cannot take up so many tokens."""
    return room < least or (room > 0 and not least)


def _pieces(draft: Draft) -> list[Piece]:
    return [*draft.reasoning, *draft.pieces, *(c.arguments for c in draft.calls)]


def _counted(drafts: Sequence[Draft], counts: Sequence[int]) -> Iterator[Draft]:
    left = iter(counts)
    for d in drafts:
        yield replace(
            d,
            reasoning=tuple(replace(p, tokens=next(left), mark="derived") for p in d.reasoning),
            pieces=tuple(replace(p, tokens=next(left), mark="derived") for p in d.pieces),
            calls=tuple(Asked(c.id, c.name, replace(c.arguments, tokens=next(left))) for c in d.calls),
        )
