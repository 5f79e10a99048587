"""Pieces of reading a Claude Code transcript: what is kept while reading, usage figures, content parts."""

from collections.abc import Sequence

from msgspec import Struct

from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft, media_piece, text_piece
from windtunnel.traces.importers.records import Notes, count, table, tables, text
from windtunnel.traces.model import Mark, Role

HOUR_S, FIVE_MINUTES_S = 3600.0, 300.0
CALL_TOKENS = 40
"""Name, id and framing of one tool call, as Claude counts them beside its arguments."""
PLACEHOLDER_GAP = 8
"""A recorded count lower than the estimate by fewer tokens is left alone."""


class Request(Struct):
    """An `api-request` record."""

    start: float | None
    max_tokens: int | None
    effort: str | None
    shape: str
    whole: bool
    tail: tuple[str, ...] = ()
    """Hashes of the messages after those that it shares with an earlier request."""


class Written(Struct):
    """What the model wrote in one exchange, collected from its lines."""

    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []


class State(Struct):
    """One thread being read."""

    thread: ThreadDraft
    pending: list[Draft] = []
    arrived: float | None = None
    asked_at: float | None = None
    human: bool = False
    reset: bool = False
    joins: list[str] = []
    by_id: dict[str, Exchange] = {}
    written: dict[str, Written] = {}
    compact_at: float | None = None
    """When a person asked for a compaction that has not come yet."""
    rebuilt: list[Exchange] = []
    """Requests for a summary that left no line."""


class Line(Struct, frozen=True):
    """A user or assistant line: its own or one nested in a progress record."""

    number: int
    value: dict[str, object]
    message: dict[str, object]
    when: float | None


class Final(Struct, frozen=True):
    """A sub-agent's last answer as its parent's log repeats it."""

    usage: dict[str, object]
    answer: str
    end: float | None
    line: int


def pieces_of(part: dict[str, object]) -> list[Piece]:
    kind = part.get("type")
    if kind == "text" and text(part.get("text")):
        return [text_piece(text(part.get("text")))]
    if kind in ("image", "document"):
        source = table(part.get("source"))
        media = text(source.get("media_type")) or f"{kind}/unknown"
        return [media_piece(media, text(source.get("data")) or text(source.get("url")))]
    return []


def blob_of(message: dict[str, object]) -> Draft:
    """A message as it was sent, without the results of tools in it."""
    role: Role = {"assistant": "assistant", "system": "system"}.get(text(message.get("role")), "user")  # type: ignore[assignment]
    content = message.get("content")
    if isinstance(content, str):
        return Draft(role, (text_piece(content),) if content else ())
    return Draft(role, tuple(p for part in tables(content) for p in pieces_of(part)))


def as_sent(fresh: list[Draft], tail: Sequence[str], blobs: dict[str, Draft], *, spoken: bool) -> list[Draft]:
    """What came into a prompt, its texts as the request carried them: reminders joined, in the order of the wire.

    Only messages that differ from the transcript's lines have a blob. Where one more than the answer before (`spoken`)
    and the results has none, the lines are taken as they are.
    """
    texts = [blobs[h] for h in tail if h in blobs and blobs[h].role != "assistant" and blobs[h].pieces]
    results = [d for d in fresh if d.role == "tool"]
    unknown = sum(h not in blobs for h in tail)
    if not texts or unknown > int(spoken) + int(bool(results)):
        return fresh
    return [*results, *texts]


def take_usage(exchange: Exchange, usage: dict[str, object], notes: Notes, line: int | None) -> None:
    """Prompt figures of the last line count, output tokens are the most that any line says."""
    fresh = count(usage.get("input_tokens"), notes, line, "input_tokens")
    created = count(usage.get("cache_creation_input_tokens"), notes, line, "cache_creation_input_tokens")
    cached = count(usage.get("cache_read_input_tokens"), notes, line, "cache_read_input_tokens")
    if fresh is not None:
        prompt = fresh + (created or 0) + (cached or 0)
        if prompt:
            exchange.prompt, exchange.cached, exchange.created = prompt, cached, created
        else:
            notes.add(line, "a prompt of 0 tokens was not believed")
    completion = count(usage.get("output_tokens"), notes, line, "output_tokens")
    if completion is not None:
        exchange.completion = max(exchange.completion or 0, completion)
    thought = table(usage.get("output_tokens_details")).get("thinking_tokens")
    exchange.reasoning = count(thought, notes, line, "thinking_tokens") or exchange.reasoning
    kept = table(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")
    exchange.ttl_s = HOUR_S if isinstance(kept, int) and kept > 0 else FIVE_MINUTES_S


def judge_completion(exchange: Exchange) -> None:
    """Replace a placeholder output count by an estimate.

    Claude Code often logs the count of the stream's first event: a few tokens for a long text. The final count comes
    with the stop reason; without one, a count below half of what the visible text and its tool calls take is not it.
    """
    if exchange.output is None:
        return
    framing = CALL_TOKENS * len(exchange.output.calls)
    seen = exchange.output.visible() + exchange.output.hidden() + framing
    recorded = exchange.completion
    early = exchange.stop is None and recorded is not None and seen - recorded >= PLACEHOLDER_GAP
    if recorded is None or (early and recorded * 2 < seen):
        mark: Mark = "estimated"
        exchange.placeholder, exchange.completion = recorded, max(seen, 1)
        exchange.marks["completion"] = mark
