"""Rows of a Mooncake-like file: what each says, how large its blocks are, which rows are a session."""

from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.records import Notes, Record, count, items, read_records, seconds, text
from windtunnel.traces.model import digest_of

BLOCK_TOKENS = 512
_OTHER_BLOCKS = (16, 32, 64, 128, 256, 1024, 2048)
_TELLING = 8
"""Rows that tell a file from another."""
_EPOCH_MS = 1e11
"""A timestamp above is a Unix time, not an offset."""


class Row(Struct):
    """One request; times in seconds."""

    line: int
    session: str
    prompt: int
    """Tokens that the row names: the whole prompt, or what is new in it."""
    out: int | None
    hashes: tuple[int, ...]
    at: float | None
    delay: float | None


class Table(Struct):
    rows: list[Row]
    block: int
    key: str
    """Tells the hashes of this file from those of others, which mean other text."""
    epoch: float | None
    """Unix time from which `Row.at` counts; None where the file has offsets only."""

    def sessions(self) -> dict[str, list[Row]]:
        out: dict[str, list[Row]] = {}
        for row in self.rows:
            out.setdefault(row.session, []).append(row)
        return out


def read_table(path: Path, notes: Notes) -> Table:
    rows = [r for r in (_row(record, path, notes) for record in read_records(path, notes)) if r is not None]
    block = _block(rows)
    rows = [r for r in rows if _fits(r, block, notes)]
    times = [r.at for r in rows if r.at is not None]
    epoch = min(times) if times and min(times) * 1000 > _EPOCH_MS else None
    for row in rows:
        row.at = None if row.at is None else row.at - (epoch or 0.0)
    told = [f"{r.prompt} {r.out} {r.hashes}" for r in rows[:_TELLING]]
    key = digest_of(*told)
    return Table(rows, block, key, epoch)


def _row(record: Record, path: Path, notes: Notes) -> Row | None:
    value, line = record.value, record.line
    if value.get("wait_for") or value.get("branches"):
        notes.add(line, "rows that wait for other rows (agentic Mooncake) cannot be read; left out")
        return None
    prompt = count(_either(value, "input_length", "input_tokens"), notes, line, "input_length")
    out = count(_either(value, "output_length", "output_tokens"), notes, line, "output_length")
    listed = value.get("hash_ids")
    hashes = tuple(h for h in items(listed) if isinstance(h, int) and not isinstance(h, bool))
    if not prompt:
        notes.add(line, "the row has no input_length and was left out")
        return None
    if (listed is not None and not isinstance(listed, list)) or len(hashes) != len(items(listed)):
        notes.add(line, "hash_ids is not a list of whole numbers; the row was left out")
        return None
    return Row(
        line=line,
        session=text(value.get("session_id")) or f"{path.stem}-{line}",
        prompt=prompt,
        out=out,
        hashes=hashes,
        at=_seconds(_either(value, "timestamp", "created_time")),
        delay=_seconds(_either(value, "delay", "delay_ms")),
    )


def _either(value: dict[str, object], name: str, other: str) -> object:
    return value[name] if value.get(name) is not None else value.get(other)


def _seconds(value: object) -> float | None:
    known = seconds(value, most=1e13)
    return None if known is None else known / 1000


def _block(rows: list[Row]) -> int:
    """512, the format's block, unless the rows agree with exactly one other size and not with that."""
    hashed = [r for r in rows if r.hashes]
    fitting = [b for b in (BLOCK_TOKENS, *_OTHER_BLOCKS) if all(-(-r.prompt // b) == len(r.hashes) for r in hashed)]
    return fitting[0] if fitting[:1] == [BLOCK_TOKENS] or len(fitting) == 1 else BLOCK_TOKENS


def _fits(row: Row, block: int, notes: Notes) -> bool:
    """Fewer hashes than blocks are taken (the rest of the prompt is text of its own); more are nonsense."""
    need = -(-row.prompt // block)
    if len(row.hashes) > need:
        notes.add(row.line, f"{len(row.hashes)} hash ids for {row.prompt} tokens in blocks of {block}; left out")
        return False
    if row.hashes and len(row.hashes) < need:
        notes.add(row.line, f"{len(row.hashes)} hash ids cover {len(row.hashes) * block} of {row.prompt} tokens")
    return True
