"""What an importer returns."""

from msgspec import Struct
from msgspec.structs import force_setattr

from windtunnel.traces.importers.clocks import STEPPED
from windtunnel.traces.model import Problem, Trace


class Imported(Struct, frozen=True):
    traces: tuple[Trace, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        """Every format's sessions are told of whose clock went back, in one place."""
        told = {problem.file for problem in self.problems if problem.reason.startswith(STEPPED)}
        for trace in self.traces:
            file = (trace.header.source or "").partition(" ")[2] or trace.header.id
            said = next((note for note in trace.header.notes if note.startswith(STEPPED)), None)
            if said is not None and file not in told:
                force_setattr(self, "problems", (*self.problems, Problem(file, None, said)))
