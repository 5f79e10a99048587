"""All agents by state over time, stacked: what each share of the time was spent on, at a glance.

A cell holds two colours and eight levels: the state that ends in it is drawn on the ground of the one above. Without
colours, and in ASCII, each cell is the glyph of the state that has most of it.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from windtunnel.tui.theme import Glyphs, Line
from windtunnel.tui.view import STACK, History
from windtunnel.tui.widgets.plot import AXIS, spans

EIGHTHS = "▁▂▃▄▅▆▇"
"""Lower blocks of one to seven eighths."""
IDLE = len(STACK)
Run = list[tuple[str, str]]


def samples(values: Sequence[tuple[float, ...]], cells: int, whole: bool) -> list[tuple[float, ...]]:
    """One value a cell, on the same time axis as a graph of so many cells."""
    groups = (values[first:last] for first, last in spans(len(values), cells, whole))
    return [tuple(sum(column) / len(group) for column in zip(*group, strict=True)) for group in groups]


def edges(counts: Sequence[float], whole: float, steps: int) -> list[int]:
    """Where each state ends, in `steps` from the bottom."""
    total = max(whole, sum(counts))
    return [round(upto / total * steps) if total else 0 for upto in accumulate(counts)]


def cell(ends: Sequence[int], floor: int) -> tuple[int, int, int]:
    """(lower state, its eighths, state above) of the cell that begins `floor` eighths up; IDLE lies above all."""
    lower = next((i for i, end in enumerate(ends) if end > floor), IDLE)
    if lower == IDLE or ends[lower] >= floor + 8:
        return lower, 8, lower
    middle = (ends[lower] + floor + 8) // 2
    upper = next((i for i, end in enumerate(ends) if end > middle), IDLE)
    return lower, ends[lower] - floor, upper


@lru_cache(maxsize=8)
def stack(
    history: History, agents: int, width: int, height: int, glyphs: Glyphs, colour: bool, whole: bool = False
) -> tuple[Line, ...]:
    """`width` x `height` cells, an axis with the number of agents at the left."""
    inner = max(1, width - AXIS - 1)
    columns = [edges(counts, agents, 8 * height) for counts in samples(history.states, inner, whole)]
    lines: list[Line] = []
    for row in range(height):
        floor = 8 * (height - 1 - row)
        label = str(agents) if row == 0 else "0" if row == height - 1 else "agents" if row == 1 else ""
        run: Run = [(f"{label:>{AXIS}}", "dim"), (glyphs.tick, "faint")]
        for ends in columns:
            text, tones = _drawn(*cell(ends, floor), glyphs, colour)
            if run and run[-1][1] == tones:
                run[-1] = (run[-1][0] + text, tones)
            else:
                run.append((text, tones))
        run.append((" " * (inner - len(columns)), ""))
        lines.append(tuple(run))
    return tuple(lines)


def _drawn(lower: int, eighths: int, upper: int, glyphs: Glyphs, colour: bool) -> tuple[str, str]:
    names = (*STACK, "idle")
    if not (colour and glyphs.braille):
        state = names[lower if eighths >= 4 else upper]
        return (" ", "") if state == "idle" else (glyphs.states[state], state)
    if eighths == 8:
        return " ", f"on-{names[lower]}"
    return EIGHTHS[eighths - 1], f"fill-{names[lower]} on-{names[upper]}"
