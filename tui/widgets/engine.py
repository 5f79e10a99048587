"""The engine strip: what limits the agents, from its own metrics. A dash is a figure the engine does not report."""

from windtunnel.tui.figures import gigabytes, percent, tenths, whole
from windtunnel.tui.theme import Glyphs, Line
from windtunnel.tui.view import Engine, View
from windtunnel.tui.widgets.compose import Part, spread
from windtunnel.tui.widgets.header import lag_part
from windtunnel.tui.widgets.plot import marked

BEFORE = frozenset({"starting", "preparing", "warmup"})
"""Phases in which the two figures are of other calls."""


def pressed(share: float | None, demand: float | None) -> str:
    """The tone of the cache: how near it is to its end."""
    if share is None:
        return "faint"
    return "failed" if share > 0.97 else "tool" if share > 0.85 or (demand or 0) > 1 else "prefill"


def engine_line(view: View, width: int, glyphs: Glyphs) -> Line:
    """What the engine said last; after the end, the window's means."""
    engine = view.engine
    short, concluded = width < 100, bool(view.headline) and not view.unmeasured
    # Means of the window have a fraction; a moment's counts have not.
    number, size = (tenths, 4) if concluded else (whole, 3)
    room = 6 if short else 14 if width < 176 else 28
    usage, demand = engine.kv_usage, engine.demand
    tone = pressed(usage, demand)
    kv: Line = (
        ("KV avg" if concluded else "KV end" if view.unmeasured else f"{'KV':>6}", "dim"),
        (glyphs.edges[0], "faint"),
        *marked(usage or 0.0, demand, room, glyphs, tone if usage is not None else ""),
        (glyphs.edges[1], "faint"),
        (f" {percent(usage, glyphs.none):>4}", tone),
    )
    preempted = _pair(
        "preempt" if short else "preempted",
        whole(engine.preemptions, glyphs.none),
        2,
        "warn" if engine.preemptions else "",
    )
    left: list[Part] = [
        (0, kv),
        (6, working_set(engine, width, glyphs)),
        (9, _pair("run" if short else "running", number(engine.running, glyphs.none), size)),
        (
            10,
            _pair(
                "wait" if short else "waiting",
                number(engine.waiting, glyphs.none),
                size,
                "warn" if engine.waiting else "",
            ),
        ),
        (7, hits(view, width, glyphs)),
        (8, preempted),
        (4, _pair("accept", tenths(engine.accepted, glyphs.none), 3) if engine.accepted is not None else ()),
        (4, gpu(engine)),
        (3, memory(engine, width)),
    ]
    slow = (view.lag_p99_ms or 0) > 5 or bool(view.blocked)
    right: list[Part] = [(2, too_much(engine, width)), (9 if slow else 5, lag_part(view, glyphs, width < 176))]
    line = spread(left, right, width, "   " if width >= 220 else "  ")
    return tuple((text, "faint" if tone else "") for text, tone in line) if view.unmeasured else line


def too_much(engine: Engine, width: int) -> Line:
    """In words, where there is room, that what the agents hold together cannot all be kept."""
    name = "working set" if width >= 176 else "set"
    return ((f"{name} does not fit", "bad"),) if (engine.demand or 0) > 1 else ()


def working_set(engine: Engine, width: int, glyphs: Glyphs) -> Line:
    """The live sessions' contexts together as a share of the cache; beside it, the gauge carries a mark there."""
    if not engine.kv_tokens:
        return ()
    name = "working set " if width >= 176 else "set "
    shown = percent(engine.demand, glyphs.none)
    return ((name, "dim"), (f"{shown:>4}", "bad" if (engine.demand or 0) > 1 else "text" if engine.demand else "faint"))


def hits(view: View, width: int, glyphs: Glyphs) -> Line:
    """The engine's own hit rate, which with KV offload is the GPU's alone; beside it, of the window's prompts, what
    it could be at most.
    """
    ratio, most = view.engine.hit_ratio, view.could_be_cached
    name = "hit " if width < 176 else "hit rate "
    if view.engine.offloads:
        name = f"GPU {name}" if width < 176 else "GPU's own hit rate "
    line: Line = ((name, "dim"), (f"{percent(ratio, glyphs.none, 1):>5}", "faint" if ratio is None else "text"))
    if width >= 176 and most is not None and view.phase not in BEFORE:
        line = (*line, (f" (expected {percent(most, glyphs.none, 1)})", "dim"))
    return line


def gpu(engine: Engine) -> Line:
    """Load and power, as far as they are known."""
    load = f"{percent(engine.gpu):>4}" if engine.gpu is not None else ""
    power = f"{engine.power_w:>3.0f} W" if engine.power_w is not None else ""
    shown = "  ".join(text for text in (load, power) if text)
    return (("GPU ", "dim"), (shown, "text")) if shown else ()


def memory(engine: Engine, width: int) -> Line:
    """Of all GPUs."""
    if engine.memory is None:
        return ()
    total = f" of {gigabytes(engine.memory_total)}" if engine.memory_total else ""
    return (("memory " if width >= 176 else "mem ", "dim"), (f"{gigabytes(engine.memory):>3}{total} GB", "text"))


def _pair(name: str, value: str, width: int, tone: str = "") -> Line:
    return ((f"{name} ", "dim"), (f"{value:>{width}}", tone or ("faint" if value in {"0", "–", "-"} else "text")))
