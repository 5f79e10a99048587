"""From what a user names (a file, a folder, `library:NAME`, somebody else's log) to traces."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from windtunnel.traces import library
from windtunnel.traces.errors import TraceError
from windtunnel.traces.format import is_trace_file, read_trace
from windtunnel.traces.model import Problem, Trace
from windtunnel.traces.shapes import PREFIX, shape_traces

DEFAULT = "library:mixed"


class Loaded(Struct, frozen=True):
    traces: tuple[Trace, ...]
    problems: tuple[Problem, ...]
    """What could not be used of inputs that were otherwise fine."""
    paths: tuple[str, ...] = ()
    """File each trace was read from, absolute."""


def load(specs: Sequence[str], importer: str | None = None) -> Loaded:
    """Every trace the specs name, in their order; nothing named means the bundled library.

    `importer` is the format that all the specs have, where their content does not say or should not be asked.

    A spec is a trace file, a folder with traces or anything importable below it, an importable file, `library`,
    `library:NAME` with a session or a group, or `shape:512x512` for single calls of that size. Raises
    TraceError when a spec gives no session at all.
    """
    traces: list[Trace] = []
    problems: list[Problem] = []
    paths: list[str] = []
    seen: set[Path] = set()
    for spec in specs or (DEFAULT,):
        found = _load_one(spec, seen) if importer is None else _forced(spec, importer)
        problems += found.problems
        usable = [(t, path) for t, path in zip(found.traces, found.paths, strict=True) if t.calls]
        problems += [Problem(spec, None, f"session {t.header.id} has no calls") for t in found.traces if not t.calls]
        if found.traces and not usable:
            raise TraceError(f"{spec} holds no session with calls; give a trace that has some")
        traces += [t for t, _ in usable]
        paths += [path for _, path in usable]
    return Loaded(tuple(traces), tuple(problems), tuple(paths))


def _load_one(spec: str, seen: set[Path]) -> Loaded:
    if spec == "library" or spec.startswith("library:"):
        return _read(library_paths(spec), seen)
    if spec.startswith(PREFIX):
        shapes = shape_traces(spec)
        return Loaded(shapes, (), (spec,) * len(shapes))
    path = _path(spec)
    if path.is_dir():
        return _folder(spec, path, seen)
    if not path.is_file():
        raise TraceError(f"{spec} is neither a file nor a folder; give a trace, a folder, or library:NAME")
    if is_trace_file(path):
        return _checked(spec, _read([path], seen))
    found = _imported(path)
    if not found.traces:
        why = f" ({found.problems[0]})" if found.problems else ""
        raise TraceError(f"{spec} is no trace and no session log that can be imported{why}; see `windtunnel import`")
    return found


def _forced(spec: str, importer: str) -> Loaded:
    found = _imported(_path(spec), importer)
    if not found.traces:
        why = f" ({found.problems[0]})" if found.problems else ""
        raise TraceError(f"{spec} gives no session when read as {importer}{why}")
    return found


def _path(spec: str) -> Path:
    """The existing path a spec names, `~` resolved."""
    if not spec.strip():
        raise TraceError("an empty name is no trace; give a trace, a folder, or library:NAME")
    try:
        path = Path(spec).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TraceError(f"{spec} does not exist; give a trace, a folder, or library:NAME") from None
    except (OSError, RuntimeError, ValueError) as error:  # no permission, too long a name, no such home, a NUL byte
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TraceError(f"{spec[:200]} cannot be opened ({why}); give a trace, a folder, or library:NAME") from error
    return path


def library_paths(spec: str) -> list[Path]:
    """Files of `library`, `library:GROUP` or `library:SESSION`."""
    name = spec.partition(":")[2] or "mixed"
    chosen = library.groups().get(name, [name])
    try:
        return [library.path(n) for n in chosen]
    except KeyError:
        known = ", ".join((*library.groups(), *library.names(), *library.recorded()))
        raise TraceError(f"the library has no session or group {name!r}; choose from {known}") from None


def _folder(spec: str, path: Path, seen: set[Path]) -> Loaded:
    files = sorted(p for p in path.rglob("*") if p.is_file())
    if not os.access(path, os.R_OK | os.X_OK):
        raise TraceError(f"{spec} cannot be opened (Permission denied); give a folder that you may read")
    if not files:
        raise TraceError(f"{spec} is an empty folder; give one with traces or session logs in it")
    own = [p for p in files if is_trace_file(p)]
    found = _read(own, seen)
    if len(own) < len(files):
        ours = {str(p) for p in own}
        if own:  # that nothing else in the folder can be imported is no fault of it: a recording has more files
            ours.add(str(path))
        other = _imported(path)
        found = Loaded(
            found.traces + other.traces,
            found.problems + tuple(p for p in other.problems if p.file not in ours),
            found.paths + other.paths,
        )
    if not found.traces and (found.problems or not own):
        why = f" ({found.problems[0]})" if found.problems else ""
        raise TraceError(f"{spec} holds no trace and no session log that can be imported{why}")
    return found


def _checked(spec: str, found: Loaded) -> Loaded:
    if not found.traces and found.problems:
        raise TraceError(f"{spec} cannot be used: {found.problems[0].reason}")
    return found


def _read(paths: Sequence[Path], seen: set[Path]) -> Loaded:
    """Traces of files, each file once however often it is named."""
    traces: list[Trace] = []
    problems: list[Problem] = []
    files: list[str] = []
    for path in paths:
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        result = read_trace(path)
        traces += result.traces
        files += [str(real)] * len(result.traces)
        problems += result.problems
    return Loaded(tuple(traces), tuple(problems), tuple(files))


def _imported(path: Path, importer: str | None = None) -> Loaded:
    from windtunnel.traces.importers import import_path

    found = import_path(path, importer)
    files = tuple(str(_origin(trace, path)) for trace in found.traces)
    return Loaded(tuple(found.traces), tuple(found.problems), files)


def _origin(trace: Trace, path: Path) -> Path:
    """The log an imported trace was read from: importers put their name and the path into `source`."""
    told = Path((trace.header.source or "").partition(" ")[2])
    return (told if told.is_file() else path).resolve()
