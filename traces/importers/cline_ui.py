"""What Cline's VS Code panel shows, `ui_messages.json`: the only place where an older task has usage and times.

`api_req_started` holds what was sent and, once the answer is complete, its usage, where `tokensIn` excludes the cache.
Its time is when the client began to prepare the request; the answer's end is not stored: the first thing after the
last block that the model wrote tells it. Texts come from `api_conversation_history.json` where that lies beside it.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from windtunnel.traces.importers.cline_messages import drafts_of, output_of
from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, text_piece
from windtunnel.traces.importers.records import Notes, count, instant_ms, items, object_in, table, text
from windtunnel.traces.importers.salvage import Document

_WRITTEN = frozenset({"reasoning", "text", "tool", "command", "use_mcp_server", "browser_action_launch"})
_WRITTEN_TOO = frozenset(
    {"browser_action", "completion_result", "followup", "plan_mode_respond", "new_task", "condense"}
)
_SPOKEN = frozenset({"user_feedback", "user_feedback_diff", "task"})
_RESUMED = frozenset({"resume_task", "resume_completed_task"})
_RUNS_LONG = frozenset({"command", "command_output", "use_mcp_server", "browser_action", "browser_action_launch"})
"""What comes after these comes when they have run."""
_RESULT = re.compile(r"^\[\w+(?: for .*)?\] Result:", re.MULTILINE)

Value = dict[str, object]


class Shown(Struct, frozen=True):
    """A block that the model wrote."""

    kind: str
    said: str
    when: float | None
    until: float | None
    """When the next thing was shown."""
    asked: bool = False
    """A person had to approve it."""


class Turn(Struct):
    """A request and what was shown until the next one."""

    number: int
    """Of its message in the file."""
    when: float | None
    request: str
    usage: Value
    shown: list[Shown] = []
    index: int | None = None
    """Of the user's message in the other file."""
    removed: tuple[int, int] | None = None
    """Messages of the history, first and last, that were left out of the prompt."""
    asked_at: float | None = None
    human: bool = False
    model: str = ""
    provider: str = ""


def is_shown(value: Value) -> bool:
    return value.get("type") in ("say", "ask") and "ts" in value


def read_shown(document: Document, history: Document | None, talk: Conversation, notes: Notes) -> set[str]:
    """Fills `talk`; the providers that answered."""
    turns = list(_turns(document.items, talk, document, notes))
    kept: list[tuple[int | None, Draft]] = []
    """What came into prompts so far, with its place in the history."""
    removed: tuple[int, int] | None = None
    before: list[str] = []
    for turn in turns:
        sent, answered = _texts(turn, history, before)
        if turn.removed is not None and turn.removed != removed:
            removed = turn.removed
            talk.compacted([d for i, d in kept if i is None or not removed[0] <= i <= removed[1]])
        _send(turn, sent, talk)
        exchange = _exchange(turn, document, notes)
        talk.answer(exchange, answered)
        before = [t.id for t in exchange.tools]
        _time_tools(turn, exchange)
        kept += [(turn.index, d) for d in sent]
        if exchange.output is not None:
            kept.append((None if turn.index is None else turn.index + 1, exchange.output))
    return {t.provider for t in turns if t.provider}


def _turns(messages: Sequence[Value], talk: Conversation, document: Document, notes: Notes) -> Iterator[Turn]:
    turn: Turn | None = None
    human, asked_at = False, None
    for number, message in enumerate(messages):
        when = instant_ms(message.get("ts"))
        talk.saw(when)
        kind = text(message.get("say")) or text(message.get("ask"))
        if kind in _SPOKEN:
            human, asked_at = True, when
            talk.prompt = talk.prompt or text(message.get("text"))
        elif kind == "api_req_started":
            if turn is not None:
                yield turn
            usage = object_in(text(message.get("text")))
            if not usage:
                notes.add(document.line(number), "a request's figures are no JSON object: its usage is not known")
            turn = Turn(number, when, text(usage.get("request")), usage, human=human, asked_at=asked_at)
            human, asked_at = False, None
        if turn is not None:
            _show(turn, message, kind, when, _next_time(messages, number, kind))
    if turn is not None:
        yield turn


def _next_time(messages: Sequence[Value], number: int, kind: str) -> float | None:
    """When the next thing was shown, unless a person made it; after something that runs, what is not its output."""
    at = number + 1
    if kind in _RUNS_LONG:
        while at < len(messages) and "command_output" in (messages[at].get("say"), messages[at].get("ask")):
            at += 1
    if at == len(messages) or text(messages[at].get("say")) in _SPOKEN or text(messages[at].get("ask")) in _RESUMED:
        return None
    return instant_ms(messages[at].get("ts"))


def _show(turn: Turn, message: Value, kind: str, when: float | None, until: float | None) -> None:
    info = table(message.get("modelInfo"))
    turn.model, turn.provider = text(info.get("modelId")) or turn.model, text(info.get("providerId")) or turn.provider
    if kind not in _WRITTEN and kind not in _WRITTEN_TOO:
        return
    said = text(message.get("text"))
    if turn.index is None and isinstance(message.get("conversationHistoryIndex"), int):
        index = message.get("conversationHistoryIndex")
        turn.index = index if isinstance(index, int) and index >= 0 else None
    gone = [i for i in items(message.get("conversationHistoryDeletedRange")) if isinstance(i, int)]
    if len(gone) == 2:
        turn.removed = (gone[0], gone[1])
    shown = Shown(kind, said, when, until, asked="ask" in message and message.get("type") == "ask")
    last = turn.shown[-1] if turn.shown else None
    if last is not None and last.kind == kind and last.said == said:
        turn.shown[-1] = Shown(kind, said, last.when, until, shown.asked)
    elif said:
        turn.shown.append(shown)


def _texts(turn: Turn, history: Document | None, before: list[str]) -> tuple[list[Draft], Draft]:
    """What was sent and what was answered: from the history where it has both, else as shown."""
    at = turn.index
    if history is not None and at is not None and at + 1 < len(history.items):
        asked, answer = history.items[at], history.items[at + 1]
        if asked.get("role") == "user" and answer.get("role") == "assistant":
            return list(drafts_of(asked)), output_of(answer)
    return _as_results(turn.request, before), _as_shown(turn)


def _as_results(request: str, before: list[str]) -> list[Draft]:
    """A request's text as the results of the calls before it: each its own where there are as many, else one."""
    if not request:
        return []
    if not before:
        return [Draft("user", (text_piece(request),))]
    starts = [m.start() for m in _RESULT.finditer(request)]
    if len(starts) != len(before) or starts[0] != 0:
        starts = [0] + [len(request)] * (len(before) - 1)
    parts = [request[a:b] for a, b in zip(starts, [*starts[1:], len(request)], strict=True)]
    return [
        Draft("tool", (text_piece(part),) if part else (), tool_call_id=tool)
        for part, tool in zip(parts, before, strict=True)
    ]


def _as_shown(turn: Turn) -> Draft:
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    for block in turn.shown:
        if block.kind == "reasoning":
            reasoning.append(text_piece(block.said))
        elif block.kind == "text":
            pieces.append(text_piece(block.said))
        else:
            name = text(object_in(block.said).get("tool")) or block.kind
            calls.append(Asked(f"ui-{turn.number}-{len(calls)}", name, text_piece(block.said)))
    return Draft("assistant", tuple(pieces), tuple(reasoning), tuple(calls))


def _send(turn: Turn, sent: list[Draft], talk: Conversation) -> None:
    for draft in sent:
        if draft.role == "tool":
            talk.result(draft.tool_call_id or "", draft.pieces, None)
        else:
            talk.add(draft, None)
    if turn.human:
        talk.prompted(turn.asked_at)


def _exchange(turn: Turn, document: Document, notes: Notes) -> Exchange:
    names = ("tokensIn", "tokensOut", "cacheReads", "cacheWrites")
    counts = [turn.usage.get(n) for n in names]
    sound = all(v is None or (isinstance(v, int) and v >= 0) for v in counts)
    line = None if sound else document.line(turn.number)
    fresh, completion, cached, created = (count(v, notes, line, n) for v, n in zip(counts, names, strict=True))
    counted = fresh is not None and any((fresh, completion, cached, created))
    prompt = (fresh or 0) + (cached or 0) + (created or 0) if counted else 0
    cancelled = text(turn.usage.get("cancelReason"))
    if not counted and not cancelled:
        notes.add(
            document.line(turn.number), "the request has no usage: it was still under way or its figures are lost"
        )
    end = _end(turn)
    exchange = Exchange(
        key=str(turn.number),
        line=turn.number,
        prompt=prompt or None,
        cached=cached if prompt else None,
        created=created if prompt else None,
        completion=completion if counted else None,
        start=turn.when,
        end=end,
        model=turn.model or None,
        aborted=bool(cancelled) or (not counted and not turn.shown),
    )
    if turn.when is not None:
        exchange.marks["start"] = "derived"
    if end is not None:
        exchange.marks["end"] = "derived"
    return exchange


def _end(turn: Turn) -> float | None:
    """When the last block was complete: the next thing was shown then, unless the block first had to run."""
    if not turn.shown:
        return None
    last = turn.shown[-1]
    waits = last.asked or last.kind in _RUNS_LONG or last.until is None
    return last.when if waits else last.until


def _time_tools(turn: Turn, exchange: Exchange) -> None:
    runs = [b for b in turn.shown if b.kind not in ("reasoning", "text")]
    for block, tool in zip(runs, exchange.tools, strict=False):
        tool.start, tool.end, tool.mark = block.when, block.until, "derived"
