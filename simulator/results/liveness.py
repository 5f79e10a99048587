"""Whether a run is going on, over, or dead: told from its folder alone."""

import os
import socket
from pathlib import Path
from typing import Literal

from windtunnel.simulator.results.store import EVENTS_FILE, RUN_FILE, SUMMARY_FILE, RunFolder

RunState = Literal["running", "finished", "died"]
SILENCE_S = 5.0
"""A run writes a heartbeat each second; one that wrote nothing for longer is dead unless its process is there."""


def state(folder: RunFolder, now_wall: float) -> RunState:
    """`now_wall` is Unix time. A process on another machine is judged by the age of what it wrote last."""
    if (folder.path / SUMMARY_FILE).exists():
        return "finished"
    alive = _process_alive(folder)
    if alive is None:
        alive = now_wall - last_written(folder) <= SILENCE_S
    if alive:
        return "running"
    # The run may have written its summary and left between the two looks.
    return "finished" if (folder.path / SUMMARY_FILE).exists() else "died"


def last_written(folder: RunFolder) -> float:
    """Unix time of the last sign of life."""
    newest = 0.0
    for name in (EVENTS_FILE, RUN_FILE):
        try:
            newest = max(newest, (folder.path / name).stat().st_mtime)
        except OSError:
            continue
    return newest


def _process_alive(folder: RunFolder) -> bool | None:
    """None where it cannot be told: another machine, no process id, or a system without /proc."""
    pid, host = folder.run.get("pid"), folder.run.get("host")
    if not isinstance(pid, int) or host != socket.gethostname():
        return None
    anchor = folder.run.get("wall_clock")
    return process_alive(pid, anchor if isinstance(anchor, int | float) else None)


def process_alive(pid: int, since: float | None) -> bool | None:
    """Whether a process of this machine is there and was at `since` (Unix time); None where it cannot be told."""
    if pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")
        )
    except (OSError, StopIteration):
        return None
    if fields[0] in "ZX":
        return False
    started = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    # A process that began later has only inherited the number.
    return since is None or started <= since + 2.0
