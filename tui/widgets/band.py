"""The band of pictures above the table: how fast, since when, and what the agents did meanwhile.

Four shapes: `line` (two rows of graph, for small terminals), `strip` (figure, output and agents side by side), `grid`
(the figure with all others below it, and five panels on one time axis), and `beside` (after the end, figure, output and
the results, where every agent has a row only so).
"""

from msgspec import Struct

from windtunnel.agents.events import AgentState
from windtunnel.tui.figures import count, percent, tenths, whole
from windtunnel.tui.theme import Glyphs, Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.compose import cells, filled
from windtunnel.tui.widgets.digits import HEIGHT, huge, tall
from windtunnel.tui.widgets.header import Kind, result_lines, why_line
from windtunnel.tui.widgets.plot import AXIS, graph
from windtunnel.tui.widgets.stack import stack

STATES: tuple[AgentState, ...] = ("decode", "prefill", "queue", "tool", "wait")
GRID_ROWS = 9
GRID_WIDTH = 104
STRIP_WIDTH = 64
HUGE_ROWS = 18
"""Rows of a grid from which on the number is drawn twice as large."""
MOST_DIGITS = 99_999
UNIT = "tok/s"
FIGURE, RESULTS = 27, 66
"""Cells of the big number with its unit, and of the results beside it."""
BESIDE_WIDTH = FIGURE + RESULTS + 25
"""From which on there is a curve between them."""


class Shape(Struct, frozen=True):
    kind: Kind
    rows: int
    why: bool = False
    """The reasons against the result stand in it too."""


def shape(width: int, height: int, agents: int, fixed: int) -> Shape:
    """The band of a screen on which `fixed` rows are taken by others: every agent fits, if that can be, and the
    pictures get what is left, at most half of the screen; where not every agent fits they get three eighths.
    """
    if width < STRIP_WIDTH or height < 20:
        return Shape(kind="line", rows=2)
    left = height - fixed - agents
    if left >= HEIGHT:
        rows = min(left, height // 2)
    else:
        rows = height * 3 // 8 if height >= 36 and left < -agents // 4 else HEIGHT
    if rows >= GRID_ROWS and width >= GRID_WIDTH:
        return Shape(kind="grid", rows=rows)
    return Shape(kind="strip", rows=min(rows, 8))


def band_lines(view: View, width: int, form: Shape, look: Theme) -> list[Line]:
    if form.kind == "beside":
        return _beside(view, width, form, look)
    if form.kind == "line":
        return list(graph(view.history.output, width - 1, form.rows, look.glyphs, whole=view.ending is not None))
    return _grid(view, width, form.rows, look) if form.kind == "grid" else _strip(view, width, form.rows, look)


def big(view: View, glyphs: Glyphs) -> str:
    """The fleet's output tokens/s as it is written in tall digits."""
    rate = view.out_rate
    text = glyphs.none if rate is None else whole(rate) if rate <= MOST_DIGITS else count(rate)
    return ("" if view.parsed else "~") + text


def _figure(view: View, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """The big number, right-aligned in `width` cells so that its unit stands still, and its unit."""
    text, room = big(view, glyphs), width - len(UNIT) - 1
    drawn = huge(text, glyphs) if rows >= HUGE_ROWS and len(huge(text, glyphs)[0]) <= room else tall(text, glyphs)
    names = (*("" for _ in drawn[2:]), UNIT, "out")
    return [
        filled(((f"{row:>{room}}", "strong"), (f" {name}", "dim")), width)
        for row, name in zip(drawn, names, strict=True)
    ]


def legend(view: View, rows: int, glyphs: Glyphs) -> list[Line]:
    """How many agents are in each state now, in two columns where five rows are too many; after the end, means."""
    if view.ending is not None:
        return [
            ((f"{glyphs.states[state]} ", state), (f"{name:<10}", "dim"), (f"{value:>6}", "text"), (" mean", "dim"))
            for state, name, value in means(view, glyphs)
        ]
    counts, size = view.states(), len(str(max(10, view.agents)))
    shown: list[Line] = [
        (
            (f"{glyphs.states[state]} ", state),
            (f"{state:<8}", "dim"),
            (f"{counts.get(state, 0):>{size}}", "text" if counts.get(state) else "faint"),
        )
        for state in STATES
    ]
    if rows >= len(shown):
        return shown
    shown.append(((" " * (10 + size), ""),))
    half = len(shown) // 2
    return [(*a, ("  ", ""), *b) for a, b in zip(shown[:half], shown[half:], strict=True)]


def means(view: View, glyphs: Glyphs) -> list[tuple[AgentState, str, str]]:
    """(state, name, mean of the measured window): what the end of a run leaves of where its agents were."""
    return [
        ("decode", "in flight", tenths(view.in_flight_mean, glyphs.none)),
        ("tool", "in tool", tenths(view.in_tool_mean, glyphs.none)),
        ("wait", "waiting", tenths(view.waiting_mean, glyphs.none)),
    ]


def _strip(view: View, width: int, rows: int, look: Theme) -> list[Line]:
    glyphs, history = look.glyphs, view.history
    narrow = width < 100
    figure = _figure(view, FIGURE if not narrow else 24, rows, glyphs)
    figure += [(("", ""),)] * (rows - len(figure))
    keys = [] if narrow else legend(view, rows, glyphs)
    keys = keys[:rows] + [()] * (rows - len(keys))
    first, last = cells(figure[0]), max(map(cells, keys), default=0) + (2 if not narrow else 0)
    agents = (width - first - last) * 2 // 5
    out = width - first - last - agents - 1
    curve = graph(history.output, out, rows, glyphs, whole=view.ending is not None)
    states = stack(history, view.agents or len(view.rows), agents, rows, glyphs, look.colour, view.ending is not None)
    return [
        (*filled(a, first), *b, *c, ("  " if last else "", ""), *d)
        for a, b, c, d in zip(figure, curve, states, keys, strict=True)
    ]


def _beside(view: View, width: int, form: Shape, look: Theme) -> list[Line]:
    glyphs, rows = look.glyphs, form.rows
    figure = _figure(view, FIGURE, rows, glyphs)
    curve = graph(view.history.output, width - FIGURE - RESULTS - 1, rows, glyphs, whole=True)
    told = [why_line(view, RESULTS + 1, glyphs)] if form.why else []
    told += result_lines(view, RESULTS + 1, rows - len(told))
    figure += [()] * (rows - len(figure))
    told += [()] * (rows - len(told))
    return [(*filled(a, FIGURE), *b, *c) for a, b, c in zip(figure, curve, told, strict=True)]


def panel(name: str, value: str, body: tuple[Line, ...], width: int, glyphs: Glyphs, more: Line = ()) -> list[Line]:
    """A picture under its name; the value now stands at its right end, with more about it where there is room."""
    head: Line = ((" " * (AXIS + 1), ""), (f"{name} ", "dim"))
    tail: Line = ((f" {value}", "text"), *more)
    if cells(head) + cells(tail) > width:
        tail = tail[:1]
    rule = max(0, width - cells(head) - cells(tail))
    return [(*head, (glyphs.rule * rule, "rule"), *tail), *(filled(line, width) for line in body)]


def _grid(view: View, width: int, rows: int, look: Theme) -> list[Line]:
    side = 44 if width >= 150 else 28
    left = (width - side) // 2
    right = width - side - left - 2
    first = _side(view, side, rows, look.glyphs)
    second = _left(view, left, rows, look)
    third = _right(view, right, rows, look.glyphs)
    return [(*filled(a, side), *b, ("  ", ""), *c) for a, b, c in zip(first, second, third, strict=True)]


def _left(view: View, width: int, rows: int, look: Theme) -> list[Line]:
    """Output above, agents by state below, on the same time axis."""
    glyphs, history, agents = look.glyphs, view.history, view.agents or len(view.rows)
    ended = view.ending is not None
    upper = (rows - 2 + 1) // 2
    lower = rows - 2 - upper
    about = "" if view.parsed else "~"
    lines = panel(
        "output tok/s",
        about + whole(view.out_rate, glyphs.none),
        graph(history.output, width, upper, glyphs, "", whole=ended),
        width,
        glyphs,
    )
    states = stack(history, agents, width, lower, glyphs, look.colour, ended)
    head = _agents_head(view, agents, width, glyphs)
    return [*lines, head, *(filled(line, width) for line in states)]


def _agents_head(view: View, agents: int, width: int, glyphs: Glyphs) -> Line:
    """The name of the stack and how many agents are in each state now, in words where there is room; after the end,
    how many there were on average.
    """
    if view.ending is not None:
        head: Line = ((" " * (AXIS + 1), ""), ("agents, mean ", "dim"))
        for spelt in (True, False):
            last: Line = ()
            for state, name, value in means(view, glyphs):
                last += ((f"  {glyphs.states[state]} ", state), (f"{name} " if spelt else "", "dim"), (value, "text"))
            if cells(head) + cells(last) <= width:
                break
        return (*head, (glyphs.rule * max(0, width - cells(head) - cells(last)), "rule"), *last)
    counts, size = view.states(), len(str(max(10, agents)))
    full: Line = ((" " * (AXIS + 1), ""), ("agents ", "dim"))
    for words, named in ((True, True), (False, True), (False, False)):
        head = full if named else full[:1]
        parts: list[tuple[str, str]] = []
        for state in STATES:
            n = counts.get(state, 0)
            parts += [(f"  {glyphs.states[state]}", state), (f" {state}" if words else "", "dim")]
            parts.append((f" {n:>{size}}", "text" if n else "faint"))
        rule = width - cells(head) - cells(tuple(parts))
        if rule >= 0:
            break
    return (*head, (glyphs.rule * max(0, rule), "rule"), *parts)


def _right(view: View, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Prompt tokens, their cached share and the KV cache, one above the other."""
    history, engine, ended = view.history, view.engine, view.ending is not None
    each = rows // 3
    heights = [each - 1 + (i < rows % 3) for i in range(3)]
    could: Line = ()
    if view.could_be_cached is not None:
        could = ((f" of {percent(view.could_be_cached, glyphs.none, 1)} possible", "dim"),)
    lines = panel(
        "prompt tok/s",
        count(view.in_rate, glyphs.none),
        graph(history.prompt, width, heights[0], glyphs, "", "prefill", whole=ended),
        width,
        glyphs,
    )
    lines += panel(
        "cached share",
        f"{percent(view.cached, glyphs.none, 1):>5}",
        graph(history.cached, width, heights[1], glyphs, "", "brand", 1.0, percent, ended),
        width,
        glyphs,
        could,
    )
    demand: Line = ()
    if engine.demand is not None:
        demand = (("  working set ", "dim"), (f"{percent(engine.demand):>4}", "bad" if engine.demand > 1 else "text"))
    lines += panel(
        "KV cache used",
        f"{percent(engine.kv_usage, glyphs.none):>4}",
        graph(history.kv, width, heights[2], glyphs, "", "tool", 1.0, percent, ended),
        width,
        glyphs,
        demand,
    )
    return lines


def _side(view: View, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """The big number, and below it every other figure of the fleet, the less important ones left out first."""
    lines = [*_figure(view, width - 2, rows, glyphs), ()]
    concluded = view.ending is not None
    pairs: list[tuple[str, str, str]] = [
        ("prompt tok/s", count(view.in_rate, glyphs.none), "text"),
        ("cached", percent(view.cached, glyphs.none, 1), "text"),
        ("could be cached", percent(view.could_be_cached, glyphs.none, 1), "text"),
        ("in flight, mean", tenths(view.in_flight_mean, glyphs.none), "text"),
    ]
    if concluded:
        pairs += [(f"{name}, mean", value, "text") for _, name, value in means(view, glyphs)[1:]]
    if not concluded:
        pairs[3:3] = [
            ("in flight", _number(view.in_flight, glyphs), "decode bold"),
            ("in tool", _number(view.in_tool, glyphs), "tool bold"),
            ("waiting", _number(view.waiting, glyphs), "wait bold"),
        ]
    pairs += [
        ("calls", whole(view.calls), "text"),
        ("calls done" if view.recording else "sessions done", whole(view.done), "good"),
        ("failed", whole(view.failed), "bad"),
        ("cut", whole(view.cut), "cut"),
    ]
    for name, value, tone in pairs[: max(0, rows - len(lines))]:
        shown = (f"{value:>8}", "faint" if value in {"0", glyphs.none} else tone)
        lines.append(filled(((f" {name:<{width - 12}}", "dim"), shown), width))
    return lines + [()] * (rows - len(lines))


def _number(value: float | None, glyphs: Glyphs) -> str:
    if value is None:
        return glyphs.none
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
