"""Putting pieces of text on one line: cutting, padding, and dropping what matters least when space runs out."""

from collections.abc import Sequence

from rich.cells import set_cell_size

from windtunnel.tui.theme import Line, cells_of

Part = tuple[int, Line]
"""(importance, pieces): parts of the smallest importance are dropped first; 0 is never dropped."""


def first_seen(top: int, at: int, room: int, count: int) -> int:
    """The first of `room` rows that are seen of `count`: `top`, unless row `at` were not seen or room were left."""
    return max(0, min(top, at, count - room), at - room + 1)


def cells(line: Line) -> int:
    total = 0
    for text, _ in line:
        total += len(text) if text.isascii() else cells_of(text)
    return total


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """At most `width` cells, with an ellipsis where something is missing."""
    if cells_of(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + ellipsis if width > 0 else ""


def pad(text: str, width: int, right: bool = False, ellipsis: str = "…") -> str:
    """Exactly `width` cells; `right` puts the text at the right end."""
    text = cut(text, width, ellipsis)
    space = " " * (width - cells_of(text))
    return space + text if right else text + space


def clip(line: Line, width: int) -> Line:
    """The line cut at `width` cells."""
    out: list[tuple[str, str]] = []
    left = width
    for text, tones in line:
        size = cells_of(text)
        if size > left:
            if left > 0:
                out.append((set_cell_size(text, left), tones))
            break
        out.append((text, tones))
        left -= size
    return tuple(out)


def filled(line: Line, width: int, tones: str = "") -> Line:
    """The line cut or extended to exactly `width` cells."""
    line = clip(line, width)
    space = width - cells(line)
    return (*line, (" " * space, tones)) if space > 0 else line


def joined(parts: Sequence[Line], gap: str = "  ") -> Line:
    out: list[tuple[str, str]] = []
    for part in parts:
        if part:
            if out:
                out.append((gap, ""))
            out.extend(part)
    return tuple(out)


def spread(left: Sequence[Part], right: Sequence[Part], width: int, gap: str = "  ") -> Line:
    """Parts at both ends of a line of `width` cells, one cell of margin; the least important go first where it is full.

    A part of importance 0 stays and is clipped when nothing else is left to drop.
    """
    inner = width - 2
    parts = [(importance, line, 0) for importance, line in left if line]
    parts += [(importance, line, 1) for importance, line in right if line]
    while True:
        first = joined([line for _, line, side in parts if side == 0], gap)
        second = joined([line for _, line, side in parts if side == 1], gap)
        need = cells(first) + cells(second) + (len(gap) if first and second else 0)
        droppable = [p for p in parts if p[0] > 0]
        if need <= inner or not droppable:
            break
        parts.remove(min(reversed(droppable), key=lambda p: p[0]))
    room = inner - cells(second)
    if cells(first) > room:
        first = clip(first, max(0, room - len(gap)))
    space = " " * max(0, inner - cells(first) - cells(second))
    return ((" ", ""), *first, (space, ""), *second, (" ", ""))
