"""The commands that read and write whole sets of sessions: import, list, export."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from windtunnel.simulator.cli_traces_look import complain, print_table
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Trace


def import_command(sources: Sequence[str], out: Path | None, *, as_json: bool, form: str | None = None) -> int:
    """Import, write one trace a session below `out`, print the table. `form` names the importer to use."""
    from windtunnel.traces.sources import load

    loaded = load(sources, form)
    complain(loaded.problems)
    if out is not None:
        write_traces(loaded.traces, out)
    print_table(loaded.traces, loaded.problems, as_json=as_json)
    return 0


def write_traces(traces: Sequence[Trace], out: Path) -> None:
    """One file a session in the folder `out`, named after the session."""
    from windtunnel.traces.format import write_trace

    for name, trace in zip(file_names(traces), traces, strict=True):
        write_trace(trace, out / f"{name}.jsonl.zst")
    print(f"wrote {len(traces)} trace{'' if len(traces) == 1 else 's'} to {out}", file=sys.stderr)


def list_command(sources: Sequence[str], *, as_json: bool) -> int:
    from windtunnel.traces.sources import load

    loaded = load(sources or ("library",))
    complain(loaded.problems)
    print_table(loaded.traces, loaded.problems, as_json=as_json)
    return 0


def export_command(sources: Sequence[str], form: str, out: Path | None) -> int:
    """Write traces in another program's format: to `out`, a file or, where each session has its own, a folder."""
    from windtunnel.simulator.results.text import count
    from windtunnel.traces.exporters import EXPORTERS, export
    from windtunnel.traces.sources import load

    loaded = load(sources or ("library",))
    complain(loaded.problems)
    exported = export(loaded.traces, form)
    complain(exported.problems)
    exporter = EXPORTERS[form]
    if out is None:
        if len(exported.files) > 1:
            raise UsageError(
                f"{form} takes a file for each of the {len(exported.files)} sessions: name a folder with --out"
            )
        sys.stdout.buffer.write(exported.files[0])
        return 0
    names = [out]
    if not exporter.one_file:
        names = [out / f"{name}{exporter.suffix}" for name in file_names(loaded.traces)]
    try:
        for name, data in zip(names, exported.files, strict=True):
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"{error.filename or out} cannot be written ({error.strerror}); choose another --out"
        ) from error
    print(f"wrote {count(len(loaded.traces), 'session')} to {out} as {form}", file=sys.stderr)
    return 0


def file_names(traces: Sequence[Trace]) -> list[str]:
    """A name for each trace, from its id; sessions of equal ids are numbered, so that none replaces another."""
    names: dict[str, None] = {}
    for trace in traces:
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", trace.header.id).strip("-.")[:200] or "trace"
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names[name] = None
    return list(names)
