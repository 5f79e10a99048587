"""Why a result does not count, in whole sentences, and what to do about each reason; what failed, and how often."""

from collections.abc import Mapping
from textwrap import wrap
from typing import ClassVar

from textual.binding import Binding, BindingType

from windtunnel.tui.screens.box import BoxScreen
from windtunnel.tui.theme import Glyphs, Line, Theme
from windtunnel.tui.view import View
from windtunnel.tui.widgets.compose import cells

WIDTH = 88
TO_DO: Mapping[str, str] = {
    "client_lag": "Keep other work off this machine, give the client more --workers, or use fewer --agents.",
    "client_cpu": "Give the client more --workers or a faster machine, or use fewer --agents.",
    "agents_missing": "Give a longer --warmup or a shorter --ramp, and enough traces that no agent runs out of work.",
    "foreign_load": "See that nobody else uses the engine, then run again.",
    "failures": "Look at what failed below and in the engine's log; the survivors' figures are not those of this load.",
    "no_steady_state": "Give a longer --duration, a shorter --warmup, or fewer --agents.",
    "isolation_not_verified": "Let the run start its own engine, or one that can reset its prefix cache.",
    "cold_start": "Let the engine answer some calls before the window opens: a longer --warmup.",
    "compilation": "Run again on the warm engine, or give a longer --warmup.",
    "gpu_throttling": "See to the GPU's cooling and its power limit.",
    "other_gpu_process": "End the other process on the GPU.",
    "trend": "Give a longer --warmup, so that the window opens when the load is steady, or a longer --duration.",
    "emulator_late": "Keep other work off this machine, use fewer --agents, or run with --virtual.",
    "prompt_lengths": "Use a server that can count tokens (/tokenize), or traces of a model that counts alike.",
    "engine_restarted": "Look in the engine's log for why it was started again, then run again.",
    "engine_gone": "Look at the end of the engine's log.",
    "worker_gone": "Look for a lack of memory on this machine.",
    "disk_full": "Free some space, or give --out a folder on another disk, and run again.",
    "run_failed": "Read the reason at the end of the run's own output.",
    "died": "Run again; what was written until then is shown.",
    "damaged": "Copy the run's folder again from where it was made; what can be read of it is shown.",
}


CUT_SHORT = "It was interrupted in its warm-up: let it run on until its window has been measured."


def to_do(name: str, view: View) -> str | None:
    """About one reason; None where there is nothing to be done."""
    if name == "no_steady_state" and view.ending == "interrupted" and view.unmeasured:
        return CUT_SHORT
    if name == "damaged" and view.missing:
        return "Copy the run's folder again from where it was made; what its summary says is shown."
    return TO_DO.get(name)


def reason_lines(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """Each reason as a sentence, below it what to do; then the failures by name."""
    lines: list[Line] = []
    for name, sentence in zip(view.invalid, view.why, strict=True):
        lines += _wrapped(f"{sentence[:1].upper()}{sentence[1:]}.", width, (f"{glyphs.states['failed']} ", "bad"), "")
        if (advice := to_do(name, view)) is not None:
            lines += _wrapped(advice, width, ("  ", ""), "dim")
        lines.append(())
    if not view.invalid:
        unknown = "Nothing speaks against the result so far." if view.ending is None else "Nothing speaks against it."
        lines += [((unknown, "good"),), ()]
    if view.damaged:
        lines += _wrapped(f"{view.damaged[:1].upper()}{view.damaged[1:]}.", width, ("! ", "warn"), "")
        lines.append(())
    if view.failures:
        size = max(len(str(n)) for _, n in view.failures)
        lines.append((("Calls and sessions that failed:", "strong"),))
        lines += [((f"  {n:>{size}} ", "bad"), (name.replace("_", " "), "text")) for name, n in view.failures]
        lines.append(())
    return lines[:-1]


def _wrapped(text: str, width: int, mark: tuple[str, str], tone: str) -> list[Line]:
    """In lines of `width` cells, the first behind the mark."""
    parts = wrap(text, max(10, width - 2))
    return [(mark if i == 0 else ("  ", ""), (part, tone or "text")) for i, part in enumerate(parts)]


class ReasonsScreen(BoxScreen[None]):
    """As of the moment it was opened; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,v,enter,space", "leave", "close")]

    def __init__(self, look: Theme, view: View) -> None:
        super().__init__(look, "reasons")
        self.view = view

    def draw(self) -> None:
        body = reason_lines(self.view, min(WIDTH, self.size.width - 6), self.look.glyphs)
        body = body[: max(1, self.size.height - 2)]
        title = "why the result does not count" if self.view.invalid else "does the result count"
        width = max([len(title) + 4, 20, *map(cells, body)])
        self.show_box(body, width, title, "escape closes")

    def on_click(self) -> None:
        self.dismiss()
