"""A terminal too small for any screen: says so, and how large it has to be."""

from textual.screen import ModalScreen

from windtunnel.tui.screens.drawn import Drawn
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.widgets.compose import cut

LEAST = 40, 12
"""Columns and rows."""


def too_small(width: int, height: int) -> bool:
    return width < LEAST[0] or height < LEAST[1]


def small_lines(width: int, height: int, look: Theme) -> list[Line]:
    """The sentence as one line, or as short ones where that does not fit."""
    whole = f"{width}x{height} is too small: make it {LEAST[0]}x{LEAST[1]} or larger; q quits"
    parts = (
        [whole]
        if len(whole) <= width
        else [f"{width}x{height} is too small", f"needs {LEAST[0]}x{LEAST[1]}", "q quits"]
    )
    parts = parts[: max(1, height)]
    above: list[Line] = [()] * ((height - len(parts)) // 2)
    return [*above, *(((cut(part, width, look.glyphs.ellipsis), "warn"),) for part in parts)]


class SmallScreen(Drawn, ModalScreen[None]):
    """Lies over everything until there is room again; keys of the screen below have no effect, q does."""

    BINDINGS = [("q,ctrl+c", "app.leave", "quit")]  # noqa: RUF012 -- Textual's way
    DEFAULT_CSS = "SmallScreen Lines { height: 1fr; }"

    def __init__(self, look: Theme) -> None:
        super().__init__(look, "small")

    def draw(self) -> None:
        width, height = self.size
        self.body.show(small_lines(width, height, self.look))
