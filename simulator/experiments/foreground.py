"""A command's work on an event loop of its own, which Ctrl-C, SIGTERM and SIGHUP end."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from windtunnel.simulator.run.viewer import say

T = TypeVar("T")
INTERRUPTED = 130
HUP = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
ENDING = (signal.SIGINT, signal.SIGTERM, *HUP)
"""Signals that end the work. Under nohup it goes on when its terminal is closed."""


def to_the_end(work: Coroutine[Any, Any, T], *, goes_on: str) -> T:
    """What `work` returns. Interrupted, it is cancelled, `goes_on` says how to take it up, and the process exits."""

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        for number in ENDING:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        say(f"interrupted; {goes_on}")
        sys.exit(INTERRUPTED)
