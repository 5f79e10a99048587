"""AIPerf's multi-turn conversations: `{"session_id", "turns": [{"text", "delay", "output_length"}]}`, one a line.

Turns hold what a person says; the answers are the server's own and stand in the history. Nothing is counted but
`output_length`, where it is given: prompts are estimates from the text, an answer of unknown length is a usual one.
"""

from collections.abc import Iterator
from pathlib import Path

from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.mooncake_delta import Turn, grown
from windtunnel.traces.importers.pieces import Draft, Piece, text_piece, title_of
from windtunnel.traces.importers.records import (
    Notes,
    Record,
    count,
    first_rows,
    items,
    read_records,
    seconds,
    table,
    text,
)
from windtunnel.traces.model import Header, Role, Trace, digest_of

__all__ = ["NAME", "detect", "read"]

NAME = "aiperf-multi-turn"
USUAL_OUTPUT_TOKENS = 216
"""Median output of a call over 49,334 recorded requests of coding agents."""


def detect(path: Path, head: bytes) -> bool:
    if path.suffix != ".jsonl" or b'"turns"' not in head:
        return False
    for value in first_rows(head, 5):
        first = table(next(iter(items(value.get("turns"))), None))
        if "text" in first or "texts" in first:
            return True
    return False


def read(path: Path) -> Imported:
    notes = Notes(str(path))
    traces = tuple(t for record in read_records(path, notes) if (t := _session(record, path, notes)) is not None)
    if not traces and not notes.all():
        notes.add(None, "holds no conversation with turns: nothing to replay")
    return Imported(traces, notes.all())


def _session(record: Record, path: Path, notes: Notes) -> Trace | None:
    own = text(record.value.get("session_id")) or f"{path.stem}-{record.line}"
    turns = list(_turns(record, own, notes))
    if not turns:
        notes.add(record.line, "the line has no turns with text and was left out")
        return None
    opening = next((p.text or "" for d in turns[0].new if d.role == "user" for p in d.pieces), "")
    header = Header(
        id=own,
        agent="aiperf",
        source=f"{NAME} {path}",
        title=title_of(opening),
        notes=("prompt tokens are estimates; answers are unknown text",),
    )
    return grown(header, turns, "human")


def _turns(record: Record, own: str, notes: Notes) -> Iterator[Turn]:
    """A leading system turn belongs to the first request and is none itself."""
    waiting: list[Draft] = []
    for number, item in enumerate(items(record.value.get("turns"))):
        turn, line = table(item), record.line
        said = [text(turn.get("text")), *(text(t) for t in items(turn.get("texts")))]
        pieces = tuple(text_piece(s) for s in said if s)
        role: Role = "system" if turn.get("role") == "system" else "user"
        if not pieces:
            notes.add(line, f"turn {number} has no text and was left out")
            continue
        if role == "system" and not number:
            waiting.append(Draft(role, pieces))
            continue
        length = count(turn.get("output_length"), notes, line, f"turn {number}: output_length")
        usual = Piece(digest_of(NAME, own, str(number)), "prose", length or USUAL_OUTPUT_TOKENS)
        yield Turn(
            new=(*waiting, Draft(role, pieces)),
            out=length or USUAL_OUTPUT_TOKENS,
            output=Piece(usual.digest, usual.kind, usual.tokens, mark="recorded") if length else usual,
            at=_seconds(turn.get("timestamp")),
            delay=_seconds(turn.get("delay")),
            counted=False,
        )
        waiting = []


def _seconds(value: object) -> float | None:
    known = seconds(value, most=1e11)
    return None if known is None else known / 1000
