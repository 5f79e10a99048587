"""A ratio with its interval as a small bar: 1.0 in the middle, equal steps to both sides for equal factors."""

from collections.abc import Sequence
from math import exp, log

from windtunnel.simulator.experiments.outcome import Comparison
from windtunnel.tui.theme import Glyphs, Line

LEAST = log(1.1)
"""The scale reaches a tenth to both sides at least: a percent is not drawn as an abyss."""
MOST = log(20.0)
LEAST_SCALE = 11
"""Cells with which the ends of a scale can be told."""
TONES = {"better": "good", "worse": "bad", "no_difference": "text", "too_noisy": "dim"}


def scale(found: Sequence[Comparison]) -> float:
    """How far the bars reach to both sides, as a logarithm: a round share that holds every interval."""
    most = max((abs(log(v)) for c in found for v in (c.ratio, c.low, c.high) if v is not None and v > 0), default=0.0)
    for share in (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 9.0, 19.0):
        if most <= log(1 + share) * (1 + 1e-9):
            return log(1 + share)
    return MOST


def ends(reach: float) -> tuple[str, str]:
    """What the left and the right end of a bar stand for: `-9%` and `+10%`; from a factor of two on `/3` and `x3`."""
    high = exp(reach)
    if high > 2 + 1e-9:
        return f"/{high:.0f}", f"x{high:.0f}"
    return f"{1 / high - 1:+.0%}", f"+{high - 1:.0%}"


def ratio_bar(found: Comparison, reach: float, width: int, glyphs: Glyphs) -> Line:
    """`width` cells (odd): the interval as a line, the ratio as a dot in the verdict's tone, 1.0 marked."""
    middle = width // 2
    cells = [(" ", "")] * (2 * middle + 1)
    tone = TONES[found.verdict]

    def place(value: float) -> int:
        return middle + max(-middle, min(middle, round(log(value) / reach * middle)))

    if found.low is not None and found.high is not None and found.low > 0:
        for i in range(place(found.low), place(found.high) + 1):
            cells[i] = (glyphs.full, tone)
    cells[middle] = (glyphs.axis, "dim")
    if found.ratio is not None and found.ratio > 0:
        cells[place(found.ratio)] = (glyphs.dot, f"{tone} bold")
    out: list[tuple[str, str]] = []
    for text, of in cells:
        if out and out[-1][1] == of:
            out[-1] = (out[-1][0] + text, of)
        else:
            out.append((text, of))
    return (*out, *(((" " * (width - len(cells)), ""),) if width > len(cells) else ()))


def scale_line(reach: float, width: int) -> str:
    """The ends of the scale and the middle, above the bars."""
    low, high = ends(reach)
    middle = width // 2
    if width < LEAST_SCALE:
        return f"{'1.0':^{width}}"
    left = f"{low:<{max(0, middle - 1)}}"[: middle - 1]
    return f"{left}1.0{high:>{max(0, width - middle - 2)}}"
