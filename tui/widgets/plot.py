"""A zero-based graph in braille: two samples a cell, four levels a row.

Textual's Sparkline scales from the smallest to the largest value, so that a steady 800 tokens/s fills its whole height;
here the axis starts at zero and its top is a round number that only moves when it has to.
"""

from collections.abc import Sequence
from functools import lru_cache

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
    steps = 4 * height
    levels = [0] * (2 * width - len(shown))
    levels += [0 if v is None or v <= 0 else max(1, min(steps, round(v / top * steps))) for v in shown]
    pairs = list(zip(levels[::2], levels[1::2], strict=True))
    rows = []
    for row in range(height):
        floor = 4 * (height - 1 - row)
        cells = _cells(floor, braille)
        rows.append(
            "".join(
                [
                    cells[min(a, floor + 4) if a > floor else floor, min(b, floor + 4) if b > floor else floor]
                    for a, b in pairs
                ]
            )
        )
    return rows


@lru_cache(maxsize=64)
def _cells(floor: int, braille: bool) -> dict[tuple[int, int], str]:
    """The character for each pair of levels in the row that begins at `floor`."""
    out = {}
    for left in range(5):
        for right in range(5):
            drawn = chr(0x2800 + LEFT[left] + RIGHT[right]) if braille else ASCII_LEVELS[max(left, right)]
            out[floor + left, floor + right] = " " if left == right == 0 else drawn
    return out


def graph(
    values: tuple[float | None, ...], width: int, height: int, glyphs: Glyphs, unit: str = "tok/s"
) -> tuple[Line, ...]:
    """Axis and curve, `width` x `height` cells in all: the top's value, the unit, and zero at the axis.

    It grows from the left, one cell a value; when that is full, two values share a cell; then it scrolls.
    """
    return _graph(values, width, height, unit, glyphs.tick, glyphs.braille)


@lru_cache(maxsize=4)
def _graph(
    values: tuple[float | None, ...], width: int, height: int, unit: str, tick: str, braille: bool
) -> tuple[Line, ...]:
    """Cached: the series changes once a second."""
    inner = max(1, width - AXIS - 1)
    wide = len(values) <= inner
    shown = [v for v in values for _ in range(2)] if wide else list(values[-2 * inner :])
    top = ceiling(max((v for v in shown if v is not None), default=0.0))
    rows = braille_rows([*shown, *([None] * (2 * inner - len(shown)))], inner, height, top, braille=braille)
    labels = [""] * height
    labels[-1] = "0"
    if any(shown):
        labels[0] = count(top)
    if height >= 3:
        labels[1] = unit
    return tuple(
        ((f"{label:>{AXIS}}", "dim"), (tick, "faint"), (row, "graph")) for label, row in zip(labels, rows, strict=True)
    )


@lru_cache(maxsize=1024)
def trend(values: tuple[float, ...], width: int, levels: str) -> str:
    """The last `width` values as one zero-based row, right-aligned."""
    top = max(values, default=0.0)
    highest = len(levels) - 1
    cells = [levels[round(v / top * highest) if top > 0 else 0] for v in values[-width:]]
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
