"""From what the proxy told to traces and events: one exchange after the other, in the order in which they were told.

No clock, no network: times come with what is told. Every text is redacted as it is read, before anything is kept.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import zstandard
from msgspec import Struct

from windtunnel.agents import events as ev
from windtunnel.agents.recorder import chat, messages, responses
from windtunnel.agents.recorder.asked import Answer, Reader, Request, decode_object, said
from windtunnel.agents.recorder.chat import ChatReader
from windtunnel.agents.recorder.correlate import Correlator
from windtunnel.agents.recorder.identity import Hints, client_of, device_ids, read_hints
from windtunnel.agents.recorder.messages import MessagesReader
from windtunnel.agents.recorder.model import Session, Turn
from windtunnel.agents.recorder.redact import Redactor
from windtunnel.agents.recorder.responses import ResponsesReader
from windtunnel.agents.recorder.session_file import SessionFile
from windtunnel.agents.recorder.texts import system_text, visible
from windtunnel.agents.recorder.told import Arrived, Closed, Opened
from windtunnel.agents.recorder.waits import look_back
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.model import Call

APIS: tuple[tuple[str, Callable[..., Request], Callable[[str], Reader]], ...] = (
    ("/chat/completions", chat.read_request, ChatReader),
    ("/responses", responses.read_request, ResponsesReader),
    ("/messages", messages.read_request, MessagesReader),
)
TAIL_CHARS = 120


class Wrote(Struct, frozen=True):
    """What the model wrote in one call, redacted."""

    request_id: str
    agent: int
    session: str
    thread: int
    call: int
    text: str
    reasoning: str
    tool_calls: tuple[tuple[str, str, str], ...]
    """(id, name, arguments)."""


class Sink(Protocol):
    """Where events and texts go."""

    def emit(self, event: ev.Event) -> None: ...

    def wrote(self, what: Wrote) -> None: ...


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
        self._sink = sink
        self._client = client
        self._source = source
        self._origin = origin_ns
        self._wall = wall_clock
        self._redactor = Redactor()
        self._correlator = Correlator(name)
        self._live: dict[int, _Live] = {}
        self._files: dict[str, SessionFile] = {}
        self._output = self._prompt = 0
        self._waiting: dict[tuple[int, int], str] = {}
        """(lane, thread) to the cause of the wait that the screen shows."""
        self.calls = 0

    @property
    def sessions(self) -> int:
        """Sessions with at least one call written."""
        return len(self._files)

    # What the proxy tells

    def opened(self, told: Opened, body: bytes) -> None:
        headers = dict(told.headers)
        value = decode_object(_unpacked(body, headers.get("content-encoding", "")))
        path = told.path.partition("?")[0].rstrip("/")
        api = next((a for a in APIS if path.endswith(a[0])), None)
        if api is None or not value:
            return
        self._look_around()
        metadata = _metadata(value)
        self._redactor.learn(told.headers, device_ids(headers, metadata))
        request = api[1](value, self._redactor.text)
        hints = read_hints(headers, metadata, told.tag)
        place = self._correlator.place(request, hints, told.t)
        turn, session = place.turn, place.turn.session
        self._describe(session, request, hints)
        if not place.retry:
            look_back(turn, request)
        if place.new_session:
            self._session_started(session, told.t)
        self._live[told.number] = _Live(told, request, turn, hints.thread or _own(hints), api[2])
        self._call_started(turn, request, told)

    def _look_around(self) -> None:
        """A request may be the client's reaction to an answer whose last bytes are still on their way."""
        for number, live in list(self._live.items()):
            if live.reader is None:
                continue
            for call in live.reader.calls():
                self._correlator.asks(live.turn, call[0], call[1], self._redactor.text(call[2]))
            if live.reader.ended:
                self.closed(Closed(number, live.last, 200, "complete"))

    def arrived(self, told: Arrived, body: bytes) -> None:
        live = self._live.get(told.number)
        if live is None:
            return
        if live.reader is None:
            live.reader = live.make(told.content_type)
            live.unpack = _unpacker(told.content_encoding)
        at = 0
        before = live.reader.tokens_so_far
        for t, length in told.pieces:
            data = body[at : at + length]
            at += length
            live.last = t
            live.reader.feed(t, live.unpack(data) if live.unpack is not None else data)
        self._output += live.reader.tokens_so_far - before

    def closed(self, told: Closed) -> None:
        live = self._live.pop(told.number, None)
        if live is None:
            return
        reader = live.reader or live.make(told.content_type)
        before = reader.tokens_so_far
        answer = reader.finish(self._redactor.text)
        turn = live.turn
        turn.end = told.t
        failure = _failure(told, answer)
        aborted = failure is None and told.how == "client_gone" and not answer.ended
        call = None
        if failure is None:
            self._remember(turn, answer)
            self._correlator.adopt(turn, live.request)
            call = self._file(turn.session).add(turn, live.request, answer, aborted=aborted)
            for c in () if answer.output is None else answer.output.calls:
                self._correlator.asks(turn, c.id, c.name, c.arguments.text or "")
            self._correlator.ended(turn)
            self.calls += 1
            self._output += (call.usage.completion or 0) - before
            self._prompt += call.usage.prompt or 0
        else:
            self._correlator.failed(turn, live.key)
        self._call_ended(live, answer, told, failure, call, aborted=aborted)

    def progress(self, now: int) -> None:
        """How far everything under way is; `now` in ns of CLOCK_MONOTONIC."""
        agents = []
        for live in self._live.values():
            reader = live.reader
            tokens = 0 if reader is None else reader.tokens_so_far
            tail = "" if reader is None else self._redactor.text(reader.tail)[-TAIL_CHARS:]
            where = live.turn.session.agent, live.turn.thread.id, live.turn.id
            agents.append(ev.AgentProgress(*where, "decode" if tokens else "prefill", tokens, tail))
        causes = list(self._waiting.values())
        self._sink.emit(
            ev.Progress(
                t=now - self._origin,
                output_tokens=self._output,
                prompt_tokens=self._prompt,
                in_flight=len(self._live),
                in_tool=sum(c == "tool" for c in causes),
                waiting=sum(c != "tool" for c in causes),
                agents=tuple(agents),
                parsed=False,
            )
        )

    def finish(self, now: int) -> None:
        """The recording ends: what is under way is written as it stands, sessions are over."""
        for number in list(self._live):
            self.closed(Closed(number, now, 200, "client_gone"))
        for session in self._correlator.sessions.values():
            done = sum(t.begun for t in session.threads.values())
            event = ev.SessionEnd(
                t=now - self._origin, agent=session.agent, session=session.id, status="completed", calls_done=done
            )
            self._sink.emit(event)
        self.close()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    # What is kept

    def _describe(self, session: Session, request: Request, hints: Hints) -> None:
        if not session.client:
            session.client = hints.client or client_of(system_text(request)) or self._client
            session.version = hints.version
        session.model = session.model or request.model

    def _remember(self, turn: Turn, answer: Answer) -> None:
        output = answer.output
        if output is None:
            return
        turn.said = said(output).print
        turn.tools = {c.id: c.name for c in output.calls}
        turn.final = "" if output.calls else visible(output)

    def _file(self, session: Session) -> SessionFile:
        file = self._files.get(session.id)
        if file is None:
            started = self._wall + (session.started - self._origin) / 1e9
            file = self._files[session.id] = SessionFile(self._folder, session, self._source, started)
        return file

    # What the screen is told

    def _session_started(self, session: Session, t: int) -> None:
        title = f"{session.client or 'agent'}/{title_of(session.title) or session.id}"
        self._sink.emit(
            ev.SessionStart(
                t=t - self._origin,
                agent=session.agent,
                session=session.id,
                trace=session.id,
                title=title,
                copy=0,
                calls_total=0,
                turns_total=0,
            )
        )

    def _call_started(self, turn: Turn, request: Request, told: Opened) -> None:
        t, where = told.t - self._origin, (turn.session.agent, turn.thread.id)
        cause = self._waiting.pop(where, None)
        if cause is not None:
            end = ev.WaitEnd(t=t, agent=where[0], session=turn.session.id, thread=where[1], call=turn.id, cause=cause)
            self._sink.emit(end)
        expected = sum(s.draft.visible() + s.draft.hidden() for s in request.said)
        expected += 0 if request.schemas is None else request.schemas.piece.tokens
        self._sink.emit(
            ev.CallStart(
                t=t,
                agent=where[0],
                session=turn.session.id,
                thread=where[1],
                call=turn.id,
                turn=turn.number,
                turns=turn.number,
                request_id=_request_id(turn, told),
                t_intended=t,
                expected_prompt_tokens=expected,
            )
        )

    def _call_ended(
        self, live: _Live, answer: Answer, told: Closed, failure: str | None, call: Call | None, *, aborted: bool
    ) -> None:
        turn, origin = live.turn, self._origin
        sent = live.opened.t

        def at(t: int | None) -> int | None:
            return None if t is None else t - origin

        usage = None if call is None else call.usage
        shared = 0 if call is None else turn.session.book.tokens_of(turn.messages[: call.keep], call.tools)
        request_id = _request_id(turn, live.opened)
        self._sink.emit(
            ev.CallEnd(
                t=told.t - origin,
                agent=turn.session.agent,
                session=turn.session.id,
                thread=turn.thread.id,
                call=turn.id,
                request_id=request_id,
                t_intended=sent - origin,
                t_sent=sent - origin,
                t_first=at(answer.t_first),
                t_first_visible=at(answer.t_first_visible),
                t_first_tool=at(answer.t_first_tool),
                t_last=at(answer.t_last),
                t_end=told.t - origin,
                prompt_tokens=None if usage is None else usage.prompt,
                cached_tokens=None if usage is None else usage.cached,
                expected_prompt_tokens=0 if usage is None else usage.prompt or 0,
                expected_cached_tokens=shared if call is not None and call.keep else None,
                completion_tokens=None if usage is None else usage.completion,
                reasoning_tokens=None if usage is None else usage.reasoning,
                finish=answer.stop,
                failure=failure or ("aborted" if aborted else None),
                detail=self._redactor.text(answer.detail or told.detail) or None,
                kind=turn.kind,
                chunks=answer.chunks(sent),
            )
        )
        output = answer.output
        if output is not None:
            calls = tuple((c.id, c.name, c.arguments.text or "") for c in output.calls)
            thought = "\n".join(p.text or "" for p in output.reasoning)
            where = turn.session.agent, turn.session.id, turn.thread.id, turn.id
            self._sink.wrote(Wrote(request_id, *where, visible(output), thought, calls))
        if turn.kind != "auxiliary" and failure is None:
            self._wait_started(turn, told.t)

    def _wait_started(self, turn: Turn, t: int) -> None:
        """What comes after an answer is guessed for the screen; the trace says it once the next call shows it."""
        if turn.thread.id and not turn.tools:
            return  # a sub-agent's last word
        where = turn.session.agent, turn.thread.id
        cause = "tool" if turn.tools else "human"
        self._waiting[where] = cause
        self._sink.emit(
            ev.WaitStart(
                t=t - self._origin,
                agent=where[0],
                session=turn.session.id,
                thread=where[1],
                call=turn.id + 1,
                cause="tool" if turn.tools else "human",
                seconds=None,
                label=", ".join(dict.fromkeys(turn.tools.values())),
            )
        )


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("metadata", "client_metadata"):
        if isinstance(value.get(key), dict):
            found |= value[key]
    return found


def _own(hints: Hints) -> str:
    return hints.session if hints.parent is not None and hints.session is not None else ""


def _request_id(turn: Turn, told: Opened) -> str:
    return f"{turn.session.id}-{turn.id}-{told.number}"


def _failure(told: Closed, answer: Answer) -> str | None:
    """A call that the server did not answer; a client that hung up is none."""
    if told.status is not None and told.status >= 400:
        return f"http_{told.status}"
    if answer.failure is not None:
        return answer.failure
    if told.how == "no_upstream":
        return "connect_failed"
    if told.how == "upstream_gone" and not answer.ended:
        return "connection_closed"
    if told.how == "complete" and not answer.ended:
        return "no_end_marker"
    return None


def _unpacker(encoding: str) -> Callable[[bytes], bytes] | None:
    if encoding in ("gzip", "deflate"):
        return zlib.decompressobj(wbits=47).decompress
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress
    return None


def _unpacked(body: bytes, encoding: str) -> bytes:
    unpack = _unpacker(encoding)
    if unpack is None:
        return body
    try:
        return unpack(body)
    except (zlib.error, zstandard.ZstdError):
        return b""
