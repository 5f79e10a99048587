"""Parts of the compare screen below the ladder: figures, curves, and what differs. Pure functions."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from windtunnel.simulator.experiments.outcome import Comparison
from windtunnel.simulator.experiments.table import change, figure
from windtunnel.simulator.experiments.table import spread as with_interval
from windtunnel.tui.comparing import Column, Contrast
from windtunnel.tui.theme import Glyphs, Line, Theme
from windtunnel.tui.widgets.compose import clip, cut, filled, pad
from windtunnel.tui.widgets.interval import TONES, ratio_bar, scale, scale_line
from windtunnel.tui.widgets.overlay import LATENCY_ROWS, latencies, throughput

RUN_TONES = ("prefill", "tool", "decode", "wait", "queue", "cut", "text")
Versus = Literal["previous", "base"]
METRIC = 29
"""Cells of a metric's name; the longest one is as long."""
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


def tone_of(place: int) -> str:
    return RUN_TONES[place % len(RUN_TONES)]


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


def figures(contrast: Contrast, looked: Looked, width: int, glyphs: Glyphs) -> list[Line]:
    """Every metric of the column under the cursor, beside what it is compared with."""
    column = contrast.columns[looked.cursor]
    other = _other(contrast, looked)
    wide = width >= 112
    name, size = METRIC if wide else 22, 11
    bar = (51 if width >= 170 else 17) if wide else 0
    both = other is not None and wide
    title: list[tuple[str, str]] = [
        (pad(f" {column.letter}  {cut(column.name, name - 4, glyphs.ellipsis)}", name + 2), "head")
    ]
    if other is not None and both:
        title.append((pad(other.letter, size, right=True), "head"))
    title.append((pad(column.letter, size, right=True), "head"))
    found = [c for m in contrast.metrics if (c := against(column, m, looked.versus)) is not None]
    reach = scale(found)
    if other is not None:
        title.append((f"  {scale_line(reach, bar)}" if bar else "", "head"))
        title.append((f"  {column.letter} against {other.letter}: ratio, 95% interval, verdict", "head"))
    lines: list[Line] = [filled(tuple(title), width, "head")]
    for metric in contrast.metrics:
        chosen = metric == contrast.metrics[looked.metric]
        line: list[tuple[str, str]] = [
            ("  ", ""),
            (pad(metric, name, ellipsis=glyphs.ellipsis), "strong" if chosen else "dim"),
        ]
        if other is not None and both:
            text, of = value(other, metric, wide=False)
            line.append((pad(text, size, right=True), of if of != "strong" else "text"))
        text, of = value(column, metric, wide=False)
        line.append((pad(text, size, right=True), of))
        said = against(column, metric, looked.versus)
        if said is not None and other is not None:
            if bar:
                line += [("  ", ""), *ratio_bar(said, reach, bar, glyphs)]
            words = "not counted" if said.ratio is None and column.step.invalid_runs else change(said)
            line += [("  ", ""), (words, TONES[said.verdict] if said.ratio is not None else "faint")]
        elif (figure_ := column.step.metrics.get(metric)) is not None and figure_.low is not None:
            line += [("  ", ""), (with_interval(metric, figure_).partition(" (")[2].rstrip(")"), "dim")]
        lines.append(clip(tuple(line), width))
    return lines


def _other(contrast: Contrast, looked: Looked) -> Column | None:
    """What the column under the cursor is compared with; None for the base."""
    column = contrast.columns[looked.cursor]
    if looked.cursor == 0 or not column.step.runs:
        return None
    if looked.versus == "base":
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
        said += [(f"not counted: {run}", "warn") for run in step.invalid_runs]
        for n, (text, tone) in enumerate(said):
            letter = column.letter if n == 0 else " "
            lines.append(((f" {letter}  ", f"{tone_of(i)} bold"), (cut(text, width - 6, glyphs.ellipsis), tone)))
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
