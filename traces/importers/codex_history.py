"""The history that a forked Codex rollout begins with: lines of another thread, copied when the fork was made.

Forks and sub-agents that were given their parent's context have them. Some versions stamp the copied lines anew, all
within moments of the fork; others keep their times, which are then older than the fork. Some also copy the parent's
`session_meta`, and from 0.104 on the turns have ids that tell when they began.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec import Struct

from windtunnel.traces.importers.records import Record, dumps, instant, table, text

BURST_GAP_S = 0.1
"""Lines with no longer pauses from the first one on were written at once: no model answers a first prompt so soon."""
_TURN_MARKS = frozenset({"task_started", "turn_context"})


class Origin(Struct, frozen=True):
    """What a rollout's first line says of where it comes from."""

    id: str
    parent: str
    """The thread that started it as a sub-agent."""
    forked: str
    """The thread whose history it begins with."""

    @property
    def source(self) -> str:
        return self.forked or self.parent


def origin_of(meta: dict[str, object]) -> Origin:
    """From the payload of a `session_meta`."""
    spawn = table(table(table(meta.get("source")).get("subagent")).get("thread_spawn"))
    parent = text(meta.get("parent_thread_id")) or text(spawn.get("parent_thread_id"))
    return Origin(text(meta.get("id")), parent, text(meta.get("forked_from_id")))


def usages(records: Iterable[Record]) -> Iterable[tuple[int, str]]:
    """Line and figures of every usage event; the session's running totals tell one from every other."""
    for record in records:
        payload = table(record.value.get("payload"))
        info = table(payload.get("info"))
        if payload.get("type") == "token_count" and info.get("total_token_usage"):
            yield record.line, dumps([info.get("total_token_usage"), info.get("last_token_usage")])


def copied_until(records: Sequence[Record], known: frozenset[str]) -> int:
    """The last line of the copied history; 0 where there is none. `known` are the parent's usages, where it is read."""
    first = next((r for r in records if r.value.get("type") == "session_meta"), None)
    if first is None:
        return 0
    meta = table(first.value.get("payload"))
    origin = origin_of(meta)
    if not origin.source:
        return 0
    born = instant(meta.get("timestamp")) or instant(first.value.get("timestamp"))
    last, forked = 0, bool(origin.forked)
    earlier_turn = False
    for record in records:
        payload = table(record.value.get("payload"))
        kind = text(record.value.get("type"))
        if kind == "session_meta" and text(payload.get("id")) not in ("", origin.id):
            last, forked = record.line, True
        when = instant(record.value.get("timestamp"))
        older = when is not None and born is not None and when < born
        turn = text(payload.get("turn_id"))
        if turn or kind in _TURN_MARKS or text(payload.get("type")) in _TURN_MARKS:
            earlier_turn = _before(turn, origin.id)
        if older or earlier_turn:
            last = record.line
    if forked:
        last = max(last, _same_usages(records, known))
    return max(last, _burst(records))


def _before(turn: str, thread: str) -> bool:
    """Whether a turn began before the thread was made: both ids tell when (UUID version 7)."""
    began, made = _made_at(turn), _made_at(thread)
    return began is not None and made is not None and began < made


def _made_at(name: str) -> int | None:
    try:
        value = UUID(name)
    except ValueError:
        return None
    return value.int >> 80 if value.version == 7 else None


def _same_usages(records: Sequence[Record], known: frozenset[str]) -> int:
    """Line of the last usage among the leading ones that the parent has too."""
    last = 0
    for line, figures in usages(records):
        if figures not in known:
            break
        last = line
    return last


def _burst(records: Sequence[Record]) -> int:
    """Line of the last usage in what was written at once at the start; 0 where no answer is in it."""
    last, before = 0, None
    for record in records:
        when = instant(record.value.get("timestamp"))
        if when is not None and before is not None and when - before > BURST_GAP_S:
            break
        before = when if when is not None else before
        if _answers(record):
            last = record.line
    return last


def _answers(record: Record) -> bool:
    """Whether a line is part of an answer: an output item or its usage."""
    payload = table(record.value.get("payload"))
    kind = text(payload.get("type"))
    if record.value.get("type") == "token_usage_record":
        return True
    if record.value.get("type") == "event_msg":
        return kind == "token_count" and bool(table(payload.get("info")))
    called = kind in ("reasoning", "web_search_call", "function_call", "custom_tool_call", "local_shell_call")
    return called or (kind == "message" and payload.get("role") == "assistant")
