"""What a signal does to a command's work."""

import asyncio
import os
import signal

import pytest

from windtunnel.simulator.experiments.foreground import INTERRUPTED, to_the_end


def test_work_that_ends_returns_what_it_found():
    async def work():
        return 42

    assert to_the_end(work(), goes_on="x") == 42


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_work_and_says_how_to_go_on(number, capsys):
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
