"""The lines of one agent's screen: who it is, and its transcript with its sub-agents' indented."""

import textwrap
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from windtunnel.tui.figures import count, percent, tenths
from windtunnel.tui.theme import Glyphs, Line, Theme
from windtunnel.tui.transcript import Entry, Story, Turn, entries
from windtunnel.tui.view import Row
from windtunnel.tui.widgets.agents import doing, first_token
from windtunnel.tui.widgets.compose import Part, cells, cut, filled, joined, pad, spread
from windtunnel.tui.widgets.lanes import clock
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


SHAPE, SHAPE_HEAD = 24, 24
"""Cells of the picture of a message without text, and of what stands before it."""
KINDS: Mapping[str, str] = {"code": "prefill", "prose": "text", "json": "tool", "log": "wait", "filler": "faint"}
"""Tones of what text would look like."""


def about_lines(story: Story, width: int, glyphs: Glyphs) -> list[Line]:
    """Two lines: which session and where it is; its figures now."""
    row = story.row
    full, rest = bar(row.turn / row.turns if row.turns else 0.0, 12, glyphs)
    nth = f"session {story.number} of {story.sessions}" if story.sessions > 1 else ""
    left: list[Part] = [
        (9, ((f"agent {row.agent + 1:02d}", "brand"),)),
        (8, ((cut(row.title or story.title or "no session yet", max(16, width // 3), glyphs.ellipsis), "strong"),)),
        (9, ((f"{glyphs.states[row.state]} {row.state:<8}", row.state),)),
        (2, ((nth, "dim"),) if nth else ()),
    ]
    right: list[Part] = [
        (5, ((full, row.state), (rest, "rule")) if row.turns else ()),
        (7, (("turn ", "dim"), (f"{row.turn}", "strong"), (f" of {row.turns}" if row.turns else "", "dim"))),
    ]
    figures: list[Part] = [
        (8, (("context ", "dim"), (f"{count(row.context, glyphs.none):>6}", "text"))),
        (7, (("cached ", "dim"), (f"{percent(row.cached, glyphs.none):>4}", _cached_tone(row)))),
        (7, (("TTFT ", "dim"), (f"{first_token(row, 5, glyphs)} s", "prefill" if row.ttft_open else "text"))),
        (6, ((f"{tenths(row.rate, glyphs.none):>5}", "text"), (" tok/s", "dim"))),
        (5, _slower(story)),
        (4, _threads(story)),
    ]
    used = cells(joined([line for _, line in figures]))
    now = doing(row, max(12, width - used - 4), glyphs) if not story.over else ()
    return [spread(left, right, width), spread(figures, [(3, now)] if width >= 100 else [], width)]


def _cached_tone(row: Row) -> str:
    """While a call runs the figure is that of the one before."""
    return "dim" if row.cached_old else "warn" if row.missed else "text"


def _slower(story: Story) -> Line:
    """Against the same calls when the session has the engine to itself."""
    if story.slower is None:
        return ()
    return (("slower than alone ", "dim"), (f"{story.slower:.1f}x", "warn" if story.slower >= 2 else "text"))


def _threads(story: Story) -> Line:
    others = len(story.lanes) - 1
    if others <= 0:
        return ()
    running = f" ({story.row.subagents} running)" if story.row.subagents else ""
    return (("sub-agents ", "dim"), (str(others), "tool"), (running, "dim"))


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


def entry_lines(entry: Entry, width: int, look: Theme, largest: int = 0) -> list[Line]:
    """The speaker in the left column, the head in grey, the text below or beside it.

    `largest`: tokens of the session's largest message, which a shape's picture is measured by.
    """
    glyphs = look.glyphs
    tone = SPEAKERS.get(entry.who, "text")
    room = max(10, width - LABEL - 3)
    body = wrapped(entry.text, room, LIMITS.get(entry.who, 8), glyphs) if entry.text else []
    text_tone = "faint" if entry.quiet else "dim" if entry.who in {"tool", "system", "think", "call"} else "text"
    lines: list[Line] = []
    label = pad(entry.who if entry.who != "note" else "", LABEL)
    if entry.shape:
        return [filled(((" " + label + " ", tone), *_shape(entry, room, largest, look)), width)]
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


def _shape(entry: Entry, room: int, largest: int, look: Theme) -> Line:
    """`Read  2.1k tokens  ▇▇▇▇▇▆▆  2.1k code + 300 filler`: how much of what, where no text was recorded."""
    glyphs, head = look.glyphs, SHAPE_HEAD if room >= 80 else SHAPE_HEAD - 6
    wide = SHAPE if room >= 80 else SHAPE // 2
    whole = sum(tokens for _, tokens in entry.shape)
    # Sizes differ a hundredfold: their square roots are drawn.
    total = max(1, round((whole / max(1, largest, whole)) ** 0.5 * wide)) if whole else 0
    out: list[tuple[str, str]] = [(pad(entry.head, head, ellipsis=glyphs.ellipsis) + "  ", "dim")]
    at, passed = 0, 0
    for kind, tokens in entry.shape:
        passed += tokens
        until = min(total, max(at, round(passed / max(1, whole) * total)))
        mark = "▇" if look.colour and glyphs.name == "unicode" else kind[:1]
        out.append((mark * (until - at), KINDS.get(kind, "cut")))
        at = until
    said = " + ".join(f"{count(tokens)} {kind}" for kind, tokens in entry.shape)
    left = room - head - wide - 4
    return (*out, (" " * (wide - at + 2), ""), (cut(said, left, glyphs.ellipsis), "faint"))


class Text(Struct, frozen=True):
    """The transcript's lines, and where each turn begins."""

    lines: tuple[Line, ...]
    begins: tuple[int, ...] = ()
    """By turn: its first line."""

    def turn_at(self, line: int) -> int:
        """Which turn a line belongs to."""
        return max(0, bisect_right(self.begins, line) - 1)


class Paragraphs:
    """The transcript as lines; what a finished turn came to is kept until the width changes."""

    def __init__(self, look: Theme) -> None:
        self.look = look
        self._kept: dict[tuple[int, int], tuple[Line, ...]] = {}
        self._key: tuple[object, ...] = ()
        self._largest = 0

    def text(self, story: Story, width: int) -> Text:
        calls = None if story.trace is None else len(story.trace.calls)
        key = (story.session, calls, width, self.look, len(story.lanes), bool(story.turns and story.turns[0].turn))
        if key != self._key:
            self._kept.clear()
            self._key = key
            self._largest = largest_message(story)
        out: list[Line] = []
        begins: list[int] = []
        if story.beheaded:
            gone = "the viewer no longer keeps the turns before these"
            out.append(((" " * (LABEL + 2), ""), (cut(gone, width - LABEL - 3), "faint")))
        for turn in story.turns:
            found = self._kept.get(turn.key)
            if found is None:
                found = self._turn(story, turn, width)
                if turn.done and (turn.key in story.written or turn.failure or turn.cut or not story.text_kept):
                    self._kept[turn.key] = found
            begins.append(len(out))
            out += found
        return Text(tuple(out), tuple(begins))

    def _turn(self, story: Story, turn: Turn, width: int) -> tuple[Line, ...]:
        """A sub-agent's turns are indented and carry its line at their left."""
        glyphs = self.look.glyphs
        depth = min(4, story.depth(turn.thread)) if turn.thread else 0
        side: Line = ((" " + f"{glyphs.axis} " * depth, "tool"),) if depth else ()
        inner = width - cells(side)
        name = f" turn {turn.turn}"
        if turn.thread:
            known = story.named(turn.thread)
            name = f"{glyphs.child}{turn.thread} {known + ' ' if known else ''}turn {turn.turn}"
        when = f" {clock(turn.start - story.began)} "
        rest = inner - len(name) - len(when) - 4
        rule: Line = (
            (f"{name} ", "tool" if turn.thread else "dim"),
            (glyphs.rule * max(0, rest), "rule"),
            (when, "faint"),
            (glyphs.rule * 2, "rule"),
        )
        lines: list[Line] = [(*side, *filled(rule, inner))]
        for entry in entries(story, turn):
            lines += [(*side, *line) for line in entry_lines(entry, inner, self.look, self._largest)]
        return tuple(lines)


def largest_message(story: Story) -> int:
    """Tokens of the largest message without text of a session; 0 where all have text."""
    trace = story.trace
    if trace is None or not trace.header.shape_only:
        return 0
    sent = (message for message in trace.messages if message.role != "assistant")
    return max((sum(trace.blocks[b].tokens for b in message.blocks) for message in sent), default=0)


def tail_of(lines: Sequence[Line], rows: int, back: int) -> tuple[list[Line], int]:
    """`rows` lines ending `back` lines before the end, and `back` as far as it can be."""
    back = max(0, min(back, len(lines) - rows))
    end = len(lines) - back
    return list(lines[max(0, end - rows) : end]), back
