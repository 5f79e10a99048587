"""Runs laid over one another: throughput over time, and how their latencies are distributed."""

from collections.abc import Sequence

from windtunnel.simulator.results.curves import LATENCIES, Curves, mean_rates, pooled
from windtunnel.tui.figures import ceiling, clock, count
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.widgets.compose import cells, filled, pad
from windtunnel.tui.widgets.curves import Curve, drawn, reach, rising

Runs = Sequence[tuple[str, str, Sequence[Curves]]]
"""(letter, tone, runs): one curve each."""
AXIS = 7
LATENCY_ROWS = 6
"""The least lines of the distributions: a title, four of curve, an axis."""
TITLES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "whole call", "makespan_s": "whole session"}
GAP = 2
LABEL = 4
SMOOTH_S = 5.0
"""Rates are means over so long: a token that comes a second later is no news."""
LEAST_STEPS = 60
"""Of a short run, so that it is a curve; none is shorter than a second."""


def throughput(runs: Runs, width: int, height: int, look: Theme) -> list[Line]:
    """`height` lines: an axis from zero, the curves, and the time below them."""
    glyphs = look.glyphs
    rows, inner = max(1, height - 1), max(4, width - AXIS - 2)
    length = max((len(run.rates) * run.step_s for _, _, found in runs for run in found), default=1.0)
    steps = max(1, min(2 * inner, int(length / min(SMOOTH_S, max(1.0, length / LEAST_STEPS)))))
    rates = [mean_rates(found, length, steps) for _, _, found in runs]
    top = ceiling(max((v for series in rates for v in series if v is not None), default=0.0))
    curves = [
        Curve(letter, tone, tuple(_stretched([None if v is None else v / top for v in series], 2 * inner)))
        for (letter, tone, _), series in zip(runs, rates, strict=True)
    ]
    labels = [""] * rows
    labels[-1] = "0"
    labels[0] = count(top)
    drawn_ = drawn(curves, inner, rows, glyphs, colour=look.colour, upright=False)
    lines: list[Line] = [
        ((f"{label:>{AXIS}}", "dim"), (glyphs.tick, "faint"), *row) for label, row in zip(labels, drawn_, strict=True)
    ]
    middle, end = clock(length / 2), clock(length)
    half = inner // 2
    axis = f"{'00:00':<{half - len(middle) // 2}}{middle}"
    axis += f"{end:>{inner - len(axis)}}"
    return [*lines, ((" " * (AXIS + 1), ""), (axis, "faint"))]


def _stretched(values: Sequence[float | None], width: int) -> list[float | None]:
    """One value for each of `width` places, on straight lines between the middles of the values."""
    count_ = len(values)
    out: list[float | None] = []
    for x in range(width):
        at = (x + 0.5) / width * count_ - 0.5
        low = max(0, min(count_ - 1, int(at // 1)))
        high = min(count_ - 1, low + 1)
        a, b = values[low], values[high]
        if a is None or b is None:
            out.append(a if at - low < 0.5 else b)
        else:
            out.append(a + (b - a) * max(0.0, min(1.0, at - low)))
    return out


def latencies(runs: Runs, width: int, height: int, look: Theme) -> list[Line]:
    """TTFT, TPOT, whole calls and whole sessions side by side, each `height` lines with title and axis."""
    names = [name for name in LATENCIES if any(len(run.latencies[name]) for _, _, found in runs for run in found)]
    if not names:
        return [(("  no call of a measured window was completed", "dim"),)]
    each = (width - 2 - GAP * (len(names) - 1)) // len(names)
    panels = [_panel(runs, name, each, height, look, labels=True) for name in names]
    out: list[Line] = []
    for y in range(height):
        line: list[tuple[str, str]] = [(" ", "")]
        for i, panel in enumerate(panels):
            if i:
                line.append((" " * GAP, ""))
            line += panel[y]
        out.append(tuple(line))
    return out


def _panel(runs: Runs, name: str, width: int, height: int, look: Theme, *, labels: bool) -> list[Line]:
    glyphs = look.glyphs
    left = LABEL if labels else 0
    inner, rows = max(4, width - left - 1), max(1, height - 2)
    values = [pooled(found, name) for _, _, found in runs]
    low, high, logarithmic = reach(values)  # type: ignore[arg-type]
    curves = [
        Curve(letter, tone, rising(v, low, high, inner, logarithmic=logarithmic))  # type: ignore[arg-type]
        for (letter, tone, _), v in zip(runs, values, strict=True)
    ]
    title = f"{TITLES[name]} (log)" if logarithmic and len(TITLES[name]) + 6 <= inner else TITLES[name]
    lines: list[Line] = [filled(((" " * (left + 1), ""), (title, "strong")), width)]
    marks = {0: "all", rows // 2: "half", rows - 1: "none"} if rows >= 3 else {}
    for y, row in enumerate(drawn(curves, inner, rows, glyphs, colour=look.colour, upright=True)):
        lines.append(((pad(marks.get(y, ""), left, right=True), "faint"), (glyphs.tick, "faint"), *row))
    start, end = _time(low), _time(high)
    start = start if len(start) + len(end) < inner else ""
    axis = f"{start}{end:>{inner - len(start)}}"
    lines.append(((" " * (left + 1), ""), (axis, "faint")))
    return [filled(line, width) if cells(line) < width else line for line in lines]


def _time(value: float) -> str:
    """With two digits, in ms below a second."""
    number, unit = (value * 1000, "ms") if value < 1 else (value, "s")
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.2g} {unit}" if number else "0"
