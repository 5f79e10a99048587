"""A framed box of lines for what is laid over a screen."""

from collections.abc import Sequence

from windtunnel.tui.theme import Glyphs, Line
from windtunnel.tui.widgets.compose import filled


def boxed(body: Sequence[Line], width: int, title: str, foot: str, glyphs: Glyphs) -> list[Line]:
    """The body in a frame of `width + 4` cells, its title in the upper edge and a hint in the lower one."""
    tl, tr, bl, br, across, down = (glyphs.frame[i] for i in range(6))
    upper = f"{across} {title} "
    lower = f" {foot} {across}"
    lines: list[Line] = [((tl, "dim"), (upper, "strong"), (across * (width + 2 - len(upper)) + tr, "dim"))]
    lines += [((f"{down} ", "dim"), *filled(line, width), (f" {down}", "dim")) for line in body]
    lines.append(((bl + across * (width + 2 - len(lower)), "dim"), (lower, "dim"), (br, "dim")))
    return lines
