"""The text behind the figures: what the model wrote (`text.jsonl`) and what it was sent (the trace files)."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from windtunnel.simulator.results.files import open_regular
from windtunnel.simulator.results.store import TRACES, RunFolder, TextLine
from windtunnel.simulator.results.validity import is_recording
from windtunnel.traces.breakers import Break, find
from windtunnel.traces.model import Trace

KEPT_BYTES = 1 << 26
"""How much of the end of `text.jsonl` is searched for a session's text when it is opened."""
READ_BYTES = 1 << 20


class Texts:
    """The written text of one session at a time, read on as the file grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._session = ""
        self._found: dict[tuple[int, int], TextLine] = {}
        self._file: BinaryIO | None = None
        self._rest = b""
        self._decoder = msgspec.json.Decoder(TextLine)

    def of(self, session: str) -> Mapping[tuple[int, int], TextLine]:
        """By (thread, call)."""
        if session != self._session:
            self.close()
            self._session, self._found = session, {}
        if not session:
            return {}
        if self._file is None:
            try:
                self._file = open_regular(self.path, buffering=-1)
            except FileNotFoundError:
                return {}
            self._file.seek(max(0, self.path.stat().st_size - KEPT_BYTES))
            self._rest = b""
        wanted = msgspec.json.encode(session)
        while data := self._file.read(READ_BYTES):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                # Most lines are other sessions': looking for the name is cheaper than decoding.
                if wanted in line:
                    self._take(line)
        return dict(self._found)

    def _take(self, line: bytes) -> None:
        try:
            found = self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        if found.session == self._session:
            self._found[found.thread, found.call] = found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Traces:
    """Reads trace files beside the screen: one that takes a second must not hold up the keys."""

    def __init__(self) -> None:
        self._reader: ThreadPoolExecutor | None = None
        self._read: dict[tuple[str, ...], Future[dict[str, Trace]]] = {}
        self._sizes: dict[tuple[str, ...], int] = {}
        """Bytes of a recording's files when they were read."""
        self._breaks: dict[tuple[str, int], Future[dict[int, Break]]] = {}
        """Of the trace that is shown."""
        self._shown: dict[str, Trace] = {}
        """The recorded session that is shown, as it was read last."""

    def get(self, folder: RunFolder, trace: str) -> tuple[Trace | None, str]:
        """The trace with this id, or why there is none to show (yet)."""
        if is_recording(folder.run):
            return self._recorded(folder, trace)
        specs = specs_of(folder.run, trace)
        if not trace or not specs:
            return None, "the run does not say which files its sessions come from" if trace else ""
        return self._found(specs, trace)

    def _recorded(self, folder: RunFolder, trace: str) -> tuple[Trace | None, str]:
        """Of a recording: its own file, read again when it has grown."""
        from windtunnel.agents.recorder.session_file import file_stem  # for recordings only, and it brings much

        paths = sorted((folder.path / TRACES).glob(f"{file_stem(trace)}*.jsonl")) if trace else []
        if not paths:
            return None, "no call of this session has ended yet" if trace else ""
        specs, size = tuple(map(str, paths)), sum(path.stat().st_size for path in paths)
        reading = self._read.get(specs)
        if reading is not None and not reading.done():
            return self._shown.get(trace), ""
        if self._sizes.get(specs) != size:
            self._sizes[specs] = size
            self._read.pop(specs, None)
        found, note = self._found(specs, trace)
        if found is not None:
            self._shown = {trace: found}
        return self._shown.get(trace), "" if trace in self._shown else note

    def _found(self, specs: tuple[str, ...], trace: str) -> tuple[Trace | None, str]:
        reading = self._read.get(specs)
        if reading is None:
            reading = self._read[specs] = self.beside().submit(read, specs)
        named = ", ".join(specs)
        if not reading.done():
            return None, f"reading {named} ..."
        if (error := reading.exception()) is not None:
            return None, f"the recorded session cannot be read: {error}"
        found = reading.result().get(trace)
        return found, "" if found is not None else f"{named} no longer holds this session"

    def breaks(self, trace: Trace | None, *, wait: bool = False) -> Mapping[int, Break]:
        """Where a trace's prompts part from those before them, by call; nothing until that has been worked out."""
        if trace is None:
            return {}
        key = trace.header.id, len(trace.calls)
        looking = self._breaks.get(key)
        if looking is None:
            if any(not other.done() for other in self._breaks.values()):
                return {}
            self._breaks = {key: (looking := self.beside().submit(_breaks, trace))}
        if not wait and not looking.done():
            return {}
        return looking.result() if looking.exception() is None else {}

    def beside(self) -> ThreadPoolExecutor:
        """The one thread for what would hold up the keys."""
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, thread_name_prefix="traces")
        return self._reader

    def wait(self, folder: RunFolder, trace: str) -> None:
        """Blocks until the file has been read."""
        self.get(folder, trace)
        for reading in self._read.values():
            reading.exception()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)


def specs_of(run: Mapping[str, Any], trace: str) -> tuple[str, ...]:
    """Where to look for a trace: its own file where `run.json` names one, else everything the run was given."""
    entries = run.get("traces")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("id") == trace and isinstance(entry.get("path"), str):
            return (entry["path"],)
    config = run.get("config")
    given = config.get("traces") if isinstance(config, dict) else None
    return tuple(spec for spec in given if isinstance(spec, str)) if isinstance(given, list) else ()


def read(specs: tuple[str, ...]) -> dict[str, Trace]:
    """Every trace of the specs, by id."""
    from windtunnel.traces.sources import load

    return {trace.header.id: trace for trace in load(specs).traces}


def _breaks(trace: Trace) -> dict[int, Break]:
    return {found.call: found for found in find(trace).breaks}
