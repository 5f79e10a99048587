"""A zero-based graph in braille: two samples a cell, four levels a row.

Textual's Sparkline scales from the smallest to the largest value, so that a steady 800 tokens/s fills its whole height;
here the axis starts at zero and its top is a round number that only moves when it has to.
"""

from collections.abc import Sequence

from windtunnel.tui.figures import ceiling, count
from windtunnel.tui.theme import Glyphs, Line

LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
"""Dots of the left column, by filled levels from the bottom."""
RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
AXIS = 7
"""Cells of the axis labels."""
ASCII_LEVELS = " .:|#"


def braille_rows(
    values: Sequence[float | None], width: int, height: int, top: float, braille: bool = True
) -> list[str]:
    """The last `2 * width` values as `height` rows of `width` cells, newest at the right; None leaves a gap.

    A value above zero always shows at least one dot.
    """
    shown = values[-2 * width :]
    padded: list[float | None] = [*([None] * (2 * width - len(shown))), *shown]
    steps = 4 * height
    levels = [0 if v is None or v <= 0 else max(1, min(steps, round(v / top * steps))) for v in padded]
    rows = []
    for row in range(height):
        floor = 4 * (height - 1 - row)
        cells = []
        for x in range(width):
            left, right = (max(0, min(4, level - floor)) for level in levels[2 * x : 2 * x + 2])
            cells.append(chr(0x2800 + LEFT[left] + RIGHT[right]) if braille else ASCII_LEVELS[max(left, right)])
        rows.append("".join(cells).replace("\u2800", " "))
    return rows


def graph(values: Sequence[float | None], width: int, height: int, glyphs: Glyphs, unit: str = "tok/s") -> list[Line]:
    """Axis and curve, `width` x `height` cells in all: the top's value, the unit, and zero at the axis.

    It grows from the left, one cell a value; when that is full, two values share a cell; then it scrolls.
    """
    inner = max(1, width - AXIS - 1)
    wide = len(values) <= inner
    shown = [v for v in values for _ in range(2)] if wide else list(values[-2 * inner :])
    top = ceiling(max((v for v in shown if v is not None), default=0.0))
    rows = braille_rows(shown + [None] * (2 * inner - len(shown)), inner, height, top, braille=glyphs.braille)
    labels = [""] * height
    labels[-1] = "0"
    if any(shown):
        labels[0] = count(top)
    if height >= 3:
        labels[1] = unit
    return [
        ((f"{label:>{AXIS}}", "dim"), (glyphs.tick, "faint"), (row, "graph"))
        for label, row in zip(labels, rows, strict=True)
    ]


def trend(values: Sequence[float | None], width: int, glyphs: Glyphs, top: float) -> str:
    """The last `width` values as one zero-based row, right-aligned."""
    cells = []
    for v in values[-width:]:
        if v is None:
            cells.append(" ")
        else:
            level = 0 if top <= 0 else round(v / top * (len(glyphs.levels) - 1))
            cells.append(glyphs.levels[max(0, min(len(glyphs.levels) - 1, level))])
    return "".join(cells).rjust(width)


def bar(share: float, width: int, glyphs: Glyphs) -> tuple[str, str]:
    """A filled and an unfilled part, `width` cells together, for a turn counter. Only a full share fills it."""
    share = max(0.0, min(1.0, share))
    filled = round(share * width)
    if share < 1:
        filled = min(filled, width - 1)
    return glyphs.full * filled, glyphs.rest * (width - filled)


def gauge(share: float, width: int, glyphs: Glyphs) -> tuple[str, str]:
    """A solid bar in eighths of a cell, and the spaces after it."""
    share = max(0.0, min(1.0, share))
    eighths = round(share * width * 8)
    whole, part = divmod(eighths, 8)
    text = glyphs.eighths[8] * whole + (glyphs.eighths[part] if part and whole < width else "")
    return text, " " * (width - len(text))
