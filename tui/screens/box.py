"""A framed box in the middle, over a screen that lives on behind it."""

from collections.abc import Sequence

from textual.screen import ModalScreen

from windtunnel.tui.screens.drawn import Drawn
from windtunnel.tui.screens.full import Answer
from windtunnel.tui.theme import Line
from windtunnel.tui.widgets.dialog import boxed


class BoxScreen(Drawn, ModalScreen[Answer]):
    """As large as what it says."""

    DEFAULT_CSS = """
    BoxScreen { align: center middle; }
    BoxScreen Lines { width: auto; height: auto; }
    """

    def show_box(self, body: Sequence[Line], width: int, title: str, foot: str) -> None:
        """Lines of `width` cells, a title in the upper edge and a hint in the lower one."""
        lines = boxed(body, width, title, foot, self.look.glyphs)
        self.body.styles.width, self.body.styles.height = width + 4, len(lines)
        self.body.show(lines)

    def action_leave(self) -> None:
        self.dismiss(None)
