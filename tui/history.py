"""The past of a run for its graphs: taken from the fold once for every step of its history, not at every look."""

from windtunnel.simulator.results.fold import Fold
from windtunnel.tui.view import STACK, History


class Histories:
    """Gives the same object until there is something new to draw."""

    def __init__(self) -> None:
        self._key: tuple[int, int, bool] = (0, 0, False)
        self._last = History()

    def of(self, fold: Fold, *, ended: bool) -> History:
        series = fold.series
        key = (len(series), series.step_ns, ended)
        if key != self._key:
            self._key, self._last = key, history_of(fold, ended=ended)
        return self._last


def history_of(fold: Fold, *, ended: bool) -> History:
    """The last step of a live run is left out: it goes on."""
    series = fold.series
    n = max(0, len(series) - (0 if ended else 1))

    def rates(name: str) -> tuple[float, ...]:
        return tuple(series.rates(name)[:n])

    return History(
        step_s=series.step_s,
        output=rates("output"),
        prompt=rates("prompt"),
        cached=tuple(series.shares("cached", "known_prompt")[:n]),
        missed=tuple(series.shares("missed", "known_prompt")[:n]),
        kv=rates("kv"),
        held=rates("held"),
        states=tuple(zip(*(rates(state) for state in STACK), strict=True)) if n else (),
    )
