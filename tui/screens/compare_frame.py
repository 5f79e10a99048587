"""The lines of the compare screen: the ladder, the figures of one step, curves, and what differs. Pure functions."""

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.experiments.metrics import parse
from windtunnel.simulator.experiments.outcome import Comparison
from windtunnel.tui.comparing import Column, Contrast
from windtunnel.tui.figures import plural
from windtunnel.tui.screens.compare_parts import (
    Looked,
    Versus,
    against,
    apart,
    apart_lines,
    brief,
    chained,
    curves,
    differing,
    figures,
    in_words,
    made_of,
    other_of,
    ratio,
    scrolled,
    times,
    tone_of,
    value,
    verdict,
)
from windtunnel.tui.theme import Glyphs, Line, Theme
from windtunnel.tui.widgets.compose import Part, cells, clip, cut, filled, first_seen, pad, spread
from windtunnel.tui.widgets.interval import ratio_bar, scale, scale_line

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
    top = first_seen(looked.top, looked.cursor, room, count)
    shown = range(top, min(count, top + room))
    lines += [_rung(contrast, i, metric, looked, reach, width, glyphs) for i in shown]
    looked = replace(looked, top=top)
    if any(apart(contrast, i, metric, looked.versus) for i in shown):
        lines += apart_lines(metric, width)
    lower, whole = _lower(contrast, looked, width, height - 1 - len(lines), look)
    lines += lower
    lines += [()] * (height - 1 - len(lines))
    lines.append(_footer(contrast, looked, width, aside, whole=whole, nested=nested))
    return Frame(tuple(lines[:height]), first + looked.cursor - top, first, tuple(shown), looked, whole=whole)


# -- the top


def _title(contrast: Contrast, width: int, glyphs: Glyphs) -> Line:
    what = "configuration" if contrast.experiment else "column"
    right: list[Part] = [
        (0, ((" EMULATED ", "emulated"),) if contrast.emulated else ()),
        (3, ((plural(len(contrast.columns), what), "dim"),) if contrast.experiment else ()),
        (4, ((contrast.blocks, "strong"),) if contrast.experiment else ()),
    ]
    if contrast.live:
        said = contrast.progress if contrast.experiment else "live"
        right.append(
            (5, ((f"{glyphs.states['decode']} {cut(said, max(12, width // 3), glyphs.ellipsis)}", "decode bold"),))
        )
    elif contrast.progress:
        right.append((5, ((contrast.progress, "prefill"),)))
    this = next((column.letter for column in contrast.columns if column.this), "")
    right.append((7, ((f"{this} is this run", "brand"),) if this else ()))
    # What counts less than the title goes before anything of it is cut.
    taken = sum(cells(line) + 2 for weight, line in right if line and (weight == 0 or weight > 4))
    left: list[Part] = [
        (9, (("windtunnel", "brand"),)),
        (8, (("compare", "strong"),)),
        (6, ((cut(contrast.title, max(16, width - 23 - taken), glyphs.ellipsis), "text"),)),
    ]
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
    shown = 31 if width >= 112 else 11 if width >= 72 else 9
    bar = 51 if width >= 170 else 23 if width >= 100 else 15 if width >= 72 else 7
    other = WORD if width >= 170 else 0
    return Widths(name=max(10, width - 4 - shown - bar - WORD - other - 4), value=shown, bar=bar, other=other)


def _ladder_head(contrast: Contrast, looked: Looked, metric: str, reach: float, width: int, glyphs: Glyphs) -> Line:
    w = widths(width)
    left, right = ("◂", "▸") if glyphs.name == "unicode" else ("<", ">")
    named: Line = ((f" {left} ", "head"), (in_words(metric), "sorted"), (f" {right}", "head"))
    better = f"  {parse(metric).better} is better"
    room = 4 + w.name + w.value
    if cells(named) + len(better) <= room:
        named = (*named, (better, "head"))
    other: Versus = "base" if looked.versus == "previous" else "previous"
    chain = chained(contrast)
    said = pad(f"  {_versus(looked.versus)}", WORD + 2) if chain else "  against A"
    said += pad(_versus(other), w.other) if w.other and chain else ""
    return filled(
        (*filled(named, room, "head"), (f"  {scale_line(reach, w.bar)}", "head"), (said, "head")), width, "head"
    )


def _versus(versus: Versus) -> str:
    return "against the base" if versus == "base" else "against the previous"


def _rung(
    contrast: Contrast, place: int, metric: str, looked: Looked, reach: float, width: int, glyphs: Glyphs
) -> Line:
    """One configuration; of a ladder also against the other one, where there is room."""
    column = contrast.columns[place]
    w = widths(width)
    step, other = column.step, other_of(contrast, place, looked.versus)
    second_versus: Versus = "base" if looked.versus == "previous" else "previous"
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
    found = against(column, metric, looked.versus)
    text = _of_both(text, metric, found, column, other, w.value)
    head = (*head, (pad(text, w.value, right=True, ellipsis=glyphs.ellipsis), of), ("  ", ""))
    if found is None or other is None:
        said = "live: so far" if column.live else ("not counted" if of == "warn" else "base" if place == 0 else "")
        return (*head, (" " * (w.bar + 2 + RATIO), ""), (said, "dim"))
    said_ = clip(_said(column, other, metric, found, glyphs), width - cells(head) - w.bar - 2)
    line: Line = (*head, *ratio_bar(found, reach, w.bar, glyphs), ("  ", ""), *filled(said_, WORD))
    if w.other and chained(contrast):
        second, third = against(column, metric, second_versus), other_of(contrast, place, second_versus)
        line = (
            *line,
            *(_said(column, third, metric, second, glyphs) if second is not None and third is not None else ()),
        )
    return line


def _of_both(text: str, metric: str, found: Comparison | None, column: Column, other: Column | None, room: int) -> str:
    """A rung's value; where the ratio is made of other figures than the rungs' own, those of them for which there is
    room.
    """
    made = made_of(metric, found)
    if made is None or other is None or made == tuple(value(one, metric, wide=False)[0] for one in (column, other)):
        return text
    both = " against ".join(made)
    return both if len(both) <= room else made[0]


def _said(column: Column, other: Column, metric: str, found: Comparison, glyphs: Glyphs) -> Line:
    """By how much it is more or less, and the verdict."""
    known, (words, tone) = ratio(column, other, metric, found), verdict(column, other, metric, found)
    sure = found.ratio is not None and found.verdict in {"better", "worse"}
    by = "" if known is None else f"{known - 1:+.1%}" if known < 10 else times(known)
    words = brief(words, WORD - RATIO, glyphs)
    return ((f"{by:>{RATIO - 1}} ", "strong" if sure else "text"), (words, f"{tone} bold" if sure else tone))


# -- below it


def _lower(contrast: Contrast, looked: Looked, width: int, height: int, look: Theme) -> tuple[list[Line], bool]:
    """The parts, from the page that was chosen on, as many as there is room for; and whether all are there."""
    told = differing(contrast, width, look.glyphs)
    table = figures(contrast, looked, width, look.glyphs)
    least = {"figures": len(table), "curves": CURVES_LEAST, "settings": min(5, 1 + len(told))}
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
            lines += table[:room]
        elif page == "curves":
            lines += curves(contrast, looked, width, room, look)
        else:
            lines += scrolled(told, looked, width, room)
    return lines[:height], len(kept) == len(PAGES) and len(told) + 1 <= rooms["settings"]


def _footer(contrast: Contrast, looked: Looked, width: int, aside: Line, *, whole: bool, nested: bool) -> Line:
    keys = [
        (4, "up down", "row"),
        (6, "left right", "metric"),
        *([(6, "b", "base" if looked.versus == "previous" else "previous")] if chained(contrast) else []),
        *([] if whole else [(7, "tab", PAGES[(looked.page + 1) % len(PAGES)])]),
        (8, "enter", "its runs"),
        (2, "p", "picture"),
        (9, "?", "help"),
        *([(10, "escape", "back")] if nested else [(10, "q", "quit")]),
    ]
    parts = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    right: list[Part] = [(0, clip(aside, width - 4))] if aside else []
    return spread(parts, right, width, "   " if width >= 100 else "  ")
