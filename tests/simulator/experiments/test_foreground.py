"""What a signal does to a command's work."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from windtunnel.simulator.experiments import foreground
from windtunnel.simulator.experiments.foreground import INTERRUPTED, to_the_end


def test_work_that_ends_returns_what_it_found():
    async def work():
        return 42

    assert to_the_end(work(), goes_on="x") == 42


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_the_work_and_says_how_to_go_on(number, capsys, monkeypatch):
    # These tests may themselves run under nohup.
    monkeypatch.setattr(foreground, "ENDING", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    undone = []

    async def work():
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            undone.append("closed")

    with pytest.raises(SystemExit) as ended:
        to_the_end(work(), goes_on="the same command goes on in here")
    assert ended.value.code == INTERRUPTED == 130
    assert undone == ["closed"]
    assert "interrupted; the same command goes on in here" in capsys.readouterr().err


@pytest.mark.parametrize(("before", "heard"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)])
def test_under_nohup_a_hangup_is_ignored(before, heard):
    code = "from windtunnel.simulator.experiments.foreground import ENDING; print(*(s.name for s in ENDING))"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, before),
    ).stdout.split()
    assert said == ["SIGINT", "SIGTERM", *(["SIGHUP"] if heard else [])]
