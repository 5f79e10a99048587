"""The table of past runs: one line each, columns that fit the width, and what is known of the one under the cursor."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.results.validity import in_words
from windtunnel.tui.figures import clock, percent, plural, seconds, tenths, whole
from windtunnel.tui.past import Past
from windtunnel.tui.theme import ASCII, UNICODE, Glyphs, Line, plain
from windtunnel.tui.widgets.compose import Part, cells, cut, filled, pad, spread

SORTS = ("date", "model", "agents", "tok/s", "TTFT p50/p90", "cached", "work/h")
"""What `s` goes through: the columns that say something of how good a run was."""
DAY_S = 86400
WIDE = 150


class Column(Struct, frozen=True):
    name: str
    width: int
    right: bool
    weight: int
    """The lightest ones go first where space runs out."""
    text: Callable[[Past, Glyphs], str]


def _ms(value: float | None, none: str) -> str:
    return none if value is None else f"{value * 1000:.1f}"


def ttft(past: Past, glyphs: Glyphs) -> str:
    """`0.31 /  2.90`, s; a dash where neither is known."""
    if past.ttft_p50 is None and past.ttft_p90 is None:
        return glyphs.none
    return f"{seconds(past.ttft_p50, glyphs.none)} /{seconds(past.ttft_p90, glyphs.none):>6}"


COLUMNS = (
    Column("model", 12, False, 9, lambda p, g: p.model or g.none),
    Column("engine", 10, False, 6, lambda p, g: engine_of(p) or g.none),
    Column("GPU", 5, False, 4, lambda p, g: p.hardware.partition(" ")[0] or g.none),
    Column("agents", 6, True, 10, lambda p, g: g.none if p.agents is None else str(p.agents)),
    Column("pace", 8, False, 3, lambda p, g: p.pace or g.none),
    Column("length", 7, True, 1, lambda p, g: clock(p.duration_s, g.none)),
    Column("tok/s", 6, True, 12, lambda p, g: whole(p.rate, g.none)),
    Column("TTFT p50/p90", 13, True, 11, ttft),
    Column("TPOT ms", 7, True, 2, lambda p, g: _ms(p.tpot_p50, g.none)),
    Column("cached", 6, True, 8, lambda p, g: percent(p.cached, g.none)),
    Column("work/h", 6, True, 7, lambda p, g: tenths(p.per_hour, g.none)),
    Column("folder", 12, False, 0, lambda p, g: p.path.name),  # noqa: ARG005 -- what every column takes
)
GAP = 2
MODEL, FOLDER = 28, 60
"""The most that these columns take of what is left over."""
DATE = 12
EMULATED = "emu "


def against_width(width: int) -> int:
    """Of the column that says how a run stands to the one that is compared."""
    return 30 if width >= 100 else 21


def state_width(width: int) -> int:
    """Of the column that says how a run stands: the longest reason where there is room for it."""
    return 17 if width >= 130 else 14


def engine_of(past: Past) -> str:
    """Emulated or real, before anything else."""
    return "emulated" if past.emulated else past.engine


def columns(width: int, *, against: bool) -> list[Column]:
    """Those that fit beside date and state, in their order; what is left over goes to the names."""
    room = width - 5 - DATE - GAP - state_width(width) - GAP - (against_width(width) + GAP if against else 0)
    kept = list(COLUMNS)
    while kept and sum(c.width + GAP for c in kept) - GAP > room:
        kept.remove(min(kept, key=lambda c: c.weight))
    left = room - sum(c.width + GAP for c in kept) + GAP
    for name, most in (("model", MODEL), ("folder", FOLDER)):
        place = next((i for i, c in enumerate(kept) if c.name == name), None)
        if place is not None:
            wider = min(kept[place].width + left, most)
            left -= wider - kept[place].width
            kept[place] = replace(kept[place], width=wider)
    return kept


def date(began: float, now: float) -> str:
    """`today 14:02`, `yest. 14:02`, `27 Nov 14:02`, `27 Nov 2025`; local time."""
    then, today = time.localtime(began), time.localtime(now)
    at = time.strftime("%H:%M", then)
    if then[:3] == today[:3]:
        return f"today {at}"
    if then[:3] == time.localtime(now - DAY_S)[:3]:
        return f"yest. {at}"
    day = f"{then.tm_mday:2} {time.strftime('%b', then)}"
    return f"{day} {at}" if then.tm_year == today.tm_year else f"{day} {then.tm_year}"


def condition(past: Past, now: float, glyphs: Glyphs, width: int) -> tuple[str, str]:
    """(text, tone) of how a run stands."""
    bad = glyphs.states["failed"]
    if past.kind == "unread":
        return f"{glyphs.states['idle']} reading", "faint"
    if past.kind == "damaged":
        return f"{bad} damaged", "bad"
    if past.kind == "unstarted":
        return f"{bad} start failed", "bad"
    if past.kind == "other":
        return f"{glyphs.states['idle']} no run", "faint"
    if past.kind == "starting":
        return f"{glyphs.states['queue']} starting", "prefill"
    if past.live:
        long = "" if past.virtual or past.kind in {"experiment", "folder"} else f" {clock(now - past.began)}"
        return f"{glyphs.states['decode']} live{long}", "decode bold"
    if past.kind == "experiment":
        return f"{glyphs.states['tool']} experiment", "prefill"
    if past.kind == "folder":
        return f"{glyphs.states['prefill']} folder", "prefill"
    if past.condition == "died":
        return f"{bad} died", "bad"
    if past.condition == "ended":
        return f"{bad} {cut('ended, no summary' if width >= 19 else 'no summary', width - 2)}", "warn"
    if past.status == "failed":
        return f"{bad} failed", "bad"
    if past.kind == "recording":
        return f"{glyphs.states['done']} recorded", "good"
    if not past.valid:
        more = f" +{len(past.invalid) - 1}" if len(past.invalid) > 1 else ""
        reason = past.invalid[0].replace("_", " ") if past.invalid else "not valid"
        if len(reason) + len(more) > width - 2:
            more = more.lstrip()
        return f"{bad} {cut(reason, width - 2 - len(more), glyphs.ellipsis)}{more}", "warn"
    if past.status == "interrupted":
        return f"{glyphs.states['cut']} interrupted", "cut"
    return f"{glyphs.dot} valid", "good"


def _key(sort: str) -> Callable[[Past], Any]:
    def missing_last(value: float | None, up: bool) -> tuple[bool, float]:
        return (value is None, (value or 0.0) if up else -(value or 0.0))

    keys: dict[str, Callable[[Past], Any]] = {
        "date": lambda p: -p.began,
        "model": lambda p: (not p.model, p.model),
        "agents": lambda p: missing_last(p.agents, up=False),
        "tok/s": lambda p: missing_last(p.rate, up=False),
        "TTFT p50/p90": lambda p: missing_last(p.ttft_p90, up=True),
        "cached": lambda p: missing_last(p.cached, up=False),
        "work/h": lambda p: missing_last(p.per_hour, up=False),
    }
    return keys[sort]


def arranged(entries: Sequence[Past], sort: str, backwards: bool) -> list[Past]:
    """The best ones first, the newest first among equals; what has no such figure comes last, backwards too."""
    newest = sorted(entries, key=lambda p: (-p.began, str(p.path)))
    key = _key(sort)
    if sort == "date":
        return newest[::-1] if backwards else newest
    known = [p for p in newest if not key(p)[0]]
    return sorted(known, key=key, reverse=backwards) + [p for p in newest if key(p)[0]]


def head(spec: Sequence[Column], sort: str, backwards: bool, width: int, glyphs: Glyphs, against: str) -> Line:
    """Column names; the one sorted by carries an arrow, in the gap where the column has no room for it."""
    mark = glyphs.up if backwards else glyphs.down
    out: list[tuple[str, str]] = [("    ", "head")]

    def put(name: str, size: int, right: bool) -> None:
        chosen = name == sort
        tone = "sorted" if chosen else "head"
        if chosen and len(name) < size:
            out.append((pad(f"{mark}{name}" if right else f"{name}{mark}", size, right), tone))
            out.append((" " * GAP, "head"))
        else:
            out.append((pad(name, size, right), tone))
            out.append((f"{mark} " if chosen else " " * GAP, tone if chosen else "head"))

    put("date", DATE, right=False)
    put("state", state_width(width), right=False)
    for column in spec:
        put(column.name, column.width, column.right)
    if against:
        put(cut(against, against_width(width), glyphs.ellipsis), against_width(width), right=False)
    return filled(tuple(out), width, "head")


def row_line(
    past: Past,
    spec: Sequence[Column],
    width: int,
    now: float,
    glyphs: Glyphs,
    *,
    mark: str = "",
    against: tuple[str, str] | None = None,
) -> Line:
    """One entry; `mark` is its letter among those to be compared, `against` how it stands to the other run."""
    text, tone = condition(past, now, glyphs, state_width(width))
    line: list[tuple[str, str]] = [
        (f" {mark:<2} ", "brand"),
        (pad(date(past.began, now), DATE), "text" if past.opens else "dim"),
        (" " * GAP, ""),
        (pad(text, state_width(width), ellipsis=glyphs.ellipsis), tone),
        (" " * GAP, ""),
    ]
    if not past.opens:
        room = width - cells(tuple(line)) - 1
        name = past.name or past.path.name
        line.append((cut(name, room, glyphs.ellipsis), "faint" if past.kind in {"unread", "other"} else "strong"))
        rest = past.about or past.reason
        line.append((cut(f"  {rest}", max(0, room - cells(line[-1:])), glyphs.ellipsis), "dim"))  # type: ignore[arg-type]
        return tuple(line)
    still = past.valid is False or past.kind == "recording" or past.condition in {"died", "ended"}
    told = any(column.name == "engine" for column in spec)
    for column in spec:
        size = column.width
        if column.name == "model" and past.emulated and not told:
            # Without a column for it, it is said all the same: nothing of such a run was measured.
            line.append((EMULATED, "warn"))
            size -= len(EMULATED)
        shown = pad(column.text(past, glyphs), size, column.right, glyphs.ellipsis)
        line.append((shown, _tone(column.name, past, shown, glyphs, still=still)))
        line.append((" " * GAP, ""))
    if against is not None:
        line.append((pad(against[0], against_width(width), ellipsis=glyphs.ellipsis), against[1]))
    return tuple(line)


def _tone(name: str, past: Past, shown: str, glyphs: Glyphs, *, still: bool) -> str:
    if shown.strip() == glyphs.none:
        return "faint"
    if name == "engine" and past.emulated:
        return "warn"
    if name in {"tok/s", "model", "agents"}:
        return "text" if still else "strong"
    return "dim" if still else "text"


def about_lines(past: Past | None, width: int, rows: int, now: float, glyphs: Glyphs) -> list[Line]:
    """What is known of the entry under the cursor, in at most `rows` lines."""
    if past is None or rows <= 0:
        return [()] * max(0, rows)
    lines: list[Line] = [spread([(0, ((str(past.path), "strong"),))], [(1, ((date(past.began, now), "dim"),))], width)]
    if past.kind == "damaged":
        lines.append(_said("cannot be opened", past.reason, width, glyphs, "bad"))
    elif past.kind == "unstarted":
        lines.append(_said("did not start", past.reason, width, glyphs, "bad"))
    elif not past.opens:
        lines.append(_said(past.name if past.name != past.path.name else "", past.about, width, glyphs, "text"))
    else:
        lines += _run_lines(past, width, glyphs)
    lines = lines[:rows]
    return lines + [()] * (rows - len(lines))


def _said(name: str, text: str, width: int, glyphs: Glyphs, tone: str) -> Line:
    first = f"{name}: " if name else ""
    return ((" ", ""), (first, "dim"), (cut(text, width - 2 - len(first), glyphs.ellipsis), tone))


def _run_lines(past: Past, width: int, glyphs: Glyphs) -> list[Line]:
    sign = "±" if glyphs.name == "unicode" else "+-"
    bar = f" {sign}{past.error_bar}" if past.error_bar else ""
    whose = f"emulated{bar}" if past.emulated else past.engine
    agents = plural(past.agents, "agent") if past.agents is not None else ""
    asked = (whose, past.model, past.hardware, past.source, agents, f"pace {past.pace}" if past.pace else "")
    clockwork = "virtual time" if past.virtual else ""
    text = glyphs.separator.join(part for part in (*asked, clockwork) if part)
    lines: list[Line] = [((" ", ""), (cut(text, width - 2, glyphs.ellipsis), "text"))]
    if past.invalid:
        lines.append(_said("not valid", "; ".join(map(in_words, past.invalid)), width, glyphs, "warn"))
    elif past.reason:
        lines.append(_said(past.status, past.reason, width, glyphs, "warn"))
    elif past.live:
        lines.append(_said("live", "it is still going on: enter watches it", width, glyphs, "good"))
    elif past.condition == "died":
        lines.append(
            _said("died", "it was killed before it was summed up: enter shows what it wrote", width, glyphs, "warn")
        )
    elif past.condition == "ended":
        lines.append(
            _said(past.status, "it ended, but has no summary: enter shows what it wrote", width, glyphs, "warn")
        )
    if past.rate is not None or past.duration_s is not None:
        figures: list[Part] = [
            (9, _figure("tok/s", whole(past.rate, glyphs.none))),
            (
                8,
                _figure(
                    "TTFT p50 / p90", f"{seconds(past.ttft_p50, glyphs.none)} / {seconds(past.ttft_p90, glyphs.none)} s"
                ),
            ),
            (5, _figure("TPOT p50", f"{_ms(past.tpot_p50, glyphs.none)} ms")),
            (7, _figure("cached", percent(past.cached, glyphs.none, 1))),
            (6, _figure("session equiv./h", tenths(past.per_hour, glyphs.none))),
            (4, _figure("length", clock(past.duration_s, glyphs.none))),
        ]
        lines.append(spread(figures, [], width, "   "))
    return lines


def _figure(name: str, value: str) -> Line:
    return ((f"{name} ", "dim"), (value, "strong"))


LIST_WIDTH = 140


def as_text(entries: Sequence[Past], now: float, encoding: str | None) -> str:
    """All entries as plain lines, newest first, for logs and pipes."""
    glyphs = UNICODE if (encoding or "").lower().startswith("utf") else ASCII
    spec = columns(LIST_WIDTH, against=False)
    lines = [head(spec, "date", False, LIST_WIDTH, glyphs, "")]
    lines += [row_line(past, spec, LIST_WIDTH, now, glyphs) for past in arranged(entries, "date", False)]
    return "\n".join(plain(line).rstrip() for line in lines)
