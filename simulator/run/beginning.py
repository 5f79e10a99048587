"""From the making of a run's folder until the run begins: what ends it there leaves no folder that says nothing."""

import asyncio
import contextlib
from collections.abc import Iterator

from windtunnel.simulator.results import full_disk
from windtunnel.simulator.results.store import ENGINE_LOG, EVENTS_FILE, RUN_FILE, TEXT_FILE, RunWriter
from windtunnel.simulator.results.unstarted import UNSTARTED_FILE
from windtunnel.traces.errors import WindtunnelError

INTERRUPTED = "interrupted before the run began"


@contextlib.contextmanager
def beginning(writer: RunWriter) -> Iterator[None]:
    """Of a run that did not begin the engine's log stays, with the reason; where that is empty, nothing.

    One that the disk had no room for any more is ended as failed.
    """
    reason = "it broke off before the run began"
    full = False
    try:
        yield
    except WindtunnelError as error:
        reason, full = str(error), full_disk.is_full(error)
        raise
    except (asyncio.CancelledError, KeyboardInterrupt):
        reason = INTERRUPTED
        raise
    finally:
        writer.close()
        if not (writer.path / RUN_FILE).exists():
            with contextlib.suppress(OSError):  # the error that ended it is told, not this one
                _leave(writer, reason)
        elif full:
            full_disk.conclude(writer.path)


def _leave(writer: RunWriter, reason: str) -> None:
    folder = writer.path
    for name in (EVENTS_FILE, TEXT_FILE, ENGINE_LOG):
        path = folder / name
        if path.exists() and not path.stat().st_size:
            path.unlink()
    if (folder / ENGINE_LOG).exists():
        (folder / UNSTARTED_FILE).write_text(f"{reason}\n", encoding="utf-8")
    elif writer.made:
        folder.rmdir()
