"""What an importer returns."""

from msgspec import Struct

from windtunnel.traces.model import Problem, Trace


class Imported(Struct, frozen=True):
    traces: tuple[Trace, ...] = ()
    problems: tuple[Problem, ...] = ()
