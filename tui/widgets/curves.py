"""Several curves in one picture of braille, each in its colour and with its letter on it.

A cell has one colour: where curves cross, the one drawn later has it. So the letters stand apart from each other along
the picture, and without braille the letters are the curves.
"""

from collections.abc import Sequence

from msgspec import Struct

from windtunnel.tui.theme import Glyphs, Line

NARROW = 1.02
"""Values nearer to each other than this are a point on an axis from zero."""
BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""A braille cell's dots by row and column."""


class Curve(Struct, frozen=True):
    letter: str
    tone: str
    values: tuple[float | None, ...]
    """One for each half cell of the width, 0 to 1; None leaves a gap."""


class Canvas:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.bits = [[0] * width for _ in range(height)]
        self.tones = [[""] * width for _ in range(height)]
        self.letters: dict[tuple[int, int], tuple[str, str]] = {}

    def dot(self, x: int, y: int, tone: str) -> None:
        """`y` counts dots from the bottom."""
        row = self.height - 1 - y // 4
        self.bits[row][x // 2] |= BITS[3 - y % 4][x % 2]
        self.tones[row][x // 2] = tone

    def put(self, column: int, row: int, letter: str, tone: str) -> None:
        """A letter at the nearest free cell to the right, else above or below."""
        for dx, dy in ((0, 0), (1, 0), (-1, 0), (2, 0), (-2, 0), (0, -1), (0, 1), (3, 0), (-3, 0)):
            at = column + dx, row + dy
            if at not in self.letters and 0 <= at[0] < self.width and 0 <= at[1] < self.height:
                self.letters[at] = (letter, tone)
                return

    def rows(self) -> list[Line]:
        out = []
        for y in range(self.height):
            pieces: list[tuple[str, str]] = []
            for x in range(self.width):
                text, tone = " ", ""
                if (x, y) in self.letters:
                    letter, of = self.letters[x, y]
                    text, tone = letter, f"{of} bold"
                elif self.bits[y][x]:
                    text, tone = chr(0x2800 + self.bits[y][x]), self.tones[y][x]
                if pieces and pieces[-1][1] == tone:
                    pieces[-1] = (pieces[-1][0] + text, tone)
                else:
                    pieces.append((text, tone))
            out.append(tuple(pieces))
        return out


def drawn(
    curves: Sequence[Curve], width: int, height: int, glyphs: Glyphs, *, colour: bool, upright: bool
) -> list[Line]:
    """The curves as `height` lines of `width` cells. The first one lies on top.

    Letters stand along the width; with `upright`, for curves that only rise, along the height.
    """
    canvas = Canvas(width, height)
    levels = 4 * height - 1
    for curve in reversed(curves):
        before: int | None = None
        for x, value in enumerate(curve.values[: 2 * width]):
            if value is None:
                before = None
                continue
            y = round(max(0.0, min(1.0, value)) * levels)
            if not glyphs.braille:
                canvas.letters[x // 2, height - 1 - y // 4] = (curve.letter, curve.tone)
                continue
            low, high = (y, y) if before is None else (min(y, before), max(y, before))
            for step in range(low, high + 1):
                canvas.dot(x, step, curve.tone)
            before = y
    if glyphs.braille:
        for i, curve in enumerate(curves):
            for column, value in _places(curve, i, len(curves), width, colour=colour, upright=upright):
                canvas.put(column, height - 1 - round(value * levels) // 4, curve.letter, curve.tone)
    return canvas.rows()


def _places(curve: Curve, i: int, count: int, width: int, *, colour: bool, upright: bool) -> list[tuple[int, float]]:
    """Where a curve's letters stand, as (column, value): one each, without colours more."""
    known = [(x, v) for x, v in enumerate(curve.values[: 2 * width]) if v is not None]
    if not known:
        return []
    if upright:
        wanted = 0.2 + 0.6 * (i + 0.5) / count
        x, value = min(known, key=lambda at: abs(at[1] - wanted))
        return [(x // 2, value)]
    each = 1 if colour else max(1, width // (12 * count))
    found = []
    for n in range(each):
        x = int(2 * width * (n + (i + 0.5) / count) / each)
        at, value = min(known, key=lambda k: abs(k[0] - x))
        found.append((at // 2, value))
    return found


def rising(
    values: Sequence[float], low: float, high: float, width: int, *, logarithmic: bool
) -> tuple[float | None, ...]:
    """The share of ascending `values` at or below each half cell of an axis from `low` to `high`.

    None before the first value and after the last.
    """
    import numpy as np

    if not len(values):
        return (None,) * (2 * width)
    places = (np.arange(2 * width) + 0.5) / (2 * width)
    axis = low * (high / low) ** places if logarithmic else low + (high - low) * places
    share = np.searchsorted(np.asarray(values), axis, side="right") / len(values)
    shown: list[float | None] = [float(s) if 0 < s < 1 else None for s in share]
    last = next((i for i, s in enumerate(share) if s >= 1), None)
    if last is not None:
        shown[last] = 1.0
    elif not any(shown):
        shown[-1] = 1.0  # a single value, at the axis' end
    return tuple(shown)


def reach(columns: Sequence[Sequence[float]]) -> tuple[float, float, bool]:
    """(low, high, logarithmic) of an axis that holds nearly all of every column's ascending values."""
    import numpy as np

    parts = [np.quantile(np.asarray(values), (0.01, 0.99)) for values in columns if len(values)]
    if not parts:
        return 0.0, 1.0, False
    low, high = float(min(p[0] for p in parts)), float(max(p[1] for p in parts))
    if high <= low * NARROW:
        return 0.0, high or 1.0, False
    if low > 0 and high / low > 6:
        return low, high, True
    return (0.0, high, False) if low < high / 2 else (low, high, False)
