"""What every full screen is: one widget of lines, drawn when it opens, changes its size, or comes to the top again."""

from typing import TYPE_CHECKING, TypeVar, cast

from textual.app import ComposeResult
from textual.screen import Screen

from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.lines import Lines

if TYPE_CHECKING:
    from windtunnel.tui.app import Viewer

Answer = TypeVar("Answer")
"""What the screen gives back when it closes."""


class FullScreen(Screen[Answer]):
    """Shows something that changes; other screens are laid over it."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = "FullScreen Lines { height: 1fr; }"

    def __init__(self, look: Theme, name: str) -> None:
        """`name`: the id of its widget of lines."""
        super().__init__()
        self.look = look
        self.body = Lines(look, id=name)
        self.aside: Line = ()
        """What the footer says at its right end."""

    def compose(self) -> ComposeResult:
        yield self.body

    @property
    def viewer(self) -> "Viewer":
        return cast("Viewer", self.app)

    def update_view(self, view: View, aside: Line = ()) -> None:
        """Takes the run as it is now, several times a second while this is the topmost full screen."""
        raise NotImplementedError

    def draw(self) -> None:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()
