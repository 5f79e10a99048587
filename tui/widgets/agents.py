"""The agents' table: one line each, columns that fit the width, numbers that stand still."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from windtunnel.agents.events import AgentState
from windtunnel.tui.figures import count, percent, seconds, tenths
from windtunnel.tui.theme import STATES, Glyphs, Line
from windtunnel.tui.view import Row
from windtunnel.tui.widgets.compose import cells, cut, filled, pad
from windtunnel.tui.widgets.plot import bar, trend

SORTS = ("agent", "state", "session", "turn", "context", "cached", "ttft", "rate")
"""What `s` goes through; the names of the columns' keys."""
QUIET: frozenset[AgentState] = frozenset({"done", "idle", "cut"})


class Columns(Struct, frozen=True):
    """Widths in cells; 0 leaves a column out. `doing` takes what is left."""

    number: int
    session: int
    bar: int
    trend: int
    gap: int


def columns(width: int, agents: int) -> Columns:
    number = max(2, len(str(agents)))
    if width < 100:
        return Columns(number=number, session=max(10, width - 68), bar=4, trend=0, gap=1)
    if width < 150:
        return Columns(number=number, session=22, bar=8, trend=8 if width >= 112 else 0, gap=2)
    return Columns(number=number, session=30, bar=12, trend=12, gap=2)


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
    }
    return keys[sort]


def arranged(rows: Sequence[Row], sort: str, backwards: bool) -> list[Row]:
    """Sorted, the interesting end first (most context, longest TTFT, least cached); equals stay in lane order."""
    return sorted(sorted(rows, key=lambda r: r.agent), key=_key(sort), reverse=backwards)


def head(columns: Columns, sort: str, backwards: bool, width: int, glyphs: Glyphs, right: Line = ()) -> Line:
    mark = glyphs.up if backwards else glyphs.down
    gap = " " * columns.gap
    parts: list[tuple[str, str, int, bool]] = [
        ("#", "agent", columns.number, True),
        ("state", "state", 9, False),
        ("session", "session", columns.session, False),
        ("turn", "turn", columns.bar + 8, False),
        ("context", "context", 7, True),
        ("cached", "cached", 6, True),
        ("TTFT s", "ttft", 6, True),
        ("tok/s", "rate", 6, True),
    ]
    if columns.trend:
        parts.append(("trend", "", columns.trend, False))
    parts.append(("doing", "", 12, False))
    out: list[tuple[str, str]] = [(" ", "head")]
    for name, key, size, right_aligned in parts:
        shown = name
        if key == sort:
            shown = f"{mark}{name}" if right_aligned else f"{name}{mark}"
        out.append((pad(shown, max(size, len(shown)) if size >= 6 else size, right_aligned), "head sorted" if key == sort else "head"))
        out.append((gap, "head"))
    line = filled(tuple(out), width - cells(right), "head")
    return (*line, *right)


def row_line(row: Row, columns: Columns, width: int, glyphs: Glyphs, parsed: bool = True) -> Line:
    gap = " " * columns.gap
    quiet = row.state in QUIET
    soft = "faint" if quiet else "dim"
    text = "faint" if quiet else "text"
    title = f"{row.title}/{glyphs.child}{row.thread}" if row.thread else row.title
    full, rest = bar(row.turn / row.turns if row.turns else 0.0, columns.bar, glyphs)
    turns = f"{row.turn}/{row.turns}" if row.turns else glyphs.none
    about = "" if parsed else "~"
    # A call's first figures are grey once it is over; what is being waited for takes the state's colour.
    ttft = "prefill" if row.ttft_open else ("text" if row.state == "decode" else soft)
    rate = about + tenths(row.rate, glyphs.none) if row.rate is not None else glyphs.none
    pieces: list[tuple[str, str]] = [
        (f" {row.agent + 1:>0{columns.number}}{gap}", soft),
        (pad(f"{glyphs.states[row.state]} {row.state}", 9), row.state),
        (f"{gap}{pad(title, columns.session, ellipsis=glyphs.ellipsis)}{gap}", text),
        (full, "faint" if quiet else row.state),
        (rest, "rule"),
        (f" {turns:>7}{gap}", text if row.turns else "faint"),
        (f"{count(row.context, glyphs.none):>7}{gap}", text if row.context is not None else "faint"),
        (f"{percent(row.cached, glyphs.none):>5}", "warn bold" if row.missed and not quiet else text if row.cached is not None else "faint"),
        (f"{'!' if row.missed else ' '}{gap}", "warn bold" if not quiet else "faint"),
        (f"{seconds(row.ttft_s, glyphs.none):>6}{gap}", ttft if row.ttft_s is not None else "faint"),
        (f"{rate:>6}{gap}", "decode" if row.rate is not None else "faint"),
    ]
    if columns.trend:
        pieces.append((trend(row.rates, columns.trend, glyphs, max(row.rates, default=0.0) * 1.1) + gap, "faint" if quiet else "dim"))
    used = cells(tuple(pieces))
    return (*pieces, *doing(row, width - used - 1, glyphs, parsed))


def doing(row: Row, width: int, glyphs: Glyphs, parsed: bool = True) -> Line:
    """What the agent is busy with, in `width` cells."""
    d = row.doing
    about = "" if parsed else "~"
    if row.state == "decode" and d.tokens is not None:
        of = f"/{d.pinned}" if d.pinned else ""
        progress = f"{about}{d.tokens}{of}"
        tail = " ".join(d.tail.split())
        if width >= 28 and tail:
            room = width - 11
            shown = tail if len(tail) <= room else glyphs.ellipsis + tail[-(room - 1) :]
            return ((f"{progress:>9}  ", "dim"), (cut(shown, room, glyphs.ellipsis), "dim"))
        return ((cut(f"{progress} tokens" if width >= len(progress) + 7 else progress, width, glyphs.ellipsis), "dim"),)
    if row.state == "tool":
        return _timed(d.label or "tool", d.elapsed_s, d.planned_s, width, "tool", glyphs)
    if row.state == "wait":
        label = d.label or "wait"
        capped = d.planned_s is not None and d.recorded_s is not None and d.recorded_s > d.planned_s + 0.5
        return _timed(label, d.elapsed_s, d.planned_s, width, "wait", glyphs, f" (was {d.recorded_s:.0f} s)" if capped else "")
    tone = {"failed": "bad", "prefill": "dim", "queue": "dim"}.get(row.state, "faint")
    return ((cut(d.text, width, glyphs.ellipsis), tone),)


def _timed(label: str, elapsed: float | None, planned: float | None, width: int, tone: str, glyphs: Glyphs, more: str = "") -> Line:
    """`Bash  3.2 of 14.0 s`, the label cut before the time."""
    time = ""
    if elapsed is not None:
        long = f"{elapsed:.1f} of {planned:.1f} s" if planned is not None else f"{elapsed:.1f} s"
        short = f"{elapsed:.0f}/{planned:.0f} s" if planned is not None else f"{elapsed:.0f} s"
        time = long if width >= len(long) + 12 else short
    name = cut(label, max(4, width - len(time) - 2), glyphs.ellipsis)
    line: Line = ((name, tone), (f"{'  ' if width >= 24 else ' '}{time}", "dim"))
    if more and cells(line) + len(more) <= width:
        line = (*line, (more, "faint"))
    return line
