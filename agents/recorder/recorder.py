"""From what the proxy told to traces and events: one exchange after the other, in the order in which they were told.

No clock, no network: times come with what is told. Every text is redacted as it is read, before anything is kept.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard
from msgspec import Struct

from windtunnel.agents.failures import Failure, http_failure
from windtunnel.agents.recorder import chat, messages, responses
from windtunnel.agents.recorder.asked import Answer, Reader, Request, decode_object, said
from windtunnel.agents.recorder.chat import ChatReader
from windtunnel.agents.recorder.correlate import Correlator
from windtunnel.agents.recorder.identity import Hints, client_of, device_ids, read_hints
from windtunnel.agents.recorder.messages import MessagesReader
from windtunnel.agents.recorder.model import Session, Turn
from windtunnel.agents.recorder.redact import Redactor
from windtunnel.agents.recorder.responses import ResponsesReader
from windtunnel.agents.recorder.resume import restore
from windtunnel.agents.recorder.screen import Ending, Screen, Sink
from windtunnel.agents.recorder.session_file import SessionFile
from windtunnel.agents.recorder.texts import system_text, visible
from windtunnel.agents.recorder.told import Arrived, Closed, Opened
from windtunnel.agents.recorder.waits import look_back

APIS: tuple[tuple[str, Callable[..., Request], Callable[[str], Reader]], ...] = (
    ("/chat/completions", chat.read_request, ChatReader),
    ("/responses", responses.read_request, ResponsesReader),
    ("/messages", messages.read_request, MessagesReader),
)


class _Live(Struct, eq=False):
    """An exchange under way."""

    opened: Opened
    request: Request
    turn: Turn
    key: str
    """The thread's key on the wire, empty for none: what a retry is told by."""
    make: Callable[[str], Reader]
    reader: Reader | None = None
    unpack: Callable[[bytes], bytes] | None = None
    last: int = 0
    """ns; when the last bytes came."""


class Recorder:
    def __init__(
        self,
        folder: Path,
        sink: Sink,
        *,
        name: str,
        client: str,
        source: str,
        origin_ns: int,
        wall_clock: float,
    ) -> None:
        """`wall_clock` is the Unix time at `origin_ns`; `client` the agent's name where the wire says none."""
        self._folder = folder
        self._client = client
        self._source = source
        self._origin = origin_ns
        self._wall = wall_clock
        self._redactor = Redactor()
        self._correlator = Correlator(name)
        self._screen = Screen(sink, origin_ns)
        self._live: dict[int, _Live] = {}
        self._files: dict[str, SessionFile] = {}
        self._written: set[str] = set()
        self._note = ""
        self.calls = 0

    @property
    def sessions(self) -> int:
        """Sessions with at least one call written, those before `resume` apart."""
        return len(self._written)

    @property
    def lanes(self) -> int:
        """Sessions that the screen knows of."""
        return sum(session.shown for session in self._correlator.sessions.values())

    @property
    def models(self) -> list[str]:
        """Names of the models that were asked for."""
        found = (session.model for session in self._correlator.sessions.values() if session.shown)
        return [model for model in dict.fromkeys(found) if model]

    def resume(self) -> None:
        """Go on with the sessions that the folder holds."""
        for session, path in restore(self._folder, self._correlator, (self._origin, self._wall)):
            self._files[session.id] = SessionFile(session, path)

    def note(self, text: str) -> None:
        """What each trace of this recording has to say of the server that it was made with."""
        self._note = text

    def opened(self, told: Opened, body: bytes) -> None:
        headers = dict(told.headers)
        value = decode_object(_unpacked(body, headers.get("content-encoding", "")))
        path = told.path.partition("?")[0].rstrip("/")
        api = next((a for a in APIS if path.endswith(a[0])), None)
        if api is None or not (value.get("messages") or value.get("input")):
            return  # another service's path that ends alike
        self._look_around()
        metadata = _metadata(value)
        self._redactor.learn(told.headers, device_ids(headers, metadata))
        request = api[1](value, self._redactor.text)
        hints = read_hints(headers, metadata, told.tag)
        place = self._correlator.place(request, hints, told.t)
        turn = place.turn
        self._describe(turn.session, request, hints)
        if not place.retry:
            look_back(turn, request)
        if not turn.session.shown:
            turn.session.shown = True
            self._screen.session_started(turn.session, told.t)
        self._live[told.number] = _Live(told, request, turn, hints.key or "", api[2])
        self._screen.call_started(turn, request, told)

    def arrived(self, told: Arrived, body: bytes) -> None:
        live = self._live.get(told.number)
        if live is None:
            return
        if live.reader is None:
            live.reader = live.make(told.content_type)
            live.unpack = _unpacker(told.content_encoding)
        at = 0
        for t, length in told.pieces:
            data = body[at : at + length]
            at += length
            live.last = t
            live.reader.feed(t, data if live.unpack is None else _tried(live.unpack, data))

    def closed(self, told: Closed) -> None:
        live = self._live.pop(told.number, None)
        if live is None:
            return
        turn = live.turn
        answer = (live.reader or live.make(told.content_type)).finish(self._redactor.text)
        turn.end = told.t
        failure = _failure(told, answer)
        detail = self._redactor.text(answer.detail or told.detail) or None
        if failure is not None:
            self._correlator.failed(turn, live.key)
            self._screen.call_ended(turn, live.opened, answer, Ending(told.t, failure, detail, None))
            return
        aborted = told.how == "client_gone" and not answer.ended
        _remember(turn, answer)
        self._correlator.adopt(turn, live.request)
        call = self._file(turn.session).add(turn, live.request, answer, aborted=aborted)
        self._correlator.ended(turn, answer)
        self._written.add(turn.session.id)
        self.calls += 1
        ending = Ending(told.t, "aborted" if aborted else None, detail, call)
        self._screen.call_ended(turn, live.opened, answer, ending)

    def progress(self, now: int) -> None:
        """How far everything under way is; `now` in ns of CLOCK_MONOTONIC."""
        clean = self._redactor.text
        rows = ((w.turn, w.reader, "" if w.reader is None else clean(w.reader.tail)) for w in self._live.values())
        self._screen.progress(now, rows)

    def finish(self, now: int) -> None:
        """The recording ends: what is under way is written as it stands, sessions are over."""
        for number in list(self._live):
            self.closed(Closed(number, now, 200, "client_gone"))
        for session in self._correlator.sessions.values():
            if session.shown:
                self._screen.session_ended(session, now)
        for name in self._written if self._note else ():
            self._files[name].note(self._note)

    def _look_around(self) -> None:
        """A request may be the client's reaction to an answer whose last bytes are still on their way."""
        for number, live in list(self._live.items()):
            if live.reader is None:
                continue
            for call in live.reader.calls():
                self._correlator.asks(live.turn, call[0], call[1], self._redactor.text(call[2]))
            if live.reader.ended:
                self.closed(Closed(number, live.last, 200, "complete"))

    def _describe(self, session: Session, request: Request, hints: Hints) -> None:
        if not session.client:
            session.client = hints.client or client_of(system_text(request)) or self._client
            session.version = hints.version
            session.tag = hints.tag
        session.model = session.model or request.model

    def _file(self, session: Session) -> SessionFile:
        file = self._files.get(session.id)
        if file is None:
            started = self._wall + (session.started - self._origin) / 1e9
            file = self._files[session.id] = SessionFile.begin(self._folder, session, self._source, started, self._note)
        return file


def _remember(turn: Turn, answer: Answer) -> None:
    output = answer.output
    if output is not None:
        turn.said = said(output).print
        turn.tools = {c.id: c.name for c in output.calls}
        turn.final = "" if output.calls else visible(output)


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("metadata", "client_metadata"):
        if isinstance(value.get(key), dict):
            found |= value[key]
    return found


def _failure(told: Closed, answer: Answer) -> str | None:
    """A call that the server did not answer; a client that hung up is none."""
    if told.how == "no_upstream":
        return told.failure or Failure.CONNECT_FAILED.value
    if told.status is not None and told.status >= 400:
        return http_failure(told.status)
    if answer.failure is not None:
        return answer.failure
    if told.how == "upstream_gone" and not answer.ended:
        return told.failure or Failure.CONNECTION_CLOSED.value
    if told.how == "complete" and not answer.ended:
        return Failure.NO_END_MARKER.value
    return None


def _unpacker(encoding: str) -> Callable[[bytes], bytes] | None:
    if encoding in ("gzip", "deflate"):
        return zlib.decompressobj(wbits=47).decompress
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress
    return None


def _unpacked(body: bytes, encoding: str) -> bytes:
    unpack = _unpacker(encoding)
    return body if unpack is None else _tried(unpack, body)


def _tried(unpack: Callable[[bytes], bytes], data: bytes) -> bytes:
    """What can be unpacked; a damaged stream is as good as one that broke off."""
    try:
        return unpack(data)
    except (zlib.error, zstandard.ZstdError, EOFError):
        return b""
