"""What a run waits for before it begins is said and has an end: nobody looks at a silent terminal for minutes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar

from windtunnel.traces.errors import EngineError

QUIET_S = 2.0
"""A question that is not answered for so long is named."""
OFTEN_S = 30.0
"""The time between two such lines doubles up to this."""
PROBES_S = 240.0
"""All questions about what a server is and can do, together."""


class Patience:
    """The questions that wait for an answer, and who is told about the oldest of them."""

    def __init__(self, talk: Callable[[str], None]) -> None:
        self._talk = talk
        self._loop = asyncio.get_running_loop()
        self._open: dict[object, tuple[str, float]] = {}
        self._pause = QUIET_S
        self._left_out: set[str] = set()
        self._said: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def waiting(self, url: str) -> Iterator[None]:
        """While one question is asked."""
        key = object()
        self._open[key] = url, self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(QUIET_S, self._look)
        try:
            yield
        finally:
            del self._open[key]

    def leave_out(self, url: str, why: str) -> None:
        """Say why, and do not ask this again."""
        self._left_out.add(url)
        self._talk(why)

    def say_once(self, text: str) -> None:
        """However often it happens."""
        if text not in self._said:
            self._said.add(text)
            self._talk(text)

    def leaves_out(self, url: str) -> bool:
        return url in self._left_out

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._open:
            return
        url, since = next(iter(self._open.values()))
        waited = self._loop.time() - since
        pause = QUIET_S - waited
        if pause <= 0:
            self._talk(f"waiting for {url}: no answer for {waited:.0f} s")
            pause = self._pause = min(2 * self._pause, OFTEN_S)
        self._timer = self._loop.call_later(pause, self._look)


_patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


def waiting(url: str) -> contextlib.AbstractContextManager[None]:
    """Says what is asked to the `patience` around it, if there is one."""
    patience = _patience.get()
    return contextlib.nullcontext() if patience is None else patience.waiting(url)


def leaves_out(url: str) -> bool:
    """Whether the `patience` around this was told to go on without an answer from there."""
    patience = _patience.get()
    return patience is not None and patience.leaves_out(url)


def leave_out(url: str, why: str) -> None:
    """Tells the `patience` around this, if there is one, that a question has no answer and why."""
    patience = _patience.get()
    if patience is not None:
        patience.leave_out(url, why)


def say_once(text: str) -> None:
    """Tells the `patience` around this, if there is one, what is odd about an answer."""
    patience = _patience.get()
    if patience is not None:
        patience.say_once(text)


@contextlib.asynccontextmanager
async def patiently(talk: Callable[[str], None], root: str, longest_s: float = PROBES_S) -> AsyncIterator[None]:
    """Tells `talk` which question in here waits; an EngineError when all of them take longer than `longest_s`."""
    patience = Patience(talk)
    token = _patience.set(patience)
    try:
        async with asyncio.timeout(longest_s) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise EngineError(
                f"{root}: after {longest_s:.0f} s not all questions before the run were answered; "
                "the server is stuck or too busy, try again when it is idle"
            ) from None
        raise
    finally:
        _patience.reset(token)
        patience.close()
