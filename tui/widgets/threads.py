"""The lanes of one session: the main agent and each sub-agent over time, with their waits."""

from collections.abc import Sequence

import numpy as np

from windtunnel.simulator.results.lanes import RANK, Stretches, paint
from windtunnel.simulator.results.untold import mark
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.transcript import Story, ThreadLane
from windtunnel.tui.widgets.compose import filled, pad
from windtunnel.tui.widgets.lanes import axis, cells
from windtunnel.tui.window import fitting

MIDDLE = 100


def label_width(width: int) -> int:
    return 22 if width >= MIDDLE else 9


def chosen(lanes: Sequence[ThreadLane], rows: int) -> list[ThreadLane]:
    """As many as there are rows: the main agent, and of the others those that did something last."""
    if len(lanes) <= rows:
        return list(lanes)
    others = sorted(lanes[1:], key=lambda lane: max(lane.ends, default=0), reverse=True)[: max(0, rows - 1)]
    kept = {lane.thread for lane in others}
    return [lanes[0], *(lane for lane in lanes[1:] if lane.thread in kept)][:rows]


def _stretches(lane: ThreadLane) -> Stretches:
    starts, ends, ranks = (np.array(numbers, dtype=np.int64) for numbers in (lane.starts, lane.ends, lane.ranks))
    return starts, ends, ranks


def lane_lines(story: Story, width: int, rows: int, cursor: int | None, look: Theme) -> list[Line]:
    """A head with times since the run began, and up to `rows` lanes. `cursor`: ms since the run's origin."""
    glyphs, left = look.glyphs, label_width(width)
    columns = max(8, width - left - 1)
    step = fitting(story.since, max(story.until, story.since + 1), columns, over=story.over)
    start = story.since // step * step
    shown = chosen(story.lanes, rows)
    hidden = len(story.lanes) - len(shown)
    name = f" {len(shown)} of {len(story.lanes)} threads" if hidden and width >= MIDDLE else " lanes"
    times = axis(start - story.began, step, columns, glyphs)
    head: Line = ((pad(name, left), "head"), (times, "head"))
    lines: list[Line] = [filled(head, width, "head")]
    painted = paint([_stretches(lane) for lane in shown], start, step, columns)
    mark(painted, [lane.untold for lane in shown], start, step)
    for turn in story.turns:
        row = next((i for i, lane in enumerate(shown) if lane.thread == turn.thread), None)
        if turn.failure and row is not None and turn.end is not None and start <= turn.end < start + step * columns:
            painted[row, (turn.end - start) // step] = RANK["failed"]
    at = None if cursor is None else (cursor - start) // step
    for lane, row in zip(shown, painted, strict=True):
        crossed = at if at is not None and 0 <= at < columns else None
        label = _label(lane, left, look)
        drawn = cells(row.tobytes(), glyphs, look.colour, crossed)
        lines.append(filled((*label, *drawn), width))
    return lines


def _label(lane: ThreadLane, left: int, look: Theme) -> Line:
    glyphs = look.glyphs
    if not lane.thread:
        return ((pad(" main", left), "text"),)
    indent = " " * min(4, lane.depth) if left >= 20 else " "
    name = f"{indent}{glyphs.child}{lane.thread} {lane.name}"
    return ((pad(name, left - 1, ellipsis=glyphs.ellipsis) + " ", "tool"),)
