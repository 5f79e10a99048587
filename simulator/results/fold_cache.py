"""What of the prompts the cache held, as the live view shows it: of the measured window as soon as that has calls."""

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results.calls import completed
from windtunnel.simulator.results.ceiling import ceiling
from windtunnel.simulator.results.series import Series


class Shares:
    """Sums over calls that ended. Those that reported no cached tokens count in neither `prompt` nor `cached`."""

    def __init__(self) -> None:
        self.prompt = 0
        self.cached = 0
        self._most: dict[bool, tuple[int, int]] = {True: (0, 0), False: (0, 0)}
        """(prompt tokens, what an endless cache had of them) of the calls whose expected cached tokens are known: those
        that reported their cached ones, and the others."""

    def add(self, event: CallEnd) -> None:
        told = event.cached_tokens is not None and bool(event.prompt_tokens)
        if event.cached_tokens is not None and event.prompt_tokens:
            self.prompt += event.prompt_tokens
            self.cached += event.cached_tokens
        if (found := ceiling(event)) is not None:
            prompt, most = self._most[told]
            prompt += event.expected_prompt_tokens if event.prompt_tokens is None else event.prompt_tokens
            self._most[told] = prompt, most + found

    @property
    def share(self) -> float | None:
        return self.cached / self.prompt if self.prompt else None

    @property
    def expected_share(self) -> float | None:
        prompt, most = self._most[True] if self._most[True][0] else self._most[False]
        return most / prompt if prompt else None


class CacheView:
    """`window` holds the completed calls that were intended inside it, as the summary counts them."""

    def __init__(self, series: Series) -> None:
        self.so_far = Shares()
        self.window = Shares()
        self._series = series

    def call_end(self, event: CallEnd, window: tuple[int, int | None] | None) -> None:
        if event.cached_tokens is not None and event.prompt_tokens:
            self.so_far.add(event)
            self._history(event, event.prompt_tokens, event.cached_tokens)
        inside = window is not None and window[0] <= event.t_intended < (window[1] or event.t_intended + 1)
        if inside and completed(event):
            self.window.add(event)

    def _history(self, event: CallEnd, prompt: int, cached: int) -> None:
        """The prompt belongs to the moment at which it had been computed."""
        seen = event.t_first if event.t_first is not None else event.t
        self._series.add("known_prompt", seen, seen, prompt)
        self._series.add("cached", seen, seen, cached)
        if (most := ceiling(event)) is not None and most > cached:
            self._series.add("missed", seen, seen, most - cached)

    @property
    def shown(self) -> Shares:
        return self.window if self.window.prompt else self.so_far
