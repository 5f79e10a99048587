"""From what a user names (a file, a folder, `library:NAME`, somebody else's log) to traces."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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


def load(specs: Sequence[str], importer: str | None = None, *, once: bool = True) -> Loaded:
    """Every trace the specs name, in their order; nothing named means the bundled library.

    `importer` is the format that all the specs have, where their content does not say or should not be asked.

    A spec is a trace file, a folder with traces or anything importable below it, an importable file, `library`,
    `library:NAME` with a session or a group, or `shape:512x512` for single calls of that size. Raises
    TraceError when a spec gives no session at all. A file comes once however often it is named, with `once` a request
    however many logs have it, and that is told.
    """
    traces: list[Trace] = []
    problems: list[Problem] = []
    paths: list[str] = []
    seen = _Seen()
    for spec in specs or (DEFAULT,):
        before = seen.again
        found = _load_one(spec, seen) if importer is None else _forced(spec, importer, seen)
        if again := seen.again - before:
            what = "it was named before and is" if again == 1 else f"{again:,} files of it were named before and are"
            problems.append(Problem(spec, None, f"{what} used once"))
        problems += found.problems
        usable = [(t, path) for t, path in zip(found.traces, found.paths, strict=True) if t.calls]
        problems += [Problem(spec, None, f"session {t.header.id} has no calls") for t in found.traces if not t.calls]
        if found.traces and not usable:
            raise TraceError(f"{spec} holds no session with calls; give a trace that has some")
        traces += [t for t, _ in usable]
        paths += [path for _, path in usable]
    loaded = Loaded(tuple(traces), tuple(problems), tuple(paths))
    return _each_once(loaded, seen, specs) if once else loaded


def _each_once(found: Loaded, seen: "_Seen", specs: Sequence[str]) -> Loaded:
    """Every request of a log once over all that was named.

    A shape's calls are meant as often as they are named, and so are traces that were given ids of their own.
    """
    named = {(trace.header.id, path) for trace, path in zip(found.traces, found.paths, strict=True)}
    ids = Counter(name for name, _ in named)
    told_apart = {i for i, t in enumerate(found.traces) if found.paths[i] in seen.traces and ids[t.header.id] == 1}
    at = [i for i, path in enumerate(found.paths) if not path.startswith(PREFIX) and i not in told_apart]
    if len(at) < 2:
        return found
    from windtunnel.traces.importers.copies import each_once

    # A log's path is in its source; of a trace's file the source may be another machine's log.
    own = {i for i in at if found.paths[i] in seen.traces}
    kept, told = each_once([_from(found.traces[i], f"trace {found.paths[i]}" if i in own else None) for i in at])
    if not told:
        return found
    among = set(at)
    chosen = {at[place]: _from(trace, found.traces[at[place]].header.source) for place, trace in kept.items()}
    chosen |= {i: trace for i, trace in enumerate(found.traces) if i not in among}
    gone = len(found.traces) - len(chosen)
    counts = [(gone, "are left out, as other sessions have all of their calls")]
    counts.append((len(told) - gone, "come without the calls that they begin with, as other sessions made them"))
    what = "; ".join(f"{number:,} {how}" for number, how in counts if number)
    where = ", ".join(specs) if len(specs) < 4 else f"{specs[0]} and {len(specs) - 1:,} more"
    total = Problem(where, None, f"of {len(found.traces):,} sessions {what}")
    order = sorted(chosen)
    return Loaded(
        tuple(chosen[i] for i in order),
        (total, *found.problems, *told) if len(told) > 1 else (*found.problems, *told),
        tuple(found.paths[i] for i in order),
    )


def _from(trace: Trace, source: str | None) -> Trace:
    if source is None or trace.header.source == source:
        return trace
    return replace(trace, header=replace(trace.header, source=source))


class _Seen:
    """What was read already, and how often something of it was named again."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self.traces: set[str] = set()
        """The trace files among it."""
        self.again = 0

    def is_new(self, path: Path) -> bool:
        real = path.resolve()
        new = real not in self._paths
        self._paths.add(real)
        self.again += not new
        return new


def _load_one(spec: str, seen: _Seen) -> Loaded:
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
    if not seen.is_new(path):
        return Loaded((), ())
    found = _imported(path)
    if not found.traces:
        why = f" ({found.problems[0]})" if found.problems else ""
        raise TraceError(f"{spec} is no trace and no session log that can be imported{why}; see `windtunnel import`")
    return found


def _forced(spec: str, importer: str, seen: _Seen) -> Loaded:
    path = _path(spec)
    if not seen.is_new(path):
        return Loaded((), ())
    found = _imported(path, importer)
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


def _folder(spec: str, path: Path, seen: _Seen) -> Loaded:
    files = sorted(p for p in path.rglob("*") if p.is_file())
    if not os.access(path, os.R_OK | os.X_OK):
        raise TraceError(f"{spec} cannot be opened (Permission denied); give a folder that you may read")
    if not files:
        raise TraceError(f"{spec} is an empty folder; give one with traces or session logs in it")
    own = [p for p in files if is_trace_file(p)]
    found = _read(own, seen)
    if len(own) < len(files):
        if not seen.is_new(path):
            return found
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
        if (said := _run(path)) is not None:
            raise TraceError(f"{spec} is {said}")
        why = f" ({found.problems[0]})" if found.problems else ""
        raise TraceError(f"{spec} holds no trace and no session log that can be imported{why}")
    return found


def _run(folder: Path) -> str | None:
    """What to do with a run's folder; None where it is none."""
    about = folder / "run.json"
    try:
        found = msgspec.json.decode(about.read_bytes()) if about.is_file() else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or not str(found.get("schema")).startswith("windtunnel.run/"):
        return None
    if found.get("kind") == "recording":
        return "a recording in which no session was kept; give another one"
    return (
        f"a run and holds no sessions: give a recording's folder or the traces that it replayed; "
        f"`windtunnel why {folder}` tells of its prompts"
    )


def _checked(spec: str, found: Loaded) -> Loaded:
    if not found.traces and found.problems:
        raise TraceError(f"{spec} cannot be used: {found.problems[0].reason}")
    return found


def _read(paths: Sequence[Path], seen: _Seen) -> Loaded:
    """Traces of files, each file once however often it is named."""
    traces: list[Trace] = []
    problems: list[Problem] = []
    files: list[str] = []
    for path in paths:
        if not seen.is_new(path):
            continue
        result = read_trace(path)
        traces += result.traces
        files += [str(path.resolve())] * len(result.traces)
        seen.traces.add(str(path.resolve()))
        problems += result.problems
    return Loaded(tuple(traces), tuple(problems), tuple(files))


def _imported(path: Path, importer: str | None = None) -> Loaded:
    from windtunnel.traces.importers import import_path

    found = import_path(path, importer, once=False)  # what comes once is told over all that is named
    files = tuple(str(_origin(trace, path)) for trace in found.traces)
    return Loaded(tuple(found.traces), tuple(found.problems), files)


def _origin(trace: Trace, path: Path) -> Path:
    """The log an imported trace was read from: importers put their name and the path into `source`."""
    told = Path((trace.header.source or "").partition(" ")[2])
    return (told if told.is_file() else path).resolve()
