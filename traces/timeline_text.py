"""A session's timeline as lines for a terminal: a strip of time for every thread, then a line for every call."""

from collections.abc import Sequence

from windtunnel.traces.model import Trace
from windtunnel.traces.pictures import Pen, Style, clock, count, duration
from windtunnel.traces.profile import prompt_sizes
from windtunnel.traces.timeline import FOLD, Column, Lane, State, axis, lanes, states

_GLYPHS: dict[State, tuple[str, str]] = {
    "call": ("\u2588", "#"),
    "tool": ("\u2592", "="),
    "human": ("\u00b7", "."),
    "client": ("-", "-"),
    "subagent": ("\u254c", ":"),
}
_WORDS: dict[State, str] = {
    "call": "request in flight",
    "tool": "tools",
    "human": "the user",
    "client": "the client",
    "subagent": "sub-agents",
}
_STYLES: dict[State, Style] = {
    "call": "call",
    "tool": "tool",
    "human": "human",
    "client": "client",
    "subagent": "subagent",
}
_WIDEST = 200
_LABELS = (14, 22)
"""Columns for the lanes' names, on a narrow and on a wide terminal."""
_WIDE = 120
_MOST_STRIPS = 8
_PER_CALL = 3
"""Columns for one call and what it leads to, before the session is drawn in more than one strip."""


def timeline_lines(trace: Trace, pen: Pen) -> list[str]:
    """Strips of time, each with the lanes of the threads that were alive in it; empty when no time was recorded."""
    found = lanes(trace)
    if not found:
        return []
    width = min(pen.width, _WIDEST)
    label = min(_LABELS[width >= _WIDE], max(8, max(len(_label(lane, pen)) for lane in found) + 1))
    room = width - label
    busiest = max(lane.calls for lane in found)
    strips = max(1, min(_MOST_STRIPS, -(-busiest * _PER_CALL // room)))
    columns = axis(found, room * strips)
    sizes = _sizes(trace, found[0], columns)
    rows = {lane.thread: states(lane, columns) for lane in found}
    out = []
    for at in range(0, len(columns), room):
        part = columns[at : at + room]
        out.append(" " * label + pen.paint(_ruler(part, pen), "dim"))
        for lane in found:
            cells = rows[lane.thread][at : at + room]
            if any(c is not None for c in cells):
                name = pen.cut(_label(lane, pen), label - 1)
                out.append(f"{name:<{label}}{_strip(cells, part, pen)}".rstrip())
        out.append(f"{'prompt':<{label}}{pen.paint(_levels(sizes[at : at + room], max(sizes), pen), 'dim')}".rstrip())
        out.append("")
    return [*out, *_legend(found, max(sizes), pen, width)]


def _label(lane: Lane, pen: Pen) -> str:
    return lane.name if lane.depth == 0 else " " * (lane.depth - 1) + pen.pick("\u2514", "+") + lane.name


def _ruler(columns: Sequence[Column], pen: Pen) -> str:
    """Times where they have room, each at the column it is the start of."""
    text = ""
    last: float | None = None
    for i, column in enumerate(columns):
        mark = pen.pick("\u2502", "|") + clock(column.start)
        fits = len(mark) <= len(columns) - i
        if len(text) <= i and fits and not column.part and (last is None or int(column.start) > int(last)):
            text = text.ljust(i) + mark + "   "
            last = column.start
    return text.rstrip()


def _strip(cells: Sequence[State | None], columns: Sequence[Column], pen: Pen) -> str:
    """A lane's characters; a folded stretch says how long it was."""
    text = [" " if c is None else pen.pick(*_GLYPHS[c]) for c in cells]
    for i, column in enumerate(columns):
        whole = column.folded is not None and column.part == 0 and i + FOLD <= len(columns)
        if whole and None not in cells[i : i + FOLD] and "subagent" not in cells[i : i + FOLD]:
            said = duration(column.folded)
            begin = i + (FOLD - len(said)) // 2
            text[begin : begin + len(said)] = said
    out = ""
    at = 0
    while at < len(cells):
        end = at
        while end < len(cells) and cells[end] == cells[at]:
            end += 1
        state = cells[at]
        out += pen.paint("".join(text[at:end]), "plain" if state is None else _STYLES[state])
        at = end
    return out


def _sizes(trace: Trace, main: Lane, columns: Sequence[Column]) -> list[float]:
    """The main agent's prompt at each column: of the last call that had started."""
    prompts = prompt_sizes(trace)
    calls = [s for s in main.stretches if s.state == "call" and trace.calls[s.call].kind != "auxiliary"]
    out: list[float] = []
    at = 0
    held = 0.0
    for column in columns:
        while at < len(calls) and calls[at].start < column.end:
            held = prompts[calls[at].call]
            at += 1
        out.append(held)
    return out


def _levels(sizes: Sequence[float], most: float, pen: Pen) -> str:
    return "".join(pen.level(s / most if most else 0.0) for s in sizes)


def _legend(found: Sequence[Lane], most: float, pen: Pen, width: int) -> list[str]:
    seen = {s.state for lane in found for s in lane.stretches}
    parts = [f"{pen.paint(pen.pick(*_GLYPHS[s]), _STYLES[s])} {_WORDS[s]}" for s in _GLYPHS if s in seen]
    plain = [f"x {_WORDS[s]}" for s in _GLYPHS if s in seen]
    last = f"prompt: full height {count(most)}"
    line = "   ".join([*parts, pen.paint(last, "dim")])
    if len("   ".join([*plain, last])) <= width:
        return [line]
    return ["   ".join(parts), pen.paint(last, "dim")]
