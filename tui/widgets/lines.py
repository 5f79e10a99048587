"""The one widget that draws: lines given as data, redrawn only where they changed.

Textual's DataTable costs three to four times as much for the same rows; here a row that did not change costs one
comparison, and a row that did costs one cached Strip and its own cells on the wire.
"""

from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from windtunnel.tui.theme import Line, Theme, cells_of, strip
from windtunnel.tui.widgets.compose import cells

GAP = 12
"""Fewer unchanged cells than this are sent again: moving the cursor costs as much."""


def changed(old: Line, new: Line, width: int) -> tuple[int, int]:
    """Columns from the first piece that differs to the last one, as [first, last)."""
    first = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        first += cells_of(after[0])
    if len(old) != len(new):
        return min(first, width), width
    last = min(width, cells(new))
    for before, after in zip(reversed(old), reversed(new), strict=True):
        if before != after:
            break
        last -= cells_of(after[0])
    if cells(old) != cells(new) or last <= first:
        last = width
    return min(first, width), max(last, min(first + 1, width))


def spans(old: Line, new: Line, width: int) -> list[tuple[int, int]]:
    """The stretches of columns that differ, as [first, last); what lies close together is one."""
    if len(old) != len(new):
        return [changed(old, new, width)]
    out: list[tuple[int, int]] = []
    column = 0
    for before, after in zip(old, new, strict=True):
        text = after[0]
        size = len(text) if text.isascii() else cells_of(text)
        if before != after:
            if cells_of(before[0]) != size:
                return [changed(old, new, width)]
            if out and column - out[-1][1] < GAP:
                out[-1] = out[-1][0], column + size
            else:
                out.append((column, column + size))
        column += size
    return [(first, min(last, width)) for first, last in out if first < width]


class Lines(Widget):
    """Shows lines, one per row. `show()` compares with what stands there and refreshes the changed rows only."""

    DEFAULT_CSS = "Lines { width: 1fr; height: auto; }"

    def __init__(self, theme: Theme, id: str | None = None) -> None:  # noqa: A002  Textual's name
        super().__init__(id=id)
        self.look = theme
        self.lines: tuple[Line, ...] = ()
        self.marked: int | None = None
        """Row drawn on the selection's background."""
        self.redrawn = 0
        """Rows refreshed since the start, for tests."""

    def show(self, lines: Sequence[Line], marked: int | None = None) -> None:
        new = tuple(lines)
        if new == self.lines and marked == self.marked:
            return
        old, was = self.lines, self.marked
        self.lines, self.marked = new, marked
        width = self.size.width
        rows = max(len(old), len(new))
        dirty = [
            y
            for y in range(rows)
            if (old[y] if y < len(old) else None) != (new[y] if y < len(new) else None)
            or (y in (was, marked) and was != marked)
        ]
        self.redrawn += len(dirty)
        regions = []
        for y in dirty:
            before, after = old[y] if y < len(old) else (), new[y] if y < len(new) else ()
            whole = y in (was, marked) and was != marked
            regions += [
                Region(first, y, last - first, 1)
                for first, last in ([(0, width)] if whole else spans(before, after, width))
            ]
        self.refresh(*regions)

    def wear(self, theme: Theme) -> None:
        """The same lines in other colours."""
        self.look = theme
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Straight from the cache: there is no border, padding or filter that Textual would have to apply."""
        width, (left, right) = self.size.width, crop.column_span
        strips = [self._strip(y, width) for y in crop.line_range]
        return strips if (left, right) == (0, width) else [s.crop(left, right) for s in strips]

    def render_line(self, y: int) -> Strip:
        return self._strip(y, self.size.width)

    def _strip(self, y: int, width: int) -> Strip:
        line = self.lines[y] if y < len(self.lines) else ()
        return strip(line, width, self.look.ink, "select" if y == self.marked else "")

    def get_content_height(self, container: object, viewport: object, width: int) -> int:  # noqa: ARG002
        return len(self.lines)
