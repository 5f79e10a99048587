"""Parts of the compare screen below the ladder: figures, curves, and what differs. Pure functions."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Literal

from msgspec import Struct

from windtunnel.simulator.experiments import table
from windtunnel.simulator.experiments.outcome import Comparison, Figure
from windtunnel.simulator.experiments.statistics import LEAST_BLOCKS
from windtunnel.simulator.experiments.table import (
    ALONE,
    NO_VERDICT,
    NOT_COMPARABLE,
    TOO_SMALL,
    change,
    figure,
    not_counted,
)
from windtunnel.simulator.experiments.table import spread as with_interval
from windtunnel.simulator.experiments.table import verdict as word_of
from windtunnel.simulator.results.metrics import METRICS
from windtunnel.tui.comparing import Column, Contrast
from windtunnel.tui.theme import Glyphs, Line, Theme
from windtunnel.tui.widgets.compose import cells, clip, cut, filled, pad
from windtunnel.tui.widgets.interval import TONES, ratio_bar, scale, scale_line
from windtunnel.tui.widgets.overlay import LATENCY_ROWS, latencies, throughput

RUN_TONES = ("prefill", "tool", "decode", "wait", "queue", "cut", "text")
Versus = Literal["previous", "base"]
NAME = 17
"""Cells of a metric's name; the longest one is as long."""
INTERVAL = 16
BRIEF = {
    "too noisy to say": "too noisy",
    "no ratio: it was zero": "was zero",
    NO_VERDICT: "no verdict",
    TOO_SMALL: "too small",
}
"""Where there is no room for all of it."""
FEW = "too few blocks"
WORDS_OF = {
    "output_tokens_per_s": "output tokens/s",
    "session_equivalents_per_hour": "session equiv./h",
    "sessions_per_hour": "sessions/h",
    "stall_s_per_agent": "stall per agent",
    "slo.share": "in service level",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "e2e_s": "whole call",
    "makespan_s": "whole session",
}
STATISTICS = {"paired": "mean"}
"""Over the calls that both completed."""
MOST_DIGITS = 9


class Looked(Struct, frozen=True):
    """What the user asked to see."""

    cursor: int = 0
    """Column under the cursor."""
    metric: int = 0
    versus: Versus = "previous"
    page: int = 0
    """Which part comes first where not all fit."""
    top: int = 0
    scroll: int = 0
    """First shown line of the settings."""


def in_words(metric: str) -> str:
    """`TTFT p90` for `ttft_s.p90`; a word of its own for what is often looked at, a column's title for the rest."""
    if metric in WORDS_OF:
        return WORDS_OF[metric]
    name, _, statistic = metric.partition(".")
    title = WORDS_OF.get(name) or (METRICS[name].header if name in METRICS else name)
    return f"{title} {STATISTICS.get(statistic, statistic)}".rstrip()


def tone_of(place: int) -> str:
    return RUN_TONES[place % len(RUN_TONES)]


def chained(contrast: Contrast) -> bool:
    """Whether any is compared with another one than the base: a ladder's steps are, variants and runs are not."""
    base = contrast.columns[0].step.name if contrast.columns else None
    return any(column.step.previous not in (None, base) for column in contrast.columns)


def against(column: Column, metric: str, versus: Versus) -> Comparison | None:
    """What is said of a column; None of the base, and of one that has no runs."""
    step = column.step
    found = step.versus_base if versus == "base" else step.versus_previous
    return found.get(metric) if step.runs else None


def value(column: Column, metric: str, *, wide: bool) -> tuple[str, str]:
    """(text, tone): with its interval where there is room; in another tone where no run of it counts."""
    found = column.step.metrics.get(metric)
    if found is not None and found.value is not None:
        return (with_interval(metric, found) if wide else figure(metric, found.value)), "strong"
    if metric in column.uncounted:
        return figure(metric, column.uncounted[metric]), "warn"
    return "not reported" if wide else "-", "faint"


def made_of(metric: str, found: Comparison | None) -> tuple[str, str] | None:
    """(its own, the other one's) figure of which the ratio is made."""
    if found is None or found.ratio is None or found.base is None or found.other is None:
        return None
    return figure(metric, found.other), figure(metric, found.base)


def apart(contrast: Contrast, place: int, metric: str, versus: Versus) -> bool:
    """Whether the ratio of a column is over other calls than the figures beside it: an outcome of an older version does
    not tell those that it is made of.
    """
    column, other = contrast.columns[place], other_of(contrast, place, versus)
    found = against(column, metric, versus)
    if found is None or other is None:
        return False
    mine, theirs = (one.step.metrics.get(metric, Figure(None)) for one in (column, other))
    return table.made_of(metric, found, mine, theirs) == table.PAIRED_ONLY


def apart_lines(metric: str, width: int) -> list[Line]:
    """That, in words."""
    rows = wrap(f"{in_words(metric)}: {table.PAIRED_ONLY}", width - 4, subsequent_indent="  ")
    return [(("  ", ""), (row, "warn")) for row in rows]


def known(column: Column, metric: str) -> float | None:
    """The figure of a column, whether its runs count or not."""
    found = column.step.metrics.get(metric)
    return found.value if found is not None and found.value is not None else column.uncounted.get(metric)


def ratio(column: Column, other: Column, metric: str, found: Comparison) -> float | None:
    """The comparison's own; else that of the two figures, wherever both are known."""
    if found.ratio is not None:
        return found.ratio
    mine, theirs = known(column, metric), known(other, metric)
    return mine / theirs if mine is not None and theirs else None


def times(value: float, digits: int = 2) -> str:
    """`x2.00`, `x0.49`, `x12.3`."""
    return f"x{value:.{digits}f}" if value < 10 else f"x{value:,.1f}" if value < 100 else f"x{value:,.0f}"


def verdict(column: Column, other: Column, metric: str, found: Comparison) -> tuple[str, str]:
    """(text, tone): the verdict, or why there is none."""
    for one in (other, column):
        figure_ = one.step.metrics.get(metric)
        # What is held against a run that goes on may have passed by its end.
        if one.step.invalid_runs and not one.live and (figure_ is None or figure_.value is None):
            return f"{one.letter} not valid", "warn"
    if column.live or other.live:
        return "live: so far", "decode"
    shown = ratio(column, other, metric, found) is not None
    if column.other_work and found.verdict == "too_noisy" and shown:
        return NOT_COMPARABLE, "warn"
    if found.ratio is None:
        return change(found, known=shown), "faint"
    if found.verdict == "too_noisy" and found.table != 0 and found.blocks < LEAST_BLOCKS:
        return f"{table.TOO_FEW}: {found.blocks} of {LEAST_BLOCKS}", TONES[found.verdict]
    return word_of(found), TONES[found.verdict]


def brief(words: str, room: int, glyphs: Glyphs) -> str:
    """A verdict for `room` cells."""
    if len(words) <= room:
        return words
    if words.startswith(table.TOO_FEW):
        return cut(FEW if len(FEW) <= room else "too few", room, glyphs.ellipsis)
    return cut(ALONE if words.startswith(ALONE) else BRIEF.get(words, words), room, glyphs.ellipsis)


def figures(contrast: Contrast, looked: Looked, width: int, glyphs: Glyphs) -> list[Line]:
    """Every metric that the column under the cursor, or what it is compared with, has a figure of."""
    column, other = contrast.columns[looked.cursor], _other(contrast, looked)
    shown = (column,) if other is None else (other, column)
    metrics = [m for m in contrast.metrics if any(known(one, m) is not None for one in shown)]
    found = {m: c for m in metrics if (c := against(column, m, looked.versus)) is not None}
    size = 11 if width >= 112 else 9
    bar = (51 if width >= 170 else 17) if width >= 112 else 0
    reach = scale(list(found.values()))
    intervals = INTERVAL if width >= 80 and any(c.low is not None for c in found.values()) else 0
    if other is None:
        title = f"{pad(f' {column.letter}', NAME + 2)}{pad(column.letter, size, right=True)}"
    else:
        title = f"{pad(f' {column.letter} against {other.letter}', NAME + 2)}"
        title += "".join(pad(one.letter, size, right=True) for one in shown)
        title += (f"  {scale_line(reach, bar)}" if bar else "") + pad("ratio", ratio_width(width), right=True)
        title += f"  {pad('95% interval' if intervals else '', intervals)}verdict"
    lines: list[Line] = [filled(((title, "head"),), width, "head")]
    for metric in metrics:
        chosen = metric == contrast.metrics[looked.metric]
        line: list[tuple[str, str]] = [
            ("  ", ""),
            (pad(in_words(metric), NAME, ellipsis=glyphs.ellipsis), "strong" if chosen else "dim"),
        ]
        compared = made_of(metric, found.get(metric))
        for one in shown:
            text, of = value(one, metric, wide=False)
            if compared is not None:
                text = compared[0] if one is column else compared[1]
            line.append((pad(text, size, right=True), of if one is column or of != "strong" else "text"))
        said = found.get(metric)
        if said is not None and other is not None:
            line += [("  ", ""), *ratio_bar(said, reach, bar, glyphs)] if bar else []
            line += _compared(column, other, metric, said, intervals, width, cells(tuple(line)), glyphs)
        elif (figure_ := column.step.metrics.get(metric)) is not None and figure_.low is not None:
            line += [("  ", ""), (with_interval(metric, figure_).partition(" (")[2].rstrip(")"), "dim")]
        lines.append(clip(tuple(line), width))
    # Of the metric that the ladder is of, it stands below the ladder.
    others = (m for i, m in enumerate(contrast.metrics) if i != looked.metric and m in found)
    told = (m for m in others if apart(contrast, looked.cursor, m, looked.versus))
    return [*lines, *(line for metric in told for line in apart_lines(metric, width))]


def ratio_width(width: int) -> int:
    return 9 if width >= 72 else 7


def _compared(
    column: Column, other: Column, metric: str, said: Comparison, intervals: int, width: int, at: int, glyphs: Glyphs
) -> list[tuple[str, str]]:
    """Ratio, interval where there are any, and verdict, each below its title, from cell `at` on."""
    size = ratio_width(width)
    room = width - at - size - 2 - intervals
    found, (words, tone) = ratio(column, other, metric, said), verdict(column, other, metric, said)
    sure = said.ratio is not None and said.verdict in {"better", "worse"}
    low, high = (("" if v is None else times(v, 3)[1:]) for v in (said.low, said.high))
    between = f"{low} to {high}" if low else ""
    return [
        (
            pad("" if found is None else times(found, 3 if intervals else 2), size, right=True),
            "strong" if sure else "text",
        ),
        ("  ", ""),
        (pad(between, intervals), "dim"),
        (
            brief(words, room, glyphs),
            f"{tone} bold" if sure else tone,
        ),
    ]


def _other(contrast: Contrast, looked: Looked) -> Column | None:
    return other_of(contrast, looked.cursor, looked.versus)


def other_of(contrast: Contrast, place: int, versus: Versus) -> Column | None:
    """What a column is compared with; None for the base."""
    column = contrast.columns[place]
    if place == 0 or not column.step.runs:
        return None
    if versus == "base":
        return contrast.columns[0]
    return next((c for c in contrast.columns if c.step.name == column.step.previous), contrast.columns[0])


def curves(contrast: Contrast, looked: Looked, width: int, height: int, look: Theme) -> list[Line]:
    """Throughput over time above, the latencies' distributions below."""
    below = max(LATENCY_ROWS, min(10, (height - 2) // 2))
    places = [(i, column) for i, column in enumerate(contrast.columns) if column.curves]
    # The column under the cursor lies on top.
    places.sort(key=lambda p: (p[0] != looked.cursor, p[0]))
    if not places:
        said = contrast.progress or "no run was read yet"
        return [filled(((" throughput and latencies", "head"),), width, "head"), ((f"  {said}", "dim"),)]
    runs = [(column.letter, tone_of(i), column.curves) for i, column in places]
    read = max(len(c.curves) for _, c in places)
    total = max(len(c.paths) for _, c in places)
    part = f", the mean of {read} of {total} runs each" if read < total else ""
    head: Line = ((f" output tokens/s over time, all agents{part}", "head"),)
    lines: list[Line] = [filled(head, width, "head")]
    lines += throughput(runs, width, height - 2 - below, look)
    lines.append(filled(((" share of calls (and of sessions) that took at most so long", "head"),), width, "head"))
    lines += latencies(runs, width, below, look)
    return lines


def differing(contrast: Contrast, width: int, glyphs: Glyphs) -> list[Line]:
    """What must be known of each column, and the settings of which not all columns have the same value."""
    lines: list[Line] = []
    for i, column in enumerate(contrast.columns):
        step = column.step
        said = [(text, "text") for text in step.changes if contrast.experiment]
        said += [(step.failure, "bad")] if step.failed else []
        said += [(f"note: {note}", "warn") for note in step.notes]
        so_far = " so far" if column.live else ""
        said += [(f"not counted{so_far}: {not_counted(runs)}", "warn") for runs in _together(step.invalid_runs)]
        rows = [(row, tone) for text, tone in said for row in wrap(text, width - 6, subsequent_indent="  ")]
        for n, (text, tone) in enumerate(rows):
            letter = column.letter if n == 0 else " "
            lines.append(((f" {letter}  ", f"{tone_of(i)} bold"), (text, tone)))
    name = min(46, max((len(n) for n, _ in contrast.differences), default=0) + 2, width // 2)
    each = max(8, min(26, (width - name - 4) // max(1, len(contrast.columns)) - 2))
    fit = max(1, (width - name - 4) // (each + 2))
    if contrast.differences:
        letters = "".join(pad(c.letter, each + 2) for c in contrast.columns[:fit])
        lines.append(((pad("  setting", name + 4), "dim bold"), (letters, "dim bold")))
    for key, values in contrast.differences:
        row: list[tuple[str, str]] = [("    ", ""), (pad(key, name, ellipsis=glyphs.ellipsis), "dim")]
        for i, value in enumerate(values[:fit]):
            row.append(
                (pad(_short(value) or glyphs.none, each, ellipsis=glyphs.ellipsis), tone_of(i) if value else "faint")
            )
            row.append(("  ", ""))
        lines.append(tuple(row))
    return lines


def _together(invalid: Sequence[str]) -> list[str]:
    """Runs that do not count for the same reasons in one."""
    places: dict[str, list[str]] = {}
    for run in invalid:
        place, _, reasons = run.partition(": ")
        places.setdefault(reasons, []).append(place)
    return [f"{', '.join(of)}: {reasons}" for reasons, of in places.items()]


def _short(value: str) -> str:
    """A number without the digits that nobody reads."""
    try:
        number = float(value)
    except ValueError:
        return value
    return value if len(value) <= MOST_DIGITS else f"{number:.6g}"


def scrolled(told: Sequence[Line], looked: Looked, width: int, height: int) -> list[Line]:
    room = max(1, height - 1)
    top = max(0, min(looked.scroll, len(told) - room))
    aside = f" {top + 1}-{min(len(told), top + room)} of {len(told)} " if len(told) > room else ""
    head = filled(((" changes, notes, and settings that differ", "head"),), width - len(aside), "head")
    lines: list[Line] = [(*head, (aside, "head")), *told[top : top + room]]
    if not told:
        lines.append((("  nothing differs that the runs tell of", "dim"),))
    return lines
