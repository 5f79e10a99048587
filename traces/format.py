"""Trace files: JSON Lines, one object a line, plain (`.jsonl`) or compressed (`.jsonl.zst`).

A file is a header line followed by blocks, messages, tool sets, threads, calls, tool runs and waits, each defined
before it is used; a further header line starts a further trace. Lines of an unknown type and unknown fields are
skipped, so that a newer writer's files still read. A tool set has one block for each tool (`more`) or, in older files
and where no text is known, one for all; the version is the same. Damage costs what refers to it and nothing else, and
is reported with its line.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec
import zstandard
from msgspec import Struct

from windtunnel.traces.errors import TraceError, UsageError
from windtunnel.traces.model import (
    SCHEMA,
    Block,
    Call,
    Header,
    Message,
    Problem,
    Thread,
    ToolRun,
    ToolSet,
    Trace,
    Wait,
)
from windtunnel.traces.repair import assemble

Line = Header | Block | Message | ToolSet | Thread | Call | ToolRun | Wait

KNOWN = frozenset({"trace", "block", "message", "tools", "thread", "call", "tool_run", "wait"})
SUFFIXES = (".jsonl", ".jsonl.zst")
_FAMILY = SCHEMA.rpartition("/")[0]
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Line)
_STEP = 512
"""Compressed bytes decoded at a time; what a damaged step holds is lost."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a damaged line can raise; the last one for JSON nested thousands deep."""


class ReadResult(Struct, frozen=True):
    traces: tuple[Trace, ...] = ()
    problems: tuple[Problem, ...] = ()
    places: tuple[dict[tuple[str, int], int], ...] = ()
    """For each trace the line of its objects, by kind and id; tool runs and waits by position. Only if asked for."""


class _Tag(Struct):
    type: str | None = None


class _SchemaOf(Struct):
    schema: str | None = None


_TAG = msgspec.json.Decoder(_Tag)
_SCHEMA_OF = msgspec.json.Decoder(_SchemaOf)


class TraceWriter:
    """Appends objects to a trace file; every line reaches the file before `write` returns.

    Compressed files end their zstd frame at `close`; what was flushed before a crash can still be decoded. A file that
    a crash left with half a line goes on with a new one.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("a+b")
        self._frame: zstandard.ZstdCompressionWriter | None = None
        if path.name.endswith(".zst"):
            self._frame = zstandard.ZstdCompressor(level=10, write_checksum=True).stream_writer(
                self._file, closefd=False
            )
        elif self._file.tell() and self._last_byte() != b"\n":
            self._file.write(b"\n")

    def _last_byte(self) -> bytes:
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1)

    def write(self, obj: Line) -> None:
        line = _ENCODER.encode(obj) + b"\n"
        if self._frame is None:
            self._file.write(line)
        else:
            self._frame.write(line)
            self._frame.flush(zstandard.FLUSH_BLOCK)
        self._file.flush()

    def close(self) -> None:
        if self._frame is not None:
            self._frame.close()  # type: ignore[no-untyped-call]
            self._frame = None
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def lines_of(trace: Trace) -> Iterator[Line]:
    """The objects of a trace in file order: each call right after what it needs, so that a cut file keeps its start."""
    yield trace.header
    yield from trace.threads
    done_blocks: set[int] = set()
    done_messages: set[int] = set()
    done_tools: set[int] = set()

    def blocks(ids: Iterator[int]) -> Iterator[Line]:
        for i in ids:
            if i not in done_blocks:
                done_blocks.add(i)
                yield trace.blocks[i]

    def message(i: int) -> Iterator[Line]:
        if i not in done_messages:
            done_messages.add(i)
            yield from blocks(trace.message_blocks(trace.messages[i]))
            yield trace.messages[i]

    done_calls: set[int] = set()
    runs = iter(trace.tool_runs)
    waits = iter(trace.waits)
    run = next(runs, None)
    wait = next(waits, None)
    for call in trace.calls:
        if call.tools is not None and call.tools not in done_tools:
            done_tools.add(call.tools)
            yield from blocks(iter(trace.toolsets[call.tools].blocks))
            yield trace.toolsets[call.tools]
        for i in (*call.append, *(() if call.output is None else (call.output,))):
            yield from message(i)
        yield call
        done_calls.add(call.id)
        while wait is not None and wait.before in done_calls:
            yield wait
            wait = next(waits, None)
        while run is not None and run.call in done_calls:
            yield run
            run = next(runs, None)
    for left in trace.messages:
        yield from message(left.id)
    for tools in trace.toolsets:
        if tools.id not in done_tools:
            yield from blocks(iter(tools.blocks))
            yield tools
    yield from blocks(iter(range(len(trace.blocks))))
    while wait is not None:
        yield wait
        wait = next(waits, None)
    while run is not None:
        yield run
        run = next(runs, None)


def encode_trace(trace: Trace) -> bytes:
    """The trace as uncompressed JSON Lines."""
    return b"".join(_ENCODER.encode(line) + b"\n" for line in lines_of(trace))


def write_trace(trace: Trace, path: Path) -> None:
    """Write one trace to `path` (compressed when it ends in `.zst`), whole or not at all; UsageError when it cannot."""
    data = encode_trace(trace)
    if path.name.endswith(".zst"):
        data = zstandard.ZstdCompressor(level=19, write_checksum=True).compress(data)
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path} ({error.strerror}): choose another folder or free some space") from error


def read_trace(path: Path, *, places: bool = False) -> ReadResult:
    """Read every trace of a file. Never raises for damage; raises TraceError when the file cannot be opened."""
    name = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"cannot read {name}: {error.strerror}; give the path of a trace file") from error
    problems: list[Problem] = []
    if data.startswith(_ZSTD_MAGIC):
        data = _decompress(data, name, problems)
    traces: list[Trace] = []
    found: list[dict[tuple[str, int], int]] = []
    for header_line, lines in _split(data, name, problems):
        if places:
            found.append({})
        traces.append(assemble(header_line, lines, name, problems, found[-1] if places else None))
    if not traces and not any(p.reason.startswith("schema ") for p in problems):
        problems = [Problem(name, None, "is empty" if not data.strip() else "is no trace")]
    problems.sort(key=lambda p: -1 if p.line is None else p.line)
    return ReadResult(tuple(traces), tuple(problems), tuple(found))


def is_trace_file(path: Path) -> bool:
    """Whether the file starts with a trace header of any version (a damaged first line is looked past)."""
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return False
    if head.startswith(_ZSTD_MAGIC):
        head = _decompress(head, str(path), [])
    for raw in head.split(b"\n")[:8]:
        with contextlib.suppress(*UNREADABLE):
            if _TAG.decode(raw).type == "trace":
                schema = _SCHEMA_OF.decode(raw).schema
                return schema is None or schema.startswith(_FAMILY)
    return False


def fingerprint(trace: Trace) -> str:
    """16 hex digits of the trace's content; equal for copies of it, wherever they lie."""
    h = blake2b(digest_size=8)
    header = msgspec.structs.replace(trace.header, source=None)
    parts: tuple[object, ...] = (header, trace.blocks, trace.messages, trace.toolsets, trace.threads)
    for part in (*parts, trace.calls, trace.tool_runs, trace.waits):
        h.update(_ENCODER.encode(part))
    return h.hexdigest()


def _decompress(data: bytes, name: str, problems: list[Problem]) -> bytes:
    """All that decodes, over several frames; a frame that breaks off is reported and the next one looked for."""
    out = io.BytesIO()
    begin = 0
    while 0 <= begin < len(data):
        decoder = zstandard.ZstdDecompressor().decompressobj()
        at = begin
        try:
            while at < len(data) and not decoder.eof:
                out.write(decoder.decompress(data[at : at + _STEP]))
                at += _STEP
            fault = None if decoder.eof else "breaks off"
        except zstandard.ZstdError:
            fault = "is damaged"
        if fault is None:
            begin = min(at, len(data)) - len(decoder.unused_data)
        else:
            problems.append(Problem(name, None, f"compressed data {fault}, a part of it cannot be read"))
            out.write(b"\n")
            begin = data.find(_ZSTD_MAGIC, begin + 1)
    return out.getvalue()


def _split(data: bytes, name: str, problems: list[Problem]) -> Iterator[tuple[Header, list[tuple[int, Line]]]]:
    """Decode lines and group them by the header they follow; lines without a header make a trace of the file's name."""
    header: Header | None = None
    lines: list[tuple[int, Line]] = []
    refused = False
    for number, obj in _decoded(data, name, problems):
        if isinstance(obj, Header):
            yield from _group(header, lines, name, problems)
            header, lines = obj, []
            refused = obj.schema != SCHEMA
            if refused:
                header = None
                problems.append(
                    Problem(name, number, f"schema {obj.schema} is not {SCHEMA}; use a windtunnel that knows it")
                )
        elif obj is not None and not refused:
            lines.append((number, obj))
    yield from _group(header, lines, name, problems)


def _group(
    header: Header | None, lines: list[tuple[int, Line]], name: str, problems: list[Problem]
) -> Iterator[tuple[Header, list[tuple[int, Line]]]]:
    if header is not None:
        yield header, lines
    elif lines:
        problems.append(Problem(name, lines[0][0], "the trace header is missing, the session goes by the file's name"))
        yield Header(id=re.sub(r"(\.jsonl)?(\.zst)?$", "", Path(name).name) or "trace"), lines


def _decoded(data: bytes, name: str, problems: list[Problem]) -> Iterator[tuple[int, Line | None]]:
    """Each line that is not blank by its number; None for one that cannot be used."""
    try:
        lines = _DECODER.decode_lines(data)
    except UNREADABLE:
        lines = []
    if data.endswith(b"\n") and len(lines) == data.count(b"\n") == data.count(b"\n{") + 1:
        yield from enumerate(lines, 1)  # none is blank, damaged or broken in two: as they are written
        return
    for number, raw in enumerate(data.split(b"\n"), 1):
        if raw and not raw.isspace():
            yield number, _decode(raw, number, name, problems)


def _decode(raw: bytes, number: int, name: str, problems: list[Problem]) -> Line | None:
    try:
        return _DECODER.decode(raw)
    except UnicodeDecodeError as error:
        problems.append(Problem(name, number, f"not UTF-8 text: {error.reason}"))
    except msgspec.ValidationError as error:
        tag = _tag_of(raw)
        if tag is None:
            problems.append(Problem(name, number, "not a line of a trace"))
        elif tag in KNOWN:
            problems.append(Problem(name, number, f"bad {tag} line: {error}"))
    except msgspec.DecodeError as error:
        problems.append(Problem(name, number, f"not JSON: {error}"))
    except RecursionError:
        problems.append(Problem(name, number, "not a line of a trace: nested too deeply"))
    return None


def _tag_of(raw: bytes) -> str | None:
    try:
        return _TAG.decode(raw).type
    except UNREADABLE:
        return None
