"""HAR 1.2 recordings of an agent's HTTP traffic (mitmproxy, browsers, Charles): request and response bodies in full.

A request starts at `startedDateTime` and takes `time` ms; its first byte comes after everything but `receive`.
"""

import base64
import binascii
from pathlib import Path

from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import Exchange
from windtunnel.traces.importers.records import Notes, count, instant, items, parse_json, seconds, table, tables, text
from windtunnel.traces.importers.wire_answers import take_answer
from windtunnel.traces.importers.wire_bodies import body_of
from windtunnel.traces.importers.wire_sessions import Seen, Wire, sessions_of

__all__ = ["NAME", "SUFFIXES", "detect", "read"]

NAME = "har"
SUFFIXES = (".har", ".json")
_OK = 200
_LIBRARIES = ("OpenAI", "AsyncOpenAI", "Anthropic", "AsyncAnthropic", "Mozilla", "node", "undici", "python-httpx")


def detect(path: Path, head: bytes) -> bool:
    if path.suffix == ".har":
        return True
    return path.suffix == ".json" and b'"log"' in head[:200] and b'"creator"' in head[:4_000] and b'"entries"' in head


def read(path: Path) -> Imported:
    notes = Notes(str(path))
    value = read_document(path, notes)
    log = table(table(value).get("log"))
    if not log:
        if not notes.all():
            notes.add(None, "holds no HAR log: nothing could be read")
        return Imported((), notes.all())
    seen = [s for s in (_seen(table(e), n, notes) for n, e in enumerate(items(log.get("entries")), 1)) if s is not None]
    agents = [_agent(table(e)) for e in items(log.get("entries"))]
    wire = Wire(NAME, f"{NAME} {path}", path.stem, next((a for a in agents if a), "unknown"))
    traces = sessions_of(seen, wire)
    if not traces:
        notes.add(None, "holds no answered request to a model: nothing to replay")
    return Imported(tuple(traces), notes.all())


def _seen(entry: dict[str, object], number: int, notes: Notes) -> Seen | None:
    """An entry that asks a model and was answered; None, with a problem where it should have been one."""
    request, response = table(entry.get("request")), table(entry.get("response"))
    posted = text(table(request.get("postData")).get("text"))
    body = None
    if posted[:1] == "{":
        try:
            body = body_of(table(parse_json(posted.encode("utf-8", "replace"))))
        except ValueError:
            notes.add(None, f"entry {number}: the request's body is not valid JSON; left out")
    if body is None:
        return None
    status = response.get("status")
    if status != _OK:
        notes.add(None, f"entry {number}: the request was answered with status {str(status)[:20]} and left out")
        return None
    start = instant(entry.get("startedDateTime"))
    took = seconds(entry.get("time"), 1e9)
    if start is None or took is None:
        notes.add(None, f"entry {number} has no usable times: waits around it are not known")
    receiving = seconds(table(entry.get("timings")).get("receive"), 1e9)
    waited = None if took is None or receiving is None else max(0.0, took - receiving)
    exchange = Exchange(
        key=f"entry {number}",
        start=start,
        first=None if start is None or waited is None else start + waited / 1000,
        end=None if start is None or took is None else start + took / 1000,
        model=body.model,
        max_tokens=count(body.max_tokens, notes, None, f"entry {number}: max_tokens"),
        effort=body.effort,
        schemas=body.schemas,
    )
    # only the start is a moment; the others are lengths
    exchange.marks = {"first": "derived", "end": "derived"} if exchange.first is not None else {"end": "derived"}
    output = take_answer(exchange, _content(table(response.get("content"))), notes, None)
    if output is None:
        notes.add(None, f"entry {number}: the response's body is no answer of a model (cut off or not recorded)")
        exchange.aborted = True
    elif exchange.prompt is None:
        notes.add(None, f"entry {number}: the answer reports no prompt tokens: its prompt size is estimated")
    return Seen(body, exchange, output)


def _content(content: dict[str, object]) -> str:
    said = text(content.get("text"))
    if content.get("encoding") != "base64":
        return said
    try:
        return base64.b64decode(said, validate=False).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def _agent(entry: dict[str, object]) -> str:
    """The program before the first slash of the user agent, where that is no mere library."""
    headers = tables(table(entry.get("request")).get("headers"))
    named = next((text(h.get("value")) for h in headers if text(h.get("name")).lower() == "user-agent"), "")
    name = named.partition("/")[0][:40].strip()
    return "" if name in _LIBRARIES else name
