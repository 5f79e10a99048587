"""The top of the screen: what runs, where it stands, how fast it is, and whether the result counts."""

import math
from typing import Literal

from windtunnel.agents.events import AgentState
from windtunnel.tui.figures import clock, count, millis, percent, plural, tenths, whole
from windtunnel.tui.theme import Glyphs, Line
from windtunnel.tui.view import View
from windtunnel.tui.widgets.compose import Part, cells, cut, spread
from windtunnel.tui.widgets.plot import bar

Kind = Literal["line", "strip", "grid", "beside"]
"""Shape of the band of pictures below the header: the more it says, the less is said here."""
ENDED: tuple[AgentState, ...] = ("done", "failed", "cut")
ENDINGS = {
    "completed": ("done", "completed"),
    "interrupted": ("cut", "interrupted"),
    "failed": ("failed", "failed"),
    "died": ("failed", "died"),
}
RESULTS_GAP = "   "
READING = "catching up with what the run has written so far"
LEGEND: tuple[AgentState, ...] = ("decode", "prefill", "queue", "tool", "wait")
"""States in the order of the bar: what uses the engine first."""


def validity(view: View, glyphs: Glyphs, width: int) -> Line:
    """`● valid`, of a recording `● live`; or the first reason against it and how many more there are."""
    if view.ending == "died":
        return ((f"{glyphs.states['failed']} no result", "bad"),)
    if view.recording and not view.invalid:
        return ((f"{glyphs.dot} live" if view.ending is None else f"{glyphs.dot} recorded", "good"),)
    if view.invalid:
        more = f" +{len(view.invalid) - 1}" if len(view.invalid) > 1 else ""
        reason = cut(view.invalid[0].replace("_", " "), max(8, width - len(more)), glyphs.ellipsis)
        word = "not whole" if view.recording else "not valid"
        return ((f"{glyphs.states['failed']} {word}: {reason}{more}", "bad"),)
    if view.valid:
        return ((f"{glyphs.dot} valid", "good"),)
    return ((f"{glyphs.dot} too early to say", "dim"),)


def closing(seconds: float) -> Line:
    return (("closes in ", "dim"), (f"{seconds:.0f} s", "strong"))


def why_line(view: View, width: int, glyphs: Glyphs) -> Line:
    """The reasons against the result as sentences, and what failed."""
    names = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in view.failures)
    text = "; ".join((*view.why, *((f"failed: {names}",) if names else ())))
    return ((f" {glyphs.states['failed']} ", "bad"), (cut(text, width - 5, glyphs.ellipsis), "warn"))


def speed_part(view: View) -> Part:
    """How fast the screen goes: a badge that is never dropped where it is not in real time."""
    if view.speed.startswith("replay"):
        return (0, ((f" {view.speed} ", "frozen"),))
    return (4, ((view.speed, "dim"),) if view.speed else ())


def title_line(view: View, width: int, glyphs: Glyphs, *, frozen: bool = False) -> Line:
    wide = width >= 100
    # The badge says what the engine is where there is no room to say it twice.
    named = view.engine_name if wide or not view.emulated else ""
    bar = f"{'±' if glyphs.name == 'unicode' else '+-'}{view.error_bar} " if view.error_bar else ""
    right: list[Part] = [
        (0, ((" FROZEN ", "frozen"),) if frozen else ()),
        (3, (("space goes on", "dim"),) if frozen else ()),
        (0, ((f" EMULATED {bar}", "emulated"),) if view.emulated else ()),
        speed_part(view),
        (0, validity(view, glyphs, max(16, width // 3))),
    ]
    used = sum(cells(line) + 2 for _, line in right) + 26
    left: list[Part] = [
        (9, (("windtunnel", "brand"),)),
        (8, ((plural(view.agents, "agent"), "strong"),)),
        (3, ((cut(view.source, max(12, width // 4), glyphs.ellipsis), "dim"),)),
        (5, ((_machine(named, view, max(16, width - used), glyphs), "text"),)),
        (2, ((view.sure, "dim"),) if view.sure else ()),
    ]
    return spread(left, right, width)


def _machine(engine: str, view: View, room: int, glyphs: Glyphs) -> str:
    """Engine, model and hardware; where not all fit, first the engine goes, then the hardware."""
    for parts in ((engine, view.model, view.hardware), (view.model, view.hardware), (view.model,)):
        text = glyphs.separator.join(part for part in parts if part)
        if len(text) <= room:
            return text
    return cut(view.model, room, glyphs.ellipsis)


def phase_part(view: View, width: int, glyphs: Glyphs) -> Line:
    """`steady 02:41 / 05:00  left 02:19`: time in the measured window where its length is known, else since the start,
    and how much of what ends the run is done.
    """
    if view.ending is not None:
        tone, word = ENDINGS[view.ending]
        mark = glyphs.states["done" if tone == "done" else "failed" if tone == "failed" else "cut"]
        if view.ending == "failed" and view.reason:
            word = f"{word}: {view.reason.replace('_', ' ')}"
        elif view.unmeasured:
            word = f"{word} in warm-up: nothing was measured" if view.calls else f"{word} before any call"
        state: Line = ((f"{mark} {word}", "good" if tone == "done" else "bad" if tone == "failed" else "cut"),)
        return (*state, (f"  {clock(view.elapsed_s)}", "strong"))
    tone = {"steady": "good", "warmup": "warn", "draining": "warn"}.get(view.phase, "prefill")
    word = "recording" if view.recording else {"warmup": "warm-up"}.get(view.phase, view.phase)
    wide = width >= 100
    size = 10 if wide else len(word) + 1
    named: Line = ((f"{word:<{size}}", f"{tone} bold"),)
    if view.phase == "steady" and view.total_s:
        share = (view.phase_s or 0.0) / view.total_s
        gap = " / " if wide else "/"
        times: Line = ((f"{clock(view.phase_s)}{gap}{clock(view.total_s)}", "strong"), *_left(view))
        return (*named, *_way(share, width, glyphs), *times)
    if view.phase == "warmup" and view.warm is not None:
        n, of = view.warm
        words = f" of {of} agents warm" if wide else f"/{of} warm"
        return (*named, (clock(view.elapsed_s), "strong"), (f"  {n:>{len(str(of))}}", "strong"), (words, "dim"))
    done: Line = ()
    if view.goal is not None:
        n, of, what = view.goal
        done = (("  ", ""), (f"{n:>{len(str(of))}}", "strong"), (f" of {of} {what}", "dim"))
        return (*named, *_way(n / of, width, glyphs), (clock(view.elapsed_s), "strong"), *done, *_left(view))
    return (*named, (clock(view.elapsed_s), "strong"), *_left(view))


def _way(share: float, width: int, glyphs: Glyphs) -> Line:
    """How far the run is, where there is room for a bar."""
    if width < 150:
        return ()
    full, rest = bar(share, 10 if width < 176 else 20, glyphs)
    return ((full, "good"), (rest, "rule"), ("  ", ""))


def _left(view: View) -> Line:
    if view.left_s is None:
        return ()
    return (("  left ", "dim"), (f"{'' if view.left_sure else '~'}{clock(math.ceil(view.left_s))}", "strong"))


def pair(name: str, value: str, tone: str = "strong") -> Line:
    return ((f"{name} ", "dim"), (value, tone))


def status_line(view: View, width: int, glyphs: Glyphs, kind: Kind = "line") -> Line:
    """Phase and time; then, as far as the band below does not say it, tokens per second and where the agents are."""
    if view.ending == "died":
        silence = f" for {clock(view.silent_s)}" if view.silent_s is not None else ""
        text = f"no sign of life{silence} and no summary: the run was killed. What it wrote is shown."
        return spread(
            [(0, ((" DIED ", "alarm"), (f" {clock(view.elapsed_s)}", "strong"))), (0, ((text, "bad"),))], [], width
        )
    phase = phase_part(view, width, glyphs)
    if view.reading:
        return spread(
            [(0, (("reading  ", "prefill bold"), (clock(view.elapsed_s), "strong"))), (1, ((READING, "dim"),))],
            [],
            width,
        )
    if view.phase in {"starting", "preparing"} and view.note and view.ending is None:
        return spread([(0, phase), (1, ((cut(view.note, width - 40, glyphs.ellipsis), "dim"),))], [], width)
    gap = "   " if width >= 132 else "  "
    right: Line = _sessions(view, width)
    if kind == "grid":
        return spread([(0, phase), (2, _note(view, width, glyphs))], [(8, right)], width, gap)
    if kind == "line" or width < 100:
        right = _where(view, width, glyphs) if view.ending is None else () if view.unmeasured else _mean(view, glyphs)
    figures: list[Part] = [(9, _rate(view, width, glyphs))] if kind == "line" else []
    if kind == "strip" and width >= 100 and view.ending is None:
        figures = [(9, _flight(view, glyphs))]
    if kind == "beside" and not view.unmeasured:
        figures = [(7, _mean(view, glyphs))]
    return spread(
        [(0, phase), *figures, (4, _reading(view, width, glyphs)), *_cached(view, width, glyphs)],
        [(8, right)],
        width,
        gap,
    )


def _note(view: View, width: int, glyphs: Glyphs) -> Line:
    return ((cut(view.note, max(20, width // 3), glyphs.ellipsis), "dim"),) if view.note and view.ending is None else ()


def _rate(view: View, width: int, glyphs: Glyphs) -> Line:
    about = "" if view.parsed else "~"
    middle = width >= 100
    unit = " tok/s out" if middle else " tok/s"
    return ((f"{about + whole(view.out_rate, glyphs.none):>{6 if middle else 5}}", "strong"), (unit, "dim"))


def _reading(view: View, width: int, glyphs: Glyphs) -> Line:
    unit = " tok/s in" if width >= 132 else " in"
    return ((f"{count(view.in_rate, glyphs.none):>5}", "text"), (unit, "dim"))


def _cached(view: View, width: int, glyphs: Glyphs) -> list[Part]:
    cached: Line = (("cached ", "dim"), (f"{percent(view.cached, glyphs.none, 1):>5}", "text"))
    if width < 118 or view.could_be_cached is None:
        return [(5, cached)]
    possible = " possible" if width >= 132 else ""
    return [(5, (*cached, (f" of {percent(view.could_be_cached, glyphs.none, 1):>5}{possible}", "dim")))]


def _flight(view: View, glyphs: Glyphs) -> Line:
    """How many calls are in flight."""
    tone = "decode bold" if view.in_flight else "faint"
    return (("in flight ", "dim"), (f"{_agents(view.in_flight, glyphs):>{len(str(max(10, view.agents)))}}", tone))


def _where(view: View, width: int, glyphs: Glyphs) -> Line:
    """Calls in flight, agents in a tool, agents that wait."""
    gap, size = ("  ", 3) if width >= 100 else (" ", 2)
    return (
        ("in flight ", "dim"),
        (f"{_agents(view.in_flight, glyphs):>{size}}", "decode bold" if view.in_flight else "faint"),
        (f"{gap}tool ", "dim"),
        (f"{_agents(view.in_tool, glyphs):>{size}}", "tool bold" if view.in_tool else "faint"),
        (f"{gap}wait ", "dim"),
        (f"{_agents(view.waiting, glyphs):>{size}}", "wait bold" if view.waiting else "faint"),
    )


def _sessions(view: View, width: int) -> Line:
    """Sessions that ended; of a recording calls."""
    size = len(str(view.agents or 10)) if width >= 100 else 1
    return (
        ("calls done " if view.recording else "done ", "dim"),
        (f"{view.done:>{size}}", "good" if view.done else "faint"),
        ("  failed ", "dim"),
        (f"{view.failed:>{size}}", "bad" if view.failed else "faint"),
        ("  cut ", "dim"),
        (f"{view.cut:>{size}}", "cut" if view.cut else "faint"),
    )


def _agents(value: float | None, glyphs: Glyphs) -> str:
    if value is None:
        return glyphs.none
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _mean(view: View, glyphs: Glyphs) -> Line:
    return (
        (plural(view.agents, "agent"), "strong"),
        (", ", "dim"),
        (tenths(view.in_flight_mean, glyphs.none), "strong"),
        (" in flight", "dim"),
    )


def result_lines(view: View, width: int, rows: int) -> list[Line]:
    """After the end: the headline figures, each in the first of at most so many lines that has room for it."""
    lines: list[list[Part]] = []
    left: list[int] = []
    for name, value in view.headline:
        figure = pair(name, value)
        size = cells(figure) + len(RESULTS_GAP)
        at = next((i for i, room in enumerate(left) if size <= room), len(lines))
        if at == rows:
            continue
        if at == len(lines):
            lines.append([])
            left.append(width - 2 + len(RESULTS_GAP))
        lines[at].append((1, figure))
        left[at] -= size
    return [spread(line, [], width, RESULTS_GAP) for line in lines]


def agents_line(view: View, width: int, glyphs: Glyphs, colour: bool) -> Line:
    """All agents by state: a stacked bar with its legend, then the sessions that ended, of a recording the calls."""
    states = view.states()
    resting = sum(n for state, n in states.items() if state not in LEGEND)
    words, size = width >= 136, len(str(view.agents or 10))
    legend: list[Part] = [
        (
            5,
            (
                (f"{glyphs.states[state]} ", state),
                (f"{state} " if words else "", "dim"),
                (f"{states.get(state, 0):>{size}}", "text" if states.get(state) else "faint"),
            ),
        )
        for state in LEGEND
    ]
    size = min(size, 2)
    # While the run goes on its states come first; after it, its sessions.
    over = view.ending is not None
    ended: list[Part] = [
        (
            6 if over else 4,
            (
                ("calls done " if view.recording else "done ", "dim"),
                (f"{view.done:>{size}}", "good" if view.done else "faint"),
            ),
        ),
        (
            7 if over or view.failed else 4,
            (("failed ", "dim"), (f"{view.failed:>{size}}", "bad" if view.failed else "faint")),
        ),
        (6 if over else 3, (("cut ", "dim"), (f"{view.cut:>{size}}", "cut" if view.cut else "faint"))),
    ]
    used = sum(cells(line) + 2 for _, line in [*legend, *ended])
    room = max(8, min(width - used - 12, 60))
    if view.ending is None:
        bar = stacked([(state, states.get(state, 0)) for state in LEGEND], resting, room, glyphs, colour)
    else:
        legend = []
        sessions = (view.done, view.failed, view.cut)
        bar = stacked(list(zip(("decode", *ENDED[1:]), sessions, strict=True)), 0, room, glyphs, colour)
    name = "agents" if view.ending is None else f"{'ended':>6}"
    return spread([(9, ((name, "dim"), *bar)), *legend], ended, width)


def stacked(parts: list[tuple[str, int]], rest: int, width: int, glyphs: Glyphs, colour: bool) -> Line:
    """Counts as one bar of `width` cells by largest remainder; each state in its colour, or as its glyph."""
    total = sum(n for _, n in parts) + rest
    first, last = glyphs.edges
    if total == 0:
        return ((first, "faint"), (" " * width, ""), (last, "faint"))
    exact = [(state, n * width / total) for state, n in parts]
    sizes = {state: int(x) for state, x in exact}
    spare = round(sum(x for _, x in exact)) - sum(sizes.values())
    for state, _ in sorted(exact, key=lambda p: p[1] - int(p[1]), reverse=True)[:spare]:
        sizes[state] += 1
    solid = colour and glyphs.braille
    pieces: list[tuple[str, str]] = [
        ((glyphs.eighths[8] if solid else glyphs.states[state]) * size, state)  # type: ignore[index]
        for state, size in sizes.items()
        if size
    ]
    space = width - sum(sizes.values())
    return ((first, "faint"), *pieces, (" " * space, ""), (last, "faint"))


def lag_part(view: View, glyphs: Glyphs, short: bool) -> Line:
    """How late the client is, and how many of its sockets the server does not read: only while there are some."""
    slow = view.lag_p99_ms is not None and view.lag_p99_ms > 5
    blocked: Line = (("blocked ", "dim"), (f"{view.blocked}", "warn"), ("  ", "")) if view.blocked else ()
    return (
        *blocked,
        ("lag " if short else "client lag p99 ", "dim"),
        (f"{millis(view.lag_p99_ms, glyphs.none):>4}", "bad" if slow else "text"),
        (" ms", "dim"),
    )
