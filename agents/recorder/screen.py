"""What a viewer of the recording is told while it goes on: the same events as of a run."""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from windtunnel.agents import events as ev
from windtunnel.agents.recorder.asked import Answer, Reader, Request
from windtunnel.agents.recorder.model import Session, Turn
from windtunnel.agents.recorder.texts import visible
from windtunnel.agents.recorder.told import Opened
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.model import Call

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


class Ending(Struct, frozen=True):
    """How a call ended."""

    t: int
    """ns of CLOCK_MONOTONIC."""
    failure: str | None
    detail: str | None
    """Redacted."""
    call: Call | None
    """As written; None for one that failed."""


class Screen:
    """Times given are ns of CLOCK_MONOTONIC; those of events count from the origin."""

    def __init__(self, sink: Sink, origin_ns: int) -> None:
        self._sink = sink
        self._origin = origin_ns
        self._waiting: dict[tuple[int, int], str] = {}
        """(lane, thread) to the cause of the wait that is shown."""
        self._output = self._prompt = 0
        self._done: dict[int, int] = {}
        """Lane to its calls that were answered."""
        self._known: dict[int, int] = {}
        """Lane to the end of its last call: of what came after it nobody knows."""
        self._refused: dict[int, str] = {}
        """Lane to what went wrong with its last call that was not."""

    def session_started(self, session: Session, t: int) -> None:
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

    def session_ended(self, session: Session, t: int) -> None:
        """A session that got no answer at all has failed."""
        lane = session.agent
        done = self._done.get(lane, 0)
        reason = None if done else self._refused.get(lane)
        self._sink.emit(
            ev.SessionEnd(
                t=t - self._origin,
                agent=lane,
                session=session.id,
                status="completed" if reason is None else "failed",
                reason=reason,
                calls_done=done,
                known_t=self._known.get(lane, session.started) - self._origin,
            )
        )

    def call_started(self, turn: Turn, request: Request, told: Opened) -> None:
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
                turns=0,  # nobody knows how many there will be
                request_id=request_id(turn, told),
                t_intended=t,
                expected_prompt_tokens=expected,
            )
        )

    def call_ended(self, turn: Turn, told: Opened, answer: Answer, ending: Ending) -> None:
        origin, sent, call = self._origin, told.t, ending.call
        usage = None if call is None else call.usage
        whole = not answer.chunk_t

        def at(t: int | None) -> int | None:
            """Of an answer in one piece no time but its end is known: all are written as that."""
            return None if t is None else (ending.t if whole else t) - origin

        self._sink.emit(
            ev.CallEnd(
                t=ending.t - origin,
                agent=turn.session.agent,
                session=turn.session.id,
                thread=turn.thread.id,
                call=turn.id,
                request_id=request_id(turn, told),
                t_intended=sent - origin,
                t_sent=sent - origin,
                t_first=at(answer.t_first),
                t_first_visible=at(answer.t_first_visible),
                t_first_tool=at(answer.t_first_tool),
                t_last=at(answer.t_last),
                t_end=ending.t - origin,
                prompt_tokens=None if usage is None else usage.prompt,
                cached_tokens=None if usage is None else usage.cached,
                expected_prompt_tokens=0 if usage is None else usage.prompt or 0,
                expected_cached_tokens=None if call is None else _repeated(turn, call),
                completion_tokens=None if usage is None else usage.completion,
                reasoning_tokens=None if usage is None else usage.reasoning,
                finish=answer.stop,
                failure=ending.failure,
                detail=ending.detail,
                kind=turn.kind,
                chunks=answer.chunks(sent),
            )
        )
        self._wrote(turn, told, answer)
        lane = turn.session.agent
        self._known[lane] = max(self._known.get(lane, 0), ending.t)
        if call is None and ending.failure is not None:
            self._refused[turn.session.agent] = ending.failure
        if usage is not None:
            self._done[turn.session.agent] = self._done.get(turn.session.agent, 0) + 1
            self._output += usage.completion or 0
            self._prompt += usage.prompt or 0
            if turn.kind != "auxiliary":
                self._wait_started(turn, ending.t)

    def progress(self, now: int, live: Iterable[tuple[Turn, Reader | None, str]]) -> None:
        """How far everything under way is: each turn with its reader and the redacted tail."""
        agents = []
        output = self._output
        for turn, reader, tail in live:
            tokens = 0 if reader is None else reader.tokens_so_far
            output += tokens
            where = turn.session.agent, turn.thread.id, turn.id
            agents.append(ev.AgentProgress(*where, "decode" if tokens else "prefill", tokens, tail[-TAIL_CHARS:]))
        causes = list(self._waiting.values())
        self._sink.emit(
            ev.Progress(
                t=now - self._origin,
                output_tokens=output,
                prompt_tokens=self._prompt,
                in_flight=len(agents),
                in_tool=sum(c == "tool" for c in causes),
                waiting=sum(c != "tool" for c in causes),
                agents=tuple(agents),
                parsed=False,
            )
        )

    def _wrote(self, turn: Turn, told: Opened, answer: Answer) -> None:
        output = answer.output
        if output is not None:
            calls = tuple((c.id, c.name, c.arguments.text or "") for c in output.calls)
            thought = "\n".join(p.text or "" for p in output.reasoning)
            where = turn.session.agent, turn.session.id, turn.thread.id, turn.id
            self._sink.wrote(Wrote(request_id(turn, told), *where, visible(output), thought, calls))

    def _wait_started(self, turn: Turn, t: int) -> None:
        """What comes after an answer is guessed for the screen; the trace says it once the next call shows it."""
        if turn.thread.id and not turn.tools:
            return  # a sub-agent's last word
        where = turn.session.agent, turn.thread.id
        self._waiting[where] = "tool" if turn.tools else "human"
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


def request_id(turn: Turn, told: Opened) -> str:
    return f"{turn.session.id}-{turn.id}-{told.number}"


def _repeated(turn: Turn, call: Call) -> int:
    """Prompt tokens that began an earlier prompt of the recording."""
    if turn.repeated is None:
        return 0
    return turn.session.book.tokens_of(turn.messages[: turn.repeated], call.tools)
