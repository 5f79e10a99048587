"""Logs of single calls through LiteLLM: a JSON file a call (as the OpenHands SDK writes it), or LiteLLM's payloads.

The SDK's file holds messages, tools, response, `latency_sec` and the time of the end. A standard logging payload holds
`startTime`, `endTime` and `completionStartTime`. Files of one folder are read together: a call repeats the history, so
that calls find their session by it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import Draft, Exchange
from windtunnel.traces.importers.records import (
    Notes,
    believed,
    count,
    instant,
    read_records,
    seconds,
    table,
    text,
)
from windtunnel.traces.importers.wire_answers import take_value
from windtunnel.traces.importers.wire_bodies import body_of
from windtunnel.traces.importers.wire_sessions import Seen, Wire, sessions_of

__all__ = ["NAME", "detect", "read", "read_group"]

NAME = "litellm"
_TAIL_BYTES = 4_000


def detect(path: Path, head: bytes) -> bool:
    if b'"call_type"' in head[:8_000] and b'"startTime"' in head and path.suffix in (".json", ".jsonl"):
        return True
    if path.suffix != ".json" or not head.lstrip().startswith(b"{") or b'"messages"' not in head[:8_000]:
        return False
    return b'"latency_sec"' in head or b'"latency_sec"' in _tail(path)


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def read(path: Path) -> Imported:
    """The file's calls alone."""
    return next(read_group([path]))


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """The calls of each folder together."""
    folders: dict[Path, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path)
    for files in folders.values():
        notes = [Notes(str(path)) for path in files]
        seen = [s for path, note in zip(files, notes, strict=True) for s in _calls(path, note)]
        name = files[0].stem if len(files) == 1 else files[0].parent.name or files[0].stem
        traces = sessions_of(seen, Wire(NAME, f"{NAME} {files[0]}", name, _agent(files)))
        if not traces and not any(n.all() for n in notes):
            notes[0].add(None, "holds no answered request to a model: nothing to replay")
        yield Imported(tuple(traces), tuple(p for n in notes for p in n.all()))


def _agent(files: Sequence[Path]) -> str:
    return "openhands" if "llm-logs" in str(files[0].parent.name) else "unknown"


def _calls(path: Path, notes: Notes) -> Iterator[Seen]:
    if path.suffix == ".jsonl":
        for record in read_records(path, notes):
            yield from _call(record.value, f"{path.stem}:{record.line}", record.line, notes)
        return
    value = read_document(path, notes)
    found = list(_call(table(value), path.stem, None, notes)) if isinstance(value, dict) else []
    if not found and not notes.all():
        notes.add(None, "holds no call with messages: nothing could be read")
    yield from found


def _call(value: dict[str, object], key: str, line: int | None, notes: Notes) -> Iterator[Seen]:
    given = table(value.get("kwargs")) or table(value.get("model_parameters"))
    body = body_of({**given, **{k: v for k, v in value.items() if v is not None}})
    if body is None:
        notes.add(line, "the call has no messages and was left out")
        return
    if value.get("status") == "failure":
        notes.add(line, "the call failed and was left out")
        return
    start, end, marks = _times(value)
    if start is None or end is None:
        notes.add(line, "the call has no usable times: waits around it are not known")
    exchange = Exchange(
        key=key,
        line=line or 0,
        start=start,
        end=end,
        model=body.model,
        max_tokens=count(body.max_tokens, notes, line, "max_tokens"),
        effort=body.effort,
        schemas=body.schemas,
    )
    if marks:
        exchange.marks["start"] = "derived"
    response = value.get("response")
    output = take_value(exchange, table(response), notes, line) if isinstance(response, dict) else None
    if output is None and text(response):
        output = Draft("assistant")
    if output is None:
        notes.add(line, "the call has no answer of a model")
        exchange.aborted = True
    if exchange.prompt is None:
        exchange.prompt = count(value.get("prompt_tokens"), notes, line, "prompt_tokens") or None
        exchange.completion = count(value.get("completion_tokens"), notes, line, "completion_tokens")
    if exchange.prompt is None:
        notes.add(line, "the call reports no prompt tokens: its prompt size is estimated")
    yield Seen(body, exchange, output)


def _times(value: dict[str, object]) -> tuple[float | None, float | None, bool]:
    """Start, end, and whether the start is the end less the latency."""
    start, end = _moment(value.get("startTime")), _moment(value.get("endTime"))
    if start is not None and end is not None:
        return start, max(start, end), False
    end = _moment(value.get("timestamp"))
    took = seconds(value.get("latency_sec"))
    return (end - took if end is not None and took is not None else None), end, True


def _moment(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return believed(value)
    return instant(value)
