"""AIPerf's dialect of Mooncake rows: a session's prompts grow by its outputs and by what each row names as new.

The new tokens of a row start a block of their own, so that its hashes mean the same wherever they stand in a prompt.
"""

from collections.abc import Sequence

from windtunnel.traces.importers.ledger import Ledger
from windtunnel.traces.importers.mooncake_rows import Row
from windtunnel.traces.importers.pieces import Draft, Piece
from windtunnel.traces.importers.weka_build import Origin, block_piece
from windtunnel.traces.model import Call, Header, Mark, Thread, Trace, Usage, Wait, digest_of


def session(origin: Origin, rows: Sequence[Row]) -> Trace:
    ledger = Ledger(origin.id)
    calls: list[Call] = []
    waits: list[Wait] = []
    prompt = length = 0
    said: int | None = None
    for number, row in enumerate(rows):
        prompt += (ledger.tokens(said) if said is not None else 0) + row.prompt
        new = ledger.message(Draft("user", tuple(_pieces(origin, row, number))))
        append = (new,) if said is None else (said, new)
        said = _output(ledger, origin, row, number)
        marks: dict[str, Mark] = {"prompt": "derived"} if number else {}
        calls.append(
            Call(
                id=number,
                thread=0,
                append=append,
                base=number - 1 if number else None,
                keep=length,
                output=said,
                usage=Usage(prompt=prompt, completion=row.out),
                start_s=row.at,
                marks=marks,
            )
        )
        length += len(append)
        if number:
            waits.append(Wait(number, "client", row.delay, mark="estimated" if row.delay is None else "recorded"))
    return Trace(
        header=Header(
            id=origin.id,
            agent=origin.format,
            source=origin.source,
            started_at=origin.started_at,
            shape_only=True,
            title=origin.id,
            notes=origin.notes,
        ),
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


def _output(ledger: Ledger, origin: Origin, row: Row, number: int) -> int | None:
    if not row.out:
        return None
    digest = digest_of(origin.format, *origin.scope, origin.id, "output", str(number))
    return ledger.message(Draft("assistant", (block_piece(digest, row.out, "recorded"),)))
