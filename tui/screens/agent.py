"""One agent: where it stands, each of its turns as figures, and its transcript as it grows."""

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.transcript import Story
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.compose import clip, filled, pad, spread
from windtunnel.tui.widgets.header import status_line, title_line
from windtunnel.tui.widgets.lines import Lines
from windtunnel.tui.widgets.plot import bar
from windtunnel.tui.widgets.story import Paragraphs, about_lines, tail_of, turns_head, turns_table

if TYPE_CHECKING:
    from windtunnel.tui.app import Viewer

SIDE = 47
"""Cells of the fleet beside the agent, from 160 columns on."""


def side_lines(rows: tuple[Row, ...], agent: int, height: int, look: Theme) -> list[Line]:
    """The fleet in a narrow column, the open agent marked and in the middle."""
    glyphs = look.glyphs
    at = next((i for i, r in enumerate(rows) if r.agent == agent), 0)
    top = max(0, min(at - height // 2, len(rows) - height))
    lines: list[Line] = []
    for row in rows[top : top + height]:
        over = " select" if row.agent == agent else ""
        full, rest = bar(row.turn / row.turns if row.turns else 0.0, 6, glyphs)
        lines.append(
            filled(
                (
                    (f" {row.agent + 1:>02} ", f"dim{over}"),
                    (pad(f"{glyphs.states[row.state]} {row.state}", 10), f"{row.state}{over}"),
                    (pad(row.title, SIDE - 24, ellipsis=glyphs.ellipsis), f"text{over}"),
                    (" ", over.strip()),
                    (full, f"{row.state}{over}"),
                    (rest, f"rule{over}"),
                ),
                SIDE - 1,
                over.strip(),
            )
        )
    return lines


def footer(width: int, follows: bool, aside: Line) -> Line:
    keys = [
        (9, "escape", "back"),
        (7, "up down", "scroll"),
        (8, "end", "follow"),
        (6, "left right", "other agent"),
        (3, "p", "picture"),
        (5, "?", "help"),
        (4, "q", "quit"),
    ]
    parts = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    mode: Line = (("following", "good") if follows else ("scrolled back", "warn"),)
    return spread(parts, [(0, clip(aside, width - 4)) if aside else (10, mode)], width)


class AgentScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", "back"),
        Binding("up,k", "scroll_by(1)", "up"),
        Binding("down,j", "scroll_by(-1)", "down"),
        Binding("pageup,ctrl+b", "scroll_by(20)", "page up"),
        Binding("pagedown,ctrl+f", "scroll_by(-20)", "page down"),
        Binding("home,g", "scroll_by(1000000)", "start"),
        Binding("end,G", "scroll_by(-1000000)", "follow"),
        Binding("left,left_square_bracket", "other(-1)", "previous"),
        Binding("right,right_square_bracket,tab", "other(1)", "next"),
    ]
    AUTO_FOCUS = ""
    DEFAULT_CSS = "AgentScreen Lines { height: 1fr; }"

    def __init__(self, look: Theme, agent: int, order: tuple[int, ...], at: int | None = None) -> None:
        super().__init__()
        self.look = look
        self.body = Lines(look, id="agent")
        self.agent = agent
        self.at = at
        """The moment that is shown first, ms since the run's origin; None is now."""
        self.order = order
        """Agents that left and right go through: the fleet's order."""
        self.back = 0
        """Lines scrolled back from the end."""
        self.paragraphs = Paragraphs(look.glyphs)
        self.view = View()
        self.aside: Line = ()
        self.length = 0

    def compose(self) -> ComposeResult:
        yield self.body

    def update_view(self, view: View, aside: Line) -> None:
        self.view, self.aside = view, aside
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted:
            return
        story = cast("Viewer", self.app).source.story(self.agent)
        self.body.show(self.lines(story))

    def lines(self, story: Story) -> list[Line]:
        width, height = self.size
        glyphs = self.look.glyphs
        side = SIDE if width >= 160 else 0
        inner = width - side
        top = [title_line(self.view, width, glyphs), status_line(self.view, width, glyphs)]
        right = about_lines(story, inner, glyphs)
        turns = turns_table(story, inner, max(3, min(12, height // 4)), glyphs)
        right += [turns_head(inner), *turns, filled(((" transcript", "head"),), inner, "head")]
        room = max(1, height - len(top) - len(right) - 1)
        text = self.paragraphs.lines(story, inner)
        if self.back and self.length:
            # What is being read stays where it is while the transcript grows.
            self.back += len(text) - self.length
        self.length = len(text)
        shown, self.back = tail_of(text, room, self.back)
        right += shown
        right += [()] * (height - len(top) - len(right) - 1)
        if side:
            left = side_lines(self.view.rows, self.agent, len(right), self.look)
            left += [()] * (len(right) - len(left))
            right = [(*filled(a, SIDE - 1), (glyphs.axis, "rule"), *b) for a, b in zip(left, right, strict=True)]
        return [*top, *right, footer(width, self.back == 0, self.aside)]

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def action_back(self) -> None:
        self.dismiss()

    def action_scroll_by(self, by: int) -> None:
        self.back = max(0, self.back + by)
        self.draw()

    def action_other(self, by: int) -> None:
        if self.order:
            at = self.order.index(self.agent) if self.agent in self.order else 0
            self.agent = self.order[(at + by) % len(self.order)]
            self.back = self.length = 0
            self.draw()

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll_by(-3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll_by(3)
