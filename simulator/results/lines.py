"""Event lines as bytes, decoded fast and without giving up on damage.

A run may be killed while it writes, a disk may lose a sector, a newer version may write event types that this one does
not know: none of that may hide the rest of the run.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.agents.events import (
    AgentState,
    AnyEvent,
    CallEnd,
    Chunks,
    ClientSample,
    Count,
    Event,
    Lane,
    Number,
    Progress,
    Signed,
)
from windtunnel.traces.model import Problem

_BATCH_BYTES = 1 << 18
"""Lines are decoded in batches of about this size; a batch with damage is decoded again line by line."""
_DECODER = msgspec.json.Decoder(AnyEvent)
CHUNKS = "chunks"
COARSE = "coarse"
"""Names what can be left out beside types of events: see `decode_lines`."""


class _ShortCallEnd(CallEnd, frozen=True, kw_only=True, tag="call_end", gc=False):
    """Without its chunks: they stand under another name than is read here."""

    chunks: Chunks = msgspec.field(default=Chunks(), name="-")


class _Counts(Chunks, frozen=True, gc=False):
    """How many tokens came in each chunk, not when."""

    us: tuple[Signed, ...] = msgspec.field(default=(), name="-")


class _TimelessCallEnd(CallEnd, frozen=True, kw_only=True, tag="call_end", gc=False):
    chunks: _Counts = _Counts()


class Seen(Struct, frozen=True, array_like=True, gc=False):
    """The beginning of an `AgentProgress`: what its agent did, without how far it was."""

    agent: Lane
    thread: Number
    call: Number
    state: AgentState


class Outline(Event, frozen=True, tag="progress"):
    """A `Progress` without the agents' text and tokens."""

    output_tokens: Count
    prompt_tokens: Count
    in_flight: Number
    in_tool: Number
    waiting: Number
    agents: tuple[Seen, ...] = ()
    parsed: bool = True


class Unread(Event, frozen=True, tag="client_sample"):
    """That there was one."""


def _decoder(instead: dict[type, type]) -> msgspec.json.Decoder[Any]:
    """Of all events, some of them read as something shorter."""
    return msgspec.json.Decoder(reduce(or_, (instead.get(kind, kind) for kind in AnyEvent.__args__)))


_SHORT = _decoder({CallEnd: _ShortCallEnd})
_ROUGH = _decoder({Progress: Outline, ClientSample: Unread})
_SHORT_AND_ROUGH = _decoder({CallEnd: _TimelessCallEnd, Progress: Outline, ClientSample: Unread})
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding damaged JSON can raise; the last one where it is nested thousands deep."""
KNOWN_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in AnyEvent.__args__)


class _Typed(Struct):
    type: str


_TYPE_DECODER = msgspec.json.Decoder(_Typed)


def decode_lines(
    data: bytes,
    file: str,
    first_line: int,
    problems: list[Problem],
    leave_out: Sequence[str] = (),
    agents: int | None = None,
) -> list[Event]:
    """Whole lines to events. Unknown types are skipped, unreadable lines become problems.

    Events whose type is in `leave_out` are not decoded, nor with CHUNKS in it the chunks of calls: most bytes of a long
    run are these. With COARSE in it a progress comes as an `Outline`, and nothing of the client's samples. With both
    a call's chunks come without their times. A line about an agent whose number is not below `agents` is unreadable:
    a lane would be made for every number up to it.
    """
    decoder = _decoder_for(leave_out)
    leave_out = [name for name in leave_out if name in KNOWN_TYPES]
    if leave_out:
        starts = tuple(f'{{"type":"{name}"'.encode() for name in leave_out)
        lines = data.split(b"\n")
        data = b"\n".join(b"" if line.startswith(starts) and line.endswith(b"}") else line for line in lines)
    out: list[Event] = []
    number = first_line
    for batch in _batches(data):
        try:
            events = decoder.decode_lines(batch)
            if agents is not None and any(highest(event) >= agents for event in events):
                raise msgspec.ValidationError
            out.extend(events)
            number += batch.count(b"\n")
        except UNREADABLE:
            for line in batch.split(b"\n")[:-1]:
                event = _decode_line(decoder, line, file, number, problems)
                if event is not None and agents is not None and highest(event) >= agents:
                    problems.append(Problem(file, number, f"agent {highest(event)} of a run with {agents}"))
                    event = None
                if event is not None:
                    out.append(event)
                number += 1
    return out


def highest(event: Event) -> int:
    """The highest number of an agent in it; -1 where it is about none."""
    number: int = getattr(event, "agent", -1)
    if isinstance(event, Progress | Outline) and event.agents:
        return max(seen.agent for seen in event.agents)
    return number


def _decoder_for(leave_out: Sequence[str]) -> msgspec.json.Decoder[Any]:
    if COARSE in leave_out:
        return _SHORT_AND_ROUGH if CHUNKS in leave_out else _ROUGH
    return _SHORT if CHUNKS in leave_out else _DECODER


def _batches(data: bytes) -> Iterator[bytes]:
    """The data cut after line ends; the last batch ends with a line end too."""
    if not data.endswith(b"\n"):
        data += b"\n"
    start = 0
    while start < len(data):
        end = data.find(b"\n", min(start + _BATCH_BYTES, len(data) - 1)) + 1
        yield data[start:end]
        start = end


def _decode_line(
    decoder: msgspec.json.Decoder[Any], line: bytes, file: str, number: int, problems: list[Problem]
) -> Event | None:
    if not line.strip():
        return None
    try:
        event: Event = decoder.decode(line)
    except UNREADABLE as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    else:
        return event
    try:
        known = _TYPE_DECODER.decode(line).type in KNOWN_TYPES
    except UNREADABLE:
        known = True
    if known:
        problems.append(Problem(file, number, f"not a readable event: {reason}"))
    return None
