"""The writer: a process that turns what the proxy tells into a run folder with traces.

    python -m windtunnel.simulator.record.writer FD      FD is its end of a socket pair

It ends when the socket does: a proxy that was killed leaves a folder that says so and holds all it told.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import aiohttp

from windtunnel.agents import events as ev
from windtunnel.agents.failures import Failure
from windtunnel.agents.http import shorten
from windtunnel.agents.recorder.recorder import Recorder
from windtunnel.agents.recorder.redact import Redactor
from windtunnel.agents.recorder.screen import Wrote
from windtunnel.agents.recorder.told import Arrived, Closed, Opened
from windtunnel.simulator.engines.base import Resolved, detect, engine_of, open_session
from windtunnel.simulator.engines.emulator import Emulator, emulation
from windtunnel.simulator.record.again import KIND, set_aside, undo
from windtunnel.simulator.record.frames import Began, Begin, Broke, Done, End, Refused, ToWriter
from windtunnel.simulator.results import full_disk
from windtunnel.simulator.results.emulation import announced
from windtunnel.simulator.results.said import LONGEST
from windtunnel.simulator.results.store import TRACES, RunWriter, TextLine
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.run.loop import loop_factory
from windtunnel.simulator.run.pipe import Pipe
from windtunnel.simulator.run.scrape import Scraper
from windtunnel.traces.errors import EngineError, RunError, WindtunnelError
from windtunnel.traces.outlet import readable

LOG = "recorder.log"
NICE = 10
"""Bytes on their way, and the agent, go first."""
PROGRESS_S = 0.25
HEARTBEAT_S = 1.0
LEAVE_S = 5.0
"""The proxy closes the pipe once it has read the last word."""
DETECT_S = 15.0
"""A server that was not there yet is asked again after so long."""
LAST_S = 2.0
"""And once more at the end, for no longer."""
KEPT_SAYINGS = 100
"""Different messages of one kind of failure."""


class _Sink:
    """Events and texts into the run folder."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer
        self.failed = 0
        """Calls that the server did not answer; those that their client gave up are none."""
        self.aborted = 0
        """These."""
        self.reasons: Counter[str] = Counter()
        self._said: dict[str, Counter[str]] = {}
        """By reason."""

    def emit(self, event: ev.Event) -> None:
        if isinstance(event, ev.CallEnd):
            if event.failure is not None and event.failure != Failure.ABORTED:
                self._fail(event.failure, event.detail)
            self.aborted += event.failure == Failure.ABORTED
        self._writer.emit(event)

    def _fail(self, reason: str, detail: str | None) -> None:
        self.failed += 1
        self.reasons[reason] += 1
        said = self._said.setdefault(reason, Counter())
        if detail and (detail in said or len(said) < KEPT_SAYINGS):
            said[detail] += 1

    def why(self) -> tuple[str, int]:
        """What most failed for, and how many did."""
        if not self.reasons:
            return "", 0
        reason, times = self.reasons.most_common(1)[0]
        said = next((text for text, _ in self._said[reason].most_common(1)), "")
        return (f"{reason}: {shorten(said, LONGEST)}" if said else reason), times

    def wrote(self, what: Wrote) -> None:
        calls = tuple({"id": i, "name": n, "arguments": a} for i, n, a in what.tool_calls)
        where = what.request_id, what.agent, what.session, what.thread, what.call
        self._writer.text(TextLine(*where, what.text, what.reasoning, calls))


class Recording:
    """Does what the pipe says until the pipe ends."""

    def __init__(self) -> None:
        self.pipe: Pipe[ToWriter] = Pipe(ToWriter, self._got, self._hung_up)
        self._over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True when the recording was ended, False when the proxy went away."""
        self._broken: str | None = None
        """Why nothing more can be written."""
        self._full = False
        """Because there is no room."""
        self._gone_for_good = False
        """The folder is, with all that is in it."""
        self._failed = False
        """Ended because it did not come to be."""
        self._earlier: Path | None = None
        """Where what was written about the recording's first part lies."""
        self._sink: _Sink | None = None
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin: Begin | None = None
        self._writer: RunWriter | None = None
        self._recorder: Recorder | None = None
        self._engine: dict[str, Any] = {}
        """What `engine` of `run.json` has of the server, once it has answered: its kind, and whether it is emulated."""
        self._asked = False
        """It was asked for its settings, and said what it says."""
        self._plain = False
        """It has answered, and is of no kind that is known."""
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self) -> None:
        whole = await self._over
        try:
            await self._finish(whole)
        except (WindtunnelError, OSError) as error:
            self._break(error)
        if self._broken is not None and self._writer is not None:
            with contextlib.suppress(WindtunnelError, OSError):  # what there is room for
                self._writer.close()
            if self._full:
                full_disk.conclude(self._writer.path)
            self._clear_log(self._writer.path / LOG)
        if self._writer is not None:  # else the last word was read before it was over
            await asyncio.wait({self._gone}, timeout=LEAVE_S)

    async def _finish(self, whole: bool) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._writer is None or self._recorder is None or self._sink is None:
            return
        await self._ask_last()
        try:
            self._recorder.finish(perf_counter_ns())
        except (WindtunnelError, OSError):
            if self._broken is None:
                raise
        if self._failed and not self._recorder.calls + self._sink.failed:
            self._writer.close()
            undo(self._writer.path, self._earlier, LOG)
            self.pipe.send(Done(0, 0, 0))
            return
        if self._begin is not None:
            self._writer.write_run(self._describe(self._begin))
        now = self._now()
        self._writer.emit(ev.Phase(t=now, phase="done"))
        reason = self._broken or (None if whole else "the proxy was killed")
        self._writer.emit(ev.RunEnd(t=now, status="completed" if whole else "interrupted", reason=reason))
        self._writer.flush()
        self._writer.write_summary(recompute(self._writer.path))
        self._writer.close()
        self._clear_log(self._writer.path / LOG)
        if self._broken is None:
            counted = self._recorder.sessions, self._recorder.calls, self._sink.failed, self._sink.aborted
            self.pipe.send(Done(*counted, *self._sink.why()))

    def _clear_log(self, log: Path) -> None:
        """What it says may be told elsewhere by now: then nothing is left of it."""
        with contextlib.suppress(OSError):
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            if said in ("", self._broken):
                log.unlink()

    def _away(self) -> str | None:
        """What became of the folder, when it is no more where it was."""
        if self._writer is None:
            return None
        was = self._writer.path
        try:
            moved = self._writer.follow() is not None
        except RunError:
            self._gone_for_good = True
            return f"the folder {was} was deleted or moved away while the recording went on"
        return f"the folder {was} was moved to {self._writer.path} while the recording went on" if moved else None

    def _hung_up(self) -> None:
        if not self._over.done():
            self._over.set_result(False)
        if not self._gone.done():
            self._gone.set_result(None)

    def _got(self, message: ToWriter, body: bytes) -> None:
        try:
            self._take(message, body)
        except (WindtunnelError, OSError) as error:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """A full disk ends the recording, and the proxy is told at once; the agent goes on without."""
        if self._broken is not None:
            return
        cause = error if isinstance(error, OSError) else error.__cause__
        where = "" if self._writer is None else f" to {self._writer.path}"
        said = f"cannot write{where} ({cause.strerror})" if isinstance(cause, OSError) else str(error)
        self._full = full_disk.is_full(error)
        self._broken = said if self._full else self._away() or said
        with contextlib.suppress(OSError):  # the log lies on the same disk
            print(self._broken, file=sys.stderr, flush=True)
        calls = 0 if self._recorder is None else self._recorder.calls
        calls += 0 if self._sink is None else self._sink.failed
        lies = b"" if self._writer is None or self._gone_for_good else os.fsencode(self._writer.path)
        self.pipe.send(Broke(readable(self._broken), calls, lies))
        if not self._over.done():
            self._over.set_result(False)

    def _take(self, message: ToWriter, body: bytes) -> None:
        if self._broken is not None:
            return
        match message:
            case Opened() if self._recorder is not None:
                self._recorder.opened(message, body)
            case Arrived() if self._recorder is not None:
                self._recorder.arrived(message, body)
            case Closed() if self._recorder is not None:
                self._recorder.closed(message)
            case End():
                self._failed = message.failed
                if not self._over.done():
                    self._over.set_result(True)
            case Begin():
                self._start(message)

    def _now(self) -> int:
        return perf_counter_ns() - (0 if self._begin is None else self._begin.origin_ns)

    def _start(self, begin: Begin) -> None:
        self._begin = begin
        out = None if begin.out is None else Path(os.fsdecode(begin.out))
        try:
            if out is not None:
                self._earlier = set_aside(out)
            self._writer = writer = RunWriter.create(out, begin.name, no_text=False)
            traces = writer.path / TRACES
            traces.mkdir(exist_ok=True)
            log = os.open(writer.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except WindtunnelError as error:
            self.pipe.send(Refused(readable(str(error))))
            return
        except OSError as error:
            said = f"cannot create the run folder {out} ({error.strerror}): choose another --out"
            self.pipe.send(Refused(readable(said)))
            return
        for stream in (1, 2):
            os.dup2(log, stream)  # the terminal belongs to the agent
        os.close(log)
        writer.write_run(self._describe(begin))
        writer.emit(ev.RunStart(t=0, agents=0, wall_clock=begin.wall_clock))
        writer.emit(ev.Phase(t=0, phase="steady"))
        writer.flush()
        self._sink = _Sink(writer)
        self._recorder = Recorder(
            traces,
            self._sink,
            name=begin.name,
            client=begin.client,
            source=f"recorded from {begin.upstream}",
            origin_ns=begin.origin_ns,
            wall_clock=begin.wall_clock,
        )
        self._recorder.resume()
        for work in (self._beat(begin, writer, self._recorder), self._scrape(begin, writer)):
            self._tasks.append(asyncio.create_task(work))
            self._tasks[-1].add_done_callback(self._broke)
        self.pipe.send(Began(os.fsencode(writer.path)))

    def _broke(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)

    async def _beat(self, begin: Begin, writer: RunWriter, recorder: Recorder) -> None:
        """Progress four times a second, a sign of life every second."""
        lanes = 0
        due = 0.0
        while True:
            now = asyncio.get_running_loop().time()
            recorder.progress(perf_counter_ns())
            if now >= due:
                due = now + HEARTBEAT_S
                if (away := self._away()) is not None:
                    raise RunError(away)
                writer.emit(ev.Heartbeat(t=self._now()))
                if recorder.lanes != lanes:
                    lanes = recorder.lanes
                    writer.write_run(self._describe(begin))
            writer.flush()
            await asyncio.sleep(PROGRESS_S)

    async def _scrape(self, begin: Begin, writer: RunWriter) -> None:
        """The server's metrics every second, once it is known: beside the rest, for it may take its time to answer."""
        async with open_session() as session:
            scraper: Scraper | None = None
            while True:
                if scraper is None and (scraper := await self._find(begin, writer, session)) is None:
                    await asyncio.sleep(DETECT_S)
                    continue
                if (sample := await scraper.once(self._now())) is not None:
                    writer.emit(sample)
                await asyncio.sleep(HEARTBEAT_S)

    async def _find(self, begin: Begin, writer: RunWriter, session: aiohttp.ClientSession) -> Scraper | None:
        """The scraper of a server whose metrics are known."""
        try:
            adapter = await detect(begin.upstream, session)
        except EngineError:
            return None
        self._plain = not adapter.metric_names
        if self._plain:
            return None
        engine: dict[str, Any] = {"name": adapter.name}
        if adapter.name == Emulator.name:
            engine |= {"emulated": True, "emulation": self._engine.get("emulation")}
            with contextlib.suppress(EngineError):  # it went away meanwhile: that it is one is known
                engine["emulation"] = await emulation(session, begin.upstream)
            if self._recorder is not None:
                self._recorder.note(announced(engine["emulation"]))
        self._engine = engine
        with contextlib.suppress(EngineError):  # without a key it may not say more
            self._engine = _settings(await adapter.probe(session, begin.upstream, quiet=True)) | engine
        self._asked = True
        writer.write_run(self._describe(begin))
        return Scraper(session, begin.upstream, adapter.metric_names, path=adapter.metrics_path)

    async def _ask_last(self) -> None:
        """A server that was asked for something may have come late, or the recording have been short."""
        asked = self._recorder is not None and self._recorder.lanes
        known = self._asked or self._plain
        if known or not asked or self._begin is None or self._writer is None or self._broken is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S), open_session() as session:
                await self._find(self._begin, self._writer, session)

    def _describe(self, begin: Begin) -> dict[str, Any]:
        recorder = self._recorder
        models = [] if recorder is None else recorder.models
        return {
            "run_id": begin.name,
            "kind": KIND,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "proxy_pid": begin.proxy_pid,
            "argv": Redactor().words(begin.argv),
            "perf_counter_origin_ns": begin.origin_ns,
            "wall_clock": begin.wall_clock,
            "target": begin.upstream,
            "config": {"arrivals": "recorded"},
            "agents": 0 if recorder is None else recorder.lanes,
            "lengths_from": models,
            "engine": {"name": None, **self._engine, "model": models[0] if models else self._engine.get("model")},
        }


def _settings(resolved: Resolved) -> dict[str, Any]:
    """An engine as a run has it, but for what it can do, which was not tried."""
    told = engine_of(resolved)
    del told["capabilities"]
    return told


async def _main(fd: int) -> None:
    recording = Recording()
    await asyncio.get_running_loop().create_unix_connection(lambda: recording.pipe, sock=socket.socket(fileno=fd))
    await recording.serve()


if __name__ == "__main__":
    os.nice(NICE)
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_main(int(sys.argv[1])))
