"""One agent: where it stands, its threads as lanes, each of its turns as figures, and its transcript as it grows."""

from typing import ClassVar

from msgspec import Struct
from textual.binding import Binding, BindingType

from windtunnel.simulator.results.untold import LaneState
from windtunnel.tui.screens.full import FullScreen
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.transcript import Story, Turn
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.compose import cells, clip, filled, pad, spread
from windtunnel.tui.widgets.header import status_line, title_line
from windtunnel.tui.widgets.lanes import legend
from windtunnel.tui.widgets.plot import bar
from windtunnel.tui.widgets.story import Paragraphs, Text, about_lines, tail_of
from windtunnel.tui.widgets.threads import lane_lines
from windtunnel.tui.widgets.turns import PARTS, about_turn, following, turns_head, turns_table

SIDE = 47
"""Cells of the fleet beside the agent, from 160 columns on."""
SHAPE_ONLY = "shape only: no text was recorded"


class Spot(Struct, frozen=True):
    """What of the session is looked at."""

    back: int = 0
    """Lines scrolled back from the transcript's end."""
    turn: tuple[int, int] | None = None
    """A turn that was chosen, by its key; None: the one that is read, or the last one."""


class Frame(Struct, frozen=True):
    lines: tuple[Line, ...]
    spot: Spot
    text: Text
    room: int
    """Lines of the transcript that are seen."""
    shown: int | None
    """Place of the turn that the table and the lanes point at."""


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


def compose_agent(
    view: View, story: Story, paragraphs: Paragraphs, spot: Spot, width: int, height: int, look: Theme, aside: Line = ()
) -> Frame:
    """The screen's lines. A pure function but for what `paragraphs` keeps."""
    glyphs = look.glyphs
    side = SIDE if width >= 160 else 0
    inner = width - side
    top = [title_line(view, width, glyphs), status_line(view, width, glyphs)]
    text = paragraphs.text(story, inner)
    lanes = max(1, min(len(story.lanes), max(2, height // 7)))
    rows = max(3, min(12, height // 5, len(story.turns)))
    fixed = len(top) + 2 + 1 + lanes + 1 + rows + 1 + 1 + 1
    room = max(1, height - fixed)
    body, back = tail_of(text.lines, room, spot.back)
    shown = _turn_shown(story, text, spot, back, room)
    turn = None if shown is None else story.turns[shown]
    looking = turn if back or spot.turn is not None else None
    right = about_lines(story, inner, glyphs)
    right += lane_lines(story, inner, lanes, None if looking is None else looking.start, look)
    right += [turns_head(inner, story), *turns_table(story, looking, inner, rows, look)]
    right += [()] * (3 + lanes + 1 + rows - len(right))
    right.append(_words(story, turn, inner, look))
    right.append(_transcript_head(story, inner, look))
    right += body or [((" " * 10, ""), (_nothing(view, story), "dim"))]
    right += [()] * (height - len(top) - len(right) - 1)
    if side:
        left = side_lines(view.rows, story.row.agent, len(right), look)
        left += [()] * (len(right) - len(left))
        right = [(*filled(a, SIDE - 1), (glyphs.axis, "rule"), *b) for a, b in zip(left, right, strict=True)]
    lines = [*top, *right, footer(width, back == 0 and spot.turn is None, story.sessions > 1, aside)]
    return Frame(tuple(lines[:height]), Spot(back, spot.turn), text, room, shown)


def _turn_shown(story: Story, text: Text, spot: Spot, back: int, room: int) -> int | None:
    """The turn that was chosen; else the first one of what is read, or the last one while it is followed."""
    if not story.turns:
        return None
    if spot.turn is not None:
        return next((i for i, turn in enumerate(story.turns) if turn.key == spot.turn), len(story.turns) - 1)
    if not back:
        return len(story.turns) - 1
    return min(len(story.turns) - 1, text.turn_at(max(0, len(text.lines) - back - room)))


def _words(story: Story, turn: Turn | None, width: int, look: Theme) -> Line:
    return about_turn(turn, following(story.turns).get(turn.key), width, look) if turn is not None else ()


def _transcript_head(story: Story, width: int, look: Theme) -> Line:
    """Whether there is text at all; at its right what the cells of the lanes and bars above mean."""
    shape_only = story.trace is not None and story.trace.header.shape_only
    note = SHAPE_ONLY if width >= 100 else SHAPE_ONLY.partition(":")[0]
    name: Line = ((" transcript  ", "head"), (note if shape_only else "", "head warn"))
    drawn: set[LaneState] = {PARTS[part.name] for turn in story.turns for part in turn.parts}
    drawn |= {"first"} if any(lane.untold for lane in story.lanes) else set()
    means = legend(look.glyphs, look.colour, drawn, max(0, width - cells(name) - 3))
    key = tuple((text, f"head {style}".strip()) for text, style in means)
    return filled((*filled(name, max(cells(name), width - cells(key) - 1), "head"), *key), width, "head")


def _nothing(view: View, story: Story) -> str:
    if not story.session:
        return view.note or "this agent has no session yet"
    return "its first call has not been sent yet" if not story.over else "it made no call"


def footer(width: int, follows: bool, several: bool, aside: Line) -> Line:
    keys = [
        (9, "escape", "back"),
        (7, "up down", "scroll"),
        (7, ", .", "turn"),
        (6, "end", "follow"),
        (5, "left right", "agent"),
        *(((5, "< >", "session"),) if several else ()),
        (4, "t", "timeline"),
        (2, "p", "picture"),
        (8, "?", "help"),
        (3, "q", "quit"),
    ]
    parts = [(weight, ((key, "key"), (f" {what}", "dim"))) for weight, key, what in keys]
    mode: Line = (("following", "good") if follows else ("scrolled back", "warn"),)
    return spread(parts, [(0, clip(aside, width - 4)) if aside else (10, mode)], width)


class AgentScreen(FullScreen[None]):
    """Shows `compose_agent` and turns keys into another spot, session or agent."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", "back"),
        Binding("up,k", "scroll_by(1)", "up"),
        Binding("down,j", "scroll_by(-1)", "down"),
        Binding("pageup,ctrl+b", "scroll_by(20)", "page up"),
        Binding("pagedown,ctrl+f", "scroll_by(-20)", "page down"),
        Binding("home,g", "scroll_by(1000000)", "start"),
        Binding("end,G", "follow", "follow"),
        Binding("comma", "turn(-1)", "turn before"),
        Binding("full_stop", "turn(1)", "next turn"),
        Binding("less_than_sign", "session(-1)", "session before"),
        Binding("greater_than_sign", "session(1)", "next session"),
        Binding("left,h", "other(-1)", "previous agent"),
        Binding("right,l,tab", "other(1)", "next agent"),
    ]

    def __init__(self, look: Theme, agent: int, order: tuple[int, ...], at: int | None = None) -> None:
        super().__init__(look, "agent")
        self.agent = agent
        self.at = at
        """A moment of the session that is shown, ms since the run's origin; None is now."""
        self.order = order
        """Agents that left and right go through: the fleet's order."""
        self.spot = Spot()
        self.sought = at is not None
        """The turn of `at` is still to be found."""
        self.paragraphs = Paragraphs(look)
        self.view = View()
        self.frame: Frame | None = None
        self.story: Story | None = None

    def update_view(self, view: View, aside: Line = ()) -> None:
        self.view, self.aside = view, aside
        self.draw()

    def draw(self) -> None:
        if not self.is_mounted:
            return
        width, height = self.size
        if self.paragraphs.look != self.look:
            self.paragraphs = Paragraphs(self.look)
        old, self.story = self.story, self.viewer.source.story(self.agent, self.at)
        story = self.story
        if self.sought and story.turns and self.at is not None:
            self.sought = False
            before = [i for i, turn in enumerate(story.turns) if turn.start <= self.at]
            self.frame = self._frame(story, width, height)
            self._choose(before[-1] if before else 0)
        elif self.spot.back and self.frame is not None and old is not None and old.session == story.session:
            # What is being read stays where it is while the transcript grows.
            grown = len(self.paragraphs.text(story, self._inner(width)).lines) - len(self.frame.text.lines)
            self.spot = Spot(max(0, self.spot.back + grown), self.spot.turn)
        self.frame = self._frame(story, width, height)
        self.spot = self.frame.spot
        self.body.show(self.frame.lines)

    def _frame(self, story: Story, width: int, height: int) -> Frame:
        return compose_agent(self.view, story, self.paragraphs, self.spot, width, height, self.look, self.aside)

    @staticmethod
    def _inner(width: int) -> int:
        return width - (SIDE if width >= 160 else 0)

    @property
    def moment(self) -> int | None:
        """When the turn began that is looked at; None while the present is followed."""
        if self.story is None or self.frame is None or self.frame.shown is None:
            return None
        if self.spot == Spot() and not (self.story.over and self.story.number < self.story.sessions):
            return None
        return self.story.turns[self.frame.shown].start

    def action_back(self) -> None:
        self.dismiss()

    def action_scroll_by(self, by: int) -> None:
        self.spot = Spot(max(0, self.spot.back + by))
        self.draw()

    def action_follow(self) -> None:
        """The end of what is written; of an earlier session the end of that."""
        self.spot = Spot()
        self.draw()

    def _choose(self, place: int) -> None:
        """A turn by its place: at the top of the transcript, as far as that goes."""
        if self.frame is None or self.story is None or not self.story.turns:
            return
        place = max(0, min(len(self.story.turns) - 1, place))
        text = self.frame.text
        begin = text.begins[place] if place < len(text.begins) else 0
        self.spot = Spot(max(0, len(text.lines) - begin - self.frame.room), self.story.turns[place].key)

    def action_turn(self, by: int) -> None:
        if self.frame is None or self.frame.shown is None or self.story is None:
            return
        place = self.frame.shown + by
        if place >= len(self.story.turns):
            self.action_follow()
            return
        self._choose(place)
        self.draw()

    def action_session(self, by: int) -> None:
        """The session that this agent had before, or after."""
        if self.story is None or not 1 <= self.story.number + by <= self.story.sessions:
            return
        last = self.story.number + by == self.story.sessions
        self.at = None if last else (self.story.since - 1 if by < 0 else self.story.until + 1)
        self._reset()

    def action_other(self, by: int) -> None:
        if self.order:
            at = self.order.index(self.agent) if self.agent in self.order else 0
            self.agent, self.at = self.order[(at + by) % len(self.order)], None
            self._reset()

    def _reset(self) -> None:
        self.spot, self.frame, self.story, self.sought = Spot(), None, None, False
        self.draw()

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll_by(-3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll_by(3)
