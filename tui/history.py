"""The past of a run for its graphs: taken from the fold once for every step of its history, not at every look."""

from windtunnel.agents.events import AgentState
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
        states=tuple(zip(*_states({state: rates(state) for state in STACK}, rates("queued")), strict=True))
        if n
        else (),
    )


def _states(seen: dict[AgentState, tuple[float, ...]], waiting: tuple[float, ...]) -> list[tuple[float, ...]]:
    """Agents in each state of `STACK`, those without a token as queued as far as the engine said that requests wait."""
    moved = [min(prefill, n) for prefill, n in zip(seen["prefill"], waiting, strict=True)]
    seen["prefill"] = tuple(n - m for n, m in zip(seen["prefill"], moved, strict=True))
    seen["queue"] = tuple(n + m for n, m in zip(seen["queue"], moved, strict=True))
    return [seen[state] for state in STACK]
