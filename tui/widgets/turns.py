"""The turns of a session as a table: recorded and replayed time, where the prompt came from, where the time went."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windtunnel.simulator.results.call_lines import Waited
from windtunnel.simulator.results.untold import LaneState
from windtunnel.tui.figures import count, seconds, tenths
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.transcript import Story, Turn
from windtunnel.tui.widgets.compose import cells, clip, cut, filled, pad
from windtunnel.tui.widgets.lanes import marks, tone

WIDE, MIDDLE, NARROW = 140, 100, 72
PARTS: Mapping[str, LaneState] = {
    "rate_cap": "queue",
    "client": "queue",
    "front": "queue",
    "queue": "queue",
    "prefill_new": "prefill",
    "prefill_missed": "prefill",
    "prefill_diverged": "prefill",
    "prefill": "prefill",
    "first_token": "first",
    "one_piece": "first",
    "decode": "decode",
    "held_up": "decode",
}
"""Parts of a call's time as states."""
UNTOLD = frozenset({"first_token", "one_piece"})
"""Parts of which nobody knows what they were."""
BAR: tuple[LaneState, ...] = ("queue", "prefill", "first", "decode", "tool", "wait")
ALARM = 0.1
"""Of a prompt: a call that missed more is marked."""

AGAIN = 16
"""Tokens of its own output that a prompt carries as other bytes: fewer are not worth a word."""


class Column(Struct, frozen=True):
    name: str
    size: int
    least: int = 0
    """Width from which on it is shown."""
    most: int = 1000


COLUMNS = (
    Column("turn", 6),
    Column("rec s", 6),
    Column("took s", 6),
    Column("slower", 6),
    Column("prompt", 6),
    Column("cached", 6),
    Column("missed", 6),
    Column("new", 6),
    Column("TTFT s", 6),
    Column("TPOT", 5, least=NARROW, most=MIDDLE - 1),
    Column("TPOT ms", 7, least=MIDDLE),
    Column("out", 5, least=MIDDLE),
    Column("queue s", 7, least=WIDE),
    Column("prefill s", 9, least=WIDE),
    Column("decode s", 8, least=WIDE),
    Column("tool s", 6, least=NARROW),
)
"""Prompt = cached + missed + new."""


def columns(width: int, story: Story) -> list[Column]:
    left_out = set() if story.replayed else {"rec s"}
    left_out |= set() if any(split(turn) for turn in story.turns) else {"queue s", "prefill s"}
    left_out |= set() if any(turn.slower for turn in story.turns) and width >= MIDDLE else {"slower"}
    return [c for c in COLUMNS if c.least <= width <= c.most and c.name not in left_out]


def split(turn: Turn) -> bool:
    """Whether what came before the first token is known in parts; else all that is known is its length, the TTFT."""
    return bool(turn.parts) and all(part.name not in UNTOLD for part in turn.parts)


def bar_width(width: int, story: Story) -> int:
    used = sum(c.size + 1 for c in columns(width, story)) + 2
    return 0 if width - used < 4 else min(width - used, 24 if width >= WIDE else 16 if width >= MIDDLE else 10)


def turns_head(width: int, story: Story) -> Line:
    names = "".join(f"{c.name:>{c.size}} " for c in columns(width, story))
    wide = bar_width(width, story)
    where = pad("time" if wide < 14 else "where it went", wide, ellipsis="") if wide >= 4 else ""
    more = "  then" if width >= MIDDLE else ""
    return filled(((f"{names} {where}{more}", "head"),), width, "head")


def waits_after(turn: Turn, after: Turn | None) -> tuple[Waited, ...]:
    """What its thread did between it and its next call, or does now."""
    return after.waits if after is not None else turn.then


def spent(turn: Turn, after: Turn | None) -> dict[LaneState, float]:
    """Seconds of a call by state, and what its thread did until its next call."""
    out: dict[LaneState, float] = {}
    for part in turn.parts:
        state = PARTS[part.name]
        out[state] = out.get(state, 0.0) + part.seconds
    for wait in waits_after(turn, after):
        kind: LaneState = "tool" if wait.cause == "tool" else "wait"
        out[kind] = out.get(kind, 0.0) + wait.seconds
    return out


def time_bar(times: Mapping[LaneState, float], longest: float, width: int, look: Theme) -> Line:
    """Where a turn's time went; the longest of those shown fills the width."""
    whole = sum(times.values())
    if width <= 0 or longest <= 0 or whole <= 0:
        return ((" " * max(0, width), ""),)
    drawn = marks(look.glyphs, look.colour)
    total = max(1, round(whole / longest * width))
    out: list[tuple[str, str]] = []
    at, passed = 0, 0.0
    for state in BAR:
        passed += times.get(state, 0.0)
        until = min(total, round(passed / whole * total))
        if until > at:
            out.append((drawn[state] * (until - at), tone(state, look.colour)))
            at = until
    return (*out, (" " * (width - at), ""))


def following(turns: Sequence[Turn]) -> dict[tuple[int, int], Turn]:
    """By a call's key the next call of its thread."""
    out: dict[tuple[int, int], Turn] = {}
    last: dict[int, Turn] = {}
    for turn in turns:
        if turn.thread in last:
            out[last[turn.thread].key] = turn
        last[turn.thread] = turn
    return out


def turn_line(turn: Turn, after: Turn | None, story: Story, longest: float, width: int, look: Theme, over: str) -> Line:
    glyphs, none = look.glyphs, look.glyphs.none
    text = "text" if turn.done else "dim"
    missed = None if turn.missed is None else turn.missed + turn.lost
    alarm = bool(missed and turn.prompt and missed > ALARM * turn.prompt)
    times = spent(turn, after)
    parted = split(turn)
    took = f"{turn.latency_s:.2f}" if turn.latency_s is not None else glyphs.ellipsis

    def part(state: LaneState) -> tuple[str, str]:
        value = times.get(state, 0.0 if parted and state != "tool" else None)
        return seconds(value, none), state if value and value >= 0.005 else "faint"

    shown = {
        "turn": (
            f"{glyphs.child}{turn.thread} {turn.turn}" if turn.thread else str(turn.turn),
            "tool" if turn.thread else "dim",
        ),
        "rec s": (seconds(turn.recorded_s, none), "dim"),
        "took s": (took, "bad" if turn.failure else "strong" if turn.done else "decode"),
        "slower": (f"{turn.slower:.1f}x" if turn.slower else none, "warn" if (turn.slower or 0) >= 2 else text),
        "prompt": (count(turn.prompt, none), text),
        "cached": (count(turn.cached, none), "good" if turn.cached else "faint"),
        "missed": (count(missed, none), "warn bold" if alarm else "text" if missed else "faint"),
        "new": (count(turn.new, none), "text" if turn.new else "faint"),
        "TTFT s": (("~" if turn.ttft_about else "") + seconds(turn.ttft_s, none), text),
        "TPOT": (tenths(turn.tpot_s * 1000, none) if turn.tpot_s is not None else none, text),
        "TPOT ms": (tenths(turn.tpot_s * 1000, none) if turn.tpot_s is not None else none, text),
        "out": (("" if turn.exact else "~") + count(turn.completion, none), text),
        "queue s": part("queue") if parted else (none, "faint"),
        "prefill s": part("prefill") if parted else (none, "faint"),
        "decode s": part("decode"),
        "tool s": part("tool"),
    }
    pieces = [(f"{shown[c.name][0]:>{c.size}} ", shown[c.name][1]) for c in columns(width, story)]
    wide = bar_width(width, story)
    line: Line = (*pieces, (" ", ""), *time_bar(times, longest, wide, look))
    if width >= MIDDLE:
        then, colour = _then(turn, after, story, alarm=alarm, separator=glyphs.separator)
        line = (*line, ("  ", ""), (cut(then, width - cells(line) - 3, glyphs.ellipsis), colour))
    if over:
        line = tuple((piece, f"{style} {over}".strip()) for piece, style in line)
    return filled(line, width, over)


def _then(turn: Turn, after: Turn | None, story: Story, *, alarm: bool, separator: str) -> tuple[str, str]:
    """Why it missed the cache, and what followed the call: its tools, its failure, or what the agent does now."""
    if turn.failure:
        return turn.failure.replace("_", " "), "bad"
    if turn.cut:
        return "cut by the end of the run", "cut"
    waits = waits_after(turn, after)
    if after is not None or waits:
        then = " + ".join(_wait_name(w.label, w.cause) for w in waits)
        colour = "tool" if any(w.cause == "tool" for w in waits) else "wait"
    elif not turn.done:
        then, colour = story.row.state, story.row.state
    else:
        then, colour = story.row.doing.label, story.row.state
    why = turn.miss_cause or turn.culprit if alarm else ""
    return (separator.join(t for t in (why, then) if t), "warn") if why else (then, colour)


def _wait_name(label: str, cause: str) -> str:
    return label or {"subagent": "sub-agents", "human": "person", "client": "client", "start": "start"}.get(
        cause, cause
    )


def about_turn(turn: Turn, after: Turn | None, width: int, look: Theme) -> Line:
    """One turn in words: what the cache missed and why, and what came after it."""
    glyphs = look.glyphs
    name = f"{glyphs.child}{turn.thread} turn {turn.turn}" if turn.thread else f"turn {turn.turn}"
    said: list[tuple[str, str]] = []
    if turn.missed:
        why = turn.cause or "not found in the cache"
        said.append((f"missed {count(turn.missed)}: {why}", "warn" if turn.miss_cause else "dim"))
    if turn.lost:
        said.append((f"lost {count(turn.lost)}: {turn.culprit}", "warn"))
    if turn.again >= AGAIN:
        said.append((f"{count(turn.again)} of its own output again, sent back as other bytes", "dim"))
    if turn.done and not turn.cached and turn.cached is not None and not turn.missed and not turn.lost:
        said.append(("all new: nobody had sent this beginning", "dim"))
    held = sum(part.seconds for part in turn.parts if part.name in {"rate_cap", "client"})
    if held >= 0.05:
        said.append((f"held back by the client {held:.2f} s", "warn"))
    if any(part.name == "first_token" for part in turn.parts):
        said.append(("queue or prefill: the engine does not say", "dim"))
    if any(part.name == "one_piece" for part in turn.parts):
        said.append(("answered in one piece: prefill and decode not told apart", "dim"))
    for wait in waits_after(turn, after):
        recorded = "" if wait.recorded_s is None else f" (recorded {seconds(wait.recorded_s)})"
        said.append((f"then {_wait_name(wait.label, wait.cause)} {seconds(wait.seconds)} s{recorded}", "tool"))
    if turn.failure:
        said.append((f"{turn.failure.replace('_', ' ')} {turn.detail}".strip(), "bad"))
    line: Line = ((f" {name}  ", "dim"),)
    for i, (text, style) in enumerate(said):
        line = (*line, (glyphs.separator if i else "", "faint"), (text, style))
    if cells(line) > width - 1:
        line = (*clip(line, width - 2), (look.glyphs.ellipsis, "faint"))
    return filled(line, width)


def turns_table(story: Story, chosen: Turn | None, width: int, rows: int, look: Theme) -> list[Line]:
    """The calls around the chosen one (None: the last ones), newest at the bottom."""
    turns = story.turns
    after = following(turns)
    at = next((i for i, turn in enumerate(turns) if chosen is not None and turn.key == chosen.key), len(turns) - 1)
    first = max(0, min(at - rows // 2, len(turns) - rows))
    shown = turns[first : first + rows]
    longest = max((sum(spent(turn, after.get(turn.key)).values()) for turn in shown), default=0.0)
    return [
        turn_line(
            turn, after.get(turn.key), story, longest, width, look,
            "select" if chosen is not None and turn.key == chosen.key else "",
        )
        for turn in shown
    ]  # fmt: skip
