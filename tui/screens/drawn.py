"""What full screens and the boxes laid over them have in common: all that they show is one widget of lines."""

from textual.app import ComposeResult

from windtunnel.tui.theme import Theme
from windtunnel.tui.widgets.lines import Lines


class Drawn:
    """Stands before a kind of Textual's screens among the bases; drawn when it opens and when its size changes."""

    def __init__(self, look: Theme, name: str) -> None:
        """`name`: the id of its widget of lines."""
        super().__init__()
        self.look = look
        self.body = Lines(look, id=name)

    def compose(self) -> ComposeResult:
        yield self.body

    def draw(self) -> None:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()
