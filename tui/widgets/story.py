"""The lines of one agent's screen: who it is, its turns as figures, and its transcript."""

import textwrap
from collections.abc import Sequence

from windtunnel.tui.figures import count, percent, seconds, tenths
from windtunnel.tui.theme import Glyphs, Line
from windtunnel.tui.transcript import Entry, Story, Turn, entries
from windtunnel.tui.view import Row
from windtunnel.tui.widgets.agents import doing
from windtunnel.tui.widgets.compose import Part, cells, cut, filled, pad, spread
from windtunnel.tui.widgets.plot import bar

LABEL = 8
"""Cells of the speaker's column."""
LIMITS = {"system": 4, "user": 12, "tool": 8, "think": 8, "agent": 60, "call": 6, "note": 3, "failed": 4, "cut": 1}
"""Lines shown of one paragraph: tool results may be megabytes."""
SPEAKERS = {
    "system": "dim",
    "user": "strong",
    "tool": "tool",
    "think": "wait",
    "agent": "decode",
    "call": "prefill",
    "note": "faint",
    "failed": "bad",
    "cut": "cut",
}


def about_lines(story: Story, width: int, glyphs: Glyphs) -> list[Line]:
    """Two lines: which session and where it is; its figures now."""
    row = story.row
    full, rest = bar(row.turn / row.turns if row.turns else 0.0, 12, glyphs)
    left: list[Part] = [
        (9, ((f"agent {row.agent + 1:02d}", "brand"),)),
        (8, ((cut(row.title or story.title or "no session yet", max(16, width // 3), glyphs.ellipsis), "strong"),)),
        (9, ((f"{glyphs.states[row.state]} {row.state:<8}", row.state),)),
    ]
    right: list[Part] = [
        (5, ((full, row.state), (rest, "rule"))),
        (7, (("turn ", "dim"), (f"{row.turn}", "strong"), (f" of {row.turns}" if row.turns else "", "dim"))),
    ]
    figures: list[Part] = [
        (8, (("context ", "dim"), (f"{count(row.context, glyphs.none):>6}", "text"))),
        (7, (("cached ", "dim"), (f"{percent(row.cached, glyphs.none):>4}", "warn" if row.missed else "text"))),
        (7, (("TTFT ", "dim"), (f"{seconds(row.ttft_s, glyphs.none):>5} s", "prefill" if row.ttft_open else "text"))),
        (6, ((f"{tenths(row.rate, glyphs.none):>5}", "text"), (" tok/s", "dim"))),
        (3, (("sub-agents ", "dim"), (str(row.subagents), "text")) if row.subagents else ()),
    ]
    used = cells(spread(figures, [], 400)) and sum(cells(line) + 2 for _, line in figures)
    now = doing(row, max(12, width - used - 4), glyphs)
    return [spread(left, right, width), spread(figures, [(4, now)] if width >= 100 else [], width)]


TURN_COLUMNS = (
    ("turn", 6, True),
    ("recorded", 9, True),
    ("now s", 7, True),
    ("prompt", 8, True),
    ("cached", 7, True),
    ("missed", 7, True),
    ("new", 7, False),
    ("TTFT s", 7, True),
    ("TPOT ms", 8, False),
    ("out", 6, True),
)
"""(name, width, kept below 100 columns). Prompt = cached + missed + new."""


def _turn_columns(width: int) -> list[tuple[str, int]]:
    return [(name, size) for name, size, narrow in TURN_COLUMNS if narrow or width >= 100]


def turns_head(width: int) -> Line:
    names = "".join(f"{name:>{size}} " for name, size in _turn_columns(width))
    return filled(((names + " then", "head"),), width, "head")


def turn_line(turn: Turn, after: Turn | None, row: Row, width: int, glyphs: Glyphs) -> Line:
    """One call: recorded against replayed time, the prompt's three parts, its speed, and what came after it."""
    none = glyphs.none
    missed = turn.missed
    tone = "text" if turn.done else "dim"
    alarm = bool(missed and turn.prompt and missed > 0.1 * turn.prompt)
    now = f"{turn.latency_s:.2f}" if turn.latency_s is not None else glyphs.ellipsis
    tpot = tenths(turn.tpot_s * 1000, none) if turn.tpot_s is not None else none
    shown = {
        "turn": (
            f"{glyphs.child}{turn.thread} {turn.turn}" if turn.thread else str(turn.turn),
            "tool" if turn.thread else "dim",
        ),
        "recorded": (seconds(turn.recorded_s, none), "dim"),
        "now s": (now, "bad" if turn.failure else "strong" if turn.done else "decode"),
        "prompt": (count(turn.prompt, none), tone),
        "cached": (count(turn.cached, none), "good" if turn.cached else "faint"),
        "missed": (count(missed, none), "warn bold" if alarm else "text" if missed else "faint"),
        "new": (count(turn.new, none), "text" if turn.new else "faint"),
        "TTFT s": (seconds(turn.ttft_s, none), tone),
        "TPOT ms": (tpot, tone),
        "out": (("" if turn.exact else "~") + count(turn.completion, none), tone),
    }
    pieces = [(f"{shown[name][0]:>{size}} ", shown[name][1]) for name, size in _turn_columns(width)]
    then, colour = _then(turn, after, row)
    if alarm and turn.miss_cause:
        then, colour = f"{turn.miss_cause}{glyphs.separator}{then}" if then else turn.miss_cause, "warn"
    room = width - cells(tuple(pieces)) - 2
    return filled((*pieces, (" " + cut(then, room, glyphs.ellipsis), colour)), width)


def _then(turn: Turn, after: Turn | None, row: Row) -> tuple[str, str]:
    """What followed a call: its tools, its failure, or what the agent does now."""
    if turn.failure:
        return turn.failure.replace("_", " "), "bad"
    if turn.cut:
        return "cut by the end of the run", "cut"
    if after is not None:
        return (f"{after.wait_label} {after.waited_s:.1f} s", "tool") if after.wait_label else ("", "")
    if not turn.done:
        return row.state, row.state
    return row.doing.label or row.state, row.state


def turns_table(story: Story, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """The last calls, newest at the bottom."""
    turns = list(story.turns)
    following: dict[int, Turn] = {}
    last: dict[int, Turn] = {}
    for i in reversed(range(len(turns))):
        if turns[i].thread in last:
            following[i] = last[turns[i].thread]
        last[turns[i].thread] = turns[i]
    first = max(0, len(turns) - rows)
    return [turn_line(turns[i], following.get(i), story.row, width, glyphs) for i in range(first, len(turns))]


def wrapped(text: str, width: int, limit: int, glyphs: Glyphs) -> list[str]:
    """The text in at most `limit` lines of `width` cells; what is left out is counted in its own lines."""
    raw = [line.expandtabs(4) for line in text.replace("\r", "").split("\n")]
    while raw and not raw[-1].strip():
        raw.pop()
    lines: list[str] = []
    begun: list[int] = []
    for i, line in enumerate(raw):
        printable = "".join(c if c.isprintable() else " " for c in line)
        parts = textwrap.wrap(printable, width, replace_whitespace=False) or [""]
        lines += parts
        begun += [i] * len(parts)
        if len(lines) > limit:
            hidden = len(raw) - begun[limit - 1]
            return [*lines[: limit - 1], f"{glyphs.ellipsis} {hidden} more {'line' if hidden == 1 else 'lines'}"]
    return lines


def entry_lines(entry: Entry, width: int, glyphs: Glyphs) -> list[Line]:
    """The speaker in the left column, the head in grey, the text below or beside it."""
    tone = SPEAKERS.get(entry.who, "text")
    room = max(10, width - LABEL - 3)
    body = wrapped(entry.text, room, LIMITS.get(entry.who, 8), glyphs) if entry.text else []
    text_tone = "faint" if entry.quiet else "dim" if entry.who in {"tool", "system", "think", "call"} else "text"
    lines: list[Line] = []
    label = pad(entry.who if entry.who != "note" else "", LABEL)
    if entry.quiet and len(body) <= 1 and cells(((entry.head, ""),)) + len(entry.text) + 2 < room:
        joint = f"  {entry.text}" if entry.text else ""
        return [((" " + label + " ", tone), (entry.head, "dim"), (joint, text_tone))]
    if entry.head:
        lines.append(((" " + label + " ", tone), (cut(entry.head, room, glyphs.ellipsis), "dim")))
        label = " " * LABEL
    for text in body:
        lines.append(((" " + label + " ", tone), (text, text_tone)))
        label = " " * LABEL
    return lines


class Paragraphs:
    """The transcript as lines; what a finished turn came to is kept until the width changes."""

    def __init__(self, glyphs: Glyphs) -> None:
        self.glyphs = glyphs
        self._kept: dict[tuple[int, int], tuple[Line, ...]] = {}
        self._key: tuple[object, ...] = ()

    def lines(self, story: Story, width: int) -> list[Line]:
        key = (story.session, None if story.trace is None else len(story.trace.calls), width)
        if key != self._key:
            self._kept.clear()
            self._key = key
        out: list[Line] = []
        for turn in story.turns:
            found = self._kept.get(turn.key)
            if found is None:
                found = self._turn(story, turn, width)
                if turn.done and (turn.key in story.written or turn.failure or turn.cut or not story.text_kept):
                    self._kept[turn.key] = found
            out += found
        return out

    def _turn(self, story: Story, turn: Turn, width: int) -> tuple[Line, ...]:
        name = f" turn {turn.turn}" + (f" of sub-agent {turn.thread}" if turn.thread else "")
        rule = self.glyphs.rule
        lines: list[Line] = [filled(((name + " ", "dim"), (rule * (width - len(name) - 2), "rule")), width)]
        for entry in entries(story, turn):
            lines += entry_lines(entry, width, self.glyphs)
        return tuple(lines)


def tail_of(lines: Sequence[Line], rows: int, back: int) -> tuple[list[Line], int]:
    """`rows` lines ending `back` lines before the end, and `back` as far as it can be."""
    back = max(0, min(back, len(lines) - rows))
    end = len(lines) - back
    return list(lines[max(0, end - rows) : end]), back
