"""Mooncake request traces (FAST'25 release) and the two dialects that give them sessions.

A row is a request: `input_length`, `output_length`, and `hash_ids`, one per block of 512 tokens, the last block counted
even where it is not full. Rows without a `session_id` are independent arrivals (`mooncake`). Rows that share one are
turns, and two programs read the later turns differently: AIPerf takes them for the new tokens only (`mooncake-aiperf`:
the prompt is all earlier turns, all earlier outputs and these), Dynamo for the whole prompt (`mooncake-dynamo`). No
field tells which is meant, so that such a file is read only with its dialect named.

Times are milliseconds: `timestamp` from the trace's start, `delay` after the previous turn.
"""

from collections.abc import Sequence
from pathlib import Path

from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.mooncake_delta import session
from windtunnel.traces.importers.mooncake_rows import Row, Table, read_table
from windtunnel.traces.importers.records import Notes, first_rows
from windtunnel.traces.importers.weka_build import Builder, Chain, Origin, Request
from windtunnel.traces.model import Mark, Trace

__all__ = ["AIPERF", "DYNAMO", "NAME", "detect", "read", "read_aiperf", "read_dynamo"]

NAME, AIPERF, DYNAMO = "mooncake", "mooncake-aiperf", "mooncake-dynamo"
_OF_OTHERS = ("chat_id", "parent_chat_id")
"""Fields of Bailian's traces, which otherwise look the same and have blocks of 16 tokens."""


def detect(path: Path, head: bytes) -> bool:
    if path.suffix != ".jsonl":
        return False
    for value in first_rows(head, 10):
        sized = ("input_length" in value or "input_tokens" in value) and (
            "output_length" in value or "output_tokens" in value
        )
        placed = any(k in value for k in ("hash_ids", "timestamp", "created_time", "delay", "delay_ms"))
        if sized and placed and not any(k in value for k in _OF_OTHERS):
            return True
    return False


def read(path: Path) -> Imported:
    """Independent requests; a file whose rows share sessions is left to its named dialect."""
    notes = Notes(str(path))
    rows = read_table(path, notes)
    shared = next((r for group in rows.sessions().values() for r in group[1:]), None)
    if shared is not None:
        notes.add(
            shared.line,
            f"a second row of session {shared.session}: the fields do not say whether later rows are new tokens only "
            f"or whole prompts; say it with `windtunnel import FILE --format {AIPERF} --out DIR` (new tokens only) or "
            f"--format {DYNAMO} (whole prompts)",
        )
        return Imported((), notes.all())
    return _traces(path, rows, NAME, notes)


def read_dynamo(path: Path) -> Imported:
    """Every row is a whole prompt; rows of one session are its turns."""
    notes = Notes(str(path))
    return _traces(path, read_table(path, notes), DYNAMO, notes)


def read_aiperf(path: Path) -> Imported:
    """Rows after a session's first hold only what is new."""
    notes = Notes(str(path))
    rows = read_table(path, notes)
    traces = tuple(session(_origin(path, rows, AIPERF, name), group) for name, group in rows.sessions().items())
    return _said(traces, notes)


def _traces(path: Path, rows: Table, name: str, notes: Notes) -> Imported:
    traces = []
    for own, group in rows.sessions().items():
        chain = Chain(requests=[_request(r, group[i - 1] if i else None, rows) for i, r in enumerate(group)])
        traces.append(Builder(_origin(path, rows, name, own), [chain]).trace())
    return _said(tuple(traces), notes)


def _said(traces: Sequence[Trace], notes: Notes) -> Imported:
    if not traces and not notes.all():
        notes.add(None, "holds no request to a model: nothing to replay")
    return Imported(tuple(traces), notes.all())


def _origin(path: Path, rows: Table, name: str, own: str) -> Origin:
    said = {
        NAME: "the format names no sessions: each request is a session of its own",
        AIPERF: "read in AIPerf's dialect: rows after a session's first hold only new tokens; prompts are sums",
        DYNAMO: "read in Dynamo's dialect: every row is a whole prompt",
    }
    return Origin(
        format=NAME,
        id=own,
        scope=(rows.key,),
        block=rows.block,
        source=f"{name} {path}",
        started_at=rows.epoch,
        notes=(said[name], f"hash blocks of {rows.block} tokens", "delays name no cause"),
    )


def _request(row: Row, before: Row | None, rows: Table) -> Request:
    full = row.prompt // rows.block
    wait = row.delay
    mark: Mark = "estimated" if wait is None else "recorded"
    if wait is None and before is not None and before.at is not None and row.at is not None and row.at >= before.at:
        # Dynamo's rule: without a delay the difference of two timestamps is the pause after the earlier turn
        wait, mark = row.at - before.at, "derived"
    return Request(
        hashes=row.hashes[:full],
        prompt=row.prompt,
        out=row.out,
        start=row.at,
        first=None,
        end=None,
        think=wait,
        think_mark=mark,
        cause="client",
        tail=row.hashes[full] if len(row.hashes) > full else None,
    )
