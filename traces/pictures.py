"""Small pictures and short numbers for a terminal: sparklines, histograms, bars, tables.

Pure text: how wide it may be, whether the terminal has more than ASCII and whether it may be coloured are told by the
caller. No picture needs its colour to be understood.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

Style = Literal["plain", "bold", "dim", "call", "tool", "human", "client", "subagent"]
_CODES: dict[Style, str] = {
    "plain": "",
    "bold": "1",
    "dim": "2",
    "call": "36",
    "tool": "33",
    "human": "35",
    "client": "2",
    "subagent": "34",
}
_LEVELS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_ASCII_LEVELS = "_.:-=+*#"
_EIGHTHS = "\u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"


_AGES = 3 * 365 * 86_400.0
"""Seconds from which on nobody asks how many."""


class Pen(Struct, frozen=True):
    """What the terminal can show."""

    width: int = 80
    ascii: bool = False
    colour: bool = False

    def paint(self, text: str, style: Style) -> str:
        code = _CODES[style]
        return f"\033[{code}m{text}\033[0m" if self.colour and code and text.strip() else text

    def pick(self, unicode: str, ascii: str) -> str:  # noqa: A002 - what it is
        return ascii if self.ascii else unicode

    def cut(self, text: str, width: int) -> str:
        """At most `width` characters, the end of a longer text replaced by a mark."""
        if len(text) <= width:
            return text
        return text[: max(0, width - 1)] + self.pick("\u2026", "~") if width > 0 else ""

    def level(self, share: float) -> str:
        """One character as high as `share` of 1; nothing is a blank, little is still seen."""
        if share <= 0:
            return " "
        levels = self.pick(_LEVELS, _ASCII_LEVELS)
        return levels[min(len(levels) - 1, max(0, math.ceil(share * len(levels)) - 1))]

    def sparkline(self, values: Sequence[float], width: int) -> str:
        """Values from left to right, scaled from zero; several values that share a column show their largest."""
        if not values or width < 1:
            return ""
        most = max(values)
        return "".join(self.level(top / most if most > 0 else 0.0) for top in _tops(values, width))

    def chart(self, values: Sequence[float], width: int, height: int) -> list[str]:
        """A sparkline several lines high, the top line first."""
        most = max(values) or 1
        shares = [top / most for top in _tops(values, width)]
        rows = range(height - 1, -1, -1)
        return ["".join(self.level(min(1.0, share * height - row)) for share in shares) for row in rows]

    def histogram(self, values: Sequence[float], width: int) -> str:
        """How often values are small (left) or large (right), on a logarithmic scale from the least to the most."""
        positive = [v for v in values if v > 0]
        if not positive or width < 1:
            return ""
        low, high = math.log(min(positive)), math.log(max(positive))
        if high - low < 1e-9:
            return self.level(1.0)
        counts = [0] * width
        for value in values:
            at = (math.log(value) - low) / (high - low) if value > 0 else 0.0
            counts[min(width - 1, int(at * width))] += 1
        most = max(counts)
        return "".join(self.level(count / most) for count in counts)

    def bar(self, share: float, width: int) -> str:
        """A horizontal bar of `share` of the width, to an eighth of a column."""
        eighths = round(max(0.0, min(1.0, share)) * width * 8)
        if self.ascii:
            return "#" * ((eighths + 4) // 8)
        return _EIGHTHS[7] * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def _tops(values: Sequence[float], width: int) -> list[float]:
    """Values in at most `width` columns, the largest of those that share one."""
    width = min(width, len(values))
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]


def count(value: float | None) -> str:
    """A number of things in at most 6 characters: 950, 12.3k, 146k, 3.42M."""
    if value is None:
        return "-"
    if value < 0:
        return f"-{count(-value)}"
    if value >= 1e15:
        return ">999T"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        scaled = value / size
        if scaled >= 0.9995 and not (unit == "k" and value < 10_000):
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}{unit}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def duration(value: float | None) -> str:
    """Seconds in at most 6 characters: 8ms, 0.35s, 12s, 3m07s, 2h05m, 3d04h."""
    if value is None:
        return "-"
    if value < 0:
        return f"-{duration(-value)}"
    if value >= _AGES:
        return ">3y"
    if value < 0.0995:
        return f"{value * 1000:.0f}ms" if value > 0 else "0s"
    if value < 9.95:
        return f"{value:.2f}s" if value < 0.995 else f"{value:.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(value / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(value / 3600)
    return f"{hours // 24}d{hours % 24:02d}h" if hours < 2400 else f"{hours // 24}d"


def clock(value: float | None) -> str:
    """A time since the start of a session: 0:07, 12:30, 1:02:03."""
    if value is None:
        return "-"
    if abs(value) >= _AGES / 10:
        return duration(value)
    whole = int(value)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def percent(share: float | None) -> str:
    """A share in at most 5 characters; none and all are only said when exact."""
    if share is None:
        return "-"
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return "99.9%"
    return f"{share:.0%}" if share in {0, 1} else f"{share:.1%}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), gap: int = 2) -> list[str]:
    """Aligned lines, the header first: the columns in `left` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(size) if i in left else cell.rjust(size)
            for i, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((" " * gap).join(cells).rstrip())
    return lines
