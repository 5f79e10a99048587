"""Leaving a run that is going on: asked once, with what happens to the results said beside each answer."""

from typing import ClassVar, Literal

from textual import events
from textual.binding import Binding, BindingType

from windtunnel.tui.screens.box import BoxScreen
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.widgets.compose import filled

Answer = Literal["stop", "detach", "stay"]
CHOICES: tuple[tuple[Answer, str, str, str], ...] = (
    ("stop", "s", "stop the run", "what was measured is kept and summed up"),
    ("detach", "d", "detach", "goes on; `windtunnel view` comes back"),
    ("stay", "g", "go on watching", ""),
)
EARLY = frozenset({"starting", "warmup"})
"""Phases in which nothing is measured yet."""
WIDTH = 62


def leave_lines(chosen: int, phase: str) -> list[Line]:
    """The question and its answers, each in `WIDTH` cells."""
    early = phase in EARLY
    asked = "The run is still going on" + (": warm-up, nothing is measured." if early else ".")
    lines: list[Line] = [((asked, "strong"),), ()]
    for i, (answer, key, name, what) in enumerate(CHOICES):
        over = " select" if i == chosen else ""
        said = "its counts are kept, but no result comes" if early and answer == "stop" else what
        line: Line = ((f" {key}  ", f"key{over}"), (f"{name:<14}", f"strong{over}"), (f"{said} ", f"dim{over}"))
        lines.append(filled(line, WIDTH, over.strip()))
    return [*lines, ()]


class LeaveScreen(BoxScreen[Answer]):
    """Arrow keys and enter, or the letter in front. `y` says yes to what is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "answer('stop')", "stop"),
        Binding("d", "answer('detach')", "detach"),
        Binding("g,escape", "answer('stay')", "go on"),
        Binding("q", "answer('stop')", "stop"),
        Binding("up,k,left", "move(-1)", "up"),
        Binding("down,j,right,tab", "move(1)", "down"),
        Binding("enter,y", "take", "take"),
    ]

    def __init__(self, look: Theme, phase: str = "steady") -> None:
        super().__init__(look, "leave")
        self.phase = phase
        self.chosen = 0

    def draw(self) -> None:
        body = leave_lines(self.chosen, self.phase)
        self.show_box(body, WIDTH, "leave", "enter takes, escape goes on")

    def action_move(self, by: int) -> None:
        self.chosen = (self.chosen + by) % len(CHOICES)
        self.draw()

    def action_take(self) -> None:
        self.dismiss(CHOICES[self.chosen][0])

    def action_answer(self, answer: Answer) -> None:
        self.dismiss(answer)

    def on_click(self, event: events.Click) -> None:
        row = event.screen_y - self.body.region.y - 3
        if 0 <= row < len(CHOICES):
            self.dismiss(CHOICES[row][0])
