"""One thread's prompt from call to call, so that its tokens always add up to what the server counted.

Visible text has estimated counts and the log lacks parts of the prompt; the recorded prompt size settles both. Where
the prompt did not simply grow, the longest prefix that the figures allow is kept:

- a *reset* (compaction) keeps the first system message and starts the conversation anew;
- after a person's prompt, reasoning of the turn before may have been dropped: believed when it explains the growth;
- a growth too small for the text that came in means that earlier text went: the prompt is cut at its end until the
  new text fits, unless the cached count proves the old prompt to be still there, when the new text is scaled down;
- a cached count below what the previous call left in the cache (`Turn.diverged`) marks the token where text differs.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.importers.fitting import fit, share
from windtunnel.traces.importers.ledger import Ledger
from windtunnel.traces.importers.pieces import Draft, Piece, ToolSchemas, filler_piece

SHARED_FRONT_TOKENS = 48_000
"""Most tokens of a first prompt that are taken for system prompt and tools; more is an earlier conversation."""
TOO_LITTLE = 3
"""A growth below a third of the new text's estimate means that older text went."""

Edit = Literal["reset", "shrunk", "diverged", "dropped_reasoning"]


class Turn(Struct, frozen=True):
    """What a call adds to its thread's prompt."""

    drafts: Sequence[Draft]
    want: int | None
    """Recorded prompt tokens; None where not recorded."""
    human: bool = False
    reset: bool = False
    aside: bool = False
    diverged: int | None = None
    """Prompt tokens up to which the text is the same, where the figures say that it differs after them."""
    proven: int = 0
    """Prompt tokens that the cached count proves to be the same as before."""
    schemas: ToolSchemas | None = None
    shared: int | None = None
    """Most tokens of the first prompt that other sessions share, where known."""


class Step(Struct, frozen=True):
    """A call's prompt as a difference to the one before: keep its first `keep` messages, add `append`."""

    keep: int
    append: tuple[int, ...]
    tools: int | None
    first_draft: int | None
    """Message that the first draft became (the previous output, where there is one)."""
    edits: tuple[Edit, ...] = ()


class Context:
    """Holds the current prompt's message ids and their running token sums; each step costs what it changes."""

    def __init__(self, ledger: Ledger, front: Sequence[str], key: str) -> None:
        self._ledger = ledger
        self._front = tuple(front)
        """What the system prompt depends on: equal in all sessions that share it."""
        self._key = key
        self._ids: list[int] = []
        self._sums: list[int] = [0]
        self._turn_began = 0
        self._tools: dict[str, int] = {}
        self._fillers = 0
        self._asides = 0
        self._left = False
        """The call before was an aside: nothing of its prompt is kept."""

    def belongs_to(self, session: str, key: str) -> None:
        """Name the stand-ins for missing text after this session and thread: equal where the text is."""
        self._ledger.session, self._key = session, key

    def step(self, turn: Turn) -> Step:
        if turn.aside:
            self._asides += 1
            self._left = True
            front = (*self._front, "aside")
            return Context(self._ledger, front, f"{self._key} aside {self._asides}").step(replace(turn, aside=False))
        step = self._next(turn)
        if self._left:
            step = replace(step, keep=0, append=tuple(self._ids))
            self._left = False
        return step

    def _next(self, turn: Turn) -> Step:
        opening = not self._ids
        tools = self._toolset(turn)
        target = None if turn.want is None else turn.want - self._ledger.toolset_tokens(tools)
        keep = len(self._ids)
        edits: list[Edit] = []
        if target is not None and not opening:
            keep = self._make_room(turn, target, edits)
        self._turn_began = len(self._ids) if turn.human else min(self._turn_began, len(self._ids))
        drafts = list(turn.drafts)
        if "dropped_reasoning" in edits:
            drafts = [replace(d, reasoning=()) for d in drafts]
        if opening and target is not None:
            drafts = self._with_front(drafts, target, turn.shared)
        if target is not None:
            drafts = fit(drafts, max(0, target - self._sums[-1]), self._filler)
        added = [self._ledger.message(d) for d in drafts]
        self._push(added)
        lead = int(opening and len(added) > len(turn.drafts) and drafts[0].role == "system")
        first = added[lead] if turn.drafts else None
        return Step(keep, tuple(self._ids[keep:]), tools, first, tuple(edits))

    def _make_room(self, turn: Turn, target: int, edits: list[Edit]) -> int:
        """Bring the old prompt to what is left of it in the new one; the number of messages kept as they were."""
        visible = sum(d.visible() for d in turn.drafts)
        if turn.reset:
            edits.append("reset")
            front = self._sums[1] if self._ledger.role(self._ids[0]) == "system" else 0
            # estimates of much text err by more than the front's size: it goes only where the rest shows it
            scalable = (target - front) * TOO_LITTLE >= visible
            room = front if scalable else max(0, target - visible, min(turn.proven, target))
            return self._cut(min(front, room))
        keep = len(self._ids)
        if turn.human and self._reasoning_explains(target, visible):
            edits.append("dropped_reasoning")
            keep = self._drop_reasoning()
        growth = target - self._sums[-1]
        tools = (turn.want or target) - target
        scalable = turn.proven - tools >= self._sums[-1] or growth * TOO_LITTLE >= visible
        diverged = None if turn.diverged is None else turn.diverged - tools
        if growth < 0 or not scalable:
            edits.append("shrunk")
            keep = min(keep, self._cut(max(0, target - visible)))
        if diverged is not None and diverged < self._sums[-1]:
            edits.append("diverged")
            keep = min(keep, self._rewrite_from(max(0, diverged)))
        return keep

    def _with_front(self, drafts: list[Draft], target: int, most: int | None) -> list[Draft]:
        """A thread's first prompt: what the log lacks of it is the system prompt, the tools and the first reminders."""
        missing = target - sum(d.visible() + d.hidden() for d in drafts)
        if missing <= 0:
            return drafts
        front = filler_piece(min(missing, SHARED_FRONT_TOKENS, most or missing), *self._front)
        if drafts and drafts[0].role == "system":
            return [replace(drafts[0], pieces=(front, *drafts[0].pieces)), *drafts[1:]]
        return [Draft(role="system", pieces=(front,)), *drafts]

    def _toolset(self, turn: Turn) -> int | None:
        """The tool set of a call, its tokens settled by the first prompt that carries it."""
        schemas = turn.schemas
        if schemas is None:
            return None
        known = self._tools.get(schemas.piece.digest)
        if known is None:
            pieces = self._sized(schemas.each(), turn)
            if not any(p.tokens for p in pieces):
                return None
            known = self._ledger.toolset(schemas.names, pieces)
            self._tools[schemas.piece.digest] = known
        if turn.want is not None and self._ledger.toolset_tokens(known) >= turn.want:
            return None
        return known

    def _sized(self, tools: Sequence[Piece], turn: Turn) -> list[Piece]:
        """The tools with tokens that fit in the prompt beside its text.

        A tool that another set has too keeps its tokens where it can: sets that begin alike are to share that.
        """
        settled = [self._ledger.tool_tokens.get(p.digest) for p in tools]
        if turn.want is not None:
            room = max(0, turn.want - (0 if turn.reset else self._sums[-1]))
            if room <= sum(known or 0 for known in settled):
                settled = [None] * len(tools)
            room -= sum(known or 0 for known in settled)
            new = [p.tokens for p, known in zip(tools, settled, strict=True) if known is None]
            others = sum(d.visible() for d in turn.drafts)
            if new and sum(new) + others > room:
                new = share(share(room, [sum(new), others])[0], new)
            left = iter(new)
            settled = [next(left) if known is None else known for known in settled]
        return [
            replace(p, tokens=p.tokens if known is None else known) for p, known in zip(tools, settled, strict=True)
        ]

    def _reasoning_explains(self, target: int, visible: int) -> bool:
        dropped = sum(self._ledger.reasoning_tokens(m) for m in self._ids[self._turn_began :])
        growth = target - self._sums[-1]
        return dropped > 0 and abs(growth + dropped - visible) < abs(growth - visible)

    def _drop_reasoning(self) -> int:
        """Replace this turn's messages by copies without reasoning; how many messages stay as they were."""
        began = self._turn_began
        first = next(i for i in range(began, len(self._ids)) if self._ledger.reasoning_tokens(self._ids[i]))
        tail = [self._ledger.without_reasoning(m) for m in self._ids[first:]]
        self._truncate(first)
        self._push([m for m in tail if self._ledger.tokens(m)])
        return first

    def _cut(self, tokens: int) -> int:
        """Cut the prompt to its first `tokens` tokens; how many messages stay as they were."""
        keep = self._whole_messages(tokens)
        if keep == len(self._ids):
            return keep
        head = self._ledger.cut(self._ids[keep], tokens - self._sums[keep]).head
        self._truncate(keep)
        if head is not None:
            self._push([head])
        return keep

    def _rewrite_from(self, tokens: int) -> int:
        """Let the prompt differ from token `tokens` on, at equal length; how many messages stay as they were."""
        keep = self._whole_messages(tokens)
        if keep == len(self._ids):
            return keep
        cut = self._ledger.cut(self._ids[keep], tokens - self._sums[keep])
        tail = self._ids[keep + 1 :]
        self._truncate(keep)
        self._push([m for m in (cut.head,) if m is not None])
        rest = cut.rest
        if rest is None and tail:
            rest, tail = tail[0], tail[1:]
        self._push([*([] if rest is None else [self._ledger.changed(rest)]), *tail])
        return keep

    def _whole_messages(self, tokens: int) -> int:
        """How many of the prompt's messages end at or before a token position."""
        low, high = 0, len(self._ids)
        while low < high:
            middle = (low + high + 1) // 2
            if self._sums[middle] <= tokens:
                low = middle
            else:
                high = middle - 1
        return low

    def _truncate(self, messages: int) -> None:
        del self._ids[messages:]
        del self._sums[messages + 1 :]

    def _push(self, messages: Sequence[int]) -> None:
        for message in messages:
            self._ids.append(message)
            self._sums.append(self._sums[-1] + self._ledger.tokens(message))

    def _filler(self, tokens: int) -> Piece:
        self._fillers += 1
        return filler_piece(tokens, self._ledger.session, self._key, str(self._fillers))
