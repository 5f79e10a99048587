"""Everything that is wrong with given traces, each with its file and line: damage, broken promises, contradictions."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.check import broken_promises, contradictions
from windtunnel.traces.errors import TraceError
from windtunnel.traces.format import is_trace_file, read_trace
from windtunnel.traces.model import Problem, Trace
from windtunnel.traces.sources import Loaded, load


class Validation(Struct, frozen=True):
    files: int
    """Files that sessions were read from."""
    sessions: int
    calls: int
    problems: tuple[Problem, ...]
    """Format faults in the order of their files, then each session's own."""


def validate(specs: Sequence[str], importer: str | None = None) -> Validation:
    """Check what the specs name as `load` takes them; raises TraceError only for what cannot be opened at all."""
    traces: list[Trace] = []
    paths: list[str] = []
    problems: list[Problem] = []
    shown: dict[str, str] = {}
    for spec in specs or ("library",):
        found = _load(spec, importer)
        traces += found.traces
        paths += found.paths
        problems += found.problems
        shown |= {path: _as_given(path, spec) for path in found.paths}
    places: dict[str, list[tuple[Trace, dict[tuple[str, int], int]]]] = {}
    for trace, path in zip(traces, paths, strict=True):
        problems += [replace(p, file=shown[path]) for p in _faults(trace, path, places)]
    return Validation(len(set(paths)), len(traces), sum(len(t.calls) for t in traces), tuple(dict.fromkeys(problems)))


def _load(spec: str, importer: str | None) -> Loaded:
    """What a spec names; where it gives no session the reason is a problem like others."""
    try:
        return load([spec], importer, once=False)
    except TraceError:
        path = Path(spec).expanduser()
        if not path.exists():
            raise
        problems = _why(path, importer) or (Problem(spec, None, "holds no session with calls"),)
        return Loaded((), problems)


def _as_given(path: str, spec: str) -> str:
    """A file by the name that the user gave it, or that of its folder."""
    given = Path(spec).expanduser()
    try:
        return str(given / Path(path).relative_to(given.resolve()))
    except (OSError, ValueError):
        return path


def _why(path: Path, importer: str | None) -> tuple[Problem, ...]:
    if path.is_file() and is_trace_file(path):
        return read_trace(path).problems
    from windtunnel.traces.importers import import_path

    return tuple(import_path(path, importer).problems)


def _faults(
    trace: Trace, path: str, places: dict[str, list[tuple[Trace, dict[tuple[str, int], int]]]]
) -> list[Problem]:
    """What is wrong with a session; the line where it is one of a trace file."""
    broken = broken_promises(trace)
    found = [*broken, *(() if broken else contradictions(trace))]
    if not found:
        return []
    if path not in places:
        places[path] = []
        if is_trace_file(Path(path)):
            again = read_trace(Path(path), places=True)
            places[path] = list(zip(again.traces, again.places, strict=True))
    lines = next((lines for other, lines in places[path] if other == trace), {})
    return [Problem(path, lines.get((f.kind, f.id)), f.reason) for f in found]
