"""The whole of `windtunnel run` on the virtual clock: only sockets, processes and NVML are stand-ins.

Traces are read from files, the engine is detected, probed, reset and scraped, lanes run, everything is sampled, and the
folder, the summary and what is printed are the run's own. A minute takes some tenths of a second.
"""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from windtunnel.agents.clock import VirtualClock, _VirtualLoop
from windtunnel.agents.fake import Answer, Asked, FakeClient
from windtunnel.agents.reading import Reader
from windtunnel.simulator.engines.launch import Launched
from windtunnel.simulator.run import probe, samplers
from windtunnel.simulator.run import run as running
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.traces.format import write_trace
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.fleet import Table, compose_frame
from windtunnel.tui.theme import Theme
from windtunnel.tui.view import View

from ..conftest import FakeEngine  # noqa: TID252 -- tests are no package
from .conftest import chain

BLOCK = 128
PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} %d
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{engine="0"} %f
vllm:prompt_tokens_total{engine="0"} %d
vllm:generation_tokens_total{engine="0"} %d
"""


class Loop(_VirtualLoop):
    """A signal may be waited for and never comes; what would be done in a thread is done at once."""

    def add_signal_handler(self, *_):
        pass

    def run_in_executor(self, _, work, *args):
        done = self.create_future()
        done.set_result(work(*args))
        return done


class Nvml:
    """One GPU at its power limit, as under full load, which does no harm."""

    NVML_CLOCK_SM = 1
    NVMLError = RuntimeError

    def __init__(self):
        self.reasons = 0x4
        self.pids = []

    nvmlInit = nvmlShutdown = staticmethod(lambda: None)
    nvmlDeviceGetCount = staticmethod(lambda: 1)
    nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
    nvmlDeviceGetUtilizationRates = staticmethod(lambda _: SimpleNamespace(gpu=87))
    nvmlDeviceGetMemoryInfo = staticmethod(lambda _: SimpleNamespace(used=5, total=10))
    nvmlDeviceGetPowerUsage = staticmethod(lambda _: 640_000)
    nvmlDeviceGetClockInfo = staticmethod(lambda _handle, _kind: 1980)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _):
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, _):
        return [SimpleNamespace(pid=pid) for pid in self.pids]


class Server(FakeEngine):
    """Everything of an engine but its streams, which `FakeClient` has; asked without a socket."""

    def __init__(self):
        super().__init__()
        self.client: FakeClient | None = None
        self.served = 5000
        """Tokens generated before the run."""
        self.kv = 0.4
        self.late: float | None = None
        """Of an emulator: by what share of a step its tokens come too late; a second of steps passes between scrapes."""
        self.steps = 0
        self.door = self.app()
        self.door.freeze()

    async def _metrics(self, _):
        client = self.client
        counted = (client.prompt_tokens, self.served + client.generated_tokens)
        page = PAGE % (client.in_flight, self.kv, *counted)
        if self.late is not None:
            self.steps += 1
            page += f"windtunnel:step_seconds_total {self.steps}\n"
            page += f"windtunnel:step_behind_seconds_total {self.steps * self.late}\n"
        return web.Response(text=page)

    @asynccontextmanager
    async def request(self, verb, url, *, data=None, headers=None):
        body = aiohttp.StreamReader(mock.Mock(), 1 << 20, loop=asyncio.get_running_loop())
        body.feed_data(data or b"")
        body.feed_eof()
        asked = make_mocked_request(verb, "/" + url.split("/", 3)[3], payload=body, app=self.door)
        try:
            answer = await self.door._handle(asked)
        except web.HTTPException as error:
            answer = error

        content = aiohttp.StreamReader(mock.Mock(), 1 << 20, loop=asyncio.get_running_loop())
        content.feed_data(answer.body or b"")
        content.feed_eof()
        yield SimpleNamespace(status=answer.status, content=content)


class Process(Launched):
    """A started engine whose log is a file and whose end is told."""

    rig: "Rig"

    @classmethod
    def start(cls, command, log_path, **_):
        log_path.write_text("INFO it starts\n")
        made = cls(mock.Mock(), 1 << 22, (command,), 8000, log_path)
        cls.rig.process = made
        return made

    def exited(self):
        return None

    async def wait_ready(self, *_, **__):
        pass

    async def wait_exit(self):
        await asyncio.Event().wait()
        return 0

    async def stop(self):
        return 0


class Shared:
    """Two client processes; the second dies at a given moment."""

    pids = (1 << 22, 1 << 22)
    blocked = 0

    def __init__(self, client, dies_s):
        self.client, self.dies_s = client, dies_s
        self.reader = Reader(now_ns=client.clock.now_ns)
        self.stream, self.close = client.stream, client.close
        self.open, self.finish, self.forget = self.reader.open, self.reader.finish, self.reader.forget
        self.catch_up = self.reader.catch_up

    def health(self):
        return []

    async def wait_lost(self):
        await self.client.clock.sleep(self.dies_s)
        return "client process 2 of 2 is lost with its streams: it was killed by SIGKILL"


@dataclass
class Seen:
    """What a run left behind and what was shown of it."""

    folder: Path
    code: int
    printed: str
    talk: str
    live: Path

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_bytes())


@dataclass
class Rig:
    """Set it up, then `go`. Times are virtual seconds."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    clock: VirtualClock = field(default_factory=VirtualClock)
    nvml: Nvml = field(default_factory=Nvml)
    server: Server = field(default_factory=Server)
    cpu: float = 0.1
    """Share of a core that the client uses."""
    answer: Callable[[Asked], Answer] = lambda _: Answer()
    look_s: float = 50.0
    """When the folder is copied: as a viewer sees a live run, and as SIGKILL would leave it."""
    loses_worker_s: float = 30.0
    process: Process | None = None

    def __post_init__(self):
        self.client = self.server.client = FakeClient(self.clock, self._answer, unit=BLOCK)
        self._beside: set[asyncio.Task[Any]] = set()
        self._at: list[tuple[float, Callable[[], Any]]] = []

    def _answer(self, asked: Asked) -> Answer:
        return self.answer(asked)

    def at(self, seconds: float, what: Callable[[], Any]) -> None:
        """Do something while the run goes on; a coroutine function runs beside it."""
        self._at.append((seconds, what))

    def hold(self, seconds: float) -> None:
        """Time passes and the event loop does nothing."""
        self.clock._loop_time.seconds += seconds

    def go(self, *, calls: int = 20, **dials: Any) -> Seen:
        """One run through the door that the command line uses."""
        traces = self.path / "traces"
        traces.mkdir()
        for number in range(4):
            write_trace(chain(f"t{number}", calls), traces / f"t{number}.jsonl")
        given = {"agents": 4, "ramp_s": 2.0, "start": "fresh", "warmup": Warmup(calls=1), "duration_s": 60.0}
        where = {} if "engine" in dials else {"target": "http://127.0.0.1:8000"}
        folder = self.path / "run"
        config = RunConfig(traces=(str(traces),), out=str(folder), **{**given, **where, **dials}).checked()
        live = self.path / "live"
        self.at(self.look_s, lambda: shutil.copytree(folder, live))
        self._stand_in()
        code = running.execute(config, as_json=False, screen=False, exit_when_done=True)
        said = self.capsys.readouterr()
        return Seen(folder, code, said.out, said.err, live)

    def _stand_in(self) -> None:
        @asynccontextmanager
        async def session(_=None):
            yield self.server

        async def shared(*_, **__):
            return Shared(self._begun(), self.loses_worker_s)

        Process.rig = self
        put = self.monkeypatch.setattr
        put(running, "loop_factory", lambda: lambda: Loop(self.clock._loop_time))
        put(running, "RealClock", lambda: self.clock)
        put(running, "open_session", session)
        put(running, "StreamClient", lambda _: self._begun())
        put(running, "Launched", Process)
        put(running, "Workers", SimpleNamespace(start=shared))
        put(running, "gc", mock.Mock())
        put(samplers, "group_members", lambda _: frozenset())
        put(probe, "time", SimpleNamespace(process_time=lambda: self.cpu * self.clock.now_ns() / 1e9))
        self.monkeypatch.setitem(sys.modules, "pynvml", self.nvml)

    def _begun(self) -> FakeClient:
        for seconds, what in self._at:
            self._beside.add(asyncio.create_task(self._later(seconds, what)))
        return self.client

    async def _later(self, seconds: float, what: Callable[[], Any]) -> None:
        await self.clock.sleep(seconds)
        done = what()
        if asyncio.iscoroutine(done):
            await done


def shown(folder: Path, width: int = 240) -> tuple[View, str]:
    """What the viewer makes of a folder, and the top of its screen."""
    follower = Follower.open(folder, time.time, lambda: 0.0, whole=True)
    view = follower.poll()
    follower.close()
    return view, "\n".join(screen(view, width).split("\n")[:3])


def screen(view: View, width: int = 240) -> str:
    """Everything that the fleet's screen says."""
    lines = compose_frame(view, Table(), width, 40, Theme()).lines
    return "\n".join("".join(text for text, _ in line) for line in lines)


def killed(folder: Path) -> None:
    """Of a copied folder: the process that wrote it is not there any more."""
    run = msgspec.json.decode((folder / "run.json").read_bytes())
    (folder / "run.json").write_bytes(msgspec.json.encode({**run, "pid": 1 << 22}))
