"""What an exporter gives back."""

from msgspec import Struct

from windtunnel.traces.model import Problem


class Exported(Struct, frozen=True):
    files: tuple[bytes, ...]
    problems: tuple[Problem, ...]
    """What the format cannot say; `file` is the session's id, `line` the call's."""
