"""A worker: a process that sends ready requests and hands back whole answers, read and parsed.

    python -m windtunnel.simulator.run.worker FD      FD is its end of a socket pair; pipe.py says what goes through it

It knows nothing of sessions, and it ends when the socket does: whatever ends the run, SIGKILL included, ends it too.
"""

import asyncio
import gc
import socket
import sys
from functools import partial
from typing import Any

from windtunnel.agents.client import StreamClient
from windtunnel.agents.clock import RealClock
from windtunnel.agents.failures import Failure
from windtunnel.agents.http import RawStream
from windtunnel.agents.reading import Reader, Reading
from windtunnel.agents.sse import Parsed
from windtunnel.simulator.run.loop import COLLECT, loop_factory
from windtunnel.simulator.run.pipe import Abort, Answered, Hello, Look, Pipe, Ready, Seen, Send, ToWorker
from windtunnel.simulator.run.probe import Health, probe

TAIL_CHARS = 120

Answer = tuple[RawStream, Parsed]


class Worker:
    """Does what the pipe says until the pipe ends."""

    def __init__(self) -> None:
        self.pipe: Pipe[ToWorker] = Pipe(ToWorker, self._got, self._hung_up)
        self._clock = RealClock()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._client: StreamClient | None = None
        self._reader = Reader()
        self._tasks: dict[int, asyncio.Task[Answer]] = {}
        self._readings: dict[int, Reading] = {}
        self._looking: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Returns when the run is gone; raises what went wrong in here."""
        sampling = asyncio.create_task(probe(self._clock, self._tell, self._blocked))
        sampling.add_done_callback(self._broke)
        await self._over
        if self._client is not None:
            await self._client.close()

    def _hung_up(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _broke(self, task: asyncio.Task[Any]) -> None:
        """An error in a task is a bug of ours: it ends the process, and the run says so."""
        if not task.cancelled() and (error := task.exception()) is not None and not self._over.done():
            self._over.set_exception(error)

    def _blocked(self) -> int:
        return 0 if self._client is None else self._client.blocked

    def _tell(self, now: int, health: Health) -> None:
        del now
        self.pipe.send(health)

    def _got(self, message: ToWorker, body: bytes) -> None:
        match message:
            case Send(number=number):
                task = self._tasks[number] = asyncio.create_task(self._fly(message, body))
                task.add_done_callback(partial(self._landed, number))
            case Abort(number=number):
                if number in self._tasks:
                    self._tasks[number].cancel()
            case Look():
                self._looking = asyncio.create_task(self._look())
                self._looking.add_done_callback(self._broke)
            case Hello(target=target, keep_text=keep_text):
                self._client = StreamClient(target)
                self._reader = Reader(keep_text=keep_text)
                gc.collect()
                gc.freeze()
                gc.set_threshold(*COLLECT)
                self.pipe.send(Ready())

    async def _fly(self, order: Send, body: bytes) -> Answer:
        assert self._client is not None

        def begun(raw: RawStream) -> None:
            self._readings[order.number] = self._reader.open(raw)

        try:
            raw = await self._client.stream(order.path, (body,), request_id=order.request_id, on_start=begun)
            return raw, await self._reader.finish(raw)
        except asyncio.CancelledError:
            reading = self._readings.get(order.number)
            if reading is None or self._over.done():
                raise
            self._reader.forget(reading.raw)
            return reading.raw, reading.rest()

    def _landed(self, number: int, task: asyncio.Task[Answer]) -> None:
        del self._tasks[number]
        self._readings.pop(number, None)
        if task.cancelled():  # it was given up before it began
            raw = RawStream("", failure=Failure.ABORTED.value, t_end=self._clock.now_ns())
            self.pipe.send(Answered.of(number, raw, Parsed()))
        elif task.exception() is None:
            self.pipe.send(Answered.of(number, *task.result()))
        else:
            self._broke(task)

    async def _look(self) -> None:
        await self._reader.catch_up()
        live = self._readings.items()
        self.pipe.send(Seen([(number, reading.tokens, reading.tail[-TAIL_CHARS:]) for number, reading in live]))


async def _main(fd: int) -> None:
    worker = Worker()
    await asyncio.get_running_loop().create_unix_connection(lambda: worker.pipe, sock=socket.socket(fileno=fd))
    await worker.serve()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_main(int(sys.argv[1])))
