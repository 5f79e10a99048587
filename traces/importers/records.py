"""Reading what other programs wrote: JSON lines and JSON values that may be damaged, cut off or nonsense.

Nothing here raises on bad content. What could not be used is noted as a problem with its file and line, and an absent
or unusable value is None or empty, never a guess.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.json_values import dumps as dumps  # noqa: PLC0414 - importers have all their reading from here
from windtunnel.traces.json_values import parse_json as parse_json  # noqa: PLC0414 - the same
from windtunnel.traces.model import Problem

MOST_TOKENS = 50_000_000
"""A count above this is not believed."""
MOST_PROBLEMS = 200
"""Problems listed for one file; the rest is counted in one line."""
_EARLIEST = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(2100, 1, 1, tzinfo=UTC).timestamp()


class Notes:
    """The problems of one input, in order, and how many more there were than are listed."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._listed: list[Problem] = []
        self._dropped = 0

    def add(self, line: int | None, reason: str) -> None:
        if len(self._listed) < MOST_PROBLEMS:
            self._listed.append(Problem(self.file, line, reason))
        else:
            self._dropped += 1

    def all(self) -> tuple[Problem, ...]:
        if not self._dropped:
            return tuple(self._listed)
        more = Problem(self.file, None, f"{self._dropped} further problems are not listed")
        return (*self._listed, more)


class Record(Struct, frozen=True):
    """One JSON object of a log, with its line number (from 1)."""

    line: int
    value: dict[str, object]


def read_bytes(path: Path, notes: Notes) -> bytes:
    """The file's bytes; empty with a problem when it cannot be read."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe that nobody writes to never ends
            notes.add(None, "is no regular file and was left out")
            return b""
        return path.read_bytes()
    except OSError as e:
        notes.add(None, f"cannot be read: {e.strerror or e}")
        return b""


def read_records(path: Path, notes: Notes) -> Iterator[Record]:
    """The objects of a JSON-lines file. A line that is none costs only itself."""
    data = read_bytes(path, notes)
    if not data and path.is_file():
        notes.add(None, "the file is empty")
    lines = data.split(b"\n")
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            value = parse_json(raw)
        except ValueError:
            cut_off = number == len(lines)
            notes.add(number, "the last line is cut off" if cut_off else "the line is not valid JSON and was left out")
            continue
        if isinstance(value, dict):
            yield Record(number, value)
        else:
            notes.add(number, "the line is not a JSON object and was left out")


def first_rows(head: bytes, most: int) -> Iterator[dict[str, object]]:
    """What the first `most` lines of a JSON Lines file hold, empty for what is no object; broken lines are left out."""
    for raw in head.split(b"\n")[:most]:
        try:
            value = parse_json(raw)
        except ValueError:
            continue
        yield table(value)


def object_in(said: str) -> dict[str, object]:
    """The JSON object that a text is; empty when it is none."""
    if said.lstrip()[:1] != "{":
        return {}
    try:
        return table(parse_json(said.encode("utf-8", "replace")))
    except ValueError:
        return {}


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def tables(value: object) -> Iterator[dict[str, object]]:
    """The objects among a list's items."""
    return (item for item in items(value) if isinstance(item, dict))


def count(value: object, notes: Notes, line: int | None, what: str) -> int | None:
    """A token count; None when absent, and None with a problem when it is no credible number."""
    if value is None:
        return None
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
        return value
    notes.add(line, f"{what} is not a credible count and was left out")
    return None


def seconds(value: object, most: float = 1e9) -> float | None:
    """A length of time in seconds; None for anything that is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= most else None


def instant(value: object) -> float | None:
    """Unix time in seconds of an ISO 8601 timestamp; None for anything else, and outside 2020-2100."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return believed(moment.timestamp())


def instant_ms(value: object) -> float | None:
    """Unix time in seconds of a Unix time in milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return believed(value / 1000) if abs(value) <= _LATEST * 1000 else None


def instant_s(value: object) -> float | None:
    """Unix time in seconds, given as a number; None for anything else, and outside 2020-2100."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return believed(float(value)) if abs(value) <= _LATEST else None


def believed(unix: float) -> float | None:
    return unix if _EARLIEST <= unix <= _LATEST else None
