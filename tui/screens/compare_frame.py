"""The lines of the compare screen: the ladder, the figures of one step, curves, and what differs. Pure functions."""

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.experiments.metrics import parse
from windtunnel.simulator.experiments.outcome import Comparison
from windtunnel.simulator.experiments.table import WORDS, change
from windtunnel.tui.comparing import Column, Contrast
from windtunnel.tui.figures import plural
from windtunnel.tui.screens.compare_parts import (
    Looked,
    Versus,
    against,
    curves,
    differing,
    figures,
    scrolled,
    tone_of,
    value,
)
from windtunnel.tui.theme import Glyphs, Line, Theme
from windtunnel.tui.widgets.compose import Part, cells, clip, cut, filled, pad, spread
from windtunnel.tui.widgets.interval import TONES, ratio_bar, scale, scale_line

PAGES = ("figures", "curves", "settings")
MOST_NOTICES = 3
CURVES_LEAST = 12
CURVES_GOOD = 18
"""Lines with which curves are readable."""
CURVES_MOST = 28
TALL = 42
"""Lines below the ladder from which the curves may have more of them."""
RATIO = 9
WORD = 26
"""Cells of a ratio with its verdict."""


class Frame(Struct, frozen=True):
    lines: tuple[Line, ...]
    marked: int | None
    first: int
    """Screen line of the ladder's first row."""
    shown: tuple[int, ...]
    looked: Looked
    whole: bool
    """Everything is on the screen: there is nothing to page to."""


def compose_compare(
    contrast: Contrast, looked: Looked, width: int, height: int, look: Theme, aside: Line = (), *, nested: bool = False
) -> Frame:
    """The screen's lines. A pure function."""
    glyphs = look.glyphs
    count = len(contrast.columns)
    looked = replace(
        looked,
        cursor=max(0, min(looked.cursor, count - 1)),
        metric=looked.metric % max(1, len(contrast.metrics)),
    )
    lines: list[Line] = [_title(contrast, width, glyphs), *_notices(contrast, width, height, glyphs)]
    if not count:
        so_far = f"{contrast.progress}: its figures are shown when a run is complete"
        said = so_far if contrast.live else contrast.problem or contrast.progress or "nothing to compare"
        lines += [
            (),
            (
                ("  ", ""),
                (cut(said, width - 4, glyphs.ellipsis), "bad" if contrast.problem and not contrast.live else "dim"),
            ),
        ]
        lines += [()] * (height - 1 - len(lines))
        lines.append(_footer(contrast, looked, width, aside, whole=True, nested=nested))
        return Frame(tuple(lines[:height]), None, len(lines), (), looked, whole=True)
    metric = contrast.metrics[looked.metric]
    compared = [against(column, metric, looked.versus) for column in contrast.columns]
    reach = scale([c for c in compared if c is not None])
    lines.append(_ladder_head(contrast, looked, metric, reach, width, glyphs))
    first = len(lines)
    room = max(2, min(count, (height - first) // 2 - 1))
    top = max(0, min(looked.top, looked.cursor, count - room))
    top = max(top, looked.cursor - room + 1)
    shown = range(top, min(count, top + room))
    lines += [
        _rung(contrast.columns[i], i, metric, looked, reach, width, glyphs, both=contrast.experiment) for i in shown
    ]
    looked = replace(looked, top=top)
    lower, whole = _lower(contrast, looked, width, height - 1 - len(lines), look)
    lines += lower
    lines += [()] * (height - 1 - len(lines))
    lines.append(_footer(contrast, looked, width, aside, whole=whole, nested=nested))
    return Frame(tuple(lines[:height]), first + looked.cursor - top, first, tuple(shown), looked, whole=whole)


# -- the top


def _title(contrast: Contrast, width: int, glyphs: Glyphs) -> Line:
    left: list[Part] = [
        (9, (("windtunnel", "brand"),)),
        (8, (("compare", "strong"),)),
        (6, ((cut(contrast.title, max(16, width // 3), glyphs.ellipsis), "text"),)),
    ]
    what = "configuration" if contrast.experiment else "column"
    right: list[Part] = [
        (0, ((" EMULATED ", "emulated"),) if contrast.emulated else ()),
        (3, ((plural(len(contrast.columns), what), "dim"),) if contrast.experiment else ()),
        (4, ((plural(contrast.blocks, "block"), "strong"),) if contrast.experiment else ()),
    ]
    if contrast.live:
        said = contrast.progress if contrast.experiment else "live"
        right.append(
            (5, ((f"{glyphs.states['decode']} {cut(said, max(12, width // 3), glyphs.ellipsis)}", "decode bold"),))
        )
    elif contrast.progress:
        right.append((5, ((contrast.progress, "prefill"),)))
    return spread(left, right, width)


def _notices(contrast: Contrast, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """What has to be known first: other work, one configuration, a run that goes on, whose figures these are."""
    said: list[tuple[str, str]] = [(text, "warn") for text in contrast.notices]
    if contrast.problem and contrast.columns:
        said.insert(0, (contrast.problem, "bad"))
    if height >= 30:
        said += [(text, "dim") for text in contrast.emulated]
    return [((" ", ""), (cut(text, width - 2, glyphs.ellipsis), tone)) for text, tone in said[:MOST_NOTICES]]


# -- the ladder


class Widths(Struct, frozen=True):
    """Of a rung, in cells: its name, the value, the bar (odd), and what is said against the other step too."""

    name: int
    value: int
    bar: int
    other: int


def widths(width: int) -> Widths:
    shown = 31 if width >= 112 else 11
    bar = 51 if width >= 170 else 23 if width >= 100 else 15
    other = WORD if width >= 170 else 0
    return Widths(name=max(10, width - 4 - shown - bar - WORD - other - 4), value=shown, bar=bar, other=other)


def _ladder_head(contrast: Contrast, looked: Looked, metric: str, reach: float, width: int, glyphs: Glyphs) -> Line:
    w = widths(width)
    left, right = ("◂", "▸") if glyphs.name == "unicode" else ("<", ">")
    named: Line = ((f" {left} ", "head"), (metric, "sorted"), (f" {right}", "head"))
    better = f"  {parse(metric).better} is better"
    room = 4 + w.name + w.value
    if cells(named) + len(better) <= room:
        named = (*named, (better, "head"))
    other: Versus = "base" if looked.versus == "previous" else "previous"
    said = pad(f"  {_versus(looked.versus)}", WORD + 2) if contrast.experiment else "  against A"
    said += pad(_versus(other), w.other) if w.other and contrast.experiment else ""
    return filled(
        (*filled(named, room, "head"), (f"  {scale_line(reach, w.bar)}", "head"), (said, "head")), width, "head"
    )


def _versus(versus: Versus) -> str:
    return "against the base" if versus == "base" else "against the previous"


def _rung(
    column: Column, place: int, metric: str, looked: Looked, reach: float, width: int, glyphs: Glyphs, *, both: bool
) -> Line:
    """One configuration; with `both` also against the other one, where there is room."""
    w = widths(width)
    step = column.step
    text, of = value(column, metric, wide=w.value > 11)
    head: Line = (
        (f" {column.letter}", f"{tone_of(place)} bold"),
        # What must be known of it stands below, among the settings.
        ("! " if step.notes or step.invalid_runs else "  ", "warn bold"),
        (pad(column.name, w.name, ellipsis=glyphs.ellipsis), "text" if step.runs else "dim"),
    )
    if step.failure and not step.runs:
        room = width - cells(head) - 3
        return (*head, ("  ", ""), (cut(step.failure, room, glyphs.ellipsis), "bad" if step.failed else "dim"))
    head = (*head, (pad(text, w.value, right=True, ellipsis=glyphs.ellipsis), of), ("  ", ""))
    found = against(column, metric, looked.versus)
    if found is None:
        said = "live: so far" if column.live else ("not counted" if of == "warn" else "base" if place == 0 else "")
        return (*head, (" " * (w.bar + 2 + RATIO), ""), (said, "dim"))
    line: Line = (*head, *ratio_bar(found, reach, w.bar, glyphs), ("  ", ""), *filled(_said(column, found), WORD))
    if w.other and both:
        second = against(column, metric, "base" if looked.versus == "previous" else "previous")
        line = (*line, *(_said(column, second) if second is not None else ()))
    return line


def _said(column: Column, found: Comparison) -> Line:
    """The ratio and its verdict."""
    if found.ratio is None:
        return ((" " * RATIO, ""), ("not counted" if column.step.invalid_runs else change(found), "faint"))
    sure = found.verdict in {"better", "worse"}
    ratio = f"{found.ratio - 1:+.1%}"
    return (
        (f"{ratio:>{RATIO - 1}} ", "strong" if sure else "text"),
        (WORDS[found.verdict], f"{TONES[found.verdict]}{' bold' if sure else ''}"),
    )


# -- below it


def _lower(contrast: Contrast, looked: Looked, width: int, height: int, look: Theme) -> tuple[list[Line], bool]:
    """The parts, from the page that was chosen on, as many as there is room for; and whether all are there."""
    told = differing(contrast, width, look.glyphs)
    least = {"figures": 1 + len(contrast.metrics), "curves": CURVES_LEAST, "settings": min(5, 1 + len(told))}
    chosen = PAGES[looked.page % len(PAGES)]
    kept = [chosen]
    left = height - least[chosen]
    for page in PAGES:
        if page not in kept and least[page] <= left:
            kept.append(page)
            left -= least[page]
    # The curves grow first, up to what makes them readable; then the settings take the rest.
    rooms = {page: least[page] for page in kept}
    left = max(0, left)
    if "curves" in rooms:
        good = CURVES_GOOD if height < TALL else CURVES_MOST
        more = min(left, good - CURVES_LEAST)
        rooms["curves"] += more
        left -= more
    if "settings" in rooms:
        more = min(left, max(0, len(told) + 1 - rooms["settings"]))
        rooms["settings"] += more
        left -= more
    if "curves" in rooms:
        rooms["curves"] += min(left, max(0, CURVES_MOST - rooms["curves"]))
    lines: list[Line] = []
    for page in (page for page in PAGES if page in rooms):
        room = min(height - len(lines), rooms[page])
        if page == "figures":
            lines += figures(contrast, looked, width, look.glyphs)[:room]
        elif page == "curves":
            lines += curves(contrast, looked, width, room, look)
        else:
            lines += scrolled(told, looked, width, room)
    return lines[:height], len(kept) == len(PAGES) and len(told) + 1 <= rooms["settings"]


def _footer(contrast: Contrast, looked: Looked, width: int, aside: Line, *, whole: bool, nested: bool) -> Line:
    keys = [
        (4, "up down", "row"),
        (8, "left right", "metric"),
        *([(6, "b", "base" if looked.versus == "previous" else "previous")] if contrast.experiment else []),
        *([] if whole else [(7, "tab", PAGES[(looked.page + 1) % len(PAGES)])]),
        (8, "enter", "its runs"),
        (2, "p", "picture"),
        (3, "?", "help"),
        *([(8, "escape", "back")] if nested else [(8, "q", "quit")]),
    ]
    parts = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    right: list[Part] = [(0, clip(aside, width - 4))] if aside else []
    return spread(parts, right, width, "   " if width >= 100 else "  ")
