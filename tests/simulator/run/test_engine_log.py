"""A started engine whose log tells of compilation while it serves: a whole run on the real clock."""

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest

from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.validity import REASONS
from windtunnel.simulator.run import run as running
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.traces.format import write_trace

from .conftest import NS, chain


@pytest.fixture(autouse=True)
def _signals():
    kept = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


def test_a_line_of_the_log_makes_the_run_invalid(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(running.gc, "freeze", lambda: None)
    write_trace(chain(calls=200, wait=0.0, out=5), tmp_path / "a.jsonl")
    program = Path(__file__).with_name("tiny_engine.py")
    config = RunConfig(
        traces=(str(tmp_path / "a.jsonl"),),
        engine=f"{sys.executable} {shlex.quote(str(program))} {{port}}",
        agents=2,
        ramp_s=0.0,
        warmup=Warmup(calls=1),
        pace="none",
        start="fresh",
        duration_s=1.8,
        out=str(tmp_path / "run"),
    )
    running.execute(config.checked(), as_json=False, screen=False, exit_when_done=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert "compilation" in summary["invalid_reasons"]
    said = capsys.readouterr()
    assert REASONS["compilation"] in said.out
    assert "the engine compiled while it served: INFO [kernel.py:7] Compiling a graph" in said.err
    notes = [e for e in RunFolder.open(tmp_path / "run").events() if getattr(e, "reason", None) == "compilation"]
    assert 0.9 * NS < notes[0].t < 2 * NS
