"""The folder that a run writes into, held open: it may be moved or deleted while the run goes on."""

import contextlib
import os
from pathlib import Path

from windtunnel.traces.errors import RunError

PARTIAL = ".{}.partial"
"""What a file is called until it is whole."""


class Place:
    """Files are put into the folder itself, wherever it lies by now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Where it was seen last."""
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._known = _identity(os.fstat(self._fd))

    def look(self) -> str | None:
        """One sentence when the folder has moved since the last look, and `path` is where it lies now.

        RunError when it is gone, or nobody can tell where to.
        """
        if self._lies_at(self.path):
            return None
        was = self.path
        try:
            now = Path(os.readlink(f"/proc/self/fd/{self._fd}"))  # noqa: PTH115 -- the kernel's word, not a path of ours
        except OSError:
            now = None
        if now is not None and self._lies_at(now):
            self.path = now
            return f"the run folder {was} was moved while the run went on: its results go to {now}"
        raise RunError(
            f"the run folder {was} was deleted or moved away while the run went on: its results cannot be kept,"
            " run again and leave the folder where it is"
        )

    def put(self, name: str, data: bytes) -> None:
        """Writes a file whole or not at all. OSError, RunError where the folder is gone."""
        partial = PARTIAL.format(name)
        try:
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666, dir_fd=self._fd)
        except FileNotFoundError:
            self.look()
            raise
        try:
            with open(fd, "wb", buffering=0) as file:  # noqa: PTH123 -- a number, not a path
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
            os.replace(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    def _lies_at(self, path: Path) -> bool:
        try:
            return _identity(path.stat()) == self._known
        except OSError:
            return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
