"""Charts as SVG text: scales, axes, marks. No script, no font and no file from elsewhere, so that a page works offline.

Colours are classes of the page's style sheet; sizes are in units of a view box that scales with the page's width.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import ceil, floor, log10

from msgspec import Struct

WIDTH = 640.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 12.0, 12.0, 34.0
CHARACTER = 6.2
"""Width of a character of the axes' font size, about."""


class Scale(Struct, frozen=True):
    """Values to places along an axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (log10(self.low), log10(self.high)) if self.log else (self.low, self.high)
        at = log10(max(value, self.low)) if self.log else value
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def ticks(self, most: int = 6) -> list[float]:
        if self.log:
            return [10.0**power for power in range(floor(log10(self.low)), ceil(log10(self.high)) + 1)]
        return nice_ticks(self.low, self.high, most)


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between `low` and `high`, at most `most` of them."""
    if high <= low:
        return [low]
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** floor(log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A tick's label: `1.5k`, `0.02`, `3M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def chart(
    height: float,
    x: Scale,
    y: Scale,
    marks: Iterable[str],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_format: Callable[[float], str] = short,
    y_format: Callable[[float], str] = short,
) -> str:
    """A chart with both axes; `title` is what a screen reader says."""
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(title, quote=True)}">'
    ]
    for tick in y.ticks(5):
        if not y.low <= tick <= y.high:
            continue
        at = y(tick)
        parts.append(f'<path class="grid" d="M{x.start:.1f} {at:.1f}H{x.end:.1f}"/>')
        parts.append(text(x.start - 6, at + 3.5, y_format(tick), "tick", anchor="end"))
    for tick in x.ticks():
        if not x.low <= tick <= x.high:
            continue
        anchor = "end" if x(tick) > WIDTH - 3 * CHARACTER else "middle"
        parts.append(text(x(tick), height - BOTTOM + 15, x_format(tick), "tick", anchor=anchor))
    parts += marks
    parts.append(text((x.start + x.end) / 2, height - 4, x_label, "label", anchor="middle"))
    parts.append(text(x.start - LEFT + 2, 9, y_label, "label"))
    return "".join([*parts, "</svg>"])


def plot_area(
    height: float, x: tuple[float, float], y: tuple[float, float], *, x_log: bool = False
) -> tuple[Scale, Scale]:
    """The usual scales for a chart of this height."""
    return (
        Scale(*x, LEFT, WIDTH - RIGHT, x_log),
        Scale(*y, height - BOTTOM, TOP + 8),
    )


def text(x: float, y: float, words: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x: Scale, y: Scale, points: Sequence[tuple[float, float | None]], kind: str) -> str:
    """A line through the points, broken where a value is missing."""
    path, pen = [], False
    for at, value in points:
        if value is None:
            pen = False
            continue
        path.append(f"{'L' if pen else 'M'}{x(at):.1f} {y(value):.1f}")
        pen = True
    return f'<path class="line {kind}" d="{"".join(path)}"/>'


def area(x: Scale, y: Scale, points: Sequence[tuple[float, float]], kind: str) -> str:
    """The area between a line and zero."""
    if not points:
        return ""
    path = "".join(f"L{x(at):.1f} {y(value):.1f}" for at, value in points)
    first, last = x(points[0][0]), x(points[-1][0])
    return f'<path class="area {kind}" d="M{first:.1f} {y(y.low):.1f}{path}L{last:.1f} {y(y.low):.1f}Z"/>'


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    said = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place}>{said}</rect>'


def whisker(low: float, high: float, y: float, kind: str = "whisker") -> str:
    """A horizontal interval with ends."""
    return f'<path class="{kind}" d="M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 4:.1f}v8M{high:.1f} {y - 4:.1f}v8"/>'
