"""A signal at any moment: exit code 130 and one true sentence."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.simulator.run import run as running
from windtunnel.simulator.run.config import RunConfig
from windtunnel.traces.sources import Loaded


@pytest.fixture(autouse=True)
def _signals():
    kept = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


def go():
    return running.execute(RunConfig().checked(), as_json=False, screen=False, exit_when_done=True)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_while_traces_are_read(signum, monkeypatch):
    # These tests may themselves run under nohup.
    monkeypatch.setattr(running, "ENDING", frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
    monkeypatch.setattr(running, "load", lambda _: os.kill(os.getpid(), signum))
    with pytest.raises(KeyboardInterrupt):
        go()


@pytest.mark.parametrize(
    ("folder", "said"),
    [(None, "interrupted before the run began"), ("runs/x", "interrupted at once: what was written is in runs/x")],
)
def test_what_is_said_when_all_is_dropped(folder, said, monkeypatch, capsys):
    async def main(run):
        run.folder = None if folder is None else Path(folder)
        raise asyncio.CancelledError

    monkeypatch.setattr(running, "load", lambda _: Loaded((), ()))
    monkeypatch.setattr(running.Run, "main", main)
    assert go() == 130
    assert capsys.readouterr() == ("", f"{said}\n")


def test_under_nohup_a_hangup_is_ignored():
    code = "from windtunnel.simulator.run.run import ENDING; print(sorted(s.name for s in ENDING))"

    def said(**more):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **more).stdout

    listening = said(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    assert listening == "['SIGHUP', 'SIGINT', 'SIGTERM']\n"
    ignoring = said(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert ignoring == "['SIGINT', 'SIGTERM']\n"
