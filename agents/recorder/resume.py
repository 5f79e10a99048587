"""Sessions of an earlier recording in the same folder: what comes back goes on in its trace, as if nothing had been."""

from collections.abc import Iterator
from pathlib import Path

from windtunnel.agents.recorder.asked import Said, said
from windtunnel.agents.recorder.correlate import MAIN, Correlator
from windtunnel.agents.recorder.model import RESTORED, Session, Thread, Turn, chain
from windtunnel.agents.recorder.session_file import TAG_NOTE
from windtunnel.agents.recorder.texts import visible
from windtunnel.traces.format import read_trace, write_trace
from windtunnel.traces.importers.pieces import Asked, Draft, Piece
from windtunnel.traces.model import Message, Trace

NS = 1e9


def restore(folder: Path, correlator: Correlator, clock: tuple[int, float]) -> Iterator[tuple[Session, Path]]:
    """Take in every trace of the folder; `clock` is a moment in ns of CLOCK_MONOTONIC and in Unix seconds.

    A file is written anew first: what a kill left unfinished in it must not stand between its old lines and new ones.
    """
    for path in sorted(folder.glob("*.jsonl")):
        traces = read_trace(path).traces
        if len(traces) == 1 and traces[0].calls:
            write_trace(traces[0], path)
            yield _session(traces[0], correlator, clock), path


def _session(trace: Trace, correlator: Correlator, clock: tuple[int, float]) -> Session:
    header = trace.header
    tag = next((n.removeprefix(TAG_NOTE) for n in header.notes if n.startswith(TAG_NOTE)), "")
    now, wall = clock
    started = now + round(((header.started_at or wall) - wall) * NS)
    session = correlator.known(header.id, tag, started)
    session.client, session.version, session.tag = header.agent, header.agent_version, tag
    session.model = header.models[0] if header.models else None
    session.title = header.title or ""
    session.with_tools = bool(trace.toolsets)
    session.calls = len(trace.calls)
    prints = [said(_draft(trace, m)) for m in trace.messages]
    session.book.load(trace, prints)
    _threads(trace, session)
    for call, prompt in trace.prompts():
        turn = _turn(trace, session, call.id, [prints[m] for m in prompt])
        turn.messages = tuple(prompt)
        session.book.seen(call.thread, turn.messages, [prints[m] for m in prompt], call.tools)
        output = None if call.output is None else _draft(trace, trace.messages[call.output])
        correlator.restored(turn, prints[call.output].print if call.output is not None else "", output)
    return session


def _threads(trace: Trace, session: Session) -> None:
    joined = {t for call in trace.calls for t in call.joins}
    for line in trace.threads[1:]:
        thread = Thread(f"{RESTORED}{line.id}", line.id)
        thread.tool_call_id, thread.name = line.tool_call_id, line.name
        thread.joined, thread.written = line.id in joined, True
        session.threads[thread.key] = thread
    session.threads[MAIN].written = True
    by_id = {t.id: t for t in session.threads.values()}
    for line in trace.threads[1:]:
        by_id[line.id].parent = by_id[line.parent or 0]


def _turn(trace: Trace, session: Session, number: int, prompt: list[Said]) -> Turn:
    call = trace.calls[number]
    thread = next(t for t in session.threads.values() if t.id == call.thread)
    if call.kind != "auxiliary":
        thread.begun += 1
    start = session.started + round((call.start_s or 0.0) * NS)
    thread.last_begun = start
    turn = Turn(call.id, session, thread, max(1, thread.begun), call.kind, start=start, asked_at=start)
    turn.end = session.started + round((call.end_s or call.start_s or 0.0) * NS)
    turn.length, turn.tip, turn.toolset = len(prompt), chain(prompt)[-1] if prompt else b"", call.tools
    if call.output is not None:
        message = trace.messages[call.output]
        turn.tools = {c.id: c.name for c in message.tool_calls}
        turn.final = "" if turn.tools else visible(_draft(trace, message))
    return turn


def _draft(trace: Trace, message: Message) -> Draft:
    def piece(block: int) -> Piece:
        b = trace.blocks[block]
        return Piece(b.digest, b.kind, b.tokens, b.text, b.media, b.filler, b.mark)

    return Draft(
        role=message.role,
        pieces=tuple(piece(b) for b in message.blocks),
        reasoning=tuple(piece(b) for b in message.reasoning),
        calls=tuple(Asked(c.id, c.name, piece(c.arguments)) for c in message.tool_calls),
        tool_call_id=message.tool_call_id,
        name=message.name,
    )
