"""The streams of a run shared by several processes, behind the interfaces of the client and the reader in this one.

Only what costs per chunk goes elsewhere: sockets, HTTP, arrival times, parsing. Sessions, draws, budgets, the window,
the rate cap, expected cached tokens and all events stay where they are with one process, so a seed gives the same run
whatever the number of workers. A worker gets a ready request and gives back its whole answer.

Workers are fresh processes, not forks: a fork of a process with an event loop and threads may hang, and they need none
of what was prepared.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Self

from windtunnel.agents.client import RawStream, Target
from windtunnel.agents.failures import Failure
from windtunnel.agents.reading import Live
from windtunnel.agents.sse import Parsed
from windtunnel.simulator.run.pipe import Abort, Answered, Hello, Look, Pipe, Ready, Seen, Send, ToRun, start_process
from windtunnel.simulator.run.probe import Health
from windtunnel.traces.errors import RunError

START_S = 30.0
LOOK_S = 0.1
"""Progress waits this long for what the workers see; then it shows what they told before."""
ABORT_S = 5.0
"""A worker that has not answered for a request given up by then hangs, and is killed."""
CLOSE_S = 3.0
_OUTCOME = ("t_write", "t_sent", "t_headers", "t_end", "status", "headers", "failure", "detail", "reconnected")


class Flight:
    """A request that a worker has, as this process sees it."""

    __slots__ = ("answered", "late", "parsed", "raw", "tail", "tokens")

    def __init__(self, raw: RawStream) -> None:
        self.raw = raw
        self.tokens = 0
        self.tail = ""
        self.late = False
        """The worker has not told of it since it was asked last."""
        self.parsed = Parsed()
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look(self) -> tuple[int, str]:
        return self.tokens, self.tail

    def tail_of(self, tokens: int) -> str:
        del tokens
        return self.tail

    def rest(self) -> Parsed:
        """Everything that the worker told of a request that was given up."""
        return self.parsed


class Worker:
    """One process and the requests it has."""

    def __init__(self, name: str, heard: Callable[[Health], None]) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.pipe: Pipe[ToRun] = Pipe(ToRun, self._got, self._hung_up)
        self.flights: dict[int, Flight] = {}
        self.ready: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self._heard = heard
        self._seen: asyncio.Future[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, hello: Hello) -> None:
        """In a session of its own, so that a signal to the terminal's processes reaches only the run, which decides."""
        self._process = await start_process("windtunnel.simulator.run.worker", self.pipe)
        self.pipe.send(hello)

    async def began(self) -> None:
        await asyncio.wait({self.ready, self.gone}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        if not self.ready.done():
            raise RunError(f"{self.name} did not start: {await self.ending()}; run with fewer --workers")

    async def look(self) -> None:
        """Ask how far the streams are and wait for the answer, but not for long."""
        for flight in self.flights.values():
            flight.late = True
        if self._seen is None and self.flights:
            self._seen = asyncio.get_running_loop().create_future()
            self.pipe.send(Look())
        if self._seen is not None:
            await asyncio.wait({self._seen}, timeout=LOOK_S)

    async def ending(self) -> str:
        """How the process ended; one that closed its socket and lives is killed."""
        process = self._process
        if process is None:
            return "no process"
        try:
            code = await asyncio.wait_for(process.wait(), CLOSE_S)
        except TimeoutError:
            self.kill()
            await process.wait()
            return "it was killed because it hung"
        return f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _hung_up(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    def _got(self, message: ToRun, _: bytes) -> None:
        match message:
            case Answered(number=number, raw=raw):
                flight = self.flights.pop(number)
                for field in _OUTCOME:
                    setattr(flight.raw, field, getattr(raw, field))
                flight.parsed = message.whole()
                flight.answered.set_result(None)
            case Seen(streams=streams):
                for number, tokens, tail in streams:
                    if (seen := self.flights.get(number)) is not None:
                        seen.tokens, seen.tail, seen.late = tokens, tail, False
                if self._seen is not None:
                    self._seen.set_result(None)
                    self._seen = None
            case Health():
                self._heard(message)
            case Ready():
                self.ready.set_result(None)


class Workers:
    """Takes the place of `StreamClient` and of `Reader`."""

    blocked = 0
    """This process has no stream's socket: the workers tell of theirs with their health."""

    def __init__(self, count: int, now_ns: Callable[[], int]) -> None:
        self._health: list[Health] = []
        self._workers = [Worker(f"client process {n} of {count}", self._health.append) for n in range(1, count + 1)]
        self._flights: dict[str, Flight] = {}
        self._now = now_ns
        self._sent = 0

    @classmethod
    async def start(
        cls, count: int, target: Target, *, keep_text: bool, now_ns: Callable[[], int] = perf_counter_ns
    ) -> Self:
        """Starts `count` processes that send to `target`; RunError when one does not come up."""
        workers = cls(count, now_ns)
        try:
            for worker in workers._workers:
                await worker.start(Hello(target, keep_text))
            for worker in workers._workers:
                await worker.began()
        except BaseException:
            await workers.close()
            raise
        return workers

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    async def stream(
        self,
        path: str,
        parts: Sequence[bytes],
        *,
        request_id: str,
        headers: Sequence[tuple[str, str]] = (),
        on_start: Callable[[RawStream], None] | None = None,
    ) -> RawStream:
        """As `StreamClient.stream`, by the worker that has the fewest streams; it also parses, for `finish`."""
        del headers  # those of the target go with each request
        raw = RawStream(request_id=request_id, t_start=self._now())
        flight = self._flights[request_id] = Flight(raw)
        if on_start is not None:
            on_start(raw)
        worker = min(self._workers, key=lambda worker: (worker.gone.done(), len(worker.flights)))
        self._sent += 1
        worker.flights[self._sent] = flight
        worker.pipe.send(Send(self._sent, path, request_id), parts)
        await self._answer(worker, self._sent, flight)
        return raw

    async def _answer(self, worker: Worker, number: int, flight: Flight) -> None:
        """Until the answer is here. When cancelled, the worker is asked for what it has.

        A lost worker never answers: the run is told (`wait_lost`), stops, and cancels whoever waits here.
        """
        cancelled: asyncio.CancelledError | None = None
        while not flight.answered.done() and not (cancelled is not None and worker.gone.done()):
            waited = {flight.answered} if cancelled is None else {flight.answered, worker.gone}
            limit = None if cancelled is None else ABORT_S
            try:
                done, _ = await asyncio.wait(waited, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    worker.kill()
            except asyncio.CancelledError as error:
                if cancelled is None:
                    worker.pipe.send(Abort(number))
                cancelled = error
        if cancelled is not None:
            if not flight.answered.done():
                flight.raw.failure, flight.raw.t_end = Failure.ABORTED.value, self._now()
            raise cancelled

    def open(self, raw: RawStream) -> Flight:
        return self._flights[raw.request_id]

    async def finish(self, raw: RawStream) -> Parsed:
        """What the stream said; it is there as soon as the stream is."""
        return self._flights.pop(raw.request_id).parsed

    def forget(self, raw: RawStream) -> None:
        self._flights.pop(raw.request_id, None)

    def tokens_of(self, followed: Sequence[Live | None]) -> list[int]:
        return [0 if one is None else one.tokens for one in followed]

    async def catch_up(self) -> None:
        """Every live stream's count is that of now, unless its worker is late."""
        await asyncio.gather(*(worker.look() for worker in self._workers))

    def health(self) -> list[Health]:
        """What the workers told about themselves since the last time."""
        told = self._health.copy()
        self._health.clear()
        return told

    async def wait_lost(self) -> str:
        """Returns when a worker has ended by itself: which one, and how."""
        await asyncio.wait({worker.gone for worker in self._workers}, return_when=asyncio.FIRST_COMPLETED)
        lost = next(worker for worker in self._workers if worker.gone.done())
        return f"{lost.name} (pid {lost.pid}) is lost with its streams: {await lost.ending()}"

    async def close(self) -> None:
        """End all processes; streams that still run are lost."""
        for worker in self._workers:
            worker.pipe.close()
        await asyncio.gather(*(worker.ending() for worker in self._workers))
