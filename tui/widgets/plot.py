"""Zero-based graphs in braille: two samples a cell, four levels a row.

Textual's Sparkline scales from the smallest to the largest value, so that a steady 800 tokens/s fills its whole height;
here the axis starts at zero and its top is a round number that only moves when it has to.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from windtunnel.tui.figures import ceiling, count
from windtunnel.tui.theme import Glyphs, Line

LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
"""Dots of the left column, by filled levels from the bottom."""
RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
AXIS = 7
"""Cells of the axis labels."""
ASCII_LEVELS = " .:|#"
BEYOND = ">"
RARE = 100
"""One value of so many may be cut off, where it is more than `FAR` times as large as all others."""
FAR = 2.0


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


def spans(n: int, cells: int, whole: bool) -> list[tuple[int, int]]:
    """Which of `n` values each cell shows, as [first, last).

    A graph grows from the left, one value a cell. When it is full it moves on, until there are twice as many values:
    then all are seen again, two a cell, and so on: about half of the run at least is seen and what was drawn keeps
    its shape. `whole`: nothing is added any more, and everything is spread over all cells.
    """
    if whole and n:
        return [(i * n // cells, max(i * n // cells + 1, (i + 1) * n // cells)) for i in range(cells)]
    size = 1
    while 2 * size * cells <= n:
        size *= 2
    last = -(-n // size)
    return [(i * size, min(n, (i + 1) * size)) for i in range(max(0, last - cells), last)]


def fitted(values: Sequence[float | None], cells: int, whole: bool) -> list[float | None]:
    """Two dots for each cell that shows something; a dot of several values is the mean of those there are."""
    dots: list[float | None] = []
    for first, last in spans(len(values), cells, whole):
        middle = (first + last) // 2
        for part in (values[first : max(middle, first + 1)], values[min(middle, last - 1) : last]):
            known = [v for v in part if v is not None]
            dots.append(sum(known) / len(known) if known else None)
    return dots


def usual(values: Sequence[float]) -> float:
    """What the axis reaches up to: the largest value, but for single ones that stand far out of all others."""
    if not values:
        return 0.0
    ordered = sorted(values)
    most, common = ordered[-1], ordered[-1 - max(1, len(ordered) // RARE)] if len(ordered) >= RARE // 2 else ordered[-1]
    return common if common > 0 and most > FAR * common else most


def _beyond(row: str, values: Sequence[float | None], top: float, glyphs: Glyphs) -> str:
    """The top row with an arrow where a value goes beyond it."""
    over = {i // 2 for i, v in enumerate(values) if v is not None and v > top * (1 + 1e-9)}
    return "".join(glyphs.up if i in over else c for i, c in enumerate(row)) if over else row


@lru_cache(maxsize=16)
def graph(
    values: tuple[float | None, ...],
    width: int,
    height: int,
    glyphs: Glyphs,
    unit: str = "tok/s",
    tone: str = "graph",
    top: float | None = None,
    label: Callable[[float], str] = count,
    whole: bool = False,
) -> tuple[Line, ...]:
    """Axis and curve, `width` x `height` cells in all: the top's value, the unit, and zero at the axis.

    `top` fixes the axis; else it is the next round number above what is `usual`. `whole`: the run is over. Cached: the
    values change once a second.
    """
    inner = max(1, width - AXIS - 1)
    shown = fitted(values, inner, whole)
    upper = top if top is not None else ceiling(usual([v for v in shown if v is not None]))
    blank = [None] * (2 * inner - len(shown))
    rows = braille_rows([*shown, *blank], inner, height, upper, braille=glyphs.braille)
    rows[0] = _beyond(rows[0], shown, upper, glyphs)
    labels = [""] * height
    labels[-1] = "0"
    if top is not None or any(shown):
        labels[0] = label(upper)
    if height >= 3:
        labels[1] = unit
    return tuple(
        ((f"{text:>{AXIS}}", "dim"), (glyphs.tick, "faint"), (row, tone))
        for text, row in zip(labels, rows, strict=True)
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


def marked(share: float, mark: float | None, width: int, glyphs: Glyphs, tone: str) -> Line:
    """A gauge with a second mark on it: one beyond the end stands in the last cell and points out of it."""
    full, rest = gauge(share, width, glyphs)
    text = full + rest
    if not mark:
        return ((full, tone), (rest, ""))
    at = max(0, min(width - 1, int(mark * width)))
    sign, colour = (BEYOND, "bad") if mark > 1 else (glyphs.axis, "strong")
    left, right = text[:at], text[at + 1 :]
    ground = f" on-{tone}" if text[at] == glyphs.eighths[8] and tone else ""
    return ((left, tone), (sign, colour + ground), (right, tone))
