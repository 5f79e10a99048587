"""AIPerf's dialect of Mooncake rows: a session's prompts grow by its outputs and by what each row names as new.

The new tokens of a row start a block of their own, so that its hashes mean the same wherever they stand in a prompt.
"""

from collections.abc import Sequence

from msgspec import Struct

from windtunnel.traces.importers.ledger import Ledger
from windtunnel.traces.importers.mooncake_rows import Row
from windtunnel.traces.importers.pieces import Draft, Piece
from windtunnel.traces.importers.weka_build import Origin, block_piece
from windtunnel.traces.model import Call, Cause, Header, Mark, Thread, Trace, Usage, Wait, digest_of


class Turn(Struct, frozen=True):
    """What a turn adds to its session's prompt, and what was written then."""

    new: tuple[Draft, ...]
    out: int | None
    output: Piece | None
    at: float | None = None
    delay: float | None = None
    """Since the turn before."""
    counted: bool = True
    """The new tokens are the source's count and not an estimate."""


def session(origin: Origin, rows: Sequence[Row]) -> Trace:
    turns = [
        Turn(
            new=(Draft("user", tuple(_pieces(origin, row, number))),),
            out=row.out,
            output=_output(origin, row, number),
            at=row.at,
            delay=row.delay,
        )
        for number, row in enumerate(rows)
    ]
    header = Header(
        id=origin.id,
        agent=origin.format,
        source=origin.source,
        started_at=origin.started_at,
        shape_only=True,
        title=origin.id,
        notes=origin.notes,
    )
    return grown(header, turns, "client")


def grown(header: Header, turns: Sequence[Turn], cause: Cause) -> Trace:
    """A session of one thread, every prompt of which is the one before, its output, and what is new."""
    ledger = Ledger(header.id)
    calls: list[Call] = []
    waits: list[Wait] = []
    prompt = length = 0
    said: int | None = None
    for number, turn in enumerate(turns):
        new = [ledger.message(draft) for draft in turn.new]
        append = tuple(new) if said is None else (said, *new)
        prompt += sum(ledger.tokens(m) for m in append)
        said = None if turn.output is None else ledger.message(Draft("assistant", (turn.output,)))
        marks: dict[str, Mark] = {"prompt": "derived"} if number and turn.counted else {}
        if turn.output is not None and turn.output.mark == "estimated":
            marks["completion"] = "estimated"
        calls.append(
            Call(
                id=number,
                thread=0,
                append=append,
                base=number - 1 if number else None,
                keep=length,
                output=said,
                usage=Usage(prompt=prompt if turn.counted else None, completion=turn.out),
                start_s=turn.at,
                marks=marks,
            )
        )
        length += len(append)
        if number:
            waits.append(Wait(number, cause, turn.delay, mark="estimated" if turn.delay is None else "recorded"))
    return Trace(
        header=header,
        blocks=tuple(ledger.blocks),
        messages=tuple(ledger.messages),
        threads=(Thread(id=0),),
        calls=tuple(calls),
        waits=tuple(waits),
    )


def _pieces(origin: Origin, row: Row, number: int) -> list[Piece]:
    pieces = []
    left = row.prompt
    for value in row.hashes:
        size = min(origin.block, left)
        pieces.append(block_piece(digest_of(origin.format, *origin.scope, str(value)), size, "derived"))
        left -= size
    if left:
        own = digest_of(origin.format, *origin.scope, origin.id, "new", str(number))
        pieces.append(block_piece(own, left, "derived"))
    return pieces


def _output(origin: Origin, row: Row, number: int) -> Piece | None:
    if not row.out:
        return None
    digest = digest_of(origin.format, *origin.scope, origin.id, "output", str(number))
    return block_piece(digest, row.out, "recorded")
