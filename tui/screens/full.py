"""What every full screen is: it shows the run, and is drawn again when it comes to the top."""

from typing import TYPE_CHECKING, TypeVar, cast

from textual.screen import Screen

from windtunnel.tui.screens.drawn import Drawn
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View

if TYPE_CHECKING:
    from windtunnel.tui.app import Viewer

Answer = TypeVar("Answer")
"""What the screen gives back when it closes."""


class FullScreen(Drawn, Screen[Answer]):
    """Shows something that changes; other screens are laid over it."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = "FullScreen Lines { height: 1fr; }"

    def __init__(self, look: Theme, name: str) -> None:
        """`name`: the id of its widget of lines."""
        super().__init__(look, name)
        self.aside: Line = ()
        """What the footer says at its right end."""

    @property
    def viewer(self) -> "Viewer":
        return cast("Viewer", self.app)

    def update_view(self, view: View, aside: Line = ()) -> None:
        """Takes the run as it is now, several times a second while this is the topmost full screen."""
        raise NotImplementedError

    def on_screen_resume(self) -> None:
        self.draw()
