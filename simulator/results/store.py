"""The run folder: the files on disk are the interface between a run, its viewer and every later tool.

`run.json` says what was run, `events.jsonl` what happened, `summary.json` what it came to, `text.jsonl` what the model
wrote. Whoever reads must survive a run that is still going on or was killed.
"""

import contextlib
import os
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from windtunnel.agents.events import Event
from windtunnel.simulator.results import searched
from windtunnel.simulator.results.ceiling import bounded
from windtunnel.simulator.results.files import check_regular, open_regular, read_regular
from windtunnel.simulator.results.lines import UNREADABLE
from windtunnel.simulator.results.place import Place
from windtunnel.simulator.results.summary_model import SCHEMA, Summary, decode_summary, encode_summary
from windtunnel.simulator.results.tail import Tail
from windtunnel.simulator.results.unstarted import UNSTARTED_FILE, reason_of
from windtunnel.traces.errors import RunError, UsageError
from windtunnel.traces.model import Problem
from windtunnel.traces.outlet import readable, to_json

RUN_SCHEMA = "windtunnel.run/1"
RUN_FILE = "run.json"
EVENTS_FILE = "events.jsonl"
SUMMARY_FILE = "summary.json"
TRACES = "traces"
"""Folder of a recording's sessions."""
TEXT_FILE = "text.jsonl"
HERE = "."
"""`run_dir` in the files of a virtual run: the folder that they lie in, so that equal runs have equal files."""
ENGINE_LOG = "engine.log"

_READ_BYTES = 1 << 22
_TEXT_BYTES = 1 << 19
"""Most text that one flush writes, unless much more has gathered: a write of megabytes holds its thread for long."""
_TEXT_CHARS = 1 << 18
"""Longer text is encoded so much at a time, by the flushes."""


_E = TypeVar("_E", bound=Event)


class TextLine(Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of `text.jsonl`: what the model wrote in one call."""

    request_id: str
    agent: int
    session: str
    thread: int
    call: int
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Each as the server sent it: `id`, `name`, `arguments` (a string)."""


class RunWriter:
    """Writes a run folder. The owner calls `flush` at least every 250 ms; nothing here waits or starts a thread."""

    def __init__(self, path: Path, events_fd: int, text_fd: int | None, *, made: bool = True) -> None:
        self._place = Place(path)
        self.made = made
        """The folder was not there before."""
        self._run: Mapping[str, Any] | None = None
        self._events_fd = events_fd
        self._text_fd = text_fd
        self._encoder = msgspec.json.Encoder(enc_hook=_listed)
        self._events = bytearray()
        self._text = bytearray()
        self._long: deque[Iterator[bytes]] = deque()
        """Lines with a long text, and what came after them, in parts that are still to be encoded."""
        self.least = 0
        """`flush` waits for so many bytes: on a virtual clock its calls come thousands of times a second."""
        self._full = False
        """A write has failed, and whoever wrote was told."""
        self._seq = 0
        self._subscribers: list[Callable[[Event], None]] = []
        self._said: tuple[Event | None, bytes] = (None, b"")
        """What was written again last, and its bytes up to its time."""

    @classmethod
    def create(
        cls, out: Path | None, run_id: str, *, no_text: bool, wall_clock: Callable[[], float] = time.time
    ) -> Self:
        """Makes the folder: `out`, or `runs/<YYYYmmdd-HHMMSS>-<run_id>` below the current one."""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(wall_clock()))
        path = out if out is not None else Path("runs") / f"{stamp}-{run_id}"
        try:
            if any((path / name).exists() for name in (RUN_FILE, EVENTS_FILE, SUMMARY_FILE)):
                raise UsageError(f"{path} already holds a run: give --out a new folder")
            made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            (path / UNSTARTED_FILE).unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            events_fd = os.open(path / EVENTS_FILE, flags, 0o644)
            text_fd = None if no_text else os.open(path / TEXT_FILE, flags, 0o644)
        except OSError as error:
            raise UsageError(f"cannot create the run folder {path} ({error.strerror}): choose another --out") from error
        return cls(path, events_fd, text_fd, made=made)

    @property
    def path(self) -> Path:
        """Where the folder was seen last."""
        return self._place.path

    def follow(self) -> str | None:
        """One sentence when somebody has moved the folder; RunError when it is gone (`Place.look`)."""
        told = self._place.look()
        if told is not None and self._run is not None:
            self.write_run(self._run)
        return told

    def subscribe(self, receiver: Callable[[Event], None]) -> None:
        """`receiver` gets every event right after it was numbered, in order."""
        self._subscribers.append(receiver)

    def emit(self, event: Event) -> None:
        """Numbers, encodes and buffers one event; it is on disk after the next `flush`."""
        self._seq += 1
        force_setattr(event, "seq", self._seq)
        self._encoder.encode_into(event, self._events, -1)
        self._events += b"\n"
        for receiver in self._subscribers:
            receiver(event)

    def again(self, event: _E, t: int) -> _E:
        """The same at `t`, as `emit` writes it: that it was said before makes its bytes known. The new event."""
        before, head = self._said
        if event is not before:
            line = self._encoder.encode(event)
            head = line[: line.rindex(b',"t":') + 5]
        self._seq += 1
        said = msgspec.structs.replace(event, t=t, seq=self._seq)
        self._said = said, head
        self._events += b'%b%d,"seq":%d}\n' % (head, t, self._seq)
        for receiver in self._subscribers:
            receiver(said)
        return said

    def text(self, line: TextLine, more_text: Sequence[str] = (), more_reasoning: Sequence[str] = ()) -> None:
        """Buffers one call's generated text, with what follows in parts where it is long; dropped with `no_text`."""
        if self._text_fd is None:
            return
        length = len(line.text) + len(line.reasoning) + sum(len(call.get("arguments", "")) for call in line.tool_calls)
        if self._long or more_text or more_reasoning or length > _TEXT_CHARS:
            self._long.append(self._parts(line, (line.text, *more_text), (line.reasoning, *more_reasoning)))
        else:
            self._encoder.encode_into(line, self._text, -1)
            self._text += b"\n"

    def _parts(self, line: TextLine, text: Sequence[str], reasoning: Sequence[str]) -> Iterator[bytes]:
        """The line's JSON: encoding megabytes in one go would hold the event loop for tens of ms."""
        encode = self._encoder.encode
        yield encode(msgspec.structs.replace(line, text="", reasoning="", tool_calls=()))[:-1]
        if any(text):
            yield from self._string(b',"text":"', text)
        if any(reasoning):
            yield from self._string(b',"reasoning":"', reasoning)
        opening = b',"tool_calls":['
        for call in line.tool_calls:
            yield opening + encode({**call, "arguments": ""})[:-2]
            yield from self._string(b"", (call.get("arguments", ""),))
            opening = b"},"
        yield b"}]}\n" if line.tool_calls else b"}\n"

    def _string(self, opening: bytes, parts: Sequence[str]) -> Iterator[bytes]:
        """A member that is a long string, from the quote on."""
        yield opening
        for part in parts:
            for at in range(0, len(part), _TEXT_CHARS):
                yield self._encoder.encode(part[at : at + _TEXT_CHARS])[1:-1]
        yield b'"'

    def _encode(self, most: float) -> None:
        """Encode of the long lines until `most` bytes wait to be written."""
        while self._long and len(self._text) < most:
            part = next(self._long[0], None)
            if part is None:
                self._long.popleft()
            else:
                self._text += part

    def flush(self) -> None:
        """Writes what is buffered: whole lines, one write for each file; of megabytes of text a part at a time."""
        if len(self._events) + len(self._text) >= self.least:
            self._flush()

    def _flush(self) -> None:
        if self._events:
            self._write(self._events_fd, self._events)
        self._encode(_TEXT_BYTES)
        if self._text and self._text_fd is not None:
            self._write(self._text_fd, self._text, leave=len(self._text) - max(_TEXT_BYTES, len(self._text) // 16))

    def _write_all(self) -> None:
        self._flush()
        self._encode(float("inf"))
        if self._text_fd is not None:
            self._write(self._text_fd, self._text)

    def _write(self, fd: int, buffer: bytearray, leave: int = 0) -> None:
        try:
            while len(buffer) > max(0, leave):
                with memoryview(buffer) as whole, whole[: len(buffer) - max(0, leave)] as part:
                    written = os.write(fd, part)
                del buffer[:written]
        except OSError as error:
            self._full = True
            raise RunError(f"cannot write to {self.path} ({error.strerror}): free some space and run again") from error

    def write_run(self, run: Mapping[str, Any]) -> None:
        """Writes `run.json` whole or not at all; may be called again when more is known."""
        self._run = run
        whole = {"schema": RUN_SCHEMA, "run_dir": os.path.abspath(self.path), **run}  # noqa: PTH100 -- links stay
        self._replace(RUN_FILE, msgspec.json.format(to_json(whole), indent=2) + b"\n")

    def write_summary(self, summary: Summary) -> None:
        """Writes `summary.json` whole or not at all. Its presence says that the run is over."""
        self._write_all()
        self._replace(SUMMARY_FILE, encode_summary(summary))

    def _replace(self, name: str, data: bytes) -> None:
        try:
            self._place.put(name, data)
        except OSError as error:
            raise RunError(f"cannot write {self.path / name} ({error.strerror}): free some space") from error

    def close(self) -> None:
        """Flushes and closes; calling it again does nothing. A disk that was full is not an error a second time."""
        if self._events_fd < 0:
            return
        try:
            with contextlib.suppress(*(RunError,) if self._full else ()):
                self._write_all()
        finally:
            os.close(self._events_fd)
            if self._text_fd is not None:
                os.close(self._text_fd)
            self._place.close()
            self._events_fd, self._text_fd = -1, None


class RunFolder:
    """A run folder opened for reading: finished, still growing, or left behind by a run that was killed."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path = path
        self.run = run
        """`run.json` as it was when the folder was opened."""
        self._told = False
        """That its summary cannot be read."""

    @classmethod
    def open(cls, path: Path) -> Self:
        if not path.exists():
            raise UsageError(f"{path} does not exist: give the folder of a run")
        if not path.is_dir():
            raise UsageError(f"{path} is a file: give the folder of a run")
        for name in (EVENTS_FILE, TEXT_FILE):
            check_regular(path / name)
        return cls(path, _read_run(path / RUN_FILE))

    def reload(self) -> dict[str, Any]:
        """Reads `run.json` again: a run adds to it while it prepares."""
        self.run = _read_run(self.path / RUN_FILE)
        return self.run

    def events(self, problems: list[Problem] | None = None, *, leave_out: Sequence[str] = ()) -> Iterator[Event]:
        """Every readable event, in file order, but for the types in `leave_out`.

        What was not readable is added to `problems`.
        """
        found: list[Problem] = problems if problems is not None else []
        tail = self.tail(leave_out)
        try:
            while events := tail.poll(_READ_BYTES):
                yield from events
            if tail.partial:
                found.append(Problem(str(tail.path), tail.line, "the last line is incomplete"))
        finally:
            found[:0] = tail.problems
            tail.close()

    def tail(self, leave_out: Sequence[str] = ()) -> Tail:
        """Follows the events while they grow."""
        return Tail(self.path / EVENTS_FILE, leave_out, agents=self.agents)

    @property
    def agents(self) -> int | None:
        """How many there are; None where that is not known before, as of a recording."""
        agents = self.run.get("agents")
        known = isinstance(agents, int) and agents > 0 and "kind" not in self.run
        return agents if known else None

    def event_bytes(self) -> int:
        try:
            return (self.path / EVENTS_FILE).stat().st_size
        except OSError:
            return 0

    def summary(self, *, strict: bool = False) -> Summary | None:
        """`summary.json`, or None while there is none. A ceiling below what was found, as written before, is raised.

        One that cannot be read is as good as none, and is told once: the events hold all of it. UsageError if `strict`.
        """
        path = self.path / SUMMARY_FILE
        try:
            data = read_regular(path)
        except FileNotFoundError:
            return None
        try:
            summary = bounded(decode_summary(data))
            return msgspec.structs.replace(summary, run_dir=readable(self.path)) if summary.run_dir == HERE else summary
        except UNREADABLE as error:
            said = f"{path} is not a summary that can be read ({error})"
            if strict:
                raise UsageError(f"{said}: remove it") from error
            if not self._told:
                print(f"{said}; what follows is computed from the events", file=sys.stderr)
                self._told = True
            return None

    def texts(self) -> Iterator[TextLine]:
        """What the model wrote, call by call; unreadable lines are left out."""
        try:
            file = open_regular(self.path / TEXT_FILE, buffering=-1)
        except FileNotFoundError:
            return
        decoder = msgspec.json.Decoder(TextLine)
        with file:
            for line in file:
                try:
                    yield decoder.decode(line)
                except UNREADABLE:
                    continue


def _listed(value: object) -> list[Any]:
    """Packed numbers as a list."""
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{type(value)} has no place in an event")


def without_description(folder: Path) -> str | None:
    """What to do where `run.json` is lost and a run is there all the same: it is written before the first event.

    Clients' sessions lie in files of these names too.
    """
    if (folder / RUN_FILE).exists() or searched.is_search(folder):
        return None
    marks = ((EVENTS_FILE, b'{"type":"run_start"'), (SUMMARY_FILE, f'"schema": "{SCHEMA}"'.encode()))
    held = [name for name, mark in marks if mark in _beginning(folder / name)]
    if not held:
        return None
    return (
        f"{folder} has lost its {RUN_FILE}, which says what was run ({' and '.join(held)} still there): copy it again "
        f"from where the folder came from"
    )


def _beginning(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(100)
    except (OSError, UsageError):
        return b""


def _read_run(path: Path) -> dict[str, Any]:
    try:
        run = msgspec.json.decode(read_regular(path))
    except FileNotFoundError:
        if (reason := reason_of(path.parent)) is not None:
            raise UsageError(f"the run in {path.parent} did not start: {reason}") from None
        if (said := searched.instead(path.parent)) is not None:
            raise UsageError(said) from None
        if (said := without_description(path.parent)) is not None:
            raise UsageError(said) from None
        if (path.parent / EVENTS_FILE).exists():
            raise UsageError(
                f"{path.parent} holds a run that has not begun (no {RUN_FILE}): wait, or remove it if it was killed"
            ) from None
        raise UsageError(f"{path.parent} is no run folder: it has no {RUN_FILE}") from None
    except UNREADABLE as error:
        raise UsageError(f"{path} is damaged ({error}): the run cannot be opened") from error
    if not isinstance(run, dict):
        raise UsageError(f"{path} is not the description of a run: give the folder of a run")
    return run
