"""Spans and events out of OpenTelemetry files: OTLP/JSON (`resourceSpans`, `resourceLogs`) and flat event lines."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.records import (
    Notes,
    believed,
    instant,
    items,
    parse_json,
    read_records,
    table,
    tables,
    text,
)

_SESSION = ("gen_ai.conversation.id", "session.id", "session_id", "conversation.id")
_MOST_NANOSECONDS = 10**19


class Signal(Struct, frozen=True):
    """A span or an event; times are Unix seconds."""

    path: Path
    line: int | None
    span: bool
    session: str
    name: str
    attributes: dict[str, object]
    id: str = ""
    parent: str = ""
    start: float | None = None
    end: float | None = None
    failed: bool = False
    service: str = ""
    version: str | None = None

    def is_tool(self) -> bool:
        return self.attributes.get("gen_ai.operation.name") == "execute_tool" or self.name.endswith("tool_result")


def signals(path: Path, notes: Notes) -> Iterator[Signal]:
    for line, value in _values(path, notes):
        yield from _otlp(path, line, value)
        if "attrs" in value:
            yield from _flat(path, line, value)


def _values(path: Path, notes: Notes) -> Iterator[tuple[int | None, dict[str, object]]]:
    """A document, or a document a line."""
    if path.suffix == ".json" and not _is_lines(path):
        value = read_document(path, notes)
        for item in items(value) or [value]:
            yield None, table(item)
        return
    for record in read_records(path, notes):
        yield record.line, record.value


def _is_lines(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first, second = file.readline(1 << 22), file.readline(1 << 10)
        return bool(second.strip()) and isinstance(parse_json(first), dict)
    except (OSError, ValueError):
        return False


def _otlp(path: Path, line: int | None, value: dict[str, object]) -> Iterator[Signal]:
    for batch in (*tables(value.get("resourceSpans")), *tables(value.get("resourceLogs"))):
        resource = _attributes(table(batch.get("resource")).get("attributes"))
        for scope in (*tables(batch.get("scopeSpans")), *tables(batch.get("scopeLogs"))):
            for span in tables(scope.get("spans")):
                yield _span(path, line, span, resource)
            for log in tables(scope.get("logRecords")):
                yield _log(path, line, log, resource)


def _span(path: Path, line: int | None, span: dict[str, object], resource: dict[str, object]) -> Signal:
    attributes = _attributes(span.get("attributes"))
    return Signal(
        path=path,
        line=line,
        span=True,
        session=_session(attributes, resource) or text(span.get("traceId")) or path.stem,
        name=text(span.get("name")),
        attributes=attributes,
        id=text(span.get("spanId")),
        parent=text(span.get("parentSpanId")),
        start=_nanoseconds(span.get("startTimeUnixNano")),
        end=_nanoseconds(span.get("endTimeUnixNano")),
        failed=table(span.get("status")).get("code") in (2, "STATUS_CODE_ERROR") or "error.type" in attributes,
        service=text(resource.get("service.name")),
        version=text(resource.get("service.version")) or None,
    )


def _log(path: Path, line: int | None, log: dict[str, object], resource: dict[str, object]) -> Signal:
    attributes = _attributes(log.get("attributes"))
    name = text(attributes.get("event.name")) or text(table(log.get("body")).get("stringValue"))
    when = instant(attributes.get("event.timestamp"))
    return Signal(
        path=path,
        line=line,
        span=False,
        session=_session(attributes, resource) or path.stem,
        name=name.removeprefix("claude_code."),
        attributes=attributes,
        end=_nanoseconds(log.get("timeUnixNano")) if when is None else when,
        service=text(resource.get("service.name")),
        version=text(resource.get("service.version")) or None,
    )


def _flat(path: Path, line: int | None, value: dict[str, object]) -> Iterator[Signal]:
    if value.get("_type") != "log":
        return
    attributes, resource = table(value.get("attrs")), table(value.get("resource"))
    yield Signal(
        path=path,
        line=line,
        span=False,
        session=_session(attributes, resource) or path.stem,
        name=(text(attributes.get("event.name")) or text(value.get("name"))).removeprefix("claude_code."),
        attributes=attributes,
        end=instant(value.get("ts")),
        service=text(resource.get("service.name")),
        version=text(resource.get("service.version")) or None,
    )


def _session(attributes: dict[str, object], resource: dict[str, object]) -> str:
    return next((text(t.get(k)) for k in _SESSION for t in (attributes, resource) if text(t.get(k))), "")


def _attributes(listed: object) -> dict[str, object]:
    """OTLP's list of keys with typed values as a table."""
    return {text(a.get("key")): _value(table(a.get("value")), 0) for a in tables(listed)}


def _value(value: dict[str, object], depth: int) -> object:
    if depth > 20:
        return None
    for kind in ("stringValue", "boolValue", "doubleValue"):
        if kind in value:
            return value[kind]
    if "intValue" in value:
        return _integer(value["intValue"])
    if "arrayValue" in value:
        return [_value(v, depth + 1) for v in tables(table(value["arrayValue"]).get("values"))]
    if "kvlistValue" in value:
        pairs = tables(table(value["kvlistValue"]).get("values"))
        return {text(p.get("key")): _value(table(p.get("value")), depth + 1) for p in pairs}
    return None


def _integer(value: object) -> object:
    """OTLP/JSON writes 64-bit integers as strings."""
    written = text(value)
    return int(written) if written.lstrip("-").isdecimal() and len(written) < 20 else value


def _nanoseconds(value: object) -> float | None:
    known = _integer(value)
    if isinstance(known, bool) or not isinstance(known, int | float) or not 0 < known < _MOST_NANOSECONDS:
        return None
    return believed(known / 1e9)
