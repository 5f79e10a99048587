"""Numbers as text of a fixed width, so that columns do not jump while values change.

`none` is shown where a number does not exist: never a zero.
"""

import math


def count(value: float | None, none: str = "–") -> str:
    """Tokens in at most six characters: 812, 8.4k, 96.2k, 131k, 1.24M."""
    if value is None or not math.isfinite(value):
        return none
    n = round(value)
    if n < 1000:
        return str(n)
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        scaled = value / size
        if scaled < 99.95:
            return f"{scaled:.1f}{unit}"
        if scaled < 999.5:
            return f"{scaled:.0f}{unit}"
    return f"{value / 1e12:.1f}T"


def whole(value: float | None, none: str = "–") -> str:
    """A count with separators: 1,834."""
    return none if value is None or not math.isfinite(value) else f"{round(value):,}"


def percent(share: float | None, none: str = "–", digits: int = 0) -> str:
    """A share of 1 as a percentage. Only a full share shows 100."""
    if share is None or not math.isfinite(share):
        return none
    shown = share * 100
    if share < 1:
        shown = min(shown, 100 - 10.0**-digits)
    return f"{shown:.{digits}f}%"


def seconds(value: float | None, none: str = "–") -> str:
    """Seconds without the unit, two decimals up to 100: 0.31, 12.44, 140."""
    if value is None or not math.isfinite(value):
        return none
    return f"{value:.2f}" if value < 99.995 else f"{value:.0f}"


def tenths(value: float | None, none: str = "–") -> str:
    """A rate with one decimal up to 1000: 62.1, 1,204."""
    if value is None or not math.isfinite(value):
        return none
    return f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"


def clock(value: float | None, none: str = "--:--") -> str:
    """A length of time as mm:ss, or h:mm:ss from an hour on."""
    if value is None or not math.isfinite(value):
        return none
    total = max(0, int(value))
    hours, rest = divmod(total, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def millis(value: float | None, none: str = "–") -> str:
    """Milliseconds without the unit: 0.08, 0.8, 12, 140."""
    if value is None or not math.isfinite(value):
        return none
    if value < 0.1:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def plural(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def ceiling(value: float) -> float:
    """The top of a zero-based axis for `value`: the next of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10):
        if value <= step * power * (1 + 1e-9):
            return step * power
    return 10 * power


def gigabytes(value: float | None, none: str = "–") -> str:
    """Bytes as GB of a thousand million: 7.4, 131."""
    if value is None or not math.isfinite(value):
        return none
    size = value / 1e9
    return f"{size:.1f}" if size < 9.95 else f"{size:.0f}"
