"""The agents' table: one line each, columns that fit the width, numbers that stand still."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from windtunnel.agents.events import AgentState
from windtunnel.tui.figures import count, percent, seconds, tenths
from windtunnel.tui.theme import STATES, Glyphs, Line
from windtunnel.tui.view import Row
from windtunnel.tui.widgets.compose import cells, cut, filled, pad
from windtunnel.tui.widgets.plot import bar, trend

SORTS = ("agent", "state", "session", "turn", "context", "cached", "ttft", "rate", "slow")
"""What `s` goes through; the names of the columns' keys."""
NARROW = 76
"""Cells below which the turns have no bar."""
LEAST_DOING = 10
"""Cells below which nothing is said of what an agent does."""
SLOW = 1.5
"""Times as long as recorded, from which on an agent stands out."""
QUIET: frozenset[AgentState] = frozenset({"done", "idle", "cut"})


class Columns(Struct, frozen=True):
    """Widths in cells; 0 leaves a column out. `doing` takes what is left."""

    number: int
    session: int
    bar: int
    context: int
    cached: int
    ttft: int
    rate: int
    slow: int
    trend: int
    gap: int


def columns(width: int, agents: int, sort: str = "") -> Columns:
    """`sort`: on a narrow screen what is sorted by takes the place of what is said last."""
    number = max(2, len(str(agents)))
    if width < 100:
        bar = 4 if width >= NARROW else 0
        session = max(10, width - 66 if bar else min(width - 50, 20))
        return Columns(
            number=number,
            session=session,
            bar=bar,
            context=5,
            cached=4,
            ttft=5,
            rate=5,
            slow=6 * (sort == "slow"),
            trend=0,
            gap=1,
        )
    wide = width >= 150
    told = width >= 116
    return Columns(
        number=number,
        session=32 if wide else 20 if told else 16,
        bar=12 if wide else 6 if told else 8,
        context=7,
        cached=5,
        ttft=6,
        rate=6,
        slow=6 if told or sort == "slow" else 0,
        trend=12 if wide else 8 if told else 0,
        gap=2,
    )


def _key(sort: str) -> Callable[[Row], Any]:
    def missing_last(value: float | None) -> tuple[bool, float]:
        return (value is None, -(value or 0.0))

    keys: dict[str, Callable[[Row], Any]] = {
        "agent": lambda r: r.agent,
        "state": lambda r: STATES.index(r.state),
        "session": lambda r: r.title,
        "turn": lambda r: -(r.turn / r.turns) if r.turns else 1.0,
        "context": lambda r: missing_last(r.context),
        "cached": lambda r: (r.cached is None, r.cached or 0.0),
        "ttft": lambda r: missing_last(r.ttft_s),
        "rate": lambda r: missing_last(r.rate),
        "slow": lambda r: (missing_last(r.slow), missing_last(r.call_s)),
    }
    return keys[sort]


def arranged(rows: Sequence[Row], sort: str, backwards: bool) -> list[Row]:
    """Sorted, the interesting end first (most context, longest TTFT, least cached); equals stay in lane order."""
    return sorted(sorted(rows, key=lambda r: r.agent), key=_key(sort), reverse=backwards)


def _names(columns: Columns) -> list[tuple[str, str, int, bool]]:
    """(name, key to sort by, cells, right-aligned) of each column."""
    narrow = columns.gap == 1
    return [
        ("#", "agent", columns.number, True),
        ("state", "state", 9, False),
        ("session", "session", columns.session, False),
        ("turn", "turn", columns.bar + 8, False),
        ("ctx" if narrow else "context", "context", columns.context, True),
        ("hit" if narrow else "cached", "cached", columns.cached + 1, True),
        ("TTFT" if narrow else "TTFT s", "ttft", columns.ttft, True),
        ("tok/s", "rate", columns.rate, True),
        *([("vs rec", "slow", columns.slow, True)] if columns.slow else []),
    ]


def sort_at(columns: Columns, x: int) -> str | None:
    """What a click on the head at cell `x` sorts by."""
    left = 1
    for _, key, size, _ in _names(columns):
        if left <= x < left + size + columns.gap:
            return key
        left += size + columns.gap
    return None


def names_end(columns: Columns) -> int:
    """Cells that the names of the columns take."""
    return 1 + sum(size + columns.gap for _, _, size, _ in _names(columns))


def head(columns: Columns, sort: str, backwards: bool, width: int, glyphs: Glyphs, right: Line = ()) -> Line:
    """Column names; the one sorted by carries an arrow. `right` takes the end of the line."""
    parts = _names(columns)
    if columns.trend:
        parts.append(("trend", "", columns.trend, False))
    taken = sum(p[2] + columns.gap for p in parts)
    if width - cells(right) > taken + 6 and width - taken - 2 >= LEAST_DOING:
        parts.append(("doing", "", 5, False))
    mark = glyphs.up if backwards else glyphs.down
    out: list[tuple[str, str]] = [(" ", "head")]
    for name, key, size, right_aligned in parts:
        if key != sort:
            out.append((pad(name, size, right_aligned) + " " * columns.gap, "head"))
            continue
        # The arrow stands in the gap where the column has no room for it.
        room = size - len(name) >= 1
        if right_aligned:
            out.append((pad(f"{mark}{name}", size, right=True) if room else pad(name, size, right=True), "sorted"))
            out.append(
                (" " * columns.gap if room else mark + " " * (columns.gap - 1), "sorted" if not room else "head")
            )
        else:
            out += [(pad(f"{name}{mark}", size), "sorted"), (" " * columns.gap, "head")]
    return (*filled(tuple(out), width - cells(right), "head"), *right)


@lru_cache(maxsize=1024)
def row_line(row: Row, columns: Columns, width: int, glyphs: Glyphs, *, still: bool = False) -> Line:
    """One agent. `still`: the run is over and nothing happens any more. Cached: a third of the rows stand still."""
    gap = " " * columns.gap
    quiet = still or row.state in QUIET
    soft = "faint" if quiet else "dim"
    text = "faint" if quiet else "text"
    full, rest = bar(row.turn / row.turns if row.turns else 0.0, columns.bar, glyphs) if columns.bar else ("", "")
    turns = f"{row.turn}/{row.turns}" if row.turns else str(row.turn or glyphs.none)
    about = "" if row.exact else "~"
    # A call's first figures are grey once it is over; what is being waited for takes the state's colour.
    ttft = "prefill" if row.ttft_open else ("text" if row.ttft_about else soft)
    rate = about + tenths(row.rate, glyphs.none) if row.rate is not None else glyphs.none
    pieces: list[tuple[str, str]] = [
        (f" {row.agent + 1:>0{columns.number}}{gap}", soft),
        (pad(f"{glyphs.states[row.state]} {row.state}", 9), row.state),
        (f"{gap}{pad(titled(row, columns.session, glyphs), columns.session)}{gap}", text),
        (full, "faint" if quiet else row.state),
        (rest, "rule"),
        (f" {turns:>7}{gap}", text if row.turn else "faint"),
        (f"{count(row.context, glyphs.none):>{columns.context}}{gap}", text if row.context is not None else "faint"),
        (
            f"{percent(row.cached, glyphs.none):>{columns.cached}}",
            soft if row.cached_old else "warn bold" if row.missed and not quiet else text,
        ),
        (f"{'!' if row.missed else ' '}{gap}", "warn bold" if not quiet and not row.cached_old else soft),
        (f"{first_token(row, columns.ttft, glyphs)}{gap}", ttft if row.ttft_s is not None else "faint"),
        (f"{rate:>{columns.rate}}{gap}", "decode" if row.rate is not None else "faint"),
    ]
    if columns.slow:
        tone = "warn" if row.slow is not None and row.slow > SLOW and not quiet else soft
        pieces.append((f"{against_recorded(row, glyphs):>{columns.slow}}{gap}", tone))
    if columns.trend:
        pieces.append((trend(row.rates, columns.trend, glyphs.levels) + gap, "rule" if quiet else "fill-trend"))
    room = width - cells(tuple(pieces)) - 1
    now = doing(row, room, glyphs) if room >= LEAST_DOING else ()
    return (*pieces, *(((text, "faint") for text, _ in now) if still and row.state != "failed" else now))


def titled(row: Row, width: int, glyphs: Glyphs) -> str:
    """The session, and whose call is shown: `title/↳2` of a sub-agent; `title +↳` where theirs are in the figures."""
    whose = f"/{glyphs.child}{row.thread}" if row.thread else f" +{glyphs.child}" if row.mixed else ""
    return cut(row.title, max(0, width - len(whose)), glyphs.ellipsis) + whose


def first_token(row: Row, width: int, glyphs: Glyphs) -> str:
    """The time to the first token, with ~ where it was worked out; a decimal less where that does not fit."""
    if not row.ttft_about or row.ttft_s is None:
        return f"{seconds(row.ttft_s, glyphs.none):>{width}}"
    text = f"~{seconds(row.ttft_s)}"
    return f"{text if len(text) <= width else f'~{row.ttft_s:.1f}':>{width}}"


def against_recorded(row: Row, glyphs: Glyphs) -> str:
    """`1.4x` as long as recorded; seconds a call where that is not known."""
    if row.slow is not None:
        return f"{row.slow:.1f}x" if row.slow < 99.95 else f"{row.slow:,.0f}x"
    return glyphs.none if row.call_s is None else f"{row.call_s:.1f} s"


def doing(row: Row, width: int, glyphs: Glyphs) -> Line:
    """What the agent is busy with, in `width` cells."""
    d = row.doing
    about = "" if row.exact else "~"
    if row.state == "decode" and d.tokens is not None:
        of = f"/{d.pinned}" if d.pinned else ""
        progress = f"{about}{d.tokens}{of}"
        tail = " ".join(d.tail.split())
        if width >= 28 and tail:
            room = width - 11
            shown = tail if len(tail) <= room else glyphs.ellipsis + tail[-(room - 1) :]
            return ((f"{progress:>9}  ", "dim"), (cut(shown, room, glyphs.ellipsis), "dim"))
        return ((cut(f"{progress} tok" if width >= len(progress) + 4 else progress, width, glyphs.ellipsis), "dim"),)
    missed = f"  ! {row.miss_cause}" if row.missed and row.miss_cause else ""
    if row.state == "tool":
        return _timed(d.label or "tool", d.elapsed_s, d.planned_s, width, "tool", glyphs, missed)
    if row.state == "wait":
        label = d.label or "wait"
        capped = d.planned_s is not None and d.recorded_s is not None and d.recorded_s > d.planned_s + 0.5
        return _timed(
            label,
            d.elapsed_s,
            d.planned_s,
            width,
            "wait",
            glyphs,
            f"  recorded {d.recorded_s:.0f} s" if capped else missed,
        )
    tone = {"failed": "bad", "prefill": "dim", "queue": "dim"}.get(row.state, "faint")
    text = d.text
    if len(text) > width:
        text = "engine queue" if row.state == "queue" else text.removesuffix(" tokens")
    return ((cut(text, width, glyphs.ellipsis), tone),)


def _timed(
    label: str, elapsed: float | None, planned: float | None, width: int, tone: str, glyphs: Glyphs, more: str = ""
) -> Line:
    """`Bash  3.2 of 14.0 s`; the time gives way to whole seconds before the label is cut."""
    if elapsed is None:
        return ((cut(label, width, glyphs.ellipsis), tone),)
    if planned is None:
        forms = [f"{elapsed:.1f} s", f"{elapsed:.0f} s"]
    else:
        forms = [
            f"{elapsed:.1f} of {planned:.1f} s",
            f"{elapsed:.1f}/{planned:.1f} s",
            f"{elapsed:.0f}/{planned:.0f} s",
        ]
    size = min(len(label), 12)
    time = next((form for form in forms if size + 2 + len(form) <= width), forms[-1])
    gap = "  " if size + 2 + len(time) <= width else " "
    line: Line = ((cut(label, max(3, width - len(time) - len(gap)), glyphs.ellipsis), tone), (gap + time, "dim"))
    if more and cells(line) + len(more) <= width:
        line = (*line, (more, "faint"))
    return line
