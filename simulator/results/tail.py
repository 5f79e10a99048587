"""Reading `events.jsonl` in steps, while it grows: a step takes as long as what it reads is long, whatever is in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from windtunnel.agents.events import Event
from windtunnel.simulator.results.files import open_regular
from windtunnel.simulator.results.lines import decode_lines
from windtunnel.traces.model import Problem

_KEPT_PROBLEMS = 1000
LONGEST_LINE = 1 << 28
"""Bytes. Longer ones are no events: they are read over, and not kept."""


class Tail:
    """Follows `events.jsonl`: each `poll` gives what was added since the last one."""

    def __init__(self, path: Path, leave_out: Sequence[str] = (), *, agents: int | None = None, start: int = 0) -> None:
        """`start`: where a line begins; what comes before it is not read."""
        self.path = path
        self.leave_out = leave_out
        """Types of events that are not wanted."""
        self.agents = agents
        """How many there are, where that is known: see `decode_lines`."""
        self.problems: list[Problem] = []
        self.partial = bytearray()
        """Bytes after the last line end: a line that is still being written, or never was finished."""
        self.line = 1
        """Number of the next line."""
        self.read = start
        """Bytes."""
        self.ended = True
        """The last step reached the end of what there is."""
        self._too_long = False
        self._file: BinaryIO | None = None

    def poll(self, limit: int = 1 << 26) -> list[Event]:
        """New events; an empty list when nothing was added. Reads about `limit` bytes, and a long line to its end."""
        while not (out := self.step(limit)) and not self.ended:
            pass
        return out

    def step(self, limit: int) -> list[Event]:
        """As `poll`, but never more than `limit` bytes: without events there may be more to read, see `ended`."""
        if self._file is None:
            try:
                self._file = open_regular(self.path)
                self._file.seek(self.read)
            except FileNotFoundError:
                self.ended = True
                return []
        added = self._file.read(limit)
        self.ended = not added
        if not added:
            return []
        self.read += len(added)
        cut = added.rfind(b"\n") + 1
        if not cut:
            self._keep(added)
            return []
        self._keep(added[:cut])
        whole, self.partial = bytes(self.partial), bytearray()
        if self._too_long:
            self._too_long = False
            self.problems.append(Problem(str(self.path), self.line, f"longer than {LONGEST_LINE >> 20} MiB"))
            self.line += 1
            whole = added[added.find(b"\n") + 1 : cut]
        self.partial += added[cut:]
        out = decode_lines(whole, str(self.path), self.line, self.problems, self.leave_out, self.agents)
        self.line += whole.count(b"\n")
        del self.problems[_KEPT_PROBLEMS:]
        return out

    def _keep(self, added: bytes) -> None:
        self.partial += added
        if len(self.partial) > LONGEST_LINE and b"\n" not in added:
            self._too_long = True
            self.partial.clear()

    @property
    def left(self) -> int:
        """Bytes of the file that have not been read."""
        try:
            return max(0, self.path.stat().st_size - self.read)
        except OSError:
            return 0

    @property
    def unread(self) -> float:
        """Share of the file that has not been read."""
        return self.left / (self.read + self.left) if self.left else 0.0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
