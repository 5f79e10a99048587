"""The engine strip: what limits the agents, from its own metrics. A dash is a figure the engine does not report."""

from windtunnel.tui.figures import percent, tenths, whole
from windtunnel.tui.theme import Glyphs, Line
from windtunnel.tui.view import View
from windtunnel.tui.widgets.compose import Part, spread
from windtunnel.tui.widgets.header import lag_part
from windtunnel.tui.widgets.plot import gauge


def engine_line(view: View, width: int, glyphs: Glyphs) -> Line:
    """What the engine said last; after the end, the window's means."""
    engine = view.engine
    short, concluded = width < 100, bool(view.headline)
    # Means of the window have a fraction; a moment's counts have not.
    number = tenths if concluded else whole
    room = max(6, min(28, width // 6)) if not short else 6
    usage = engine.kv_usage
    tone = "bad" if usage is not None and usage > 0.97 else "warn" if usage is not None and usage > 0.85 else "prefill"
    full, rest = gauge(usage or 0.0, room, glyphs)
    kv: Line = (
        ("KV avg" if concluded else f"{'KV':>6}", "dim"),
        (glyphs.edges[0], "faint"),
        (full, tone),
        (rest, ""),
        (glyphs.edges[1], "faint"),
        (f" {percent(usage, glyphs.none):>4}", tone if usage is not None else "faint"),
    )
    left: list[Part] = [
        (0, kv),
        (8, _pair("run" if short else "running", number(engine.running, glyphs.none), 4 if concluded else 3)),
        (
            9,
            _pair(
                "wait" if short else "waiting",
                number(engine.waiting, glyphs.none),
                4 if concluded else 3,
                "warn" if engine.waiting else "",
            ),
        ),
        (6, _pair("hit" if short else "hit rate", percent(engine.hit_ratio, glyphs.none, 1), 5)),
        (
            7,
            _pair(
                "preempt" if short else "preempted",
                whole(engine.preemptions, glyphs.none),
                2,
                "warn" if engine.preemptions else "",
            ),
        ),
        (2, _pair("accept", tenths(engine.accepted, glyphs.none), 3) if engine.accepted is not None else ()),
        (3, _pair("GPU", percent(engine.gpu), 4) if engine.gpu is not None else ()),
        (2, _pair("power", f"{engine.power_w:.0f} W", 5) if engine.power_w is not None else ()),
        (2, _pair("memory", percent(engine.gpu_memory), 4) if engine.gpu_memory is not None else ()),
    ]
    return spread(left, [(5, lag_part(view, glyphs, short))], width, "   " if width >= 132 else "  ")


def _pair(name: str, value: str, width: int, tone: str = "") -> Line:
    return ((f"{name} ", "dim"), (f"{value:>{width}}", tone or ("faint" if value in {"0", "–", "-"} else "text")))
