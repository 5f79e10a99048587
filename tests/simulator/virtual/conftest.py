"""Virtual runs of sessions sketched by hand."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from windtunnel.agents import events as ev
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.simulator.run.virtual import VirtualRun
from windtunnel.traces.model import Trace
from windtunnel.traces.sources import Loaded

SMALL = "emulator --gpu H100 --model llama-3.1-8b --max-model-len 8192"


@dataclass
class Done:
    """A run's folder and what it said."""

    path: Path
    summary: Summary

    def events(self, kind: type) -> list[Any]:
        return [event for event in RunFolder.open(self.path).events() if isinstance(event, kind)]

    @property
    def calls(self) -> list[ev.CallEnd]:
        return self.events(ev.CallEnd)

    def data(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    @property
    def run(self) -> dict[str, Any]:
        return json.loads(self.data("run.json"))


def loaded(*traces: Trace) -> Loaded:
    return Loaded(traces=tuple(traces), paths=tuple(f"{trace.header.id}.jsonl" for trace in traces), problems=())


def config_of(**dials: Any) -> RunConfig:
    given = {"agents": 2, "ramp_s": 1.0, "start": "fresh", "warmup": Warmup(calls=1), "engine": SMALL, "virtual": True}
    return RunConfig(**{**given, **dials}).checked()


Virtually = Callable[..., Done]


@pytest.fixture
def virtually(tmp_path: Path) -> Virtually:
    """Runs traces; `prepare` may change the run before it begins."""
    runs = 0

    def run(
        *traces: Trace, leaps: bool = True, at: Callable[[VirtualRun, ev.Event], None] | None = None, **dials: Any
    ) -> Done:
        nonlocal runs
        runs += 1
        path = tmp_path / f"run{runs}"
        receivers = [] if at is None else [lambda event: at(made, event)]
        made = VirtualRun(config_of(**dials), loaded(*traces), path, leaps=leaps, receivers=receivers)
        return Done(path, made.run())

    return run
